"""The rules of a grammar while it is being built: expressions, names, repetitions.

Expressions are values: two that look alike are one, so that the same shape never gets a second rule.
`NEVER` is the expression without a word; it spreads through sequences and drops out of choices.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, TypeAlias

from moot.xprotocol.grammar.grammar_limits import BLOCK, REPETITIONS, RULES
from moot.xprotocol.grammar.language.automata import Work
from moot.xprotocol.grammar.language.charsets import CharSet
from moot.xprotocol.grammar.notes import GrammarRefused


@dataclass(frozen=True, slots=True)
class Lit:
    text: str


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of a set, written out as it stands in the JSON text."""

    members: CharSet


@dataclass(frozen=True, slots=True)
class Ref:
    name: str


@dataclass(frozen=True, slots=True)
class Seq:
    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Alt:
    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Rep:
    item: Expr
    low: int
    high: int | None


Expr: TypeAlias = Lit | Chars | Ref | Seq | Alt | Rep

EMPTY: Final = Seq(())
NEVER: Final = Alt(())


def seq(*items: Expr) -> Expr:
    """One after the other."""
    flat: list[Expr] = []
    for item in items:
        if item == NEVER:
            return NEVER
        flat += item.items if isinstance(item, Seq) else (item,)
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def joined(*items: Expr) -> Expr:
    """One after the other, neighbouring literals as one. Only within strings and numbers.

    Elsewhere a literal is a token to engines that have a lexer: a name, a comma, a bracket.
    """
    row: list[Expr] = []
    whole = seq(*items)
    for item in whole.items if isinstance(whole, Seq) else (whole,):
        if isinstance(item, Lit) and row and isinstance(row[-1], Lit):
            row[-1] = Lit(row[-1].text + item.text)
        else:
            row.append(item)
    return seq(*row)


def alt(*items: Expr) -> Expr:
    """One of these; the same one twice counts once."""
    flat: dict[Expr, None] = {}
    for item in items:
        for each in item.items if isinstance(item, Alt) else (item,):
            flat[each] = None
    if EMPTY in flat and len(flat) > 1:
        # The portable subset has no empty alternative: `( … )?` says the same.
        del flat[EMPTY]
        return opt(alt(*flat))
    return next(iter(flat)) if len(flat) == 1 else Alt(tuple(flat))


def opt(item: Expr) -> Expr:
    """This or nothing."""
    if item in (NEVER, EMPTY):
        return EMPTY
    if isinstance(item, Rep) and item.low <= 1:
        return Rep(item.item, 0, item.high)
    return Rep(item, 0, 1)


# Rules that mean the same in every grammar; no property's rule takes such a name.
VOCABULARY = frozenset(
    (
        *("ws", "indent", "value", "object", "member", "array", "string", "char", "escape"),
        *("uescape", "key-char", "integer", "number"),
    )
)
# `start` is what one engine renames the root to; `true` and `false` are words to another.
_RESERVED = VOCABULARY | {"root", "start", "true", "false"}
_NAME_LENGTH = 40


class RuleBook:
    """Rules by name. Names depend on nothing but the order in which they are asked for."""

    def __init__(self) -> None:
        self.rules: dict[str, Expr] = {}
        self._taken: set[str] = set(_RESERVED)
        self._by_body: dict[Expr, Ref] = {}
        self._counters: dict[str, int] = {}
        self.work = Work()
        # What `json_rules` and `strings` have made, the latter with what it noted.
        self.spelled: dict[CharSet, Expr] = {}
        self.strings: dict[Hashable, tuple[Expr, tuple[str, ...]]] = {}
        # Whether there are objects or arrays that begin alike and must be told apart later.
        self.overlapping = False
        # Whether a row of members was cut in halves.
        self.halved = False

    def name(self, hint: str) -> str:
        """A fresh rule name made of `hint`, in small letters, digits and dashes, starting with a letter."""
        stem = re.sub(r"[^a-z0-9]+", "-", hint.lower())[:_NAME_LENGTH].strip("-")
        if not stem or not stem[0].isalpha():
            stem = f"x-{stem}".strip("-")
        name = stem
        while name in self._taken:
            number = self._counters.get(stem, 1) + 1
            self._counters[stem] = number
            name = f"{stem}-{number}"
        self._taken.add(name)
        return name

    def release(self, name: str) -> None:
        """Give back a name that was not needed after all."""
        self._taken.discard(name)

    def define(self, name: str, body: Expr) -> Ref:
        if len(self.rules) >= RULES:
            raise GrammarRefused(f"the schema needs more than {RULES} grammar rules; make it smaller")
        self._taken.add(name)
        self.rules[name] = body
        return Ref(name)

    def rule(self, hint: str, body: Expr) -> Expr:
        """A reference to a rule with this body, an existing one if there is one."""
        if isinstance(body, Ref) or body in (NEVER, EMPTY):
            return body
        if body not in self._by_body:
            self._by_body[body] = self.define(self.name(hint), body)
        return self._by_body[body]

    def shared(self, name: str, body: Expr) -> Ref:
        """A rule of the JSON vocabulary (`string`, `ws`, …) under its own name, made when first used."""
        if name not in VOCABULARY:
            raise AssertionError(f"{name} is no rule of the vocabulary")
        return Ref(name) if name in self.rules else self.define(name, body)

    def repeat(self, hint: str, item: Expr, low: int, high: int | None) -> Expr:
        """`item` from `low` to `high` times, in repetitions that every engine takes.

        The item gets a rule of its own unless it is one symbol: engines multiply what is repeated inline.
        """
        if item == NEVER:
            return EMPTY if low == 0 else NEVER
        if item == EMPTY or high == 0:
            return EMPTY
        if (low, high) == (1, 1):
            return item
        if (low, high) == (0, 1):
            return opt(item)
        one = item if isinstance(item, Ref | Chars) else self.rule(f"{hint}-each", item)
        if high is None:
            return seq(self._exactly(hint, one, low), Rep(one, 0, None)) if low > 1 else Rep(one, low, None)
        if high <= REPETITIONS:
            return Rep(one, low, high)
        return seq(self._exactly(hint, one, low), self._at_most(hint, one, high - low))

    def _exactly(self, hint: str, one: Expr, times: int) -> Expr:
        blocks, rest = divmod(times, BLOCK)
        whole = _times(self.rule(f"{hint}-block", Rep(one, BLOCK, BLOCK)), blocks) if blocks else EMPTY
        return seq(whole, _times(one, rest))

    def _at_most(self, hint: str, one: Expr, times: int) -> Expr:
        # Whole blocks first, then one part: at any point only two readings are alive.
        if times == 0:
            return EMPTY
        blocks, rest = divmod(times, BLOCK)
        body = opt(Rep(one, 0, rest)) if rest else EMPTY
        if not blocks:
            return body
        block = self.rule(f"{hint}-block", Rep(one, BLOCK, BLOCK))
        part = self.rule(f"{hint}-part", Rep(one, 0, BLOCK - 1))
        for _ in range(blocks):
            body = self.rule(f"{hint}-upto", alt(seq(block, body), part))
        return body


def _times(one: Expr, times: int) -> Expr:
    if times == 0:
        return EMPTY
    return one if times == 1 else Rep(one, times, times)
