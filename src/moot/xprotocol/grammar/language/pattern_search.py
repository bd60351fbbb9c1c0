"""What a pattern says about a whole string: JSON Schema searches, it does not match from end to end.

A pattern becomes branches, each a row of items; `^` and `$` at the ends of a row are taken off and what is
not anchored gets "anything" on that side. Lookaheads right after `^`, lookbehinds right before `$` become
further languages to hold at the same time. Assertions elsewhere count only where both neighbours are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import assert_never

from moot.xprotocol.grammar.grammar_limits import PATTERN_BRANCHES
from moot.xprotocol.grammar.language.charsets import ASCII, EVERY, NOT_ASCII, WORD, CharSet, charset
from moot.xprotocol.grammar.language.languages import (
    ANYTHING,
    NO_TEXT,
    NOTHING,
    Language,
    Not,
    One,
    both,
    chain,
    either,
    first_characters,
    last_characters,
    many,
    shortest,
)
from moot.xprotocol.grammar.language.regex import (
    Anchor,
    Char,
    Choice,
    Concat,
    LookAround,
    Pattern,
    PatternUnsupported,
    Repeat,
    parse,
)

# ECMA-262 calls everything beyond ASCII no word character, other engines ask Unicode. Beside a \b we only
# offer what no engine doubts: punctuation, arrows, boxes, pictures.
_NO_WORD = (ASCII - WORD) | charset(
    *((0xA0, 0xA9), (0xAB, 0xB1), (0xBB, 0xBB), (0xBF, 0xBF), (0xD7, 0xD7), (0xF7, 0xF7), (0x2010, 0x2027)),
    *((0x2030, 0x203E), (0x20A0, 0x20BF), (0x2190, 0x23FF), (0x2500, 0x2767), (0x3000, 0x3004)),
    *((0x3008, 0x3020), (0x1F300, 0x1F64F), (0x1F680, 0x1F6C0), (0x1F910, 0x1F93A)),
)


@lru_cache(maxsize=512)
def search_language(source: str) -> Language:
    """All strings in which the pattern is found; raises `PatternUnsupported`."""
    return either(*(_branch(row) for row in _rows(parse(source))))


def _rows(tree: Pattern) -> list[list[Pattern]]:
    """The branches of a tree as rows of items; groups at the edges that hold assertions are opened."""
    match tree:
        case Choice(items):
            rows = [row for item in items for row in _rows(item)]
        case Concat(items):
            rows = _opened(list(items))
        case Repeat(Repeat(), _, _) | Char() | Repeat() | Anchor() | LookAround():
            rows = [[tree]]
        case _:
            assert_never(tree)
    if len(rows) > PATTERN_BRANCHES:
        raise PatternUnsupported(f"it has more than {PATTERN_BRANCHES} branches")
    return rows


def _opened(items: list[Pattern]) -> list[list[Pattern]]:
    rows: list[list[Pattern]] = [[]]
    for item in items:
        inner = _rows(item) if isinstance(item, Choice | Concat) and _asserts(item) else [[item]]
        rows = [row + more for row in rows for more in inner]
        if len(rows) > PATTERN_BRANCHES:
            raise PatternUnsupported(f"it has more than {PATTERN_BRANCHES} branches")
    return rows


def _asserts(tree: Pattern) -> bool:
    match tree:
        case Anchor() | LookAround():
            return True
        case Char():
            return False
        case Repeat(item, _, _):
            return _asserts(item)
        case Choice(items) | Concat(items):
            return any(_asserts(item) for item in items)
        case _:
            assert_never(tree)


def _branch(row: list[Pattern]) -> Language:
    conditions: list[Language] = []
    row = list(row)
    before: Language = ANYTHING
    while row and isinstance(row[0], Anchor | LookAround):
        match row[0]:
            case Anchor("^"):
                if before not in (ANYTHING, NOTHING):
                    raise PatternUnsupported("`^` after another assertion")
                before = NOTHING
            case LookAround(inner, True, negative) if before == NOTHING:
                ahead = either(*(_branch([Anchor("^"), *more]) for more in _rows(inner)))
                conditions.append(Not(ahead) if negative else ahead)
            case Anchor("b") if before == NOTHING:
                # At the very start: the first character is a word character.
                conditions.append(chain(One(WORD), ANYTHING))
            case Anchor("b") if _consuming(row):
                before = _before_boundary(row)
            case _:
                # It may belong to the end.
                break
        row.pop(0)
    after: Language = ANYTHING
    while row and isinstance(row[-1], Anchor | LookAround):
        item = row.pop()
        match item:
            case Anchor("$"):
                if after not in (ANYTHING, NOTHING):
                    raise PatternUnsupported("`$` before another assertion")
                after = NOTHING
            case LookAround(inner, False, negative) if after == NOTHING:
                behind = either(*(_branch([*more, Anchor("$")]) for more in _rows(inner)))
                conditions.append(Not(behind) if negative else behind)
            case Anchor("b") if after == NOTHING:
                if _last_kind(row) is not True:
                    raise PatternUnsupported("`\\b` where either side may be anything")
            case Anchor("b"):
                after = _after_boundary(row)
            case _:
                raise PatternUnsupported("an assertion that needs to look around")
    core = _row_language(row)
    return both(chain(before, core, after), *conditions)


def _consuming(row: Sequence[Pattern]) -> bool:
    return any(not isinstance(item, Anchor | LookAround) for item in row)


def _row_language(row: Sequence[Pattern]) -> Language:
    """Items without what was taken off the edges; assertions between two known neighbours are decided."""
    parts: list[Language] = []
    pending: list[Anchor] = []
    for item in row:
        if isinstance(item, Anchor):
            pending.append(item)
            continue
        part = _consumed(item)
        for anchor in pending:
            if not _holds(anchor, chain(*parts), part):
                return NO_TEXT
        pending.clear()
        parts.append(part)
    return chain(*parts)


def _holds(anchor: Anchor, left: Language, right: Language) -> bool:
    if anchor.kind == "^" and shortest(left) > 0:
        return False
    if anchor.kind == "$" and shortest(right) > 0:
        return False
    if anchor.kind in "bB":
        ends, starts = _kind(last_characters(left)), _kind(first_characters(right))
        if ends is not None and starts is not None:
            return (ends != starts) == (anchor.kind == "b")
    raise PatternUnsupported(f"`{'' if anchor.kind in '^$' else chr(92)}{anchor.kind}` in the middle")


def _kind(members: CharSet | None) -> bool | None:
    """Whether all of these are word characters (yes, no), or it depends."""
    if members is None or members & NOT_ASCII:
        return None
    return True if not members - WORD else False if not members & WORD else None


def _last_kind(row: Sequence[Pattern]) -> bool | None:
    return _kind(last_characters(_row_language(row)))


def _before_boundary(row: Sequence[Pattern]) -> Language:
    kind = _kind(
        first_characters(_row_language([item for item in row if not isinstance(item, LookAround | Anchor)]))
    )
    if kind is True:
        return either(NOTHING, chain(ANYTHING, One(_NO_WORD)))
    if kind is False:
        return chain(ANYTHING, One(WORD))
    raise PatternUnsupported("`\\b` where either side may be anything")


def _after_boundary(row: Sequence[Pattern]) -> Language:
    kind = _last_kind(row)
    if kind is True:
        return either(NOTHING, chain(One(_NO_WORD), ANYTHING))
    if kind is False:
        return chain(One(WORD), ANYTHING)
    raise PatternUnsupported("`\\b` where either side may be anything")


def _consumed(tree: Pattern) -> Language:
    match tree:
        case Char(members):
            return One(members & EVERY) if members & EVERY else NO_TEXT
        case Concat(items):
            return chain(*(_consumed(item) for item in items))
        case Choice(items):
            return either(*(_consumed(item) for item in items))
        case Repeat(item, low, high):
            return many(_consumed(item), low, high)
        case Anchor() | LookAround():
            raise PatternUnsupported("an assertion inside a repetition or in the middle")
        case _:
            assert_never(tree)
