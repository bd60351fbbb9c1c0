"""Parentheses within parentheses, up to a depth; what lies deeper becomes a rule of its own."""

from __future__ import annotations

from moot.xprotocol.grammar.grammar_limits import NESTING
from moot.xprotocol.grammar.rule_book import Alt, Expr, Rep, RuleBook, Seq


def level(book: RuleBook) -> None:
    """Rewrite all rules so that none is nested deeper than `NESTING`."""
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
