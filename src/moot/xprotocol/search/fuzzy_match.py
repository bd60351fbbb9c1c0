"""Words that no document has, and those of the vocabulary that look most like them.

"profressional" finds `professional` and "psychologist" finds `psychology`: what people mistype or inflect in
ways that no stemmer undoes. Two words are alike as far as they share runs of three letters (Dice's measure).
"""

from __future__ import annotations

from typing import Final

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
