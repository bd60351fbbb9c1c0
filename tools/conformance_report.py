"""docs/conformance.md: what is met, what deviates and why, what is not there yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from moot.conformance.manifest import DOCUMENTS, RequirementRow, load_document

Shown = Mapping[str, Sequence[str]]


_NOTE = (
    "Written by `make docs` from the manifest, the vectors and the marks on tests. "
    "Words are ours, ids are those of our reading of the documents; `D-…` names a ruling in "
    "[decisions](decisions/rulings.md)."
)
_TITLES = {"met": "Met", "deviates": "Deviates, and why", "not yet": "Not yet, and why"}


def page(shown: Shown) -> str:
    """The whole page; `shown` tells by which vectors and tests each row is shown."""
    documents = {name: load_document(name) for name in DOCUMENTS}
    parts = ["# Conformance", _NOTE, _summary(documents, shown)]
    for name, title in DOCUMENTS.items():
        if tables := [*_tables(documents[name], shown)]:
            parts += [f"## {title}", *tables]
    return "\n\n".join(parts) + "\n"


def _status(id: str, row: RequirementRow, shown: Shown) -> str:
    if row.deviates:
        return "deviates"
    return "met" if shown.get(id) else "not yet"


def _summary(documents: Mapping[str, Mapping[str, RequirementRow]], shown: Shown) -> str:
    lines = ["| document | level | rows | met | deviates | not yet |", "|---|---|---|---|---|---|"]
    for name, rows in documents.items():
        for level in ("MUST", "SHOULD", "MAY", "implied"):
            found = [_status(id, row, shown) for id, row in rows.items() if row.level == level]
            if found:
                counts = " | ".join(str(found.count(status)) for status in ("met", "deviates", "not yet"))
                lines.append(f"| {DOCUMENTS[name]} | {level} | {len(found)} | {counts} |")
    return "\n".join(lines)


def _tables(rows: Mapping[str, RequirementRow], shown: Shown) -> Iterable[str]:
    for status, title in _TITLES.items():
        found = {id: row for id, row in rows.items() if _status(id, row, shown) == status}
        if not found:
            continue
        yield f"### {title}"
        last = {"met": "shown by", "deviates": "why", "not yet": "waits for"}[status]
        lines = [f"| id | level | what | {last} |", "|---|---|---|---|"]
        for id, row in found.items():
            ruling = (
                f" ({', '.join([row.ruling] if isinstance(row.ruling, str) else row.ruling)})"
                if row.ruling
                else ""
            )
            why = {
                "met": "; ".join(shown.get(id, ())[:3]) + (" …" if len(shown.get(id, ())) > 3 else ""),
                "deviates": row.deviates,
                "not yet": row.waits,
            }[status]
            lines.append(f"| {id} | {row.level} | {_cell(row.words)}{ruling} | {_cell(why or '')} |")
        yield "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
