"""What remains of the rules once the dead ones are gone.

A rule is dead when no finite text comes out of it (an object that must contain itself), or when nothing
leads to it. Engines load dead rules without a word and a model then runs into them, so they go here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import assert_never

from moot.xprotocol.grammar.rule_book import EMPTY, NEVER, Alt, Chars, Expr, Lit, Ref, Rep, Seq, alt, opt, seq


def pruned(rules: Mapping[str, Expr]) -> dict[str, Expr] | None:
    """The live rules in their old order, or `None` if nothing comes out of `root`."""
    live = _productive(rules)
    if "root" not in live:
        return None
    known: dict[str, Expr] = {name: NEVER for name in rules if name not in live}
    kept = {name: _with(body, known) for name, body in rules.items() if name in live}
    # What lost its only way to say something says nothing now; a rule without a body cannot be written.
    while hollow := [name for name, body in kept.items() if body == EMPTY]:
        known = dict.fromkeys(hollow, EMPTY)
        kept = {name: _with(body, known) for name, body in kept.items() if name not in known}
    reached = _reached(kept)
    return {name: body for name, body in kept.items() if name in reached}


def has_recursion(rules: Mapping[str, Expr]) -> bool:
    """Whether any rule leads back to itself."""
    done: set[str] = set()
    for start in rules:
        path: dict[str, Iterator[str]] = {}
        if start not in done:
            path[start] = _references(rules[start])
        while path:
            name, targets = next(reversed(path.items()))
            target = next(targets, None)
            if target is None:
                done.add(name)
                del path[name]
            elif target in path:
                return True
            elif target not in done:
                path[target] = _references(rules[target])
    return False


def _productive(rules: Mapping[str, Expr]) -> set[str]:
    live: set[str] = set()
    users: dict[str, list[str]] = {}
    for name, body in rules.items():
        for target in _references(body):
            users.setdefault(target, []).append(name)
    # By rounds: a rule that uses a thousand others is looked at once for all that came alive, not a thousand
    # times. Rules stand behind those that they use, so mostly the first round finds all.
    todo = dict.fromkeys(rules)
    while todo:
        found = []
        for name in todo:
            if name not in live and _yields(rules[name], live):
                live.add(name)
                found.append(name)
        todo = dict.fromkeys(user for name in found for user in users.get(name, ()) if user not in live)
    return live


def _yields(expr: Expr, live: set[str]) -> bool:
    match expr:
        case Lit() | Chars():
            return True
        case Ref(name):
            return name in live
        case Seq(items):
            return all(_yields(item, live) for item in items)
        case Alt(items):
            return any(_yields(item, live) for item in items)
        case Rep(item, low, _):
            return low == 0 or _yields(item, live)
        case _:
            assert_never(expr)


def _with(expr: Expr, known: Mapping[str, Expr]) -> Expr:
    """The expression with what is known put in place of references."""
    match expr:
        case Lit() | Chars():
            return expr
        case Ref(name):
            return known.get(name, expr)
        case Seq(items):
            return seq(*(_with(item, known) for item in items))
        case Alt(items):
            return alt(*(_with(item, known) for item in items))
        case Rep(item, low, high):
            inner = _with(item, known)
            if inner in (NEVER, EMPTY):
                return NEVER if inner == NEVER and low > 0 else EMPTY
            return opt(inner) if (low, high) == (0, 1) else Rep(inner, low, high)
        case _:
            assert_never(expr)


def _reached(rules: Mapping[str, Expr]) -> set[str]:
    seen = {"root"}
    todo = ["root"]
    while todo:
        for name in _references(rules[todo.pop()]):
            if name not in seen:
                seen.add(name)
                todo.append(name)
    return seen


def _references(expr: Expr) -> Iterator[str]:
    match expr:
        case Ref(name):
            yield name
        case Seq(items) | Alt(items):
            for item in items:
                yield from _references(item)
        case Rep(item, _, _):
            yield from _references(item)
        case Lit() | Chars():
            return
        case _:
            assert_never(expr)
