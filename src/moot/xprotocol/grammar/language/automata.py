"""Deterministic automata, for what needs one: several languages at once, complements, empty repetitions.

Characters come in classes (`charsets.partition`), so that an automaton has a handful of columns instead of
a million. State 0 is the start; a missing entry is a dead end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import assert_never

from moot.xprotocol.grammar.grammar_limits import AUTOMATON_STATES, AUTOMATON_STEPS, AUTOMATON_WORK
from moot.xprotocol.grammar.language.charsets import CharSet, partition
from moot.xprotocol.grammar.language.languages import Both, Concatenation, Either, Language, Many, Not, One


class TooLarge(Exception):
    """The automaton would have more states, or take more work, than we have for it."""


class Work:
    """What the automata of one grammar may cost together."""

    def __init__(self) -> None:
        self.left = AUTOMATON_WORK

    def spend(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise TooLarge


@dataclass(frozen=True, slots=True)
class Automaton:
    classes: tuple[CharSet, ...]
    # Per state: the next state for each class, -1 for none.
    table: tuple[tuple[int, ...], ...]
    accepting: frozenset[int]

    def is_empty(self) -> bool:
        return not self.accepting


def automaton(language: Language, work: Work) -> Automaton:
    """The smallest automaton of a language without dead states; raises `TooLarge`."""
    classes = tuple(partition(_sets(language)))
    return _build(language, classes, work)


def matches(language: Language, words: str) -> bool:
    """Whether a text belongs to the language; raises `TooLarge`."""
    match language:
        case Both(items):
            return all(matches(item, words) for item in items)
        case Either(items):
            return any(matches(item, words) for item in items)
        case Not(item):
            return not matches(item, words)
    steps = _Steps()
    end = steps.add(language, steps.new())
    here = steps.closure({end[0]})
    for char in words:
        code = ord(char)
        here = steps.closure({to for at in here for members, to in steps.moves[at] if code in members})
        if not here:
            return False
    return end[1] in here


def _sets(language: Language) -> Iterator[CharSet]:
    match language:
        case One(members):
            yield members
        case Concatenation(items) | Either(items) | Both(items):
            for item in items:
                yield from _sets(item)
        case Many(item, _, _) | Not(item):
            yield from _sets(item)
        case _:
            assert_never(language)


class _Steps:
    """Thompson's construction: states with moves on characters and free moves."""

    def __init__(self) -> None:
        self.moves: list[list[tuple[CharSet, int]]] = []
        self.free: list[list[int]] = []
        self._reached: dict[int, frozenset[int]] = {}

    def new(self) -> int:
        if len(self.moves) >= AUTOMATON_STEPS:
            raise TooLarge
        self.moves.append([])
        self.free.append([])
        return len(self.moves) - 1

    def add(self, language: Language, start: int) -> tuple[int, int]:
        """Build from `start`; gives back start and end."""
        match language:
            case One(members):
                end = self.new()
                self.moves[start].append((members, end))
                return start, end
            case Concatenation(items):
                at = start
                for item in items:
                    at = self.add(item, at)[1]
                return start, at
            case Either(items):
                end = self.new()
                for item in items:
                    inner = self.new()
                    self.free[start].append(inner)
                    self.free[self.add(item, inner)[1]].append(end)
                return start, end
            case Many(item, low, high):
                return start, self._many(item, low, high, start)
            case Both() | Not():
                raise TooLarge
            case _:
                assert_never(language)

    def _many(self, item: Language, low: int, high: int | None, start: int) -> int:
        at = start
        for _ in range(low):
            at = self.add(item, at)[1]
        if high is None:
            loop = self.new()
            self.free[at].append(loop)
            inner = self.new()
            self.free[loop].append(inner)
            self.free[self.add(item, inner)[1]].append(loop)
            return loop
        end = self.new()
        for _ in range(high - low):
            self.free[at].append(end)
            inner = self.new()
            self.free[at].append(inner)
            at = self.add(item, inner)[1]
        self.free[at].append(end)
        return end

    def closure(self, states: set[int]) -> frozenset[int]:
        """These states and where free moves lead from them."""
        return frozenset().union(*(self._reach(at) for at in states))

    def _reach(self, state: int) -> frozenset[int]:
        if state not in self._reached:
            seen = {state}
            todo = [state]
            while todo:
                for to in self.free[todo.pop()]:
                    if to not in seen:
                        seen.add(to)
                        todo.append(to)
            self._reached[state] = frozenset(seen)
        return self._reached[state]


