"""What became of vectors, told row by row of the requirement manifest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

import msgspec

from moot.conformance.manifest import RequirementRow
from moot.conformance.vectors import Vector

Verdict = Literal["passed", "failed", "not runnable"]

LEVELS: Final = ("MUST", "SHOULD", "MAY", "implied")


class VectorOutcome(msgspec.Struct, frozen=True):
    """What became of one vector; `words` say where it differs, or why it was not run."""

    source: str
    vector: Vector
    verdict: Verdict
    words: str | None = None


class RowVerdict(msgspec.Struct, frozen=True):
    """What became of one requirement. `why` has a line for each vector that failed, or could not be run."""

    id: str
    row: RequirementRow
    verdict: Verdict
    why: tuple[str, ...] = ()


def by_row(outcomes: Sequence[VectorOutcome], manifest: Mapping[str, RequirementRow]) -> list[RowVerdict]:
    """Every row that a vector is about, in the manifest's order.

    A row has failed if one of its vectors has, and has passed if one has and none has failed.
    """
    about: dict[str, list[VectorOutcome]] = {}
    for outcome in outcomes:
        for id in outcome.vector.rows:
            about.setdefault(id, []).append(outcome)
    return [_row_verdict(id, row, about[id]) for id, row in manifest.items() if id in about]


def _row_verdict(id: str, row: RequirementRow, outcomes: Sequence[VectorOutcome]) -> RowVerdict:
    verdicts = {outcome.verdict for outcome in outcomes}
    verdict: Verdict = (
        "failed" if "failed" in verdicts else "passed" if "passed" in verdicts else "not runnable"
    )
    told = [outcome.words or "" for outcome in outcomes if outcome.verdict == verdict != "passed"]
    return RowVerdict(id, row, verdict, tuple(dict.fromkeys(told)))


def report(rows: Sequence[RowVerdict]) -> Iterator[str]:
    """The report in lines, grouped by level."""
    for level in LEVELS:
        found = [each for each in rows if each.row.level == level]
        if not found:
            continue
        yield f"{level}: {_counts([each.verdict for each in found])}"
        for each in found:
            verdict = each.verdict.upper() if each.verdict == "failed" else each.verdict
            yield f"  {verdict:12}  {each.id:14}  {each.row.words}"
            yield from (f"  {'':12}  {'':14}  {line}" for line in each.why)
        yield ""


def _counts(verdicts: Sequence[Verdict]) -> str:
    known: tuple[Verdict, ...] = ("passed", "failed", "not runnable")
    return ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in known)


def summary(outcomes: Sequence[VectorOutcome]) -> str:
    return f"vectors: {_counts([outcome.verdict for outcome in outcomes])}"
