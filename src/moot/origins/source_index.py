"""What was said in a space and by whom, for looking up: values by their keys, texts by runs of their words.

Bounded: the oldest texts are dropped first, and what was dropped is told, since a value that cannot be found
any more is not one that nobody said. Of each value the first and the latest place are kept, for each grade
of source.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Literal

from moot.origins.text_forms import decoded, fold_loosely, unspell, words_of
from moot.origins.value_keys import Key, compact, id_keys, is_id_name, values_in

Grade = Literal["person", "operator", "trusted", "untrusted"]

# 4 million characters, some 40 MB with what finds them: a working day of ten busy agents.
MAX_INDEX_CHARS: Final = 4_000_000
# Of one leaf of a message; the rest is not known.
MAX_TEXT_CHARS: Final = 65_536
EXCERPT_CHARS: Final = 80
# Candidates looked at for one run of words, and windows for a part of a value.
MAX_CANDIDATES: Final = 2_000
MAX_LOOSE_CHARS: Final = 400_000
MIN_PART_CHARS: Final = 5
MAX_PARTS: Final = 8
# Places of one pair of words in one text that are tried.
MAX_REPEATS: Final = 16


_MISSING_SPACE: Final = re.compile(r"(?<=[a-z]{2})\.(?=[A-Z][a-z])")


@dataclass(frozen=True, slots=True)
class OriginSource:
    """One message, or the operator's configuration, as a source of values."""

    number: int
    envelope: str
    by: str
    at: float
    grade: Grade
    private: bool = False
    tool: str | None = None


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """Where a value stands: in which member of which message, from which character on, and what is there."""

    source: OriginSource
    path: str
    start: int
    excerpt: str


@dataclass(frozen=True, slots=True)
class _Text:
    source: OriginSource
    path: str
    words: str  # with a space before, between and behind them
    original: str