def _build(language: Language, classes: tuple[CharSet, ...], work: Work) -> Automaton:
    match language:
        case Both(items):
            # One after the other, each result small before the next comes in.
            whole = _build(items[0], classes, work)
            for item in items[1:]:
                whole = _combined([whole, _build(item, classes, work)], all, work)
            return whole
        case Either(items) if any(isinstance(item, Both | Not) for item in items):
            whole = _build(items[0], classes, work)
            for item in items[1:]:
                whole = _combined([whole, _build(item, classes, work)], any, work)
            return whole
        case Not(item):
            return _combined([_build(item, classes, work)], lambda ends: not any(ends), work)
    return _determined(language, classes, work)


def _determined(language: Language, classes: tuple[CharSet, ...], work: Work) -> Automaton:
    steps = _Steps()
    start, end = steps.add(language, steps.new())
    # A class lies in a set or out of it, so one member speaks for all.
    columns: dict[CharSet, list[int]] = {}
    for members in _sets(language):
        if members not in columns:
            columns[members] = [n for n, each in enumerate(classes) if each.ranges[0][0] in members]
    first = steps.closure({start})
    numbers = {first: 0}
    order = [first]
    table: list[tuple[int, ...]] = []
    for here in order:
        targets: list[set[int]] = [set() for _ in classes]
        for at in here:
            for members, to in steps.moves[at]:
                work.spend(len(columns[members]))
                for column in columns[members]:
                    targets[column].add(to)
        row: list[int] = []
        for reached in targets:
            if not reached:
                row.append(-1)
                continue
            there = steps.closure(reached)
            work.spend(len(there))
            if there not in numbers:
                if len(numbers) >= AUTOMATON_STATES:
                    raise TooLarge
                numbers[there] = len(numbers)
                order.append(there)
            row.append(numbers[there])
        table.append(tuple(row))
    accepting = frozenset(number for states, number in numbers.items() if end in states)
    return smallest(Automaton(classes, tuple(table), accepting), work)


def _combined(parts: list[Automaton], verdict: Callable[[list[bool]], bool], work: Work) -> Automaton:
    """The automata side by side over the same classes; `verdict` says which ends count."""
    first = tuple(0 for _ in parts)
    numbers = {first: 0}
    order = [first]
    table: list[tuple[int, ...]] = []
    for here in order:
        row: list[int] = []
        work.spend(len(parts) * len(parts[0].classes))
        for column in range(len(parts[0].classes)):
            there = tuple(
                part.table[at][column] if at >= 0 else -1 for part, at in zip(parts, here, strict=True)
            )
            if verdict is all and -1 in there:
                row.append(-1)
                continue
            if there not in numbers:
                if len(numbers) >= 4 * AUTOMATON_STATES:
                    raise TooLarge
                numbers[there] = len(numbers)
                order.append(there)
            row.append(numbers[there])
        table.append(tuple(row))
    accepting = frozenset(
        number
        for states, number in numbers.items()
        if verdict([at in part.accepting for part, at in zip(parts, states, strict=True)])
    )
    return smallest(Automaton(parts[0].classes, tuple(table), accepting), work)


def smallest(given: Automaton, work: Work) -> Automaton:
    """Dead states dropped, equal states merged (Moore), states numbered as they are met."""
    alive = _alive(given)
    if 0 not in alive:
        return Automaton(given.classes, ((-1,) * len(given.classes),), frozenset())
    table = [[to if to in alive else -1 for to in row] for row in given.table]
    group = {at: int(at in given.accepting) for at in alive}
    count = len(set(group.values()))
    while True:
        seen: dict[tuple[int, ...], int] = {}
        finer = {}
        work.spend(len(alive) * len(given.classes))
        for at in sorted(alive):
            key = (group[at], *(group[to] if to >= 0 else -1 for to in table[at]))
            finer[at] = seen.setdefault(key, len(seen))
        group = finer
        if len(seen) == count:
            break
        count = len(seen)
    speaker: dict[int, int] = {}
    for at in sorted(alive):
        speaker.setdefault(group[at], at)
    numbers = {group[0]: 0}
    order = [group[0]]
    rows = []
    for here in order:
        row = []
        for to in table[speaker[here]]:
            if to >= 0 and group[to] not in numbers:
                numbers[group[to]] = len(numbers)
                order.append(group[to])
            row.append(numbers[group[to]] if to >= 0 else -1)
        rows.append(tuple(row))
    accepting = frozenset(
        numbers[group[at]] for at in alive if at in given.accepting and group[at] in numbers
    )
    return Automaton(given.classes, tuple(rows), accepting)


def _alive(given: Automaton) -> set[int]:
    """The states from which an accepting one can be reached."""
    into: dict[int, set[int]] = {}
    for at, row in enumerate(given.table):
        for to in row:
            into.setdefault(to, set()).add(at)
    alive = set(given.accepting)
    todo = list(alive)
    while todo:
        for at in into.get(todo.pop(), ()):
            if at not in alive:
                alive.add(at)
                todo.append(at)
    return alive
