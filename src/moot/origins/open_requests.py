"""Requests whose answers may come, and what each asked for: an answer that repeats it says nothing new."""

from __future__ import annotations

from collections.abc import Sequence, Set
from itertools import islice
from typing import Final, NamedTuple

from moot.origins.result_parts import leaves_of
from moot.origins.source_index import MIN_PART_CHARS
from moot.origins.step_budget import StepBudget
from moot.origins.text_forms import fold_loosely
from moot.origins.tool_traits import ToolTraits
from moot.origins.value_keys import TARGETS, Key, values_in
from moot.protocol.operation import Json

# How many, what all of them hold of what was asked, and what one does.
MAX_OPEN_REQUESTS: Final = 10_000
MAX_REQUEST_CHARS: Final = 4_000_000
MAX_ASKED: Final = 64
MAX_ASKED_CHARS: Final = 4_096
# A value that a person typed in place of another; longer texts are edited rather than written.
MAX_CHANGED_CHARS: Final = 200
_STEPS: Final = 10_000


class OpenRequest(NamedTuple):
    """`hosts` is empty for a proposal, which nobody answers."""

    hosts: tuple[str, ...]
    readers: tuple[str, ...]
    traits: ToolTraits
    tool: str
    # What it asked for, loosely: a result that repeats it says nothing new. None: too much to compare.
    asked: str | None
    # Its values as they are.
    values: tuple[str, ...] = ()

    @property
    def chars(self) -> int:
        return len(self.asked or "") + sum(map(len, self.values))


class OpenRequests(dict[str, OpenRequest]):
    """By the id of their message; the oldest go first."""

    chars = 0

    def keep(self, id: str, request: OpenRequest) -> None:
        self.chars += request.chars
        while self and (len(self) >= MAX_OPEN_REQUESTS or self.chars > MAX_REQUEST_CHARS):
            self.chars -= self.pop(next(iter(self))).chars
        self[id] = request


def asked_in(arguments: Json) -> tuple[str | None, tuple[str, ...]]:
    """What a request asks for, loosely, each value in a line and all of them in one; None: too much. And its
    texts as they are, as many as are compared.
    """
    leaves = list(islice(leaves_of(arguments, "", depth=4), MAX_ASKED + 1))
    # Without the names of its arguments.
    values = [leaf.text for leaf in leaves[:MAX_ASKED] if leaf.member]
    kept = tuple(text for text in values if len(text) <= MAX_ASKED_CHARS)
    if len(leaves) > MAX_ASKED or sum(len(leaf.text) for leaf in leaves) > MAX_ASKED_CHARS:
        return None, kept
    joined = "".join(map(fold_loosely, values))
    return "\n".join(["", *(fold_loosely(leaf.text) for leaf in leaves), joined, ""]), kept


def changed_values(arguments: Json, about: Sequence[OpenRequest], at: float) -> list[tuple[str, Json]]:
    """The values of a call that none of those has which it changes, with their paths.

    A text in which something of theirs still stands is not the writer's own, and neither is a long one.
    """
    if any(each.asked is None for each in about):
        return []
    asked = "".join(each.asked or "" for each in about)
    found: list[tuple[str, Json]] = []
    for path, member, text in islice(leaves_of(arguments, "payload.params.arguments", depth=4), MAX_ASKED):
        if not member or len(text) > MAX_CHANGED_CHARS or is_echo(text, asked):
            continue
        targets = [key[1] for key, _, _ in values_in(text, at, StepBudget(_STEPS)) if key[0] in TARGETS]
        if not any(is_echo(each, asked) for each in targets):
            found.append((path, text))
    return found


def has_key(line: str, at: float, keys: Set[Key], budget: StepBudget) -> bool:
    """Whether a line is one of these values, however it is written."""
    found = values_in(line, at, budget) if keys else ()
    return any(key in keys and end - start == len(line) for key, start, end in found)


def is_echo(text: str, asked: str, *, whole: bool = False) -> bool:
    """Whether a text stands in what was asked, however it is written; `whole`: as one value of it."""
    loose = fold_loosely(text)
    return f"\n{loose}\n" in asked if whole or len(loose) < MIN_PART_CHARS else loose in asked
