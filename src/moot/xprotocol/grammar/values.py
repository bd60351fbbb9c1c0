"""Listed values (`enum`, `const`): when two are the same, and how one is written."""

from __future__ import annotations

import json
from collections.abc import Iterable
from fractions import Fraction

from moot.protocol.operation import Json
from moot.xprotocol.grammar.json_rules import literal_string, one_token, whitespace
from moot.xprotocol.grammar.number.numbers import literal_number
from moot.xprotocol.grammar.rule_book import Expr, Lit, RuleBook, seq


def identity(text: str) -> Json:
    """Something hashable that is equal for texts of the same JSON value: 1 is 1.0 and never true."""
    return _identity(json.loads(text))


def _identity(value: Json) -> Json:
    match value:
        case None | bool() | str():
            return (type(value).__name__, value)
        case int() | float():
            return ("number", Fraction(value))
        case list():
            return ("array", tuple(_identity(each) for each in value))
        case _:
            return ("object", frozenset((key, _identity(each)) for key, each in value.items()))


def same_values(left: Iterable[str], right: Iterable[str]) -> tuple[str, ...]:
    """Those of the left that are in the right, too."""
    known = {identity(text) for text in right}
    return tuple(text for text in left if identity(text) in known)


def other_values(left: Iterable[str], right: Iterable[str]) -> tuple[str, ...]:
    """Those of the left that are not in the right."""
    known = {identity(text) for text in right}
    return tuple(text for text in left if identity(text) not in known)


def type_of(value: Json) -> str:
    """The type as `Schema.types` counts them."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "fraction"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def literal(book: RuleBook, value: Json) -> Expr:
    """Exactly this value, members in its own order, white space where JSON has it."""
    match value:
        case None:
            return Lit("null")
        case bool():
            return Lit("true" if value else "false")
        case int() | float():
            return one_token(book, "number", literal_number(value))
        case str():
            return literal_string(book, value)
        case list():
            return _row(book, "[", [literal(book, each) for each in value], "]")
        case _:
            members = [
                seq(literal_string(book, key), Lit(":"), whitespace(book), literal(book, each))
                for key, each in value.items()
            ]
            return _row(book, "{", members, "}")


def _row(book: RuleBook, start: str, items: list[Expr], end: str) -> Expr:
    ws = whitespace(book)
    row: list[Expr] = [Lit(start), ws]
    for n, item in enumerate(items):
        row += [Lit(","), ws, item] if n else [item]
    return seq(*row, *([ws] if items else []), Lit(end))
