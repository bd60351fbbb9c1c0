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


class RowVerdict(msgspec.Struct, frozen=True):
    """The result for one requirement. `why` has a line for each vector that failed, or could not be run."""

    id: str
    row: RequirementRow
    verdict: Verdict
    why: tuple[str, ...] = ()


def by_row(outcomes: Sequence[VectorOutcome], manifest: Mapping[str, RequirementRow]) -> list[RowVerdict]:
    """Every row that a vector is about, by level and then in the manifest's order.

    A row has failed if one of its vectors has, and has passed if one has and none has failed.
    """
    about: dict[str, list[VectorOutcome]] = {}
    for outcome in outcomes:
        for id in outcome.vector.rows:
            about.setdefault(id, []).append(outcome)
    found = [_row_verdict(id, row, about[id]) for id, row in manifest.items() if id in about]
    return sorted(found, key=lambda each: LEVELS.index(each.row.level))


def _row_verdict(id: str, row: RequirementRow, outcomes: Sequence[VectorOutcome]) -> RowVerdict:
    verdicts = {outcome.verdict for outcome in outcomes}
    verdict: Verdict = (
        "failed" if "failed" in verdicts else "passed" if "passed" in verdicts else "not runnable"
    )
    why = [outcome.message or "" for outcome in outcomes if outcome.verdict == verdict != "passed"]
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
