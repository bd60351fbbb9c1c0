"""The part of JSONPath that capabilities may use (D-12): names, indexes, slices, `*` and `..`.

    $.a.b   $['a b']   $["a"]   $.list[0]   $.list[-1]   $.list[*]   $.*   $..name   $..*   $.list[1:3]

Filters and scripts are refused: they are programs, and every engine reads them differently. A path
finds values in document order and pays one visit for each value it looks at; when the visits are
used up it finds nothing more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

import msgspec

from moot.errors import InvalidPattern
from moot.protocol.operation import Json

# How many values one search may look at. Nested searches share it, or they would multiply.
MAX_VISITS = 10_000
# All searches of all patterns that one message is compared with: five searches to the end.
MAX_MESSAGE_VISITS = 50_000

# Steps nest as generators; 32 is twice the depth that a pattern may have.
MAX_STEPS = 32


class Visits:
    """The budget of one search: how many values it may still visit, alone and together with others."""

    __slots__ = ("_message", "left")

    def __init__(self, left: int = MAX_VISITS, message: MessageVisits | None = None) -> None:
        self.left = left
        self._message = message

    def spend(self) -> bool:
        """Count one value; False when no visit is left."""
        self.left -= 1
        if self._message is not None:
            self._message.left -= 1
        return self.left >= 0

    def search(self) -> Visits:
        """Of a search inside this one."""
        return self


class MessageVisits:
    """The budget of all searches in one message, for all capabilities of its sender."""

    __slots__ = ("left",)

    def __init__(self, left: int = MAX_MESSAGE_VISITS) -> None:
        self.left = left

    def search(self) -> Visits:
        """Of the next search: its own, or what is left of this one."""
        return Visits(max(0, min(MAX_VISITS, self.left)), self)


class NameStep(msgspec.Struct, frozen=True):
    name: str


class IndexStep(msgspec.Struct, frozen=True):
    index: int


class SliceStep(msgspec.Struct, frozen=True):
    start: int | None
    stop: int | None


class EveryStep(msgspec.Struct, frozen=True):
    pass


class PathStep(msgspec.Struct, frozen=True):
    """One step of a path; `deep` is `..`: from the value itself and from everything inside it."""

    pick: NameStep | IndexStep | SliceStep | EveryStep
    deep: bool = False


Path = tuple[PathStep, ...]


def values_inside(value: Json) -> Iterator[Json]:
    """The members of an object or the elements of a list; a scalar has none."""
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def everything_in(value: Json, visits: Visits) -> Iterator[Json]:
    """The value and all that is inside it, in document order, as far as the visits go."""
    # A stack of iterators, not recursion: depth is the sender's choice.
    waiting = [iter((value,))]
    while waiting:
        for found in waiting[-1]:
            if not visits.spend():
                return
            yield found
            if isinstance(found, (dict, list)):
                waiting.append(values_inside(found))
                break
        else:
            waiting.pop()


def find(path: Path, root: Json, visits: Visits) -> Iterator[Json]:
    """Every value at the path; one value can come up more than once."""
    if not path:
        yield root
        return
    step, rest = path[0], path[1:]
    for origin in everything_in(root, visits) if step.deep else (root,):
        for found in _select(step.pick, origin):
            if not visits.spend():
                return
            yield from find(rest, found, visits)


def _select(pick: NameStep | IndexStep | SliceStep | EveryStep, value: Json) -> Iterator[Json]:
    match pick:
        case EveryStep():
            yield from values_inside(value)
        case NameStep(name):
            if isinstance(value, dict) and name in value:
                yield value[name]
        case IndexStep(index):
            if isinstance(value, list) and -len(value) <= index < len(value):
                yield value[index]
        case SliceStep(start, stop):
            if isinstance(value, list):
                for position in range(*slice(start, stop).indices(len(value))):
                    yield value[position]


def read_path(text: str) -> Path:
    """The steps of a JSONPath; raises InvalidPattern naming what it cannot read."""
    return _PathReader(text).path()


class _PathReader:
    _ENDS_NAME = frozenset(".[]()*?@,:'\"$& \t\r\n")

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def path(self) -> Path:
        if not self.take("$"):
            self.refuse("a JSONPath starts with $")
        steps: list[PathStep] = []
        while self.at < len(self.text):
            deep = self.take("..")
            if self.take("["):
                steps.append(PathStep(self.bracket(), deep))
            elif deep or self.take("."):
                steps.append(PathStep(EveryStep() if self.take("*") else NameStep(self.bare_name()), deep))
            else:
                self.refuse("a step starts with `.` or `[`; a name with a `$` is written $['$name']")
            if len(steps) > MAX_STEPS:
                self.refuse(f"a path has at most {MAX_STEPS} steps")
        return tuple(steps)

    def bracket(self) -> NameStep | IndexStep | SliceStep | EveryStep:
        if self.text[self.at : self.at + 1] in ("?", "("):
            self.refuse("filters and scripts are not supported; write a nested object pattern instead")
        pick: NameStep | IndexStep | SliceStep | EveryStep
        if self.take("*"):
            pick = EveryStep()
        elif self.text[self.at : self.at + 1] in ("'", '"'):
            pick = NameStep(self.quoted_name())
        else:
            pick = self.position()
        if not self.take("]"):
            self.refuse("one name, index or slice stands in brackets; write a list of patterns for several")
        return pick

    def position(self) -> IndexStep | SliceStep:
        start = self.number()
        if self.take(":"):
            return SliceStep(start, self.number())
        if start is None:
            self.refuse("brackets hold a quoted name, an index, a slice or *")
        return IndexStep(start)

    def number(self) -> int | None:
        begin = self.at
        self.take("-")
        while self.text[self.at : self.at + 1].isdecimal() and self.text[self.at].isascii():
            self.at += 1
        digits = self.text[begin : self.at]
        if digits == "-" or len(digits) > 10:
            self.refuse("an index is a number of at most 10 characters")
        return int(digits) if digits else None

    def bare_name(self) -> str:
        begin = self.at
        while self.at < len(self.text) and self.text[self.at] not in self._ENDS_NAME:
            self.at += 1
        if self.at == begin:
            self.refuse("a name is missing; a name with other signs is written ['so']")
        return self.text[begin : self.at]

    def quoted_name(self) -> str:
        quote = self.text[self.at]
        self.at += 1
        name: list[str] = []
        while not self.take(quote):
            if self.at >= len(self.text):
                self.refuse(f"the closing {quote} is missing")
            if self.take("\\") and self.text[self.at : self.at + 1] not in (quote, "\\"):
                self.refuse(f"after a backslash only {quote} or a backslash can stand")
            name.append(self.text[self.at])
            self.at += 1
        return "".join(name)

    def take(self, word: str) -> bool:
        if not self.text.startswith(word, self.at):
            return False
        self.at += len(word)
        return True

    def refuse(self, reason: str) -> NoReturn:
        raise InvalidPattern(f"JSONPath {self.text[:80]!r}, at character {self.at + 1}: {reason}")
