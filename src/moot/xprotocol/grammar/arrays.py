"""Arrays: a fixed beginning, then items of one kind, as many as the bounds allow."""

from __future__ import annotations

from dataclasses import dataclass

from moot.xprotocol.grammar.contained_items import ContainedRow, ValueOf, contained_counts
from moot.xprotocol.grammar.json_rules import whitespace
from moot.xprotocol.grammar.rule_book import EMPTY, NEVER, Expr, Lit, RuleBook, opt, seq
from moot.xprotocol.grammar.schema import Library, Schema, SchemaId
from moot.xprotocol.grammar.strings import Note, countable


@dataclass(frozen=True, slots=True)
class _Array:
    prefix: tuple[tuple[SchemaId, ...], ...]
    items: tuple[SchemaId, ...]
    low: int
    high: int | None
    contains: tuple[Schema, ...]
    unique: bool


def array(
    book: RuleBook, library: Library, parts: tuple[Schema, ...], *, value: ValueOf, hint: str, note: Note
) -> Expr:
    """The arrays that satisfy all parts."""
    whole = _together(library, parts)
    low, high = countable(whole.low, whole.high, "Items", note)
    if whole.unique and (high is None or high > 1):
        note("uniqueItems is not enforced")
    ws = whitespace(book)
    wanted = contained_counts(library, whole.contains, max(len(whole.prefix), low, high or 0), note)
    if wanted:
        row = ContainedRow(book, whole.prefix, whole.items, low, high, wanted, value=value, hint=hint).row()
        if any(each.low for each in wanted):
            low = max(low, 1)
    else:
        row = _row(book, whole, low, high, value=value, hint=hint)
    if row == NEVER:
        return NEVER if low > 0 else seq(Lit("["), ws, Lit("]"))
    inner = seq(row, ws)
    return seq(Lit("["), ws, inner if low > 0 else opt(inner), Lit("]"))


def _together(library: Library, parts: tuple[Schema, ...]) -> _Array:
    length = max((len(part.prefix) for part in parts), default=0)
    prefix: list[tuple[SchemaId, ...]] = []
    high = min((part.max_items for part in parts if part.max_items is not None), default=None)
    for at in range(length):
        here = [_item_at(part, at) for part in parts]
        schemas = tuple(dict.fromkeys(id for id in here if id is not None))
        if any(library[id].never for id in schemas):
            high = at if high is None else min(high, at)
            break
        prefix.append(schemas)
    items = tuple(dict.fromkeys(part.items for part in parts if part.items is not None))
    if any(library[id].never for id in items):
        high = length if high is None else min(high, length)
    return _Array(
        tuple(prefix),
        items,
        max((part.min_items for part in parts), default=0),
        high,
        tuple(part for part in parts if part.contains is not None),
        any(part.unique for part in parts),
    )


def _item_at(part: Schema, at: int) -> SchemaId | None:
    return part.prefix[at] if at < len(part.prefix) else part.items


def _row(book: RuleBook, whole: _Array, low: int, high: int | None, *, value: ValueOf, hint: str) -> Expr:
    """At least one item, in order; `NEVER` if there can be none."""
    if high == 0 or (high is not None and high < low):
        return NEVER
    ws = whitespace(book)
    if not whole.prefix:
        each = value(whole.items, f"{hint}-item")
        if each == NEVER:
            return NEVER
        more = book.rule(f"{hint}-more", seq(Lit(","), ws, each))
        return seq(each, book.repeat(hint, more, max(low - 1, 0), None if high is None else high - 1))
    return _from_prefix(book, whole, low, high, value=value, hint=hint)


def _from_prefix(
    book: RuleBook, whole: _Array, low: int, high: int | None, *, value: ValueOf, hint: str
) -> Expr:
    """The fixed beginning and what follows it, built from the last item forwards."""
    ws = whitespace(book)
    length = len(whole.prefix) if high is None else min(len(whole.prefix), high)
    rest: Expr = EMPTY
    if high is None or high > length:
        each = value(whole.items, f"{hint}-item")
        if each == NEVER:
            rest = EMPTY if low <= length else NEVER
        else:
            more = book.rule(f"{hint}-more", seq(Lit(","), ws, each))
            rest = book.repeat(hint, more, max(low - length, 0), None if high is None else high - length)
    for position in range(length - 1, -1, -1):
        item = value(whole.prefix[position], f"{hint}-{position + 1}")
        here = seq(Lit(","), ws, item, rest) if position else seq(item, rest)
        rest = here if position < low or position == 0 else opt(here)
    return rest
