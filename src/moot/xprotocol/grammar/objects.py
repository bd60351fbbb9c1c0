"""Objects: members in the schema's order, each optional one there or not, and never a comma too many.

The members from number i on are one rule, "a row of at least one of these". Written from the last member
forwards, each rule is used at most twice by the one before it: with its own member in front, or instead of
it. So the size is linear, whatever is optional. Members without a name of their own (additionalProperties,
patternProperties) come last.

Engines recurse through such a chain, so a long row is cut in halves instead, each a row of at least one: as
large in all, and only as deep as the logarithm.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from moot.xprotocol.grammar.contained_items import ValueOf
from moot.xprotocol.grammar.grammar_limits import (
    CHAINED_MEMBERS,
    COUNT,
    COUNTED_MEMBERS,
    COUNTED_ROW,
    MEMBERS,
)
from moot.xprotocol.grammar.json_rules import literal_string, whitespace
from moot.xprotocol.grammar.member_names import NameKind, declared_schemas, name_kinds, offered_schemas
from moot.xprotocol.grammar.notes import GrammarRefused
from moot.xprotocol.grammar.rule_book import NEVER, Expr, Lit, Ref, RuleBook, alt, opt, seq
from moot.xprotocol.grammar.schema import Library, Schema
from moot.xprotocol.grammar.strings import Note


@dataclass(frozen=True, slots=True)
class _Member:
    expr: Expr
    required: bool


def object_(
    book: RuleBook, library: Library, parts: tuple[Schema, ...], *, value: ValueOf, hint: str, note: Note
) -> Expr:
    """The objects that satisfy all parts."""
    ws = whitespace(book)
    required = dict.fromkeys(name for part in parts for name in part.required)
    forbidden = {name for part in parts for name in part.forbidden}
    declared = {name for part in parts for name, _ in part.properties or ()}
    offered = offered_schemas(library, parts)
    names = _in_order(parts, declared | offered.keys())
    names += [name for name in required if name not in names]
    members: list[_Member] = []
    for name in names:
        schemas = None if name in forbidden else declared_schemas(library, parts, name, note)
        if schemas is None:
            if name in required:
                return NEVER
            continue
        if name in offered:
            schemas = (*schemas, offered[name])
        here = value(schemas, name)
        if here == NEVER:
            if name in required:
                return NEVER
            continue
        members.append(_Member(seq(literal_string(book, name), Lit(":"), ws, here), name in required))
    if len(members) > MEMBERS:
        raise GrammarRefused(f"an object has more than {MEMBERS} members; split it into several")
    kinds = name_kinds(book, library, parts, {*names, *forbidden}, hint=hint, note=note)
    extra = _extra(book, kinds, value=value, hint=hint)
    low = max((part.min_properties for part in parts), default=0)
    high = min((part.max_properties for part in parts if part.max_properties is not None), default=None)
    needed = sum(member.required for member in members)
    if high is not None and high < max(low, needed):
        return NEVER
    if max(low, 1) <= max(needed, 1) and (high is None or (extra == NEVER and len(members) <= high)):
        row, must = _row(book, members, extra, hint=hint)
        must = must or low > 0
    else:
        row, must = _counted(book, members, extra, low, high, hint=hint, note=note)
    if row == NEVER:
        return NEVER if must else seq(Lit("{"), ws, Lit("}"))
    inner = seq(row, ws)
    return seq(Lit("{"), ws, inner if must else opt(inner), Lit("}"))


def _in_order(parts: tuple[Schema, ...], wanted: set[str]) -> list[str]:
    """The names in the order in which the parts declare or offer them."""
    row = (name for part in parts for name, _ in (*(part.properties or ()), *part.offered))
    return [name for name in dict.fromkeys(row) if name in wanted]


def _extra(book: RuleBook, kinds: list[NameKind], *, value: ValueOf, hint: str) -> Expr:
    """One member under a name that is not declared."""
    ws = whitespace(book)
    ways = []
    for kind in kinds:
        inner = value(kind.schemas, f"{hint}-other")
        if inner != NEVER:
            ways.append(seq(kind.name, Lit(":"), ws, inner))
    return book.rule(f"{hint}-extra", alt(*ways))


def _row(book: RuleBook, members: list[_Member], extra: Expr, *, hint: str) -> tuple[Expr, bool]:
    """A row of at least one member, and whether the object must have one."""
    comma = seq(Lit(","), whitespace(book))
    row = list(members)
    if extra != NEVER:
        more = book.rule(f"{hint}-more", seq(comma, extra))
        row.append(_Member(seq(extra, book.repeat(hint, more, 0, None)), required=False))
    if not row:
        return NEVER, False
    if len(row) > CHAINED_MEMBERS:
        # A half may go on where the next begins, with a comma.
        book.overlapping = book.halved = True

    def part(start: int, end: int) -> _Member:
        if end - start == 1:
            return row[start]
        middle = (start + end) // 2 if end - start > CHAINED_MEMBERS else start + 1
        left, right = part(start, middle), part(middle, end)
        after = right.expr
        if not left.required:
            # Used twice, so it is a rule.
            after = book.rule(f"{hint}-from-{middle + 1}", after)
        follows = seq(comma, after)
        whole = seq(left.expr, follows if right.required else opt(follows))
        if not left.required:
            whole = alt(whole, after)
        return _Member(whole, left.required or right.required)

    whole = part(0, len(row))
    return whole.expr, whole.required


def _counted(
    book: RuleBook,
    members: list[_Member],
    extra: Expr,
    low: int,
    high: int | None,
    *,
    hint: str,
    note: Note,
) -> tuple[Expr, bool]:
    """The same where members are counted: one rule per member and number of members before it."""
    if high is not None and (high > COUNT or (extra == NEVER and high >= len(members))):
        if high > COUNT and extra != NEVER:
            note(f"maxProperties {high} is not enforced; the grammar counts to {COUNT}")
        high = None
    if low > COUNT:
        note(f"minProperties {low} is only enforced up to {COUNT}")
        low = COUNT
    top = low if high is None else max(low, high)
    if len(members) > COUNTED_ROW or len(members) * min(top, len(members)) > COUNTED_MEMBERS:
        note("minProperties and maxProperties are not enforced: too many members to count")
        return _row(book, members, extra, hint=hint)
    return _Counting(book, members, extra, low, high, hint, note).run()


@dataclass(slots=True)
class _Counting:
    book: RuleBook
    members: list[_Member]
    extra: Expr
    low: int
    high: int | None
    hint: str
    note: Note
    known: dict[tuple[int, int], tuple[Expr, bool]] = field(default_factory=dict)

    @property
    def comma(self) -> Expr:
        return seq(Lit(","), whitespace(self.book))

    def run(self) -> tuple[Expr, bool]:
        row: Expr = NEVER
        may_stop = False
        for at in range(len(self.members), -1, -1):
            for before in range(min(at, self._top()), -1, -1):
                row, may_stop = self._row_from(at, before)
                if isinstance(row, Ref) or row == NEVER:
                    self.known[at, before] = row, may_stop
                else:
                    name = f"{self.hint}-from-{at + 1}"
                    self.known[at, before] = self.book.rule(name, row), may_stop
        return row, not may_stop

    def _top(self) -> int:
        # Beyond this many, one more makes no difference.
        return self.low if self.high is None else self.high

    def _row_from(self, at: int, before: int) -> tuple[Expr, bool]:
        """A row of at least one member from `at` on after `before` others, and whether none is fine, too."""
        if self.high is not None and before >= self.high:
            nothing_due = all(not member.required for member in self.members[at:])
            return NEVER, nothing_due and before >= self.low
        if at == len(self.members):
            return self._extras(before), before >= self.low
        member = self.members[at]
        row, may_stop = self.known[at + 1, min(before + 1, self._top())]
        follows = seq(self.comma, row)
        here = seq(member.expr, opt(follows) if may_stop else follows)
        if member.required:
            return here, False
        skipped, may_skip = self.known[at + 1, before]
        return alt(here, skipped), may_skip

    def _extras(self, before: int) -> Expr:
        if self.extra == NEVER:
            return NEVER
        low = max(self.low - before, 1)
        high = None if self.high is None else self.high - before
        if low > 1:
            self.note("minProperties counts members that may repeat a name")
        more = self.book.rule(f"{self.hint}-more", seq(self.comma, self.extra))
        return seq(self.extra, self.book.repeat(self.hint, more, low - 1, None if high is None else high - 1))
