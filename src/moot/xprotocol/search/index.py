"""The search itself: which documents answer a question best, and how well.

1. Terms of the question, each worth as much as it is rare. Numbers are worth little: they are values for a
   tool, not words about it. A word that no document has stands for those that look like it.
2. BM25 over all fields picks a shortlist (`bm25`). On it, two words of the question that stand side by side
   in a document, too, count once more: "compound interest" is more than both words.
3. A request that asks for several things in turn is also searched clause by clause. The best document for
   the whole comes first; behind it, a document counts for half by the whole and for half by the clause that
   it answers best, so that each thing asked for shows up near the top.

Relevance says how much of what was asked, weighed by rarity, the document has: 0 is nothing, 1 is all of it
in the most prominent place. It is rounded, and ties go by key, so that order does not hang on the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from moot.errors import InvalidRequest, ResourceLimit
from moot.xprotocol.search.bm25 import best
from moot.xprotocol.search.documents import Document
from moot.xprotocol.search.postings import Postings
from moot.xprotocol.search.search_query import SearchQuery, read_query

# Most documents that one answer can hold.
MOST_HITS: Final = 100
# Looked at closely, at least; twice as many for several clauses, since what answers one of five best stands
# behind some that answer a bit of each. More change nothing on public benchmarks.
SHORTLIST: Final = 30
# What one index holds; `python -m bench.search` prints what a document takes.
MOST_DOCUMENTS: Final = 100_000

# How much the best clause counts beside the whole, behind the first place.
CLAUSE_SHARE: Final = 0.5
# A clause that says less counts less, but not in proportion: a short request is a request.
CLAUSE_POWER: Final = 0.25
# Of a relevance. Sums differ from machine to machine only far behind these.
DIGITS: Final = 6


@dataclass(frozen=True, slots=True)
class Hit:
    """A document that answers, and how well: 0 to 1."""

    key: str
    relevance: float


class SearchIndex:
    """Documents that come and go, and questions to them. The same documents give the same answers."""

    __slots__ = ("_most_documents", "_postings")

    def __init__(self, *, most_documents: int = MOST_DOCUMENTS) -> None:
        self._postings = Postings()
        self._most_documents = most_documents

    def __len__(self) -> int:
        return len(self._postings)

    def __contains__(self, key: str) -> bool:
        return key in self._postings

    def add(self, document: Document) -> None:
        """Take a document in, in place of an earlier one of the same key. Raises ResourceLimit when full."""
        if document.key not in self._postings and len(self._postings) >= self._most_documents:
            raise ResourceLimit(
                f"the index is full with {self._most_documents} documents; remove some first",
                limit="most_documents",
            )
        self.remove(document.key)
        self._postings.add(document)

    def remove(self, key: str) -> bool:
        """Whether there was such a document."""
        return self._postings.remove(key) is not None

    def search(self, text: str, *, limit: int = 10, only: Callable[[str], bool] | None = None) -> list[Hit]:
        """The best documents, sorted by relevance and then by key; only those whose key passes `only`.

        Of a long question the beginning counts; one without any word that a document has is answered with
        nothing. Raises InvalidRequest for a limit outside 1 to MOST_HITS.
        """
        if not 1 <= limit <= MOST_HITS:
            raise InvalidRequest(f"limit has to be 1 to {MOST_HITS}, not {limit}", limit="MOST_HITS")
        found = self.relevance(text, shortlist=limit, only=only)
        ranked = sorted((-relevance, key) for key, relevance in found.items())
        return [Hit(key, -negative) for negative, key in ranked[:limit]]

    def relevance(
        self,
        text: str,
        *,
        shortlist: int = SHORTLIST,
        also: Iterable[str] = (),
        only: Callable[[str], bool] | None = None,
    ) -> dict[str, float]:
        """The relevance of each document on the shortlist, and of those in `also`, where it is not 0."""
        postings = self._postings
        question = read_query(text, postings)
        if not len(postings):
            return {}
        most = max(shortlist, SHORTLIST) * (1 if len(question.texts) == 1 else 2)
        slots = self._shortlisted(question, most, only)
        slots.update(slot for key in also if (slot := postings.slot_of(key)) is not None)
        keyed = sorted((postings.keys[slot], slot) for slot in slots)
        values = self._judged(question, [slot for _, slot in keyed])
        return {key: value for (key, _), value in zip(keyed, values, strict=True) if value > 0}

    def _shortlisted(self, question: SearchQuery, most: int, only: Callable[[str], bool] | None) -> set[int]:
        key_of = self._postings.keys.__getitem__
        allowed = None if only is None else lambda slot: only(key_of(slot))
        return set(best(question.evidence, most, key_of=key_of, allowed=allowed))

    def _judged(self, question: SearchQuery, slots: Sequence[int]) -> list[float]:
        """The relevance of each of these documents, which come sorted by key."""
        if not slots:
            return []
        parts = self._scored(question, slots)
        tops = [max(scores) for scores in parts]
        possible = sum(each.weight for each in question.evidence)
        level = tops[0] / possible if possible else 0.0
        parts = [_relative(scores) for scores in parts]
        whole = _with_clauses(parts, tops) if len(parts) > 1 else parts[0]
        return [round(min(1.0, level * value), DIGITS) for value in whole]

    def _scored(self, question: SearchQuery, slots: Sequence[int]) -> list[list[float]]:
        """What the words are worth: for each part of the question, for each document."""
        column = {slot: number for number, slot in enumerate(slots)}
        table = [[0.0] * len(slots) for _ in question.texts]
        having: list[set[int]] = []
        for each in question.evidence:
            weight, shares = each.weight, each.shares
            rows = [table[part] for part in each.parts]
            found = shares.keys() & column.keys()
            having.append(found)
            for slot in found:
                worth, number = weight * shares[slot], column[slot]
                for row in rows:
                    row[number] += worth
        texts = self._postings.texts
        for pair in question.pairs:
            for slot in having[pair.first] & having[pair.second]:
                if pair.phrase in texts[slot]:
                    for part in pair.parts:
                        table[part][column[slot]] += pair.weight
        return table


def _relative(scores: Sequence[float]) -> list[float]:
    most = max(scores)
    return [score / most for score in scores] if most > 0 else [0.0] * len(scores)


def _with_clauses(parts: Sequence[Sequence[float]], tops: Sequence[float]) -> list[float]:
    """The whole and the best clause of each document, half and half; the best for the whole stays first."""
    whole, *others = parts
    most = max(tops[1:])
    shares = [(top / most) ** CLAUSE_POWER for top in tops[1:]]
    scaled = ([share * value for value in part] for share, part in zip(shares, others, strict=True))
    clause = map(max, *scaled)
    combined = [
        (1 - CLAUSE_SHARE) * one + CLAUSE_SHARE * other for one, other in zip(whole, clause, strict=True)
    ]
    combined[max(range(len(whole)), key=whole.__getitem__)] = 1.0
    return combined
