"""The narrowest templates for values of one kind: what was seen stays, what is always new becomes a slot.

Values are compared only with the same skeleton: the same atoms with the same fixed texts. An atom in it that
keeps coming back is listed, and each of its values gets templates of its own, so that no pair is allowed that
was never seen together. Only atoms that are mostly new become slots, as far as their role allows.

A *wide* cover also has slots for names, and opens folders and hosts below which many different ones were
seen. Where something was rejected below it, the narrow one is tried.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from moot.values.atoms import NAME, Atom
from moot.values.kinds import ValueKind, read_value
from moot.values.patches import patch_files
from moot.values.templates import MAX_TEXT_CHARS, Slot, ValueTemplate, join_parts
from moot.values.word_lists import is_guarded, is_secret

# This many different values make a slot where the structure says what they are: hashes, dates, ids.
MIN_NEW_VALUES: Final = 5
# A range holds nothing that is larger or smaller than what was seen: fewer numbers make one.
MIN_NEW_NUMBERS: Final = 3
# Names are a matter of judgement: they have a slot only where this argument had so many different ones, and
# some of them stood in the very same place. Names of files are new more often than not.
MIN_NAMES: Final = 15
MIN_NAMES_HERE: Final[dict[ValueKind, int]] = {
    "shell": 3,
    "url": 3,
    "email": 3,
    "path": 5,
    "patch": 5,
    "sql": 10,
}
MIN_FILES_HERE: Final = 2
# The share of them that must have been seen only once: a closed list must not look like an open one.
MIN_SINGLE_NAMES: Final = 0.3
# Below a folder or a host everything is like what was seen, if so many different names stood there.
MIN_FOLDERS: Final = 5
MIN_PAGES: Final = 2
MIN_REPEATS: Final = 2
MAX_VALUES: Final = 24
MAX_ENDINGS: Final = 6
# The share of values seen only once above which new ones are expected (Good-Turing estimate).
MAX_SINGLE_SHARE: Final = 0.1

Row = tuple[Atom, ...]


@dataclass(frozen=True, slots=True)
class TemplateCover:
    """A template, how many values stand behind it, and the fewest different ones behind a slot."""

    template: ValueTemplate
    support: int
    first_times: int | None


def cover_values(
    kind: ValueKind,
    values: Sequence[str],
    *,
    stored: bool = False,
    wide: bool = True,
) -> list[TemplateCover]:
    """Templates for these values, the best supported first; values that cannot be read have none.

    `stored` says whether the tool only stores texts.
    """
    rows = _read(kind, values)
    if kind == "text":
        return _cover_texts(rows, stored=stored)
    names = {
        role: len(set(texts)) >= MIN_NAMES and not values_recur(Counter(texts))
        for role in ("name", "stem", "digits", "hex", "uuid")
        for texts in [[atom.text for row in rows for atom in row if atom.role == role]]
        if wide or role != "name"
    }
    opened: list[TemplateCover] = []
    if wide and kind in ("path", "patch", "url"):
        opened = list(_open_hosts(rows) if kind == "url" else _open_folders(kind, rows))
        rows = [row for row in rows if not _is_within(row, opened)]
    found = [cover for group in _by_skeleton(rows).values() for cover in _solve(kind, group, names)]
    if wide and kind == "id":
        found += _open_ids([row for row in rows if not _is_within(row, found)])
    return sorted([*opened, *found], key=lambda cover: (not cover.template.slots, -cover.support))


def _is_within(row: Row, covers: Sequence[TemplateCover]) -> bool:
    text = "".join(atom.text for atom in row)
    return any(cover.template.matches(text) for cover in covers)


def _read(kind: ValueKind, values: Sequence[str]) -> list[Row]:
    texts = [each for value in values for each in (patch_files(value) or ())] if kind == "patch" else values
    return [row for text in texts if (row := read_value(kind, text)) is not None]


def _by_skeleton(rows: Sequence[Row]) -> dict[tuple[tuple[str, str | None], ...], list[Row]]:
    groups: dict[tuple[tuple[str, str | None], ...], list[Row]] = {}
    for row in rows:
        key = tuple((atom.role, atom.text if atom.role == "fixed" else None) for atom in row)
        groups.setdefault(key, []).append(row)
    return groups


def _solve(kind: ValueKind, rows: Sequence[Row], names: dict[str, bool]) -> Iterator[TemplateCover]:
    """Templates for values with one skeleton; `names` says of which roles new names are to be expected."""
    varying = [at for at in range(len(rows[0])) if len({row[at].text for row in rows}) > 1]
    for at in [at for at in varying if rows[0][at].role == "ending"]:
        often = {text for text, n in Counter(row[at].text for row in rows).items() if n >= MIN_REPEATS}
        rows = [row for row in rows if row[at].text in often]
        if len(often) > MAX_ENDINGS or not rows:
            return
    varying = [at for at in varying if len({row[at].text for row in rows}) > 1]
    for at in varying:
        looked_at = [row for row in rows if _is_guarded_name(kind, row[at])]
        if looked_at and len(looked_at) < len(rows):
            # No slot has these names: they are as they were, the others may have one.
            for some in (looked_at, [row for row in rows if row not in looked_at]):
                yield from _solve(kind, some, names)
            return
        if not _is_open(kind, rows, at, names):
            for value, count in Counter(row[at].text for row in rows).most_common(MAX_VALUES):
                if count >= MIN_REPEATS:
                    yield from _solve(kind, [row for row in rows if row[at].text == value], names)
            return
    if not varying and len(rows) < MIN_REPEATS:
        return
    parts: list[str | Slot] = []
    for at, atom in enumerate(rows[0]):
        is_file = atom.role == "stem" and at + 1 < len(rows[0]) and rows[0][at + 1].role == "ending"
        texts = [row[at].text for row in rows]
        parts += _slots(texts, atom, is_file=is_file) if at in varying else [atom.text]
    new = [at for at in varying if rows[0][at].role != "ending"]
    first = min((len({row[at].text for row in rows}) for at in new), default=None)
    yield TemplateCover(join_parts(parts), len(rows), first)


def _is_open(kind: ValueKind, rows: Sequence[Row], at: int, names: dict[str, bool]) -> bool:
    """Whether new values are to be expected in this place, and the role lets them be."""
    role = rows[0][at].role
    counts = Counter(row[at].text for row in rows)
    single = sum(1 for count in counts.values() if count == 1)
    match role:
        case "ending":
            return True
        case "fixed" | "word" | "text":
            return False
        case "prose" | "message":
            return len(counts) >= MIN_NEW_NUMBERS
        case "name" | "stem" if _numbered(list(counts)) is None:
            least = MIN_FILES_HERE if role == "stem" else MIN_NAMES_HERE.get(kind, MIN_NAMES)
            return (
                names.get(role, False)
                and len(counts) >= least
                and single >= MIN_SINGLE_NAMES * len(counts)
                and _dotted(list(counts)) is not None
                and not _is_guarded_name(kind, rows[0][at])
            )
    is_known = role in ("number", "amount") or names.get(role, False)
    least = MIN_NEW_NUMBERS if is_known else MIN_NEW_VALUES
    return len(counts) >= least and (single > MAX_SINGLE_SHARE * len(rows) or len(counts) > MAX_VALUES)


def _is_guarded_name(kind: ValueKind, atom: Atom) -> bool:
    guards = is_secret if atom.role == "stem" and kind != "email" else is_guarded
    return atom.role in ("name", "stem") and guards(atom.text)


def _slots(texts: Sequence[str], atom: Atom, *, is_file: bool) -> list[str | Slot]:
    match atom.role:
        case "number" | "amount":
            numbers = [Decimal(text) for text in texts]
            return [Slot("range", min(numbers), max(numbers))]
        case "ending":
            return [Slot("choice", options=tuple(sorted(set(texts))))]
        case "digits":
            return [_digits(texts)]
        case "prose":
            return [_prose(texts)]
        case "hex" | "uuid" | "date" | "text" | "message":
            return [Slot(atom.role)]
    return _numbered(texts) or _dotted(texts, "file" if is_file else "name") or [Slot("name")]


def _dotted(texts: Sequence[str], slot: str = "name") -> list[str | Slot] | None:
    """Names, with as many dots between them as all have; None if they are anything else."""
    rows = [text.split(".") for text in texts]
    if len({len(row) for row in rows}) != 1 or not all(NAME.fullmatch(name) for row in rows for name in row):
        return None
    parts: list[str | Slot] = [Slot(slot)]
    for _ in rows[0][1:]:
        parts += [".", Slot(slot)]
    return parts


def _digits(texts: Sequence[str]) -> Slot:
    lengths = sorted(map(len, texts))
    return Slot("digits", Decimal(lengths[0]), Decimal(lengths[-1]))


def _numbered(texts: Sequence[str]) -> list[str | Slot] | None:
    """`r-10`, `r-11` as `r-<2 digits>`: names that differ in numbers alone; None if they differ otherwise."""
    rows = [re.findall("[0-9]{1,18}|[^0-9]+", text) for text in texts]
    if len({len(row) for row in rows}) != 1:
        return None
    parts: list[str | Slot] = []
    for column in zip(*rows, strict=True):
        if len(set(column)) == 1:
            parts.append(column[0])
        elif all(piece.isdigit() for piece in column):
            parts.append(_digits(column))
        else:
            return None
    return parts


def _prose(texts: Iterable[str]) -> Slot:
    """Words; a second line, which can be a header of its own, only where there was one."""
    return Slot("lines" if any("\n" in text or "\t" in text for text in texts) else "prose")


def _cover_texts(rows: Sequence[Row], *, stored: bool) -> list[TemplateCover]:
    """Free text: prose, any text where a tool only stores it, or the same texts again."""
    counts = Counter(row[0].text for row in rows)
    prose = {row[0].text for row in rows if row[0].role == "prose"}
    found: list[TemplateCover] = []
    if not values_recur(counts):
        if stored and len(prose) < len(counts) and len(counts) >= MIN_NEW_VALUES:
            # Twice as long as the longest, in round numbers.
            most = min(MAX_TEXT_CHARS, 1000 * (1 + max(map(len, counts)) // 500))
            slot = Slot("text", high=Decimal(most))
            return [TemplateCover(ValueTemplate((slot,)), len(rows), len(counts))]
        if len(prose) >= MIN_NEW_VALUES:
            support = sum(counts[text] for text in prose)
            found.append(TemplateCover(ValueTemplate((_prose(prose),)), support, len(prose)))
    return found + [
        TemplateCover(ValueTemplate((text,)), count, None)
        for text, count in counts.most_common(MAX_VALUES)
        if count >= MIN_REPEATS and not (found and text in prose)
    ]


def values_recur(counts: Counter[str]) -> bool:
    """Whether the same values recur, so that a list of them is enough."""
    total = counts.total()
    single = sum(1 for count in counts.values() if count == 1)
    return (
        len(counts) <= MAX_VALUES
        and single <= MAX_SINGLE_SHARE * total
        and len(counts) * MIN_REPEATS <= total
    )


def _open_ids(rows: Sequence[Row]) -> Iterator[TemplateCover]:
    """Ids whose words are as new as their numbers: `ada_lin_4821`."""
    left = ["".join(atom.text for atom in row) for row in rows]
    words = {tuple(atom.text for atom in row if atom.role == "word") for row in rows}
    if len(words) >= MIN_NAMES and all(map(Slot("id").fits, left)):
        yield TemplateCover(ValueTemplate((Slot("id"),)), len(left), len(set(left)))


def _open_folders(kind: ValueKind, rows: Sequence[Row]) -> Iterator[TemplateCover]:
    """A folder and everything below it with these endings: the topmost ones with many different folders."""
    below: dict[str, dict[str, list[tuple[str, ...]]]] = {}
    for row in rows:
        if row[-1].role != "ending":
            continue
        start = row[0].text if row[0].text.endswith((" ", "/")) and row[0].role == "fixed" else ""
        path = "".join(atom.text for atom in row[:-1]).removeprefix(start)
        names = path.split("/")
        if all(map(NAME.fullmatch, names)) and not any(map(is_secret, names)):
            for depth in range(len(names) - 1):
                prefix = start + "".join(f"{name}/" for name in names[:depth])
                below.setdefault(prefix, {}).setdefault(names[depth], []).append((path, row[-1].text))
    opened: list[str] = []
    for prefix in sorted(below, key=len):
        # Never all files: below one folder of a project, below two of a machine.
        path = prefix.partition(" ")[2] if kind == "patch" else prefix
        is_root = path.count("/") < (3 if path.startswith("/") else 1)
        if is_root or len(below[prefix]) < MIN_FOLDERS or any(map(prefix.startswith, opened)):
            continue
        seen = [each for group in below[prefix].values() for each in group]
        counts = Counter(ending for _, ending in seen).most_common(MAX_ENDINGS)
        endings = sorted(ending for ending, count in counts if count >= MIN_REPEATS)
        if endings:
            opened.append(prefix)
            end = Slot("choice", options=tuple(endings)) if len(endings) > 1 else endings[0]
            support = sum(1 for _, ending in seen if ending in endings)
            yield TemplateCover(ValueTemplate((prefix, Slot("path"), end)), support, len(set(seen)))


def _open_hosts(rows: Sequence[Row]) -> Iterator[TemplateCover]:
    """A host and its pages, where several were read; where that was so of many hosts, one page will do."""
    pages: dict[str, list[str]] = {}
    for row in rows:
        host = row[0].text + "/"
        page = "".join(atom.text for atom in row).removeprefix(host)
        if Slot("page").fits(page):
            pages.setdefault(host, []).append(page)
    usual = sum(1 for found in pages.values() if len(set(found)) >= MIN_PAGES) >= MIN_NAMES
    for host, found in pages.items():
        if usual or len(set(found)) >= MIN_PAGES:
            yield TemplateCover(ValueTemplate((host, Slot("page"))), len(found), len(set(found)))
