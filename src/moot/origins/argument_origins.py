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
from collections.abc import Iterable, Set
from dataclasses import dataclass, field, replace
from typing import Final

from moot.origins.call_leaves import CallLeaf, call_leaves
from moot.origins.origin_call import SAID, ArgumentOrigin, OriginCall
from moot.origins.source_index import MIN_RUN_WORDS
from moot.origins.source_place import SourcePlace
from moot.origins.step_budget import VERDICT_STEPS, BudgetSpent, StepBudget
from moot.origins.text_forms import compose, fold_strictly, without_disguise, words_of
from moot.origins.text_origins import MAX_TEXT_WORDS, PLAIN_NAME, TextOrigins
from moot.origins.value_keys import (
    CHARS_PER_STEP,
    MIN_CODE_CHARS,
    TARGETS,
    FoundValue,
    Key,
    compact,
    id_keys,
    is_id_name,
    link_text,
    number_text,
    values_in,
    words_in_name,
)
from moot.origins.value_lookup import ValueLookup
from moot.origins.word_runs import stands_apart, stands_in
from moot.protocol import strict_json
from moot.protocol.hidden_text import find_hidden
from moot.protocol.operation import Json
from moot.values.word_lists import RUNNING_TOOLS, TEXT_NAMES

# Leaves of one call and their characters: beyond, it is not known.
MAX_CALL_LEAVES: Final = 256
MAX_CALL_CHARS: Final = 65_536
_DAY: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:\d\d)?)?", re.ASCII
)
_YEAR_SECONDS: Final = 365.2425 * 86_400
# Behind a host that was said.
_PLAIN_PATH: Final = re.compile(r"[\w-]+(?:[/.][\w-]+)*/?")
_ALONE: Final = frozenset({"address", "place"})
_CHOICE: Final = re.compile(r"[A-Za-z][A-Za-z _-]{0,31}", re.ASCII)
_ADDRESSES: Final = re.compile(r"[^\s,;<>()]+@[^\s,;<>()]+(?:[,;] ?[^\s,;<>()]+@[^\s,;<>()]+)+")


