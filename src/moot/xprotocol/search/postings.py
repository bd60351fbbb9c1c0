"""Documents by the terms in them: taken in, let go, and how much of a document each of its terms is.

A term counts in a document as often as it stands there, times the weight of the field; a document is as long
as its weighted fields (Robertson and Zaragoza's BM25 for several fields, with one common length). Nothing is
computed when a document comes or goes but its own terms. How rare a term is and how long documents are on
average is looked up when somebody asks, so answers depend on the documents alone, never on their history.
The average is rounded to five bits: it stays the same with nearly all changes, and what was computed with it
stays, too.

A word that no document has stands for those of the vocabulary that look most like it: "profressional" finds
`professional` and "psychologist" finds `psychology`, what people mistype or inflect in ways that no stemmer
undoes. Two words are alike as far as they share runs of three letters (Dice's measure).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import frexp, ldexp, log
from typing import Final

from moot.xprotocol.search.documents import Document
from moot.xprotocol.search.search_terms import name_terms, prose_terms

# At least six of ten runs in common: two letters swapped in a word of eight still pass, another word rarely.
ALIKE: Final = 0.6
# How many first letters have to be the same; people seldom get those wrong.
START: Final = 3
# Shorter words have too few runs to be compared.
SHORTEST: Final = 4
LONGEST: Final = 32
# As many as are taken for one unknown word.
NEIGHBOURS: Final = 3


class FuzzyMatcher:
    """The words of a vocabulary, by how they start."""

    __slots__ = ("_by_start",)

    def __init__(self) -> None:
        self._by_start: dict[str, set[str]] = {}

    def add(self, word: str) -> None:
        if _comparable(word):
            self._by_start.setdefault(word[:START], set()).add(word)

    def discard(self, word: str) -> None:
        words = self._by_start.get(word[:START])
        if words is not None:
            words.discard(word)
            if not words:
                del self._by_start[word[:START]]

    def near(self, word: str) -> list[tuple[str, float]]:
        """Words that look like this one, each with its likeness; the most alike first, ties by alphabet."""
        if not _comparable(word):
            return []
        runs = _runs(word)
        found = []
        for other in self._by_start.get(word[:START], ()):
            # Before anything is compared: lengths alone can rule it out.
            if 2 * min(len(word), len(other)) < ALIKE * (len(word) + len(other)):
                continue
            theirs = _runs(other)
            alike = 2 * len(runs & theirs) / (len(runs) + len(theirs))
            if alike >= ALIKE:
                found.append((-alike, other))
        return [(other, -negative) for negative, other in sorted(found)[:NEIGHBOURS]]


def _comparable(word: str) -> bool:
    return SHORTEST <= len(word) <= LONGEST and not word.isdigit()


def _runs(word: str) -> set[str]:
    padded = f" {word} "
    return {padded[place : place + 3] for place in range(len(word))}


# A name says in three words what a description says in ten.
NAME_WEIGHT: Final = 3.0
OTHER_WEIGHT: Final = 1.0
# Beyond the usual 1.2: a term that stands in a name alone counts three times already.
K1: Final = 2.0
B: Final = 0.75
_FLAT: Final = K1 * (1 - B)
# What a signal is worth, of the most that the same word could be worth in the document itself.
SIGNAL: Final = 1 / 6

_NOWHERE: Final[Mapping[int, float]] = {}


class Postings:
    """Documents by the terms in them. Each has a slot, which another gets when it has gone.

    By slot: `keys`, and `texts`, which are a document's terms in order, fields set apart, a blank at either
    end, so that phrases are found in them as they are.
    """

    __slots__ = (
        "_average",
        "_counts",
        "_free",
        "_lengths",
        "_shares",
        "_signals",
        "_signals_of",
        "_slots",
        "_terms_of",
        "_total",
        "keys",
        "spelling",
        "texts",
    )

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.texts: list[str] = []
        self._slots: dict[str, int] = {}
        self._lengths: list[float] = []
        self._terms_of: list[tuple[str, ...]] = []
        self._signals_of: list[tuple[str, ...]] = []
        self._free: list[int] = []
        self._counts: dict[str, dict[int, float]] = {}
        self._signals: dict[str, set[int]] = {}
        # A sum of whole numbers, so exact, whatever comes and goes.
        self._total = 0.0
        # Found when asked for, and kept while the average is this one.
        self._shares: dict[str, dict[int, float]] = {}
        self._average = 1.0
        self.spelling = FuzzyMatcher()

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, key: str) -> bool:
        return key in self._slots

    def slot_of(self, key: str) -> int | None:
        return self._slots.get(key)

    def add(self, document: Document) -> int:
        """Take a document in, whose key must be new; the slot that it has from now on."""
        counts: dict[str, float] = {}
        length, texts = 0.0, []
        for terms, weight in _fields(document):
            length += weight * len(terms)
            texts.append(" ".join(terms))
            for term in terms:
                counts[term] = counts.get(term, 0.0) + weight
        signals = dict.fromkeys(term for text in document.signals for term in prose_terms(text))
        others = tuple(term for term in signals if term not in counts)
        slot = self._free.pop() if self._free else self._grown()
        self._slots[document.key] = slot
        self.keys[slot], self.texts[slot] = document.key, f" {' | '.join(texts)} "
        self._lengths[slot], self._terms_of[slot], self._signals_of[slot] = length, tuple(counts), others
        for term, count in counts.items():
            found = self._counts.get(term)
            if found is None:
                found = self._counts[term] = {}
                self.spelling.add(term)
            found[slot] = count
        for term in others:
            self._signals.setdefault(term, set()).add(slot)
        self._total += length
        self._update_average()
        known = self._shares
        for term in known.keys() & counts.keys():
            known[term][slot] = self._share(counts[term], slot)
        for term in known.keys() & others:
            known[term][slot] = SIGNAL
        return slot

    def remove(self, key: str) -> int | None:
        """The slot that is free now, or None when there was no such document."""
        slot = self._slots.pop(key, None)
        if slot is None:
            return None
        for term in self._terms_of[slot]:
            counts = self._counts[term]
            del counts[slot]
            if not counts:
                del self._counts[term]
                self.spelling.discard(term)
        for term in self._signals_of[slot]:
            signals = self._signals[term]
            signals.discard(slot)
            if not signals:
                del self._signals[term]
        for term in self._shares.keys() & {*self._terms_of[slot], *self._signals_of[slot]}:
            del self._shares[term][slot]
            if not self._shares[term]:
                del self._shares[term]
        self._total -= self._lengths[slot]
        self.keys[slot], self.texts[slot] = "", ""
        self._lengths[slot], self._terms_of[slot], self._signals_of[slot] = 0.0, (), ()
        self._free.append(slot)
        self._update_average()
        return slot

    def knows(self, term: str) -> bool:
        return term in self._counts or term in self._signals

    def rarity(self, term: str) -> float:
        """BM25's inverse document frequency, in the form that is never negative."""
        having = len(self._counts.get(term, ())) or len(self._signals.get(term, ()))
        return log(1 + (len(self._slots) - having + 0.5) / (having + 0.5))

    def shares(self, term: str) -> Mapping[int, float]:
        """Where a term is, and how much it makes of each document there: 0 to 1."""
        found = self._shares.get(term)
        if found is None:
            found = dict.fromkeys(self._signals.get(term, ()), SIGNAL)
            lengths, slope = self._lengths, K1 * B / self._average
            counts = self._counts.get(term, _NOWHERE)
            found.update(
                {slot: count / (count + _FLAT + slope * lengths[slot]) for slot, count in counts.items()}
            )
            self._shares[term] = found
        return found

    def _share(self, count: float, slot: int) -> float:
        return count / (count + _FLAT + K1 * B / self._average * self._lengths[slot])

    def _update_average(self) -> None:
        mantissa, exponent = frexp(self._total / len(self._slots) if self._total else 1.0)
        average = ldexp(round(mantissa * 32) / 32, exponent)
        if average != self._average:
            self._average = average
            self._shares.clear()

    def _grown(self) -> int:
        """One slot more."""
        self.keys.append("")
        self.texts.append("")
        self._lengths.append(0.0)
        self._terms_of.append(())
        self._signals_of.append(())
        return len(self.keys) - 1


def _fields(document: Document) -> Iterator[tuple[list[str], float]]:
    yield name_terms(document.name), NAME_WEIGHT
    yield prose_terms(document.source), OTHER_WEIGHT
    yield prose_terms(document.description), OTHER_WEIGHT
    yield name_terms(document.parameter_names), OTHER_WEIGHT
    yield prose_terms(document.parameters), OTHER_WEIGHT
