"""The documents that score highest by BM25, without adding everything up.

Terms come from the weightiest to the lightest. The rare ones bring in every document that has them, up to a
fixed amount of work; the common ones that come after only add to documents already met, and of those to the
best. What is missed that way has nothing but common words in common with the question. So a question takes
about the same time among a thousand documents and among many thousands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from heapq import nsmallest
from typing import Final

# Postings gone through to bring documents in; the weightiest term brings in all of its own. On public
# benchmarks, 1,000 lose a thousandth of the right answers, 2,000 lose none, and take half a millisecond.
POSTINGS: Final = 2_000
# Documents that the common terms are added to, and at least three times as many as are asked for.
CONTENDERS: Final = 300


@dataclass(slots=True)
class TermEvidence:
    """A term that is asked for, what it is worth at most, and the share of that which each document gets.

    `parts` are the parts of the question that it belongs to: 0 is the whole, 1 and on are its clauses.
    """

    term: str
    weight: float
    shares: Mapping[int, float]
    parts: list[int]


def best(
    evidence: Iterable[TermEvidence],
    most: int,
    *,
    key_of: Callable[[int], str],
    allowed: Callable[[int], bool] | None = None,
) -> list[int]:
    """The `most` documents that score highest, in no order; among equals the first by key.

    Only those that are `allowed` count, where that is given; then every posting is gone through.
    """
    scores: dict[int, float] = {}
    left = POSTINGS
    closed = False
    for each in sorted(evidence, key=_weightiest_first):
        if not closed and scores and len(each.shares) > left and allowed is None:
            closed = True
            scores = _contenders(scores, max(CONTENDERS, 2 * most))
        if closed:
            _add_to_known(scores, each)
        else:
            _add(scores, each)
            left -= len(each.shares)
    if allowed is not None:
        scores = {slot: score for slot, score in scores.items() if allowed(slot)}
    return _highest(scores, most, key_of)


def _contenders(scores: dict[int, float], most: int) -> dict[int, float]:
    """The best so far, all of those that share the last place among them."""
    if len(scores) <= most:
        return scores
    lowest = sorted(scores.values())[-most]
    return {slot: score for slot, score in scores.items() if score >= lowest}


def _add(scores: dict[int, float], evidence: TermEvidence) -> None:
    weight, get = evidence.weight, scores.get
    for slot, share in evidence.shares.items():
        scores[slot] = get(slot, 0.0) + weight * share


def _add_to_known(scores: dict[int, float], evidence: TermEvidence) -> None:
    weight, shares = evidence.weight, evidence.shares
    for slot in shares.keys() & scores.keys():
        scores[slot] += weight * shares[slot]


def _highest(scores: dict[int, float], most: int, key_of: Callable[[int], str]) -> list[int]:
    if len(scores) <= most:
        return list(scores)
    lowest = sorted(scores.values())[-most]
    above = [slot for slot, score in scores.items() if score > lowest]
    level = [slot for slot, score in scores.items() if score == lowest]
    return above + nsmallest(most - len(above), level, key=key_of)


def _weightiest_first(evidence: TermEvidence) -> tuple[float, str]:
    return -evidence.weight, evidence.term