@dataclass(slots=True)
class OriginReader:
    """Looks up the values of one call."""

    look: ValueLookup
    texts: TextOrigins = field(init=False)

    def __post_init__(self) -> None:
        self.texts = TextOrigins(self.look)

    def arguments(self) -> list[ArgumentOrigin]:
        found: list[ArgumentOrigin] = []
        chars = 0
        for path, name, value, options in call_leaves(self.look.call.arguments, self.look.call.schema):
            text = text_of_leaf(value)
            chars += len(text)
            if len(found) >= MAX_CALL_LEAVES or chars > MAX_CALL_CHARS:
                return [*found, ArgumentOrigin(path, "…", "unknown")]
            try:
                self.look.budget.spend(len(text) // CHARS_PER_STEP + 2)
                if not text.strip() or is_choice(text, options):
                    found.append(ArgumentOrigin(path, text, "nobody", steers=False))
                else:
                    found.append(self._unless_rejected(self._origin(path, name, value, text), text))
            except BudgetSpent:
                found.append(ArgumentOrigin(path, text, "unknown"))
        return found

    def _unless_rejected(self, found: ArgumentOrigin, text: str) -> ArgumentOrigin:
        """A value of a call that a person rejected asks until it is endorsed, whatever was said since.

        Or until the agent was cleared: from then on people ask for something else.
        """
        memory, since = self.look.memory, self.look.context.since
        if not memory.has_rejections:
            return found
        at = memory.rejected_at(text, since)
        if found.origin in SAID and found.endorsement is None and _is_later(found.place, at):
            return replace(found, origin="untrusted", rejected=True)
        for key, start, end in self.look.values_in(text):
            at = memory.rejected_at(key[1], since) if key[0] in TARGETS else -1
            if at >= 0 and not (
                self.look.endorsed_values.get(key[1]) or self.look.endorsed_values.get(fold_strictly(text))
            ):
                said = memory.index.places([key], since).get("person")
                if found.origin not in ("untrusted", "unknown") and _is_later(said, at):
                    return ArgumentOrigin(found.path, text[start:end], "untrusted", said, rejected=True)
        return found

    def _origin(self, path: str, name: str, value: Json, text: str) -> ArgumentOrigin:
        if value is None or isinstance(value, bool):
            # A list of them can say anything.
            return ArgumentOrigin(path, text, "nobody", steers=path.endswith("]"))
        if by := self.look.endorsed_values.get(fold_strictly(text)):
            return self.look.endorsed(path, text, by)
        if isinstance(value, str) and find_hidden(text) is not None:
            return self.look.unsaid(path, text)
        if _is_id(name, text):
            return self._id_origin(path, name, text)
        if found := _DAY.fullmatch(text):
            return self.look.keyed(path, text, _day_keys(found, self.look.now))
        if not isinstance(value, str):
            return self.look.keyed(path, text, [("number", text)])
        if _is_text(self.look.call.tool, name):
            return self.texts.origin(path, text)
        return self._name_origin(path, text)

    def _id_origin(self, path: str, name: str, text: str) -> ArgumentOrigin:
        keys = id_keys(text, name, self.look.call.tool)
        if len(compact(text)) > MIN_CODE_CHARS:
            keys += [("code", compact(text)), ("address", fold_strictly(text)), ("place", link_text(text))]
        origin = self.look.keyed(path, text, keys)
        if origin.origin in SAID:
            return origin
        # Others may write in a record that a person named, but they do not choose its id.
        for record in self.look.memory.records.names_of(text, self.look.context.since):
            place = self.look.memory.index.said_place(
                record.split(), self.look.context.since, self.look.budget
            )
            if place is not None and place.source.grade == "person" and _is_named(place.text, record):
                return ArgumentOrigin(path, text, "person", place)
        return origin

    def _name_origin(self, path: str, text: str) -> ArgumentOrigin:
        whole = _whole_keys(text, self.look.values_in(text))
        if whole:
            origin = self.look.keyed(path, text, whole[:1])
            if whole[0][0] == "place" and origin.origin == "nobody":
                return self._place_parts(path, text, whole[0][1])
            return origin
        words = words_of(text)
        if len(words) > MAX_TEXT_WORDS or not words:
            return self.look.unsaid(path, text)
        places = self.look.word_places(words, "" if PLAIN_NAME.fullmatch(text) else fold_strictly(text))
        if not text.isascii() and not places.keys() & {"person", "operator", "untrusted"}:
            places |= self.look.others_place(words_of(without_disguise(text)))
        if not places and _ADDRESSES.fullmatch(text):
            each = [self._name_origin(path, part.strip()) for part in re.split("[,;]", text)]
            return next((part for part in each if part.origin not in SAID), each[0])
        if not places and len(words) >= MIN_RUN_WORDS:
            return self.texts.origin(path, text, steers=True)
        return self.look.found(path, text, places)

    def _place_parts(self, path: str, text: str, place: str) -> ArgumentOrigin:
        """A link whose host was said: each part behind it has to be said, too."""
        host, _, rest = place.partition("/")
        origin = self.look.keyed(path, text, [("place", host)])
        if not _PLAIN_PATH.fullmatch(rest) or "." not in host or origin.origin not in SAID:
            return self.look.unsaid(path, text)
        for part in words_of(rest):
            inner = self.look.found(path, part, self.look.word_places([part]))
            if inner.origin not in SAID:
                return inner
        return origin


def is_said_in(said: str, at: float, leaf: CallLeaf, text: str, call: OriginCall, now: float) -> bool:
    """Whether a value is a person's by this text of theirs alone; False: look closer, as `OriginReader` does.

    For names and what is one value as a whole. Both texts are composed.
    """
    if not isinstance(leaf.value, str) or find_hidden(text) is not None or _is_id(leaf.name, text):
        return False
    if _DAY.fullmatch(text) or _is_text(call.tool, leaf.name):
        return False
    budget = StepBudget(VERDICT_STEPS)
    folded, value = fold_strictly(said), fold_strictly(text)
    try:
        there = list(values_in(said, at, budget))
        # Most values: what is an address or a place among other words is one by itself, too.
        if any(key[0] in _ALONE and folded[start:end] == value for key, start, end in there):
            return True
        if whole := _whole_keys(text, values_in(text, now, budget)):
            return any(found.key == whole[0] for found in there)
    except BudgetSpent:
        return False
    words = words_of(text)
    if len("".join(words)) <= 2 or f" {' '.join(words)} " not in f" {' '.join(words_of(said))} ":
        return False
    return stands_apart(folded, words) if PLAIN_NAME.fullmatch(text) else stands_in(folded, value)


def is_choice(text: str, options: Set[str]) -> bool:
    """Whether this is an option that the tool's definition lists."""
    return text in options and _CHOICE.fullmatch(text) is not None


def _is_id(name: str, text: str) -> bool:
    return is_id_name(name) and len(text) <= 64 and (len(text) < 3 or any(map(str.isdigit, text)))


def _is_text(tool: str, name: str) -> bool:
    """Whether an argument is for words; a tool that runs them is steered by each."""
    runs_words = not RUNNING_TOOLS.isdisjoint(words_in_name(tool))
    return not runs_words and not TEXT_NAMES.isdisjoint(words_in_name(name))


def _whole_keys(text: str, found: Iterable[FoundValue]) -> list[Key]:
    """What a text is as one value."""
    return [key for key, start, end in found if end - start == len(text) and key[0] != "called"]


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


def _day_keys(found: re.Match[str], now: float) -> list[Key]:
    """A day, and the same without its year if that is near: nobody leaves out another."""
    keys = [("day", f"{found[1]}-{found[2]}-{found[3]}"), ("month-day", f"{found[2]}-{found[3]}")]
    return keys[: 2 if abs(int(found[1]) - 1970 - now / _YEAR_SECONDS) < 2 else 1]


def text_of_leaf(value: Json) -> str:
    """A text as it is, a number in one way of writing it, anything else as JSON."""
    if isinstance(value, str):
        return compose(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return number_text(value)
    return strict_json.encode(value).decode("utf-8", "replace")
