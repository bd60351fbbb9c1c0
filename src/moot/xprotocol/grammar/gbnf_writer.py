"""From expressions to GBNF text, in the subset that llama.cpp, llguidance and xgrammar read alike.

The traps of that subset: rule names without underscores; no `.`, no empty alternative, no `\\u`; one rule a
line; and `\\x` is two digits to llama.cpp but any number of them to xgrammar, so that no character that
could be a hex digit may follow one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import assert_never

from moot.xprotocol.grammar.grammar_limits import NESTING, TEXT_CHARACTERS
from moot.xprotocol.grammar.language.charsets import LAST, CharSet
from moot.xprotocol.grammar.notes import GrammarRefused
from moot.xprotocol.grammar.rule_book import (
    EMPTY,
    NEVER,
    Alt,
    Chars,
    Expr,
    Lit,
    Ref,
    Rep,
    RuleBook,
    Seq,
    alt,
    opt,
    seq,
)


# What remains of the rules once the dead ones are gone.
#
# A rule is dead when no finite text comes out of it (an object that must contain itself), or when nothing
# leads to it. Engines load dead rules without a word and a model then runs into them, so they go here.
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


def level(book: RuleBook) -> None:
    """Rewrite all rules so that none is nested deeper than `NESTING`: what lies deeper becomes a rule."""
    for name, body in list(book.rules.items()):
        book.rules[name] = _levelled(book, name, body)[0]


def _levelled(book: RuleBook, name: str, expr: Expr) -> tuple[Expr, int]:
    """The expression and how deep its parentheses go."""
    if isinstance(expr, Rep):
        item, depth = _levelled(book, name, expr.item)
        if isinstance(item, Rep):
            # `(x{2,3})?` loses its parentheses on the way through gbnf_to_lark.
            item, depth = book.rule(f"{name}-in", item), 0
        return Rep(item, expr.low, expr.high), depth + isinstance(item, Seq | Alt)
    if not isinstance(expr, Seq | Alt):
        return expr, 0
    items: list[Expr] = []
    deepest = 0
    for each in expr.items:
        item, depth = _levelled(book, name, each)
        # A choice stands in parentheses within a row, a row does not within a choice.
        depth += isinstance(item, Alt)
        if depth >= NESTING:
            item, depth = book.rule(f"{name}-in", item), 0
        items.append(item)
        deepest = max(deepest, depth)
    return type(expr)(tuple(items)), deepest


def write(rules: Mapping[str, Expr]) -> str:
    """The grammar's text, `root` first, then the others as they were made."""
    lines = [f"root ::= {_choice(rules['root'])}\n"]
    lines += [f"{name} ::= {_choice(body)}\n" for name, body in rules.items() if name != "root"]
    text = "".join(lines)
    if len(text) > TEXT_CHARACTERS:
        raise GrammarRefused(
            f"the grammar would be longer than {TEXT_CHARACTERS} characters; make the schema smaller"
        )
    return text


def _choice(expr: Expr) -> str:
    if isinstance(expr, Alt):
        return " | ".join(_sequence(item) for item in expr.items)
    return _sequence(expr)


def _sequence(expr: Expr) -> str:
    if isinstance(expr, Seq):
        return " ".join(_symbol(item) for item in expr.items)
    return _symbol(expr)


def _symbol(expr: Expr) -> str:
    match expr:
        case Lit(text):
            return _literal(text)
        case Chars(members):
            return _characters(members)
        case Ref(name):
            return name
        case Seq() | Alt():
            return f"({_choice(expr)})"
        case Rep(item, low, high):
            return _repeated(item) + _times(low, high)
        case _:
            assert_never(expr)


def _repeated(item: Expr) -> str:
    # Two repetitions in a row ("a*?") are none of the portable things.
    alone = isinstance(item, Ref | Chars) or (isinstance(item, Lit) and len(item.text) == 1)
    return _symbol(item) if alone else f"({_choice(item)})"


def _times(low: int, high: int | None) -> str:
    match low, high:
        case 0, None:
            return "*"
        case 1, None:
            return "+"
        case 0, 1:
            return "?"
        case _, None:
            return f"{{{low},}}"
    return f"{{{low}}}" if low == high else f"{{{low},{high}}}"


_LITERAL_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _literal(text: str) -> str:
    return '"' + "".join(_LITERAL_ESCAPES.get(c, c) for c in text) + '"'


def _characters(members: CharSet) -> str:
    only = members.single()
    if only is not None and chr(only) in "^-":
        return _literal(chr(only))
    if members.ranges[-1][1] == LAST:
        return f"[^{_items(members.complement().ranges)}]"
    return f"[{_items(members.ranges)}]"


# Brackets and the backslash have escapes everywhere. The dash has none in llama.cpp: it goes last.
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_CLASS_ESCAPES = {"[": "\\[", "]": "\\]", "\\": "\\\\"}


def _items(ranges: Iterable[tuple[int, int]]) -> str:
    plain: list[str] = []
    hexadecimal: list[str] = []
    caret = dash = ""
    for low, high in _cut(ranges):
        first, last = chr(low), chr(high)
        if low < 0x20 or low == 0x7F:
            short = _SHORT.get(first) if low == high else None
            hexadecimal.append(short or _range(f"\\x{low:02X}", f"\\x{high:02X}"))
        elif first == "-":
            dash = "-"
        elif first == "^":
            caret = "^"
        else:
            plain.append(_CLASS_ESCAPES.get(first) or _range(first, last))
    # A caret is only itself when it is not the first.
    if caret and not plain:
        caret = "\\x5E"
    return "".join([*plain, caret, *hexadecimal, dash])


def _range(first: str, last: str) -> str:
    return first if first == last else f"{first}-{last}"


# What cannot be the end of a plain range: each of these stands alone.
_ALONE = tuple(ord(c) for c in "-[\\]^\x7f")


def _cut(ranges: Iterable[tuple[int, int]]) -> Iterable[tuple[int, int]]:
    for low, high in ranges:
        start = low
        cuts = [code for code in _ALONE if low <= code <= high]
        if low < 0x20 <= high:
            yield low, 0x1F
            start = 0x20
        for code in sorted(cuts):
            if start < code:
                yield start, code - 1
            yield code, code
            start = code + 1
        if start <= high:
            yield start, high