class SourceIndex:
    def __init__(self, *, max_chars: int = MAX_INDEX_CHARS) -> None:
        self.max_chars = max_chars
        # The number of the newest source of which something was dropped.
        self.dropped = -1
        self._chars = 0
        self._texts: dict[int, _Text] = {}
        self._next = 0
        self._by_word: dict[str, list[int]] = {}
        self._gone = 0
        self._keys: dict[Key, dict[Grade, tuple[SourcePlace, SourcePlace]]] = {}
        self._key_order: deque[tuple[Key, OriginSource]] = deque()
        # The loose forms of untrusted and private values, for parts of them; joined when they are looked at.
        self._loose: deque[tuple[str, SourcePlace]] = deque()
        self._loose_chars = 0
        self._joined: tuple[str, list[int]] | None = None

    def add(self, source: OriginSource, path: str, text: str, *, member: str = "") -> None:
        """Take in one leaf of a message; `member` is its name, if it has one."""
        if len(text) > MAX_TEXT_CHARS:
            text = text[:MAX_TEXT_CHARS]
            self.dropped = max(self.dropped, source.number)
        self._add_text(source, path, text)
        if is_id_name(member) and len(text) <= 64:
            place = SourcePlace(source, path, 0, text)
            for key in [*id_keys(text, member), ("code", compact(text))]:
                self._add_key(key, place)
        for form in (text, *self._hidden_forms(source, text)):
            for key, start, end in values_in(form, source.at):
                if source.grade == "trusted" and (start > 0 or end < len(form)):
                    continue  # A look-up vouches for its values, not for what a name in it says.
                self._add_key(key, SourcePlace(source, path, start, excerpt(form, start, end)))
        while self._chars > self.max_chars and len(self._texts) > 1:
            self._drop_oldest()

    def _hidden_forms(self, source: OriginSource, text: str) -> list[str]:
        # Only what others wrote is read in every way; people at most forget a space behind a full stop.
        if source.grade == "person":
            return [_MISSING_SPACE.sub(" ", text)] if _MISSING_SPACE.search(text) else []
        if source.grade != "untrusted":
            return []
        spelled = unspell(text)
        return [*([spelled] if spelled != text else []), *decoded(text)]

    def _add_text(self, source: OriginSource, path: str, text: str) -> None:
        words = words_of(text)
        if not words:
            return
        number, self._next = self._next, self._next + 1
        self._texts[number] = _Text(source, path, f" {' '.join(words)} ", text)
        self._chars += len(text)
        for word in dict.fromkeys(words):
            self._by_word.setdefault(word, []).append(number)

    def _add_key(self, key: Key, place: SourcePlace) -> None:
        grades = self._keys.setdefault(key, {})
        first = grades.get(place.source.grade, (place, place))[0]
        grades[place.source.grade] = (first, place)
        self._key_order.append((key, place.source))
        kept = place.source.grade == "untrusted" or (place.source.grade == "trusted" and place.source.private)
        if kept and key[0] in ("address", "place", "code", "part"):
            loose = fold_loosely(key[1])
            if len(loose) >= MIN_PART_CHARS:
                self._loose.append((loose, place))
                self._joined = None
                self._loose_chars += len(loose)
                while self._loose_chars > MAX_LOOSE_CHARS:
                    self._loose_chars -= len(self._loose.popleft()[0])

    def _drop_oldest(self) -> None:
        number, text = next(iter(self._texts.items()))
        del self._texts[number]
        self._chars -= len(text.original)
        self._gone += 1
        self.dropped = max(self.dropped, text.source.number)
        while self._key_order and self._key_order[0][1].number <= self.dropped:
            self._drop_key(*self._key_order.popleft())
        if self._gone > 256 and self._gone > len(self._texts):
            self._gone = 0
            kept = {word: [each for each in at if each in self._texts] for word, at in self._by_word.items()}
            self._by_word = {word: at for word, at in kept.items() if at}

    def _drop_key(self, key: Key, source: OriginSource) -> None:
        grades = self._keys.get(key, {})
        places = grades.get(source.grade)
        if places is None or places[1].source.number > self.dropped:
            return
        del grades[source.grade]
        if not grades:
            del self._keys[key]

    def places(self, keys: Iterable[Key], since: int = -1) -> dict[Grade, SourcePlace]:
        """For each grade of source the first place of any of these values, among sources after `since`."""
        found: dict[Grade, SourcePlace] = {}
        for key in keys:
            for grade, (first, latest) in self._keys.get(key, {}).items():
                place = first if first.source.number > since else latest
                if place.source.number > since and grade not in found:
                    found[grade] = place
        return found

    def texts_with(self, words: list[str], since: int = -1) -> Iterator[tuple[_Text, int]]:
        """The texts in which these words stand in this order with nothing between, oldest first."""
        lists = sorted((self._by_word.get(word, []) for word in dict.fromkeys(words)), key=len)
        if not lists or not lists[0]:
            return
        candidates = lists[0][-MAX_CANDIDATES:]
        if len(lists) > 1 and len(lists[1]) < 8 * len(candidates):
            candidates = sorted(set(candidates).intersection(lists[1]))
        run = f" {' '.join(words)} "
        for number in candidates:
            text = self._texts.get(number)
            if text is not None and text.source.number > since:
                at = text.words.find(run)
                if at >= 0:
                    yield text, at

    def run_places(self, words: list[str], since: int = -1, *, but_by: str = "") -> dict[Grade, SourcePlace]:
        """For each grade of source the first place of this run of words; of a trusted one it is the whole."""
        found: dict[Grade, SourcePlace] = {}
        for text, at in self.texts_with(words, since):
            grade = text.source.grade
            if grade in found or text.source.by == but_by:
                continue
            if grade != "trusted" or len(text.words) == len(" ".join(words)) + 2:
                found[grade] = SourcePlace(text.source, text.path, at, _around(text, words))
        return found

    def longest_runs(
        self, words: list[str], start: int, since: int = -1, *, but_by: str = ""
    ) -> dict[Grade, tuple[int, SourcePlace]]:
        """For each grade of source how many words from `start` on stand in one text, two or more."""
        found: dict[Grade, tuple[int, SourcePlace]] = {}
        if start + 1 >= len(words):
            return found
        for text, _ in self.texts_with(words[start : start + 2], since):
            grade = text.source.grade
            if text.source.by == but_by:
                continue
            count = _common_words(text.words, words, start, whole=grade == "trusted")
            if count > found.get(grade, (1,))[0]:
                place = SourcePlace(text.source, text.path, 0, _around(text, words[start : start + count]))
                found[grade] = (count, place)
        return found

    def loose_place(self, value: str, since: int = -1, *, but_by: str = "") -> SourcePlace | None:
        """Where an untrusted or private text has this value respelled, in part, or joined from parts."""
        loose = fold_loosely(value)
        if len(loose) < MIN_PART_CHARS:
            return None
        joined, starts = self._joined or self._join()
        found, first = None, 0
        for _ in range(MAX_PARTS):
            most = bisect_left(
                range(len(loose) - first),
                True,
                key=lambda more: loose[first : first + more + 1] not in joined,
            )
            if most < min(MIN_PART_CHARS, len(loose) - first):
                return None
            at = joined.find(loose[first : first + most])
            place = self._loose[bisect_right(starts, at) - 1][1]
            if found is None and place.source.number > since and place.source.by != but_by:
                found = place
            first += most
            if first == len(loose):
                return found
        return None

    def _join(self) -> tuple[str, list[int]]:
        starts = list(accumulate((len(loose) + 1 for loose, _ in self._loose), initial=0))
        self._joined = "\n".join(loose for loose, _ in self._loose), starts[:-1]
        return self._joined


def excerpt(text: str, start: int, end: int) -> str:
    """A short piece of a text around what was found in it."""
    left = max(0, start - (EXCERPT_CHARS - min(end - start, EXCERPT_CHARS)) // 2)
    piece = " ".join(text[left : left + EXCERPT_CHARS].split())
    return ("…" if left else "") + piece + ("…" if left + EXCERPT_CHARS < len(text) else "")


def _common_words(text: str, words: list[str], start: int, *, whole: bool) -> int:
    """How many of the words from `start` on stand together in a text; if `whole`, all of the text or none."""
    if whole:
        held = text.split()
        return len(held) if words[start : start + len(held)] == held else 0
    most, run = 0, f" {words[start]} {words[start + 1]} "
    at = text.find(run)
    for _ in range(MAX_REPEATS):
        if at < 0:
            break
        count, end = 2, at + len(run) - 1
        while start + count < len(words) and text.startswith(f" {words[start + count]} ", end):
            end += len(words[start + count]) + 1
            count += 1
        most = max(most, count)
        at = text.find(run, at + 1)
    return most


def _around(text: _Text, words: list[str]) -> str:
    at = max(0, text.original.lower().find(words[0]))
    return excerpt(text.original, at, at + 1)
