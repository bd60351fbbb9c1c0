"""A filter for the timeline: sender, addressee, kind, text.

from:agent kind:mcp/* notes      of agent, any MCP kind, with "notes" somewhere in it
-kind:reasoning/*                everything but that
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from fnmatch import fnmatchcase

from moot.errors import UsageError
from moot.protocol.envelope import Envelope


@dataclass(frozen=True, slots=True)
class FilterCondition:
    """One part of a filter."""

    field: str  # from, to, kind, or text
    value: str
    negated: bool = False

    def matches(self, envelope: Envelope) -> bool:
        match self.field:
            case "from":
                found = fnmatchcase(envelope.sender, self.value)
            case "to":
                found = any(fnmatchcase(name, self.value) for name in envelope.to)
            case "kind":
                found = fnmatchcase(envelope.kind, self.value)
            case _:
                found = self.value.casefold() in envelope.raw.decode("utf-8", "replace").casefold()
        return found != self.negated


@dataclass(frozen=True, slots=True)
class TimelineFilter:
    """All of its conditions hold; conditions on one field are alternatives, negated ones are not."""

    conditions: tuple[FilterCondition, ...] = ()
    text: str = ""

    def matches(self, envelope: Envelope) -> bool:
        alternatives: dict[str, bool] = {}
        for each in self.conditions:
            holds = each.matches(envelope)
            if each.negated or each.field == "text":
                if not holds:
                    return False
            else:
                alternatives[each.field] = alternatives.get(each.field, False) or holds
        return all(alternatives.values())

    def __bool__(self) -> bool:
        return bool(self.conditions)


FIELDS = ("from", "to", "kind")


def read_filter(text: str) -> TimelineFilter:
    """Read a filter as a person types it; raises UsageError."""
    try:
        words = shlex.split(text)
    except ValueError as fault:
        raise UsageError(f"{fault}: close the quotes of the filter") from None
    conditions: list[FilterCondition] = []
    for word in words:
        negated = word.startswith("-") and len(word) > 1
        field, colon, value = word.removeprefix("-").partition(":")
        if colon and field in FIELDS:
            if not value:
                raise UsageError(f"{word} is empty: write {field}:NAME; * matches anything")
            conditions.append(FilterCondition(field, value, negated))
        else:
            conditions.append(FilterCondition("text", word.removeprefix("-") if negated else word, negated))
    return TimelineFilter(tuple(conditions), text.strip())
