"""Random texts out of a grammar: a reader of GBNF of its own, and a walk through the rules.

The reader takes only the portable subset, so it is a check of the writer, too.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

_LAST = 0x10FFFF


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class OneOf:
    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Rule:
    name: str


@dataclass(frozen=True, slots=True)
class Row:
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeated:
    item: Node
    low: int
    high: int | None


Node: TypeAlias = Text | OneOf | Rule | Row | Choice | Repeated

_TOKEN = re.compile(
    r'\s*(?:(?P<text>"(?:[^"\\]|\\.)*")|(?P<set>\[(?:[^\]\\]|\\.)*\])|(?P<name>[a-z][a-z0-9-]*)'
    r"|(?P<times>[*+?]|\{\d+(?:,\d*)?\})|(?P<sign>[()|]))",
    re.DOTALL,
)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "[": "[", "]": "]"}


class NotPortable(Exception):
    """The grammar has something outside of the subset that every engine reads."""


def read(grammar: str) -> dict[str, Node]:
    """The rules of a grammar; raises `NotPortable`."""
    rules: dict[str, Node] = {}
    for line in grammar.split("\n"):
        if not line:
            continue
        name, defined, body = line.partition(" ::= ")
        if not defined or not re.fullmatch(r"[a-z][a-z0-9-]*", name) or name in rules:
            raise NotPortable(f"no new rule: {line[:60]}")
        tokens = list(_tokens(body))
        node, rest = _choice(tokens)
        if rest:
            raise NotPortable(f"{rest[0]} is left over in {name}")
        rules[name] = node
    missing = {used for node in rules.values() for used in _names(node)} - rules.keys()
    if missing or "root" not in rules:
        raise NotPortable(f"rules that do not exist: {missing or 'root'}")
    return rules


def _tokens(body: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(body):
        found = _TOKEN.match(body, at)
        if found is None or found.lastgroup is None:
            raise NotPortable(f"unreadable: {body[at : at + 40]}")
        yield found.lastgroup, found[found.lastgroup]
        at = found.end()


def _choice(tokens: Sequence[tuple[str, str]]) -> tuple[Node, Sequence[tuple[str, str]]]:
    ways = []
    while True:
        items: list[Node] = []
        while tokens and tokens[0] not in (("sign", "|"), ("sign", ")")):
            item, tokens = _item(tokens)
            items.append(item)
        if not items:
            raise NotPortable("an empty alternative")
        ways.append(items[0] if len(items) == 1 else Row(tuple(items)))
        if not tokens or tokens[0] != ("sign", "|"):
            return (ways[0] if len(ways) == 1 else Choice(tuple(ways))), tokens
        tokens = tokens[1:]


def _item(tokens: Sequence[tuple[str, str]]) -> tuple[Node, Sequence[tuple[str, str]]]:
    (kind, word), tokens = tokens[0], tokens[1:]
    node: Node
    match kind:
        case "text":
            node = Text("".join(_unescaped(word[1:-1])))
        case "set":
            node = _set(word)
        case "name":
            node = Rule(word)
        case "sign" if word == "(":
            node, tokens = _choice(tokens)
            if not tokens or tokens[0] != ("sign", ")"):
                raise NotPortable("a parenthesis is open")
            tokens = tokens[1:]
        case _:
            raise NotPortable(f"{word} where a symbol should be")
    if tokens and tokens[0][0] == "times":
        if isinstance(node, Repeated):
            raise NotPortable("a repetition of a repetition, which gbnf_to_lark writes without parentheses")
        node = Repeated(node, *_bounds(tokens[0][1]))
        tokens = tokens[1:]
        if tokens and tokens[0][0] == "times":
            raise NotPortable("two repetitions in a row")
    return node, tokens


def _bounds(word: str) -> tuple[int, int | None]:
    if word in "*+?":
        return {"*": (0, None), "+": (1, None), "?": (0, 1)}[word]
    low, comma, high = word[1:-1].partition(",")
    upper = (int(high) if high else None) if comma else int(low)
    if max(int(low), upper or 0) > 1_900 or upper == 0:
        raise NotPortable(f"{word} is more than engines take")
    return int(low), upper


def _unescaped(body: str) -> Iterator[str]:
    at = 0
    while at < len(body):
        if body[at] != "\\":
            yield body[at]
            at += 1
        elif body[at + 1] == "x":
            # Two digits to llama.cpp, all that follow to xgrammar.
            if re.match(r"\\x[0-9A-F]{2}(?![0-9a-fA-F])", body[at:]) is None:
                raise NotPortable(f"an escape that engines read differently: {body[at : at + 6]}")
            yield chr(int(body[at + 2 : at + 4], 16))
            at += 4
        elif body[at + 1] in _ESCAPES:
            yield _ESCAPES[body[at + 1]]
            at += 2
        else:
            raise NotPortable(f"an escape that not all know: {body[at : at + 2]}")


def _set(word: str) -> OneOf:
    body = word[1:-1]
    negative = body.startswith("^")
    parts = re.findall(r"\\x[0-9A-F]{2}|\\.|.", body[negative:], re.DOTALL)
    if re.search(r"\\x[0-9A-F]{2}[0-9a-fA-F]", body) or not parts:
        raise NotPortable(f"a set that engines read differently: {word}")
    codes = [ord(next(_unescaped(part))) if part != "-" else -1 for part in parts]
    ranges = []
    at = 0
    while at < len(codes):
        if codes[at] == -1:
            if at != len(codes) - 1:
                raise NotPortable(f"a dash that is not last: {word}")
            ranges.append((ord("-"), ord("-")))
            at += 1
        elif at + 2 < len(codes) and codes[at + 1] == -1:
            if codes[at] > codes[at + 2] or codes[at + 2] == -1:
                raise NotPortable(f"a range upside down: {word}")
            ranges.append((codes[at], codes[at + 2]))
            at += 3
        else:
            ranges.append((codes[at], codes[at]))
            at += 1
    return OneOf(tuple(_complement(sorted(ranges)) if negative else sorted(ranges)))


def _complement(ranges: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    start = 0
    for low, high in [*ranges, (_LAST + 1, _LAST + 1)]:
        if low > start:
            yield from _around_surrogates(start, low - 1)
        start = max(start, high + 1)


def _around_surrogates(low: int, high: int) -> Iterator[tuple[int, int]]:
    if low < 0xD800:
        yield low, min(high, 0xD7FF)
    if high > 0xDFFF:
        yield max(low, 0xE000), high


def _names(node: Node) -> Iterator[str]:
    match node:
        case Rule(name):
            yield name
        case Row(items) | Choice(items):
            for item in items:
                yield from _names(item)
        case Repeated(item, _, _):
            yield from _names(item)
        case Text() | OneOf():
            return


class Derivations:
    """Random texts of one grammar. Short ones: from a certain depth on the quickest way out is taken."""

    def __init__(self, grammar: str, seed: int) -> None:
        self.rules = read(grammar)
        self.random = random.Random(seed)
        self._heights: dict[str, float] = dict.fromkeys(self.rules, float("inf"))
        self._measure()

    def _measure(self) -> None:
        changed = True
        while changed:
            changed = False
            for name, node in self.rules.items():
                height = self._height(node) + 1
                if height < self._heights[name]:
                    self._heights[name] = height
                    changed = True

    def _height(self, node: Node) -> float:
        match node:
            case Text() | OneOf():
                return 0
            case Rule(name):
                return self._heights[name]
            case Row(items):
                return max(self._height(item) for item in items)
            case Choice(items):
                return min(self._height(item) for item in items)
            case Repeated(item, low, _):
                return 0 if low == 0 else self._height(item)

    def text(self, depth: int = 30) -> str:
        parts: list[str] = []
        # A stack instead of recursion: chains of rules are as long as objects have members.
        todo: list[tuple[Node, int]] = [(Rule("root"), 0)]
        while todo:
            node, at = todo.pop()
            match node:
                case Text(text):
                    parts.append(text)
                case OneOf(ranges):
                    parts.append(self._character(ranges))
                case Rule(name):
                    todo.append((self.rules[name], at + 1))
                case Row(items):
                    todo += [(item, at) for item in reversed(items)]
                case Choice(items):
                    quick = at > depth or len(parts) > 3_000
                    todo.append((min(items, key=self._height) if quick else self.random.choice(items), at))
                case Repeated(item, low, high):
                    todo += [(item, at)] * self._times(low, high, quick=at > depth or len(parts) > 3_000)
        return "".join(parts)

    def _times(self, low: int, high: int | None, *, quick: bool) -> int:
        if quick:
            return low
        top = low + 4 if high is None else high
        if self.random.random() < 0.1 and top < 400:
            return top
        return self.random.randint(low, min(top, low + 4))

    def _character(self, ranges: tuple[tuple[int, int], ...]) -> str:
        low, high = self.random.choice(ranges)
        if high - low > 1_000 and self.random.random() < 0.7:
            high = low + 90
        return chr(self.random.randint(low, high))
