"""Where each argument of a call came from, and whether a person has to decide about the call.

A value is a person's if they said exactly this; else an untrusted one if others wrote it, or a part of it,
in any spelling or encoding; else nobody's. A text is looked at by runs of words, and the addresses, links,
codes, numbers and days inside it by themselves. A call runs without a question only if every value that
steers it was said by a person, configured, or returned by a trusted look-up. Whatever cannot be told asks,
and so does what is beyond the budget of a verdict.

What does not steer: a time of day on a day that was said, an option that the tool's definition lists, and
words that the agent wrote itself into an argument for words (`body`, `title`).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from moot.origins.call_leaves import call_leaves
from moot.origins.endorsement import Endorsement
from moot.origins.origin_memory import AgentContext, OriginMemory
from moot.origins.result_parts import MAX_VALUE_WORDS
from moot.origins.source_index import MIN_RUN_WORDS, Grade, SourcePlace
from moot.origins.step_budget import VERDICT_STEPS, BudgetSpent, StepBudget
from moot.origins.text_forms import (
    compose,
    decoded,
    fold_strictly,
    unspell,
    without_disguise,
    word_starts,
    words_of,
)
from moot.origins.tool_traits import ToolTraits
from moot.origins.value_keys import (
    CHARS_PER_STEP,
    MIN_CODE_CHARS,
    TARGETS,
    Key,
    compact,
    id_keys,
    is_id_name,
    link_text,
    number_text,
    values_in,
    words_in_name,
)
from moot.protocol import strict_json
from moot.protocol.hidden_text import find_hidden
from moot.protocol.operation import Json
from moot.values.templates import has_prose_words, is_shell_like
from moot.values.word_lists import RUNNING_TOOLS, TEXT_NAMES

OriginClass = Literal["person", "operator", "trusted", "untrusted", "nobody", "unknown"]

# Words of one text that are looked at, leaves of one call and their characters: beyond, it is not known.
MAX_TEXT_WORDS: Final = 4_000
MAX_CALL_LEAVES: Final = 256
MAX_CALL_CHARS: Final = 65_536
_DAY: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:\d\d)?)?", re.ASCII
)
_YEAR_SECONDS: Final = 365.2425 * 86_400
# Behind a host that was said.
_PLAIN_PATH: Final = re.compile(r"[\w-]+(?:[/.][\w-]+)*/?")
# A long number in short ones.
_DIGIT_ROW: Final = re.compile(r"(?:\d{1,2}(?!\d)[\s,.;/|–-]{1,4}){3}\d")
_CHOICE: Final = re.compile(r"[A-Za-z][A-Za-z _-]{0,31}", re.ASCII)
# What names are written with; anything else, and what may be an option, has to stand in the text itself.
_PLAIN_NAME: Final = re.compile(r"(?:[\w.,'’&():!?\"]|(?<=\S)-| )+")
_ADDRESSES: Final = re.compile(r"[^\s,;<>()]+@[^\s,;<>()]+(?:[,;] ?[^\s,;<>()]+@[^\s,;<>()]+)+")
_PRIVATE_KINDS: Final = frozenset({"address", "code"})
_SAID: Final = ("person", "operator", "trusted")


@dataclass(frozen=True, slots=True)
class OriginCall:
    """A call as a proposal or request asks for it.

    `schema` is how its definition describes the arguments; None: not known.
    """

    agent: str
    tool: str
    arguments: Mapping[str, Json]
    traits: ToolTraits
    schema: Json = None


@dataclass(frozen=True, slots=True)
class ArgumentOrigin:
    """Where one leaf of the arguments came from. `value` is the value, or the part of it that decided."""

    path: str
    value: str
    origin: OriginClass
    place: SourcePlace | None = None
    # Whether it decides what the call does, and to whom.
    steers: bool = True
    # By what a person endorsed it, if it is a person's only by that.
    endorsement: Endorsement | None = None
    # Whether a person rejected a call with it before they said it.
    rejected: bool = False


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
    budget: StepBudget = field(default_factory=lambda: StepBudget(VERDICT_STEPS))
    context: AgentContext = field(init=False)
    # Who endorsed a value, and who all that a source says.
    _values: dict[str, Endorsement] = field(init=False, default_factory=dict)
    _sources: dict[str, Endorsement] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.context = self.memory.context_of(self.call.agent)
        for each in self.memory.endorsements.values():
            if each.holds(task=self.context.task, member=self.call.agent, now=self.now):
                if each.value is not None:
                    self._values[fold_strictly(each.value)] = each
                elif each.source is not None:
                    self._sources[each.source] = each

    @property
    def clean(self) -> bool:
        """Whether this agent has read nothing that others wrote since its context was cleared."""
        return self.context.untrusted <= self.context.since and not self._misses_something

    @property
    def _misses_something(self) -> bool:
        """Whether the agent may have read what is not in the memory (any more)."""
        return self.context.outside or self.memory.index.dropped > self.context.since

    def arguments(self) -> list[ArgumentOrigin]:
        found: list[ArgumentOrigin] = []
        chars = 0
        for path, name, value, options in call_leaves(self.call.arguments, self.call.schema):
            text = compose(value) if isinstance(value, str) else _scalar_text(value)
            chars += len(text)
            if len(found) >= MAX_CALL_LEAVES or chars > MAX_CALL_CHARS:
                return [*found, ArgumentOrigin(path, "…", "unknown")]
            try:
                self.budget.spend(len(text) // CHARS_PER_STEP + 2)
                if not text.strip() or (text in options and _CHOICE.fullmatch(text)):
                    found.append(ArgumentOrigin(path, text, "nobody", steers=False))
                else:
                    found.append(self._unless_rejected(self._origin(path, name, value, text), text))
            except BudgetSpent:
                found.append(ArgumentOrigin(path, text, "unknown"))
        return found

    def _unless_rejected(self, found: ArgumentOrigin, text: str) -> ArgumentOrigin:
        """A value of a call that a person rejected asks until it is endorsed, whatever was said since."""
        if not self.memory.has_rejections:
            return found
        at = self.memory.rejected_at(text)
        if found.origin in _SAID and found.endorsement is None and _is_later(found.place, at):
            return replace(found, origin="untrusted", rejected=True)
        for key, start, end in self._values_in(text):
            at = self.memory.rejected_at(key[1]) if key[0] in TARGETS else -1
            if at >= 0 and not (self._values.get(key[1]) or self._values.get(fold_strictly(text))):
                said = self.memory.index.places([key], self.context.since).get("person")
                if found.origin not in ("untrusted", "unknown") and _is_later(said, at):
                    return ArgumentOrigin(found.path, text[start:end], "untrusted", said, rejected=True)
        return found

    def _origin(self, path: str, name: str, value: Json, text: str) -> ArgumentOrigin:
        if value is None or isinstance(value, bool):
            # A list of them can say anything.
            return ArgumentOrigin(path, text, "nobody", steers=path.endswith("]"))
        if by := self._values.get(fold_strictly(text)):
            return self._endorsed(path, text, by)
        if isinstance(value, str) and find_hidden(text) is not None:
            return self._unsaid(path, text)
        if is_id_name(name) and len(text) <= 64 and (len(text) < 3 or any(map(str.isdigit, text))):
            return self._id_origin(path, name, text)
        if found := _DAY.fullmatch(text):
            return self._keyed(path, text, _day_keys(found, self.now))
        if not isinstance(value, str):
            return self._keyed(path, text, [("number", text)])
        runs_words = not RUNNING_TOOLS.isdisjoint(words_in_name(self.call.tool))
        if not runs_words and not TEXT_NAMES.isdisjoint(words_in_name(name)):
            return self._text_origin(path, text)
        return self._name_origin(path, text)

    # One value.

    def _keyed(self, path: str, text: str, keys: list[Key]) -> ArgumentOrigin:
        found = self.memory.index.places(keys, self.context.since, self.call.agent)
        return self._found(path, text, found, is_address=keys[0][0] == "address")

    def _found(
        self, path: str, text: str, found: Mapping[Grade, SourcePlace], *, is_address: bool = False
    ) -> ArgumentOrigin:
        """People before the operator, what others wrote before a look-up; if nobody has it: parts of it."""
        if place := found.get("person"):
            return ArgumentOrigin(path, text, "person", place)
        if place := found.get("operator"):
            return ArgumentOrigin(path, text, "operator", place)
        if place := found.get("untrusted"):
            return self._by_others(path, text, place)
        if place := found.get("trusted"):
            if not is_address:
                self._note_private(place, len(text))
            return ArgumentOrigin(path, text, "trusted", place)
        return self._unsaid(path, text, unspell(text))

    def _by_others(self, path: str, text: str, place: SourcePlace) -> ArgumentOrigin:
        by = self._values.get(fold_strictly(text)) or self._sources.get(place.source.envelope)
        return self._endorsed(path, text, by, place) if by else ArgumentOrigin(path, text, "untrusted", place)

    def _endorsed(
        self, path: str, text: str, by: Endorsement, place: SourcePlace | None = None
    ) -> ArgumentOrigin:
        if place is None:
            keys = [key for key, start, end in self._values_in(text) if end - start == len(text)]
            place = self.memory.index.places(keys, self.context.since).get("untrusted")
        return ArgumentOrigin(path, text, "person", place, endorsement=by)

    def _unsaid(self, path: str, text: str, *forms: str) -> ArgumentOrigin:
        """Nobody said it as it is: others may have written a part of it, or all of it in another way."""
        hidden = self._decoded(text)
        endorsed: ArgumentOrigin | None = None
        for form in dict.fromkeys((text, *forms, *hidden)):
            targets = (key[1] for key, _, _ in self._values_in(form) if key[0] in TARGETS)
            for value in dict.fromkeys((form, *targets)):
                found = [
                    self._by_others(path, text, place) if place.source.grade == "untrusted" else place
                    for place in self.memory.index.loose_parts(value, self.context.since, self.budget)
                    if not place.source.is_own_word_of(self.call.agent)
                ]
                for each in found:
                    if isinstance(each, SourcePlace):
                        self._note_private(each, len(text))
                    elif each.origin == "untrusted":
                        return each
                    elif value == text:
                        endorsed = each
        if endorsed is not None:
            return endorsed
        return ArgumentOrigin(path, text, "unknown" if self._misses_something else "nobody")

    def _id_origin(self, path: str, name: str, text: str) -> ArgumentOrigin:
        keys = id_keys(text, name, self.call.tool)
        if len(compact(text)) > MIN_CODE_CHARS:
            keys += [("code", compact(text)), ("address", fold_strictly(text)), ("place", link_text(text))]
        origin = self._keyed(path, text, keys)
        if origin.origin in _SAID:
            return origin
        # Others may write in a record that a person named, but they do not choose its id.
        for record in self.memory.record_names(text, self.context.since):
            place = self.memory.index.said_place(record.split(), self.context.since, self.budget)
            if place is not None and place.source.grade == "person" and _is_named(place.text, record):
                return ArgumentOrigin(path, text, "person", place)
        return origin

    def _name_origin(self, path: str, text: str) -> ArgumentOrigin:
        whole = [
            key for key, start, end in self._values_in(text)
            if end - start == len(text) and key[0] != "called"
        ]  # fmt: skip
        if whole:
            origin = self._keyed(path, text, whole[:1])
            if whole[0][0] == "place" and origin.origin == "nobody":
                return self._place_parts(path, text, whole[0][1])
            return origin
        words = words_of(text)
        if len(words) > MAX_TEXT_WORDS or len("".join(words)) < 3:
            return self._unsaid(path, text)
        places = self._word_places(words, "" if _PLAIN_NAME.fullmatch(text) else fold_strictly(text))
        if not text.isascii() and not places.keys() & {"person", "operator", "untrusted"}:
            places |= self._others_place(words_of(without_disguise(text)))
        if not places and _ADDRESSES.fullmatch(text):
            each = [self._name_origin(path, part.strip()) for part in re.split("[,;]", text)]
            return next((part for part in each if part.origin not in _SAID), each[0])
        if not places and len(words) >= MIN_RUN_WORDS:
            return self._text_origin(path, text, steers=True)
        return self._found(path, text, places)

    def _word_places(self, words: list[str], signs: str = "") -> dict[Grade, SourcePlace]:
        """Where these words stand together: said, written by others, or as a whole value of a look-up."""
        index, since = self.memory.index, self.context.since
        if place := index.said_place(words, since, self.budget, signs):
            return {place.source.grade: place}
        found = self._others_place(words)
        trusted = index.places([("whole", f" {' '.join(words)} ")], since).get("trusted")
        if trusted is not None and (not signs or fold_strictly(trusted.text) == signs):
            found["trusted"] = trusted
        return found

    def _others_place(self, words: list[str]) -> dict[Grade, SourcePlace]:
        """The first place of others with these words, or the first endorsed one."""
        first: dict[Grade, SourcePlace] = {}
        for place in self.memory.index.others_places(words, self.context.since, self.budget):
            if not place.source.is_own_word_of(self.call.agent):
                if place.source.envelope in self._sources:
                    return {"untrusted": place}
                first.setdefault("untrusted", place)
                if not self._sources:
                    break
        return first

    def _place_parts(self, path: str, text: str, place: str) -> ArgumentOrigin:
        """A link whose host was said: each part behind it has to be said, too."""
        host, _, rest = place.partition("/")
        origin = self._keyed(path, text, [("place", host)])
        if not _PLAIN_PATH.fullmatch(rest) or "." not in host or origin.origin not in _SAID:
            return self._unsaid(path, text)
        for part in words_of(rest):
            inner = self._found(path, part, self._word_places([part]))
            if inner.origin not in _SAID:
                return inner
        return origin

    # A text.

    def _text_origin(self, path: str, text: str, *, steers: bool = False) -> ArgumentOrigin:
        words = words_of(text)
        if len(words) > MAX_TEXT_WORDS:
            return ArgumentOrigin(path, text, "unknown")
        covered, untrusted, said = self._cover(words, words_of(without_disguise(text)))
        plain = text
        for start, end, inner in self._inner_values(path, text, covered):
            if inner.origin in ("untrusted", "unknown") or (inner.origin == "nobody" and inner.steers):
                return inner
            plain = plain[:start] + " " * (end - start) + plain[end:]
        matters = steers or self.call.traits.outside
        if untrusted is not None:
            return ArgumentOrigin(path, text, "untrusted", untrusted, matters)
        if self._misses_something and len(words) >= MIN_RUN_WORDS and not all(covered):
            return ArgumentOrigin(path, text, "unknown", steers=matters)
        if steers and not (all(covered) and _PLAIN_NAME.fullmatch(text)):
            # What steers is said as a whole, with its signs: else what nobody said decides.
            rest = [
                self._others_place([word]) for word, done in zip(words, covered, strict=False) if not done
            ]
            return self._found(path, text, next(filter(None, rest), {}))
        if said is not None and 2 * sum(covered) >= len(words) and (all(covered) or _is_prose(plain)):
            by = self._sources.get(said.source.envelope)
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
        at, index = 0, self.memory.index
        starts = index.run_starts(plain, self.budget)
        while at < len(words):
            own, place = self._own_run(words, at)
            others, their_place = 0, None
            runs = index.others_runs(plain, at, self.context.since, self.budget) if at in starts else ()
            for count, each in runs:
                if each.source.is_own_word_of(self.call.agent):
                    continue
                if each.source.envelope in self._sources:
                    own, place = max((own, place), (count, each), key=lambda run: run[0])
                elif count > others:
                    others, their_place = count, each
                if others and not self._sources:
                    break
            if others > own:
                untrusted = untrusted or their_place
                self._note_private(their_place, _chars(words[at : at + others]))
                at += others
            elif own:
                covered[at : at + own] = [True] * own
                if place is not None and place.source.grade in ("person", "untrusted"):
                    said = said or place
                if own >= MIN_RUN_WORDS:
                    self._note_private(place, _chars(words[at : at + own]))
                at += own
            else:
                at += 1
        return covered, untrusted, said

    def _own_run(self, words: list[str], at: int) -> tuple[int, SourcePlace | None]:
        """How many words from here on a person said together, or are a whole value of a look-up."""
        index, since = self.memory.index, self.context.since
        if len(words) == 1:
            places = self._word_places(words)
            place = next((places[grade] for grade in _SAID if grade in places), None)
            return (0, None) if place is None or "untrusted" in places else (1, place)
        own, place = index.said_run(words, at, since, self.budget)
        longest = min(MAX_VALUE_WORDS, len(words) - at) if index.may_begin_value(words[at]) else 0
        for size in range(longest, max(own, 1), -1):
            self.budget.spend(1)
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
        for form in dict.fromkeys((text, unspell(text), *self._decoded(text))):
            for key, start, end in self._values_in(form):
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
                by = self._values.get(fold_strictly(form[start:end])) or self._values.get(key[1])
                if by:
                    origin = ArgumentOrigin(path, form[start:end], "person", endorsement=by)
                else:
                    origin = self._keyed(path, key[1], [key])
                if origin.place is not None and origin.origin == "untrusted" and kind in _PRIVATE_KINDS:
                    self._note_private(origin.place, end - start)
                # Nobody's numbers and days are computed, which matters if from what others wrote.
                steers = kind in TARGETS or not self.clean
                found = ArgumentOrigin(
                    path, form[start:end], origin.origin, origin.place, steers, origin.endorsement
                )
                yield (start, end, found) if form is text else (0, 0, found)

    def _values_in(self, text: str) -> list[tuple[Key, int, int]]:
        return list(values_in(text, self.now, self.budget))

    def _decoded(self, text: str) -> list[str]:
        self.budget.spend(len(text) // 4)
        found = decoded(text)
        if not found.whole:
            raise BudgetSpent
        return [compose(form) for form in found.forms]

    def _note_private(self, place: SourcePlace | None, characters: int) -> None:
        if place is not None and place.source.private and self.call.traits.outside:
            noted = self.private.setdefault(place.source.number, PrivateText(place, 0))
            noted.characters += characters


def _is_named(text: str, name: str) -> bool:
    """Whether words stand in a text as a name: in quotes, or with a capital, a digit or a sign among them."""
    run = re.search(r"[\W_]+".join(map(re.escape, name.split())), fold_strictly(text))
    if run is None:
        return False
    before, said = text[: run.start()].rstrip(" "), text[run.start() : run.end()]
    if before.endswith(("'", '"', "“", "‘", "„", "«", "`")):
        return True
    # A sentence begins with a capital, whatever it says.
    begins = not before or before.endswith((".", "!", "?", ":", "\n"))
    return any(not (char.islower() or char == " ") for char in (said[1:] if begins else said))


def _is_later(place: SourcePlace | None, number: int) -> bool:
    """Whether this was said after that source, if at all."""
    return number >= 0 and (
        place is None or (place.source.number > number and place.source.grade != "operator")
    )


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


def _day_keys(found: re.Match[str], now: float) -> list[Key]:
    """A day, and the same without its year if that is near: nobody leaves out another."""
    keys = [("day", f"{found[1]}-{found[2]}-{found[3]}"), ("month-day", f"{found[2]}-{found[3]}")]
    return keys[: 2 if abs(int(found[1]) - 1970 - now / _YEAR_SECONDS) < 2 else 1]


def _scalar_text(value: Json) -> str:
    return (
        number_text(value)
        if isinstance(value, int | float) and not isinstance(value, bool)
        else (strict_json.encode(value).decode("utf-8", "replace"))
    )
