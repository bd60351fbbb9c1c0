"""Where each argument of a call came from, and whether a person has to decide about the call.

A value is a person's if they said exactly this; else an untrusted one if others wrote it, or a part of it,
in any spelling or encoding; else nobody's. A text is looked at by runs of words, and the addresses, links,
codes, numbers and days inside it by themselves. A call runs without a question only if every value that
steers it was said by a person, configured, or returned by a trusted look-up. Whatever cannot be told asks.

What does not steer: a time of day on a day that was said, an option that the tool's definition lists, and
words that the agent wrote itself into an argument for words (`body`, `title`).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from moot.origins.origin_memory import AgentContext, OriginMemory
from moot.origins.source_index import Grade, SourcePlace
from moot.origins.text_forms import decoded, fold_strictly, unspell, word_starts, words_of
from moot.origins.tool_traits import ToolTraits
from moot.origins.value_keys import (
    MIN_CODE_CHARS,
    Key,
    compact,
    id_keys,
    is_id_name,
    link_text,
    name_words,
    number_text,
    values_in,
)
from moot.protocol.hidden_text import find_hidden
from moot.protocol.operation import Json
from moot.values.templates import has_prose_words, is_shell_like
from moot.values.word_lists import RUNNING_TOOLS, TEXT_NAMES

OriginClass = Literal["person", "operator", "trusted", "untrusted", "nobody", "unknown"]

# So many words together are no accident.
MIN_RUN_WORDS: Final = 4
# Words of one text that are looked at, and leaves of one call: beyond, it is not known where they came from.
MAX_TEXT_WORDS: Final = 2_000
MAX_CALL_LEAVES: Final = 256
# A name of a record must be unlikely to be said by chance.
MIN_NAME_CHARS: Final = 8
_DAY: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)?)?", re.ASCII
)
_CHOICE: Final = re.compile(r"[A-Za-z][A-Za-z _-]{0,31}", re.ASCII)
# What names are written with; anything else has to stand in the text itself.
_PLAIN_NAME: Final = re.compile(r"[\w\s.,'’&():!?\"-]+")
_TARGET_KINDS: Final = frozenset({"address", "place", "code", "mention"})
# Said if the words around them are.
_COUNTED_KINDS: Final = frozenset({"number", "code", "day", "month-day"})
_PRIVATE_KINDS: Final = frozenset({"address", "code"})


@dataclass(frozen=True, slots=True)
class OriginCall:
    """A call as a proposal or request asks for it. `choices` are the options that its definition lists."""

    agent: str
    tool: str
    arguments: Mapping[str, Json]
    traits: ToolTraits
    choices: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ArgumentOrigin:
    """Where one leaf of the arguments came from. `value` is the value, or the part of it that decided."""

    path: str
    value: str
    origin: OriginClass
    place: SourcePlace | None = None
    # Whether it decides what the call does, and to whom.
    steers: bool = True
    # The person who endorsed it, if it is a person's only by that.
    endorsed_by: str = ""


@dataclass(slots=True)
class PrivateText:
    """Text of a private source that would leave the space with a call."""

    place: SourcePlace
    characters: int


@dataclass(slots=True)
class OriginReader:
    """Looks up the values of one call. `now` bounds endorsements."""

    memory: OriginMemory
    call: OriginCall
    now: float
    private: dict[int, PrivateText] = field(default_factory=dict)
    context: AgentContext = field(init=False)

    def __post_init__(self) -> None:
        self.context = self.memory.context_of(self.call.agent)

    @property
    def clean(self) -> bool:
        """Whether this agent has read nothing that others wrote since its context was cleared."""
        return (
            not self.context.outside
            and self.context.untrusted <= self.context.since
            and not self._has_forgotten
        )

    @property
    def _has_forgotten(self) -> bool:
        return self.memory.index.dropped > self.context.since

    def arguments(self) -> list[ArgumentOrigin]:
        found: list[ArgumentOrigin] = []
        for count, (path, name, value) in enumerate(_call_leaves(self.call.arguments, "", "")):
            if count >= MAX_CALL_LEAVES:
                return [*found, ArgumentOrigin(path, "…", "unknown")]
            found.append(self._endorsed(self._origin(path, name, value)))
        return found

    def _origin(self, path: str, name: str, value: Json) -> ArgumentOrigin:
        if value is None or isinstance(value, bool):
            return ArgumentOrigin(path, str(value).lower(), "nobody", steers=False)
        text = value if isinstance(value, str) else number_text(value)
        if not text.strip() or (text in self.call.choices and _CHOICE.fullmatch(text)):
            return ArgumentOrigin(path, text, "nobody", steers=False)
        if isinstance(value, str) and find_hidden(text) is not None:
            return self._unsaid(path, text, [text])
        if is_id_name(name) and len(text) <= 64 and (len(text) < 3 or any(map(str.isdigit, text))):
            return self._id_origin(path, name, text)
        if found := _DAY.fullmatch(text):
            return self._keyed(path, text, _day_keys(found))
        if not isinstance(value, str):
            return self._keyed(path, text, [("number", text)])
        if name_words(name) & TEXT_NAMES and not name_words(self.call.tool) & RUNNING_TOOLS:
            return self._text_origin(path, text)
        return self._name_origin(path, text)

    # One value.

    def _keyed(
        self, path: str, text: str, keys: list[Key], places: dict[Grade, SourcePlace] | None = None
    ) -> ArgumentOrigin:
        found = self.memory.index.places(keys, self.context.since) if places is None else places
        untrusted = found.get("untrusted")
        if place := found.get("person"):
            return ArgumentOrigin(path, text, "person", place)
        if place := found.get("operator"):
            return ArgumentOrigin(path, text, "operator", place)
        if (place := found.get("trusted")) and untrusted is None:
            if not any(key[0] == "address" for key in keys):
                self._note_private(place, len(text))
            return ArgumentOrigin(path, text, "trusted", place)
        if untrusted is not None and untrusted.source.by != self.call.agent:
            return ArgumentOrigin(path, text, "untrusted", untrusted)
        return self._unsaid(path, text, [text])

    def _unsaid(self, path: str, text: str, forms: list[str]) -> ArgumentOrigin:
        """Nobody said it as it is: others may have written a part of it, or all of it in another way."""
        for form in (*forms, *decoded(text)):
            for value in {
                form,
                *(key[1] for key, _, _ in values_in(form, self.now) if key[0] in _TARGET_KINDS),
            }:
                place = self.memory.index.loose_place(value, self.context.since, but_by=self.call.agent)
                if place is not None and place.source.grade == "untrusted":
                    return ArgumentOrigin(path, text, "untrusted", place)
                self._note_private(place, len(text))
        unknown = self._has_forgotten or self.context.outside
        return ArgumentOrigin(path, text, "unknown" if unknown else "nobody")

    def _id_origin(self, path: str, name: str, text: str) -> ArgumentOrigin:
        keys = id_keys(text, name)
        nouns = name_words(self.call.tool) - {"id"}
        keys += [("called", f"{noun.removesuffix('s')}:{compact(text)}") for noun in sorted(nouns)]
        if len(compact(text)) > MIN_CODE_CHARS:
            keys += [("code", compact(text)), ("address", fold_strictly(text)), ("place", link_text(text))]
        origin = self._keyed(path, text, keys)
        if origin.origin in ("person", "operator", "trusted"):
            return origin
        return self._named_record(path, text) or origin

    def _named_record(self, path: str, id: str) -> ArgumentOrigin | None:
        """The id of a record that a person named: others may write in a record, but not choose its id."""
        for record in self.memory.records_with(id, self.context.since):
            for name in (record.name, re.sub(r"\.[A-Za-z0-9]{1,5}$", "", record.name)):
                place = self.memory.index.run_places(words_of(name), self.context.since).get("person")
                if place is not None and len(name) >= MIN_NAME_CHARS:
                    return ArgumentOrigin(path, id, "person", place)
        return None

    def _name_origin(self, path: str, text: str) -> ArgumentOrigin:
        whole = [
            key
            for key, start, end in values_in(text, self.now)
            if end - start == len(text) and key[0] != "called"
        ]
        if whole:
            origin = self._keyed(path, text, whole[:1])
            if origin.origin != "nobody" or whole[0][0] != "place":
                return origin
            return self._place_parts(path, text, whole[0][1])
        words = words_of(text)
        if len(words) > MAX_TEXT_WORDS or not words or len("".join(words)) < 3:
            return self._unsaid(path, text, [text])
        places = self.memory.index.run_places(words, self.context.since)
        if not _PLAIN_NAME.fullmatch(text):
            places = {grade: each for grade, each in places.items() if self._stands_in(text, words, grade)}
        if places:
            return self._keyed(path, text, [], places)
        if len(words) >= MIN_RUN_WORDS:
            return self._text_origin(path, text, steers=True)
        return self._unsaid(path, text, [text, unspell(text)])

    def _stands_in(self, text: str, words: list[str], grade: Grade) -> bool:
        """Whether it stands in a text of this grade with all its signs; others' texts need not have them."""
        folded = fold_strictly(text)
        return grade == "untrusted" or any(
            each.source.grade == grade and folded in fold_strictly(each.original)
            for each, _ in self.memory.index.texts_with(words, self.context.since)
        )

    def _place_parts(self, path: str, text: str, place: str) -> ArgumentOrigin:
        """A link whose host was said: each part behind it has to be said, too."""
        host, slash, rest = place.partition("/")
        origin = self._keyed(path, text, [("place", host)])
        if not slash or "." not in host or origin.origin not in ("person", "operator", "trusted"):
            return self._unsaid(path, text, [text])
        for part in words_of(rest):
            inner = self._keyed(path, part, [], self.memory.index.run_places([part], self.context.since))
            if inner.origin not in ("person", "operator", "trusted"):
                return inner
        return origin

    # A text.

    def _text_origin(self, path: str, text: str, *, steers: bool = False) -> ArgumentOrigin:
        words = words_of(text)
        if len(words) > MAX_TEXT_WORDS:
            return ArgumentOrigin(path, text[:80], "unknown")
        covered, untrusted, said = self._cover(words)
        plain = text
        for start, end, inner in self._inner_values(path, text, covered):
            if inner.origin in ("untrusted", "unknown") or (inner.origin == "nobody" and inner.steers):
                return inner
            plain = plain[:start] + " " * (end - start) + plain[end:]
        if untrusted is not None and len(words) >= MIN_RUN_WORDS:
            return ArgumentOrigin(path, text, "untrusted", untrusted, steers or self.call.traits.outside)
        if said is not None and 2 * sum(covered) >= len(words) and (all(covered) or _is_prose(plain)):
            return ArgumentOrigin(path, text, "person", said)
        return ArgumentOrigin(path, text, "nobody", steers=steers or not _is_prose(plain))

    def _cover(self, words: list[str]) -> tuple[list[bool], SourcePlace | None, SourcePlace | None]:
        """Which words stand in runs that were said or looked up; the first run of others, and of a person."""
        covered = [False] * len(words)
        untrusted = said = None
        at = 0
        while at < len(words):
            runs = self.memory.index.longest_runs(words, at, self.context.since, but_by=self.call.agent)
            if len(words) == 1:
                runs = {
                    grade: (1, each)
                    for grade, each in self.memory.index.run_places(words, self.context.since).items()
                }
            own, place = max(
                (runs[grade] for grade in _SAID if grade in runs), key=lambda run: run[0], default=(0, None)
            )
            others, their_place = runs.get("untrusted", (0, None))
            if others >= MIN_RUN_WORDS and others > own:
                untrusted = untrusted or their_place
                self._note_private(their_place, sum(map(len, words[at : at + others])) + others - 1)
                at += others
            elif own:
                covered[at : at + own] = [True] * own
                if place is not None and place.source.grade == "person":
                    said = said or place
                elif own >= MIN_RUN_WORDS:
                    self._note_private(place, sum(map(len, words[at : at + own])) + own - 1)
                at += own
            else:
                at += 1
        return covered, untrusted, said

    def _inner_values(
        self, path: str, text: str, covered: list[bool]
    ) -> Iterator[tuple[int, int, ArgumentOrigin]]:
        """The values inside a text, from where to where, and their origins; small numbers are words."""
        seen = set()
        starts = word_starts(text)
        for form in (text, unspell(text), *decoded(text)):
            for key, start, end in values_in(form, self.now):
                kind = key[0]
                if kind in ("called", "part") or key in seen or (kind == "number" and _is_small(key[1])):
                    continue
                seen.add(key)
                if form is text and kind in _COUNTED_KINDS:
                    first = bisect_left(starts, start)
                    inside = covered[first : bisect_left(starts, end)]
                    if inside and all(inside):
                        yield start, end, ArgumentOrigin(path, text[start:end], "person")
                        continue
                origin = self._keyed(path, key[1], [key])
                if origin.place is not None and origin.origin == "untrusted" and kind in _PRIVATE_KINDS:
                    self._note_private(origin.place, end - start)
                # Nobody's numbers and days are computed, which matters if from what others wrote.
                steers = kind in _TARGET_KINDS or not self.clean
                found = ArgumentOrigin(path, form[start:end], origin.origin, origin.place, steers)
                yield (start, end, found) if form is text else (0, 0, found)

    def _note_private(self, place: SourcePlace | None, characters: int) -> None:
        if place is not None and place.source.private and self.call.traits.outside:
            noted = self.private.setdefault(place.source.number, PrivateText(place, 0))
            noted.characters += characters

    def _endorsed(self, origin: ArgumentOrigin) -> ArgumentOrigin:
        if origin.origin not in ("untrusted", "nobody") or not origin.steers:
            return origin
        source = origin.place.source.envelope if origin.place else None
        for each in self.memory.endorsements.values():
            if each.covers(
                origin.value, source, task=self.context.task, member=self.call.agent, now=self.now
            ):
                return ArgumentOrigin(origin.path, origin.value, "person", origin.place, endorsed_by=each.by)
        return origin


