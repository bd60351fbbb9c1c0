"""The results of vectors, by row of the requirement manifest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

import msgspec

from moot.conformance.manifest import RequirementRow
from moot.conformance.vectors import Vector

Verdict = Literal["passed", "failed", "not runnable"]

LEVELS: Final = ("MUST", "SHOULD", "MAY", "implied")


class VectorOutcome(msgspec.Struct, frozen=True):
    """The result of one vector; `message` says where it differs, or why it was not run."""

    source: str
    vector: Vector
    verdict: Verdict
    message: str | None = None
    # What a vector that failed has broken: rows of its own, or of what it only uses.
    breaks: tuple[str, ...] = ()


class RowVerdict(msgspec.Struct, frozen=True):
    """The result for one requirement. `why` has a line for each vector that failed, or could not be run."""

    id: str
    row: RequirementRow
    verdict: Verdict
    why: tuple[str, ...] = ()


def by_row(outcomes: Sequence[VectorOutcome], manifest: Mapping[str, RequirementRow]) -> list[RowVerdict]:
    """Every row that a vector is about, by level and then in the manifest's order.

    A row has failed if a vector broke it, and has passed if a vector of its own has and none broke it. A
    vector that broke another row says nothing about its own.
    """
    about: dict[str, list[tuple[Verdict, str]]] = {}
    for outcome in outcomes:
        message = outcome.message or ""
        breaks = outcome.breaks or (tuple(outcome.vector.rows) if outcome.verdict == "failed" else ())
        for id in breaks:
            about.setdefault(id, []).append(("failed", message))
        for id in outcome.vector.rows:
            if outcome.verdict != "failed":
                about.setdefault(id, []).append((outcome.verdict, message))
            elif id not in breaks:
                about.setdefault(id, []).append(("not runnable", f"needs {', '.join(breaks)}: {message}"))
    found = [_row_verdict(id, row, about[id]) for id, row in manifest.items() if id in about]
    return sorted(found, key=lambda each: LEVELS.index(each.row.level))


def _row_verdict(id: str, row: RequirementRow, results: Sequence[tuple[Verdict, str]]) -> RowVerdict:
    verdicts = {verdict for verdict, _ in results}
    verdict: Verdict = (
        "failed" if "failed" in verdicts else "passed" if "passed" in verdicts else "not runnable"
    )
    why = [message for each, message in results if each == verdict != "passed"]
    return RowVerdict(id, row, verdict, tuple(dict.fromkeys(why)))


def count_levels(rows: Sequence[RowVerdict]) -> Iterator[str]:
    """A line for each level: how many of its rows passed, failed or could not be run."""
    for level in LEVELS:
        verdicts = [each.verdict for each in rows if each.row.level == level]
        if verdicts:
            yield f"{level}: {_counts(verdicts)}"


def _counts(verdicts: Sequence[Verdict]) -> str:
    known: tuple[Verdict, ...] = ("passed", "failed", "not runnable")
    return ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in known)


def summary(outcomes: Sequence[VectorOutcome]) -> str:
    return f"vectors: {_counts([outcome.verdict for outcome in outcomes])}"
