"""Who decides in whose place, and until when: the table of a space."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from moot.protocol.operation import Json
from moot.space.config import Name


class DelegationRecord(msgspec.Struct, frozen=True):
    """One delegation: `id` is the message that made it."""

    id: str
    giver: Name
    delegate: Name
    until: float
    reason: str | None = None


class DelegationTable:
    """The delegations of a space, one from each giver to each delegate; those that are over do not count."""

    def __init__(self) -> None:
        self._by_pair: dict[tuple[Name, Name], DelegationRecord] = {}

    def __bool__(self) -> bool:
        return bool(self._by_pair)

    def living(self, now: float) -> Iterator[DelegationRecord]:
        return (each for each in self._by_pair.values() if now < each.until)

    def givers_to(self, delegate: Name, now: float) -> tuple[Name, ...]:
        """Who lets this member decide, the first first."""
        return tuple(each.giver for each in self.living(now) if each.delegate == delegate)

    def add(self, delegation: DelegationRecord, now: float) -> None:
        """Take in a new one, in place of an earlier one between the same two."""
        self._by_pair = {(each.giver, each.delegate): each for each in self.living(now)}
        self._by_pair[delegation.giver, delegation.delegate] = delegation

    def delegates_of(self, giver: Name, now: float) -> set[Name]:
        """Who decides in this member's place."""
        return {each.delegate for each in self.living(now) if each.giver == giver}

    def end(self, giver: Name, delegate: Name) -> bool:
        """Whether there was one."""
        return self._by_pair.pop((giver, delegate), None) is not None

    def forget(self, name: Name) -> None:
        """A member is removed: nobody decides in its place, and it decides in nobody's."""
        self._by_pair = {pair: each for pair, each in self._by_pair.items() if name not in pair}

    def end_before(self, latest: float) -> None:
        """It is later than it seemed."""
        self._by_pair = {pair: each for pair, each in self._by_pair.items() if latest < each.until}

    def save(self) -> list[Json]:
        return [msgspec.to_builtins(each) for each in self._by_pair.values()]

    @classmethod
    def load(cls, saved: list[Any]) -> DelegationTable:
        table = cls()
        for each in msgspec.convert(saved, list[DelegationRecord]):
            table._by_pair[each.giver, each.delegate] = each
        return table
