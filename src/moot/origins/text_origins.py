"""Where a text came from: by runs of its words, and the addresses, links, codes, numbers and days inside it.

Words that an agent wrote itself steer nothing, if they are prose; what others wrote does, however its words
are put together.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from moot.origins.origin_call import SAID, ArgumentOrigin
from moot.origins.result_parts import MAX_VALUE_WORDS
from moot.origins.source_index import MIN_RUN_WORDS
from moot.origins.source_place import SourcePlace
from moot.origins.text_forms import (
    fold_strictly,
    unspell,
    with_digits,
    without_disguise,
    word_starts,
    words_of,
)
from moot.origins.value_keys import TARGETS
from moot.origins.value_lookup import ValueLookup
from moot.values.templates import has_prose_words, is_shell_like

# Words of one text that are looked at: beyond, it is not known.
MAX_TEXT_WORDS: Final = 4_000
# A long number in short ones.
_DIGIT_ROW: Final = re.compile(r"(?:\d{1,2}(?!\d)[\s,.;/|–-]{1,4}){3}\d")
# What names are written with; anything else, and what may be an option, has to stand in the text itself.
PLAIN_NAME: Final = re.compile(r"(?:[\w.,'’&():!?\"]|(?<=\S)-| )+")
_PRIVATE_KINDS: Final = frozenset({"address", "code"})


@dataclass(frozen=True, slots=True)
class TextOrigins:
    """The texts of one call."""

    look: ValueLookup

    def origin(self, path: str, text: str, *, steers: bool = False) -> ArgumentOrigin:
        words = words_of(text)
        if len(words) > MAX_TEXT_WORDS:
            return ArgumentOrigin(path, text, "unknown")
        covered, untrusted, said = self._cover(words, words_of(without_disguise(text)))
        plain = text
        for start, end, inner in self._inner_values(path, text, covered):
            if inner.origin in ("untrusted", "unknown") or (inner.origin == "nobody" and inner.steers):
                return inner
            plain = plain[:start] + " " * (end - start) + plain[end:]
        matters = steers or self.look.call.traits.outside
        if untrusted is not None:
            return ArgumentOrigin(path, text, "untrusted", untrusted, matters)
        if self.look.misses_something and len(words) >= MIN_RUN_WORDS and not all(covered):
            return ArgumentOrigin(path, text, "unknown", steers=matters)
        if steers and not (all(covered) and PLAIN_NAME.fullmatch(text)):
            # What steers is said as a whole, with its signs: else what nobody said decides.
            rest = [
                self.look.others_place([word]) for word, done in zip(words, covered, strict=False) if not done
            ]
            return self.look.found(path, text, next(filter(None, rest), {}))
        if said is not None and 2 * sum(covered) >= len(words) and (all(covered) or _is_prose(plain)):
            by = self.look.endorsed_sources.get(said.source.envelope)
            return ArgumentOrigin(path, text, "person", said, endorsement=by)
        return ArgumentOrigin(path, text, "nobody", steers=steers or not _is_prose(plain))

    def _cover(
        self, words: list[str], plain: list[str]
    ) -> tuple[list[bool], SourcePlace | None, SourcePlace | None]:
        """Which words stand in runs that were said or looked up; the first run of others, and of a person.

        `plain` are the words without look-alike letters: what others wrote is found by these.
        """
        if len(words) != len(plain):
            words = plain
        covered = [False] * len(words)
        untrusted = said = None
        look, index, since = self.look, self.look.memory.index, self.look.context.since
        at = 0
        starts = index.run_starts(plain, look.budget)
        while at < len(words):
            own, place = self._own_run(words, at)
            others, their_place = 0, None
            runs = index.others_runs(plain, at, since, look.budget) if at in starts else ()
            for count, each in runs:
                if each.source.is_own_word_of(look.call.agent):
                    continue
                if each.source.envelope in look.endorsed_sources:
                    own, place = max((own, place), (count, each), key=lambda run: run[0])
                elif count > others:
                    others, their_place = count, each
                if others and not look.endorsed_sources:
                    break
            if others > own:
                untrusted = untrusted or their_place
                look.note_private(their_place, _chars(words[at : at + others]))
                at += others
            elif own:
                covered[at : at + own] = [True] * own
                if place is not None and place.source.grade in ("person", "untrusted"):
                    said = said or place
                if own >= MIN_RUN_WORDS:
                    look.note_private(place, _chars(words[at : at + own]))
                at += own
            else:
                at += 1
        for letters, each in () if untrusted else index.glued_places(plain, since, look.budget):
            if not (
                each.source.is_own_word_of(look.call.agent) or each.source.envelope in look.endorsed_sources
            ):
                look.note_private(each, letters)
                return covered, each, said
        return covered, untrusted, said

    def _own_run(self, words: list[str], at: int) -> tuple[int, SourcePlace | None]:
        """How many words from here on a person said together, or are a whole value of a look-up."""
        index, since = self.look.memory.index, self.look.context.since
        if len(words) == 1:
            places = self.look.word_places(words)
            place = next((places[grade] for grade in SAID if grade in places), None)
            return (0, None) if place is None or "untrusted" in places else (1, place)
        own, place = index.said_run(words, at, since, self.look.budget)
        longest = min(MAX_VALUE_WORDS, len(words) - at) if index.may_begin_value(words[at]) else 0
        for size in range(longest, max(own, 1), -1):
            self.look.budget.spend(1)
            key = ("whole", f" {' '.join(words[at : at + size])} ")
            if trusted := index.places([key], since).get("trusted"):
                return size, trusted
        return own, place

    def _inner_values(
        self, path: str, text: str, covered: list[bool]
    ) -> Iterator[tuple[int, int, ArgumentOrigin]]:
        """The values inside a text, from where to where, and their origins; small numbers are words."""
        seen = set()
        starts = word_starts(text)
        aligned = len(starts) == len(covered)
        forms = (text, unspell(text), with_digits(text, words_of(text)), *self.look.decoded(text))
        for form in dict.fromkeys(forms):
            for key, start, end in self.look.values_in(form):
                kind = key[0]
                if kind in ("called", "part") or key in seen or (kind == "number" and _is_small(key[1])):
                    continue
                seen.add(key)
                if form is text and kind in ("number", "code") and aligned:
                    # One word of a run that was said or looked up; `12.15` is two.
                    first = bisect_left(starts, start)
                    if covered[first : bisect_left(starts, end)] == [True]:
                        yield start, end, ArgumentOrigin(path, text[start:end], "person")
                        continue
                by = self.look.endorsed_values.get(
                    fold_strictly(form[start:end])
                ) or self.look.endorsed_values.get(key[1])
                if by:
                    origin = ArgumentOrigin(path, form[start:end], "person", endorsement=by)
                else:
                    origin = self.look.keyed(path, key[1], [key])
                if origin.place is not None and origin.origin == "untrusted" and kind in _PRIVATE_KINDS:
                    self.look.note_private(origin.place, end - start)
                # Nobody's numbers and days are computed, which matters if from what others wrote.
                steers = kind in TARGETS or not self.look.clean
                found = ArgumentOrigin(
                    path, form[start:end], origin.origin, origin.place, steers, origin.endorsement
                )
                yield (start, end, found) if form is text else (0, 0, found)


def _chars(words: list[str]) -> int:
    return sum(map(len, words)) + len(words) - 1


def _is_prose(text: str) -> bool:
    """Words of a language, in lines and lists, with nothing that a program would run."""
    if _DIGIT_ROW.search(text) or any(char.isdigit() and not char.isdecimal() for char in text):
        return False
    lines = [line.strip(" \t\r-*•>#<`|.…") for line in text.splitlines()]
    return all(has_prose_words(line) and not is_shell_like(line) for line in lines if line)


def _is_small(number: str) -> bool:
    """A count in a sentence: up to two digits."""
    return number.isdigit() and len(number) <= 2
