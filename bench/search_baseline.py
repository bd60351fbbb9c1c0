"""Plain BM25 as textbooks have it, to hold the search of tools against. Shares no line with what it judges.

Stems, stop words, each word of a question once, k1 = 1.5, b = 0.75: what a careful person writes in an hour.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from heapq import nsmallest
from typing import Final

from snowballstemmer import stemmer

K1: Final = 1.5
B: Final = 0.75
_WORD: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_STEMMER: Final = stemmer("english")
# The usual English ones.
_STOP_LINES: Final = (
    "a about above after again against all am an and any are as at be because been before being below",
    "between both but by can did do does doing don down during each few for from further had has have",
    "having he her here hers herself him himself his how i if in into is it its itself just me more",
    "most my myself no nor not now of off on once only or other our ours ourselves out over own s",
    "same she should so some such t than that the their theirs them themselves then there these they",
    "this those through to too under until up very was we were what when where which while who whom",
    "why will with you your yours yourself yourselves",
)
_STOP: Final = frozenset(word for line in _STOP_LINES for word in line.split())


class PlainBm25:
    """Texts by key, ranked. All are given at once: nothing can be added later."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        words = {key: _words(text) for key, text in texts.items()}
        average = sum(map(len, words.values())) / max(1, len(words))
        postings: dict[str, dict[str, float]] = {}
        for key, found in words.items():
            norm = K1 * (1 - B + B * len(found) / average)
            for word, count in Counter(found).items():
                postings.setdefault(word, {})[key] = count * (K1 + 1) / (count + norm)
        self._scores = {
            word: [(key, worth * _rarity(len(having), len(words))) for key, worth in having.items()]
            for word, having in postings.items()
        }

    def search(self, question: str, limit: int) -> list[str]:
        """The best keys, ties by key."""
        scores: dict[str, float] = {}
        for word in sorted(set(_words(question))):
            for key, score in self._scores.get(word, ()):
                scores[key] = scores.get(key, 0.0) + score
        return nsmallest(limit, scores, key=lambda key: (-scores[key], key))


def _rarity(having: int, all_texts: int) -> float:
    return math.log(1 + (all_texts - having + 0.5) / (having + 0.5))


def _words(text: str) -> list[str]:
    return [_stem(word) for word in _kept(_WORD.findall(text))]


def _kept(words: Iterable[str]) -> Iterable[str]:
    return (lowered for word in words if (lowered := word.lower()) not in _STOP)


@cache
def _stem(word: str) -> str:
    stem: str = _STEMMER.stemWord(word)
    return stem
