"""Automata as rules.

A small automaton is boiled down to repetitions and choices, state by state. That keeps a string one piece for
engines with a lexer, which cut at recursion. A large one becomes a rule per state, each leading to the next.
"""

from __future__ import annotations

from moot.xprotocol.grammar.grammar_limits import AUTOMATON_DEPTH, FOLDED_STATES, FOLDED_WAYS
from moot.xprotocol.grammar.json_rules import QUOTE, spelled
from moot.xprotocol.grammar.language.automata import Automaton, TooLarge
from moot.xprotocol.grammar.language.charsets import NONE, CharSet
from moot.xprotocol.grammar.rule_book import EMPTY, NEVER, Expr, Ref, RuleBook, alt, joined, seq

_START, _END = -1, -2


def from_automaton(book: RuleBook, machine: Automaton, *, hint: str) -> Expr:
    """The texts of an automaton with their quotes; raises `TooLarge`."""
    if machine.is_empty():
        return NEVER
    if _depth(machine) > AUTOMATON_DEPTH:
        raise TooLarge
    small = len(machine.table) <= FOLDED_STATES
    folded = _folded(book, machine, hint=hint) if small and _has_long_cycle(machine) else None
    if folded is None:
        return _state_by_state(book, machine, hint=hint)
    return seq(QUOTE, folded, QUOTE)


def _onward(machine: Automaton, at: int) -> dict[int, CharSet]:
    """Where a state leads, and on which characters."""
    found: dict[int, CharSet] = {}
    for members, to in zip(machine.classes, machine.table[at], strict=True):
        if to >= 0:
            found[to] = found.get(to, NONE) | members
    return found


def _depth(machine: Automaton) -> int:
    """The number of states from the start to the farthest one."""
    seen = {0}
    depth, here = 0, [0]
    while here:
        depth += 1
        here = list(
            dict.fromkeys(to for at in here for to in machine.table[at] if to >= 0 and to not in seen)
        )
        seen.update(here)
    return depth


def _has_long_cycle(machine: Automaton) -> bool:
    """Whether a state leads back to itself through others."""
    for start in range(len(machine.table)):
        seen: set[int] = set()
        todo = [to for to in machine.table[start] if to >= 0 and to != start]
        while todo:
            at = todo.pop()
            if at == start:
                return True
            if at not in seen:
                seen.add(at)
                todo += [to for to in machine.table[at] if to >= 0]
    return False


def _folded(book: RuleBook, machine: Automaton, *, hint: str) -> Expr | None:
    """One expression for the whole automaton: states are taken out, the cheapest first; or it is too much."""
    allowed = FOLDED_WAYS
    edges: dict[tuple[int, int], Expr] = {(_START, 0): EMPTY}
    for at in range(len(machine.table)):
        for to, members in _onward(machine, at).items():
            edges[at, to] = spelled(book, members)
        if at in machine.accepting:
            edges[at, _END] = EMPTY
    left = set(range(len(machine.table)))
    while left:
        at = min(left, key=lambda state: (_cost(edges, state), state))
        left.remove(at)
        loop = edges.pop((at, at), NEVER)
        again = book.repeat(hint, loop, 0, None)
        before = [pair for pair in edges if pair[1] == at]
        after = [pair for pair in edges if pair[0] == at]
        allowed -= len(before) * len(after)
        if allowed < 0:
            return None
        for source, _ in before:
            for _, target in after:
                path = joined(edges[source, at], again, edges[at, target])
                whole = alt(edges.get((source, target), NEVER), path)
                # Each expression goes into several others, so it is a rule.
                edges[source, target] = book.rule(f"{hint}-way", whole)
        for pair in [*before, *after]:
            del edges[pair]
    return edges[_START, _END]


def _cost(edges: dict[tuple[int, int], Expr], state: int) -> int:
    before = sum(1 for _, target in edges if target == state)
    after = sum(1 for source, _ in edges if source == state)
    return before * after


def chain(book: RuleBook, machine: Automaton, *, hint: str) -> Expr:
    """The texts of an automaton that never comes back to a state it left: a rule per state, no recursion."""
    names = [book.name(f"{hint}-at") for _ in machine.table]
    for at in range(len(machine.table)):
        onward = _onward(machine, at)
        loop = onward.pop(at, None)
        ways = [joined(spelled(book, members), Ref(names[to])) for to, members in onward.items()]
        body = alt(*ways, *([EMPTY] if at in machine.accepting else []))
        again = EMPTY if loop is None else book.repeat("chars", spelled(book, loop), 0, None)
        book.define(names[at], seq(again, body))
    return Ref(names[0])


def _state_by_state(book: RuleBook, machine: Automaton, *, hint: str) -> Expr:
    names = [book.name(f"{hint}-at") for _ in machine.table]
    for at in range(len(machine.table)):
        onward = _onward(machine, at)
        loop = onward.pop(at, None)
        ways: list[Expr] = [QUOTE] if at in machine.accepting else []
        ways += [seq(spelled(book, members), Ref(names[to])) for to, members in onward.items()]
        body = alt(*ways)
        if loop is not None:
            # Its own loop is a repetition: automata without longer ones need no recursion.
            body = seq(book.repeat("chars", spelled(book, loop), 0, None), body)
        book.define(names[at], body)
    return seq(QUOTE, Ref(names[0]))