_SAID: Final[tuple[Grade, ...]] = ("person", "operator", "trusted")


def _is_prose(text: str) -> bool:
    """Words of a language, in lines and lists, with nothing that a program would run."""
    lines = [line.strip(" \t\r-*•>#<`|.…") for line in text.splitlines()]
    return all(has_prose_words(line) and not is_shell_like(line) for line in lines if line)


def _is_small(number: str) -> bool:
    """A count in a sentence: up to two digits."""
    return number.isdigit() and len(number) <= 2


def _day_keys(found: re.Match[str]) -> list[Key]:
    return [("day", f"{found[1]}-{found[2]}-{found[3]}"), ("month-day", f"{found[2]}-{found[3]}")]


_TOP_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", re.ASCII)
_NESTED_NAME: Final = re.compile(r"[a-z][a-z_]{0,31}", re.ASCII)


def _call_leaves(value: Json, path: str, name: str, depth: int = 16) -> Iterator[tuple[str, str, Json]]:
    """Every value of the arguments, with its path and the name it goes by; odd names are values, too."""
    if isinstance(value, dict) and depth:
        for key, inner in value.items():
            below = f"{path}.{key}" if path else key
            if not (_NESTED_NAME if path else _TOP_NAME).fullmatch(key):
                yield f"{below} (name)", "", key
            yield from _call_leaves(inner, below, key, depth - 1)
    elif isinstance(value, list) and depth:
        for at, inner in enumerate(value):
            yield from _call_leaves(inner, f"{path}[{at}]", name, depth - 1)
    else:
        yield path, name, value if not isinstance(value, dict | list) else str(value)
