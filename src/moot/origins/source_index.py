"""What was said in a space and by whom, for looking up: values by their keys, texts by runs of their words.

Bounded: the oldest texts are dropped first, and what was dropped is told, since a value that cannot be found
any more is not one that nobody said. Of each value the first and the latest place are kept, for each grade
of source. Every look-up spends from the budget of a verdict.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from itertools import accumulate, islice
from typing import Final, NamedTuple

from moot.origins.source_place import Grade, OriginSource, SourcePlace
from moot.origins.step_budget import MESSAGE_STEPS, StepBudget
from moot.origins.text_forms import (
    compose,
    decoded,
    fold_loosely,
    fold_strictly,
    unspell,
    with_digits,
    without_disguise,
    words_of,
)
from moot.origins.value_keys import CHARS_PER_STEP, TARGETS, Key, compact, id_keys, is_id_name, values_in
from moot.origins.word_runs import (
    GLUED_CHARS,
    RUN_SLOTS,
    common_letters,
    common_words,
    glued_slots,
    run_slots,
    stands_apart,
    stands_in,
)

# 4 million characters, some 60 MB with what finds them: a working day of ten busy agents.
MAX_INDEX_CHARS: Final = 4_000_000
# Beside its characters, each text and each value costs as much memory as so many characters.
TEXT_COST: Final = 60
KEY_COST: Final = 40
STEPS_PER_LEAF: Final = 12
# Of one leaf of a message; the rest is not known.
MAX_TEXT_CHARS: Final = 65_536
MAX_LOOSE_CHARS: Final = 400_000
MAX_PATH_CHARS: Final = 256
MAX_PLAIN_CHARS: Final = 256
MIN_PART_CHARS: Final = 5
MAX_PARTS: Final = 8
# So many words together are no accident.
MIN_RUN_WORDS: Final = 4
# Kinds of values that can be put together from parts.
_LOOSE_KINDS: Final = frozenset({"address", "place", "code", "part"})
# What a short text is spelled or encoded with; the decoders look for more than this.
_MAY_HIDE: Final = re.compile(r"[\[({<%&\\=]|[dD][oO][tT]|[A-Za-z0-9+/_-]{12}|(?:[0-9a-fA-F]{2}[ :]?){6}")
# Finding a run in a text passes so many characters in a step.
_FOUND_PER_STEP: Final = 400
_MISSING_SPACE: Final = re.compile(r"(?<=[a-z]{2})\.(?=[A-Z][a-z])")


class _Text(NamedTuple):
    place: SourcePlace
    # With a space before, between and behind them; then the same without look-alike letters, if it differs.
    words: str
    plain: str
    cost: int


class SourceIndex:
    def __init__(self, *, max_chars: int = MAX_INDEX_CHARS) -> None:
        self.max_chars = max_chars
        # The number of the newest source of which something was dropped.
        self.dropped = -1
        self._cost = 0
        self._texts: dict[int, _Text] = {}
        self._pinned = 0
        self._next = 0
        self._gone = 0
        # Texts by their words: of people and the operator, and of all others.
        self._said: defaultdict[str, list[int]] = defaultdict(list)
        self._others: defaultdict[str, list[int]] = defaultdict(list)
        self._runs = bytearray()
        self._value_starts: set[str] = set()
        self._keys: dict[Key, dict[Grade, tuple[SourcePlace, SourcePlace]]] = {}
        self._key_order: deque[tuple[Key, OriginSource]] = deque()
        # The loose forms of untrusted and private values, for parts of them; joined when they are looked at.
        # `_starts` says where each of those begins.
        self._loose: list[tuple[str, SourcePlace]] = []
        self._loose_chars = 0
        self._joined = ""
        self._starts: list[int] = []

    def drop(self, number: int) -> None:
        """Something of this source is not known."""
        self.dropped = max(self.dropped, number)

    def add(
        self,
        source: OriginSource,
        path: str,
        text: str,
        *,
        member: str = "",
        budget: StepBudget | None = None,
    ) -> None:
        """Take in one leaf of a message; `member` is its name, if it has one.

        Raises BudgetSpent if the message is too long; what was taken in until then stays.
        """
        budget = budget or StepBudget(MESSAGE_STEPS)
        if len(text) > MAX_TEXT_CHARS:
            text = text[:MAX_TEXT_CHARS]
            self.drop(source.number)
        budget.spend(len(text) // (4 if text.isascii() else 2) + STEPS_PER_LEAF)
        text = compose(text)
        place = SourcePlace(source, path[:MAX_PATH_CHARS], text)
        self._cost += TEXT_COST + len(text)
        found, plain_words = self._words_of(place)
        words = f" {' '.join(found)} " if found else ""
        number, self._next = self._next, self._next + 1
        if source.grade == "operator":
            self._pinned += 1
        costs = self._cost
        try:
            if member and len(text) <= 64 and is_id_name(member):
                for key in [*id_keys(text, member), ("code", compact(text))]:
                    self._add_key(key, place)
            if source.grade == "trusted" and words:
                self._value_starts.add(words.split(" ", 2)[1])
                self._add_key(("whole", words), place)
            for form in (text, *self._hidden_forms(source, text, found, budget)):
                if form is not text:
                    self._cost += len(form)
                for key, start, end in values_in(form, source.at, budget):
                    if source.grade != "trusted" or (start == 0 and end == len(form)):
                        # A look-up vouches for its values, not for what a name in it says.
                        self._add_key(key, SourcePlace(source, place.path, form, start, end))
        finally:
            cost = TEXT_COST + len(text) + self._cost - costs
            plain = f" {' '.join(plain_words)} " if plain_words else ""
            self._texts[number] = _Text(place, words, plain, cost)
            self._index_words(number, source, found, plain_words)
            while self._cost > self.max_chars and len(self._texts) > self._pinned + 1:
                self._drop_oldest()

    def _words_of(self, place: SourcePlace) -> tuple[list[str], list[str]]:
        """The words of a text, and the same without look-alike letters, if it differs."""
        words = words_of(place.text)
        if place.text.isascii() or place.source.grade in ("person", "operator"):
            return words, []
        plain = words_of(without_disguise(place.text))
        return words, [] if plain == words else plain

    def _index_words(self, number: int, source: OriginSource, words: list[str], plain: list[str]) -> None:
        if source.grade == "trusted":
            return
        table = self._others if source.grade == "untrusted" else self._said
        for each in (words, plain):
            for word in set(each):
                table[word].append(number)
            if source.grade == "untrusted" and len(each) >= MIN_RUN_WORDS:
                self._runs = self._runs or bytearray(RUN_SLOTS >> 3)
                for slot in (*run_slots(each), *glued_slots(each)):
                    self._runs[slot >> 3] |= 1 << (slot & 7)

    def _hidden_forms(
        self, source: OriginSource, text: str, words: list[str], budget: StepBudget
    ) -> Iterator[str]:
        # Only what others wrote is read in every way; people at most forget a space behind a full stop.
        if source.grade == "person" and _MISSING_SPACE.search(text):
            yield _MISSING_SPACE.sub(" ", text)
        if source.grade != "untrusted":
            return
        budget.spend(len(text) // 4)
        if (counted := with_digits(text, words)) != text:
            yield counted
        if len(text) <= MAX_PLAIN_CHARS and text.isascii() and not _MAY_HIDE.search(text):
            return
        if (spelled := unspell(text)) != text:
            yield spelled
        if not text.isascii():
            yield without_disguise(text)
        found = decoded(text)
        yield from map(compose, found.forms)
        if not found.whole:
            self.drop(source.number)

    def _add_key(self, key: Key, place: SourcePlace) -> None:
        source = place.source
        grades = self._keys.setdefault(key, {})
        first, latest = grades.get(source.grade, (place, place))
        # What a member says never hides that it stands in a result.
        kept_latest = source.tool is None and latest.source.tool is not None
        grades[source.grade] = (first, latest if kept_latest else place)
        self._key_order.append((key, source))
        self._cost += KEY_COST + len(key[1])
        kept = source.grade == "untrusted" or (source.grade == "trusted" and source.private)
        if kept and key[0] in _LOOSE_KINDS:
            loose = fold_loosely(key[1])
            if len(loose) >= MIN_PART_CHARS:
                self._loose.append((loose, place))
                self._loose_chars += len(loose)
                if self._loose_chars > MAX_LOOSE_CHARS and len(self._loose) > 1:
                    self._drop_loose()

    def take_back(self, text: str, at: float, budget: StepBudget) -> None:
        """A person said whom and what they do not want: whatever they had said of these before."""
        for key, _, _ in values_in(compose(text), at, budget):
            if key[0] in TARGETS:
                self._keys.get(key, {}).pop("person", None)

    def _drop_loose(self) -> None:
        """Drop the oldest, many at once: what is joined has to be made anew then."""
        gone = self._loose[: len(self._loose) // 4 + 1]
        self._loose = self._loose[len(gone) :]
        self._loose_chars -= sum(len(loose) for loose, _ in gone)
        self.drop(gone[-1][1].source.number)
        self._joined, self._starts = "", []

    def _drop_oldest(self) -> None:
        number, text = next(islice(self._texts.items(), self._pinned, None))
        del self._texts[number]
        self._cost -= text.cost
        self._gone += 1
        self.drop(text.place.source.number)
        while self._key_order and self._key_order[0][1].number <= self.dropped:
            self._drop_key(*self._key_order.popleft())
        if self._gone > 256 and self._gone > len(self._texts):
            self._gone = 0
            self._said, self._others = map(self._without_dropped, (self._said, self._others))

    def _without_dropped(self, table: dict[str, list[int]]) -> defaultdict[str, list[int]]:
        kept = {word: [each for each in at if each in self._texts] for word, at in table.items()}
        return defaultdict(list, {word: at for word, at in kept.items() if at})

    def _drop_key(self, key: Key, source: OriginSource) -> None:
        grades = self._keys.get(key, {})
        places = grades.get(source.grade)
        if source.grade == "operator" or places is None or places[1].source.number > self.dropped:
            return
        del grades[source.grade]
        if not grades:
            del self._keys[key]

    # Looking up. `since`: only sources after this one, and what the operator configured.

    def places(self, keys: Iterable[Key], since: int = -1, agent: str = "") -> dict[Grade, SourcePlace]:
        """For each grade of source the first place of any of these values that is no word of this agent."""
        found: dict[Grade, SourcePlace] = {}
        for key in keys:
            for grade, places in self._keys.get(key, {}).items():
                for place in places:
                    if _is_after(place, since) and not place.source.is_own_word_of(agent):
                        found.setdefault(grade, place)
        return found

    def may_begin_value(self, word: str) -> bool:
        """Whether a value of a look-up may begin with this word."""
        return word in self._value_starts

    def said_place(
        self, words: list[str], since: int, budget: StepBudget, sign: str = ""
    ) -> SourcePlace | None:
        """Where a person or the operator said this run of words, and `sign` with it as it is written."""
        for text, _ in self._texts_with(self._said, words, since, budget):
            budget.spend(len(text.place.text) // CHARS_PER_STEP)
            said = fold_strictly(text.place.text)
            if stands_in(said, sign) if sign else stands_apart(said, words):
                return _around(text.place, words)
        return None

    def others_places(self, words: list[str], since: int, budget: StepBudget) -> Iterator[SourcePlace]:
        """Where others wrote this run of words."""
        for text, _ in self._texts_with(self._others, words, since, budget):
            yield _around(text.place, words)

    def said_run(
        self, words: list[str], start: int, since: int, budget: StepBudget
    ) -> tuple[int, SourcePlace | None]:
        """How many words from `start` on a person said together, at least two."""
        most: tuple[int, SourcePlace | None] = (0, None)
        if start + 1 >= len(words) or words[start] not in self._said or words[start + 1] not in self._said:
            return most
        for text, at in self._texts_with(self._said, words[start : start + 2], since, budget):
            count = common_words(text.words, words, start, at, budget)
            if count > most[0]:
                most = (count, _around(text.place, words[start : start + 1]))
        return most

    def others_runs(
        self, words: list[str], start: int, since: int, budget: StepBudget
    ) -> Iterator[tuple[int, SourcePlace]]:
        """How many words from `start` on stand together in texts of others, `MIN_RUN_WORDS` at least."""
        run = words[start : start + MIN_RUN_WORDS]
        for text, at in self._texts_with(self._others, run, since, budget):
            held = text.words if f" {' '.join(run)} " in text.words else text.plain
            yield common_words(held, words, start, at, budget), _around(text.place, run)

    def run_starts(self, words: list[str], budget: StepBudget) -> set[int]:
        """Where a run may begin that others wrote; where it does not, there is none."""
        budget.spend(len(words) // 2)
        slots = run_slots(words) if self._runs else ()
        return {at for at, slot in enumerate(slots) if self._has_run(slot)}

    def _has_run(self, slot: int) -> bool:
        return bool(self._runs[slot >> 3] >> (slot & 7) & 1)

    def glued_places(
        self, words: list[str], since: int, budget: StepBudget
    ) -> Iterator[tuple[int, SourcePlace]]:
        """Where others wrote these letters in other words: `wirethe moneyto` is `wire the money to`.

        Only at words that nobody has used: all others are found as they are. With how many letters.
        """
        glued, at, tried = "".join(words), 0, 0
        for word in words if self._runs else ():
            if word not in self._others and word not in self._said:
                first = max(tried, at - GLUED_CHARS + 1)
                tried = at + len(word)
                budget.spend((tried - first) // 2)
                for start in range(first, min(tried, len(glued) - GLUED_CHARS + 1)):
                    if self._has_run(hash(glued[start : start + GLUED_CHARS]) % RUN_SLOTS):
                        yield from self._glued_at(glued, start, since, budget)
            at += len(word)

    def _glued_at(
        self, glued: str, start: int, since: int, budget: StepBudget
    ) -> Iterator[tuple[int, SourcePlace]]:
        for size in range(1, GLUED_CHARS + 1):
            first = glued[start : start + size]
            for text, _ in self._texts_with(self._others, [first], since, budget):
                for held in filter(None, (text.words, text.plain)):
                    budget.spend(len(held) // 16)
                    count, letters = common_letters(held.split(), first, glued, start)
                    if count >= MIN_RUN_WORDS and letters >= GLUED_CHARS:
                        yield letters, _around(text.place, [first])

    def _texts_with(
        self, table: dict[str, list[int]], words: list[str], since: int, budget: StepBudget
    ) -> Iterator[tuple[_Text, int]]:
        """The texts in which these words stand in this order with nothing between, oldest first."""
        budget.spend(len(words) + 1)
        lists = sorted((table.get(word, []) for word in dict.fromkeys(words)), key=len)
        if not lists or not lists[0]:
            return
        candidates: Iterable[int] = lists[0]
        if len(lists) > 1 and len(lists[1]) < 8 * len(lists[0]):
            budget.spend((len(lists[0]) + len(lists[1])) // 16)
            candidates = sorted(set(lists[0]).intersection(lists[1]))
        run = f" {' '.join(words)} "
        for number in candidates:
            text = self._texts.get(number)
            if text is None or not _is_after(text.place, since):
                budget.spend(1)
                continue
            budget.spend((len(text.words) + len(text.plain)) // _FOUND_PER_STEP + 1)
            for each in (text.words, text.plain):
                at = each.find(run)
                if at >= 0:
                    yield text, at
                    break

    def loose_parts(self, value: str, since: int, budget: StepBudget) -> list[SourcePlace]:
        """Where untrusted or private texts have this value respelled, or the parts it is joined from.

        Empty if it is not made of such parts alone; a part of an older source counts, and is left out.
        """
        loose = fold_loosely(value)
        budget.spend(len(value) // CHARS_PER_STEP + 2)
        self._join(budget)
        found, first = [], 0
        for _ in range(MAX_PARTS):
            least = min(MIN_PART_CHARS, len(loose) - first)
            if len(loose) < MIN_PART_CHARS or not self._holds(loose[first : first + least], budget):
                return []
            more = bisect_left(
                range(least, len(loose) - first),
                True,
                key=lambda size: not self._holds(loose[first : first + size + 1], budget),
            )
            part = loose[first : first + least + more]
            place = self._loose[bisect_right(self._starts, self._joined.find(part)) - 1][1]
            if _is_after(place, since):
                found.append(place)
            first += len(part)
            if first == len(loose):
                return found
        return []

    def _holds(self, part: str, budget: StepBudget) -> bool:
        budget.spend(len(self._joined) // _FOUND_PER_STEP + 1)
        return part in self._joined

    def _join(self, budget: StepBudget) -> None:
        new = [loose for loose, _ in self._loose[len(self._starts) :]]
        budget.spend(len(new) // 8)
        self._starts += list(accumulate((len(loose) + 1 for loose in new), initial=len(self._joined)))[:-1]
        self._joined += "".join(f"{loose}\n" for loose in new)


def _is_after(place: SourcePlace, since: int) -> bool:
    return place.source.number > since or place.source.grade == "operator"


def _around(place: SourcePlace, words: list[str]) -> SourcePlace:
    at = max(0, place.text.lower().find(words[0]))
    return SourcePlace(place.source, place.path, place.text, at, at + len(words[0]))
