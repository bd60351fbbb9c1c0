"""JSON text as rules: white space, strings, what a character looks like inside a string, any value.

Two spellings of strings are in use. Free strings take every escape that JSON has. Where a character's
identity matters (patterns, names, listed values) a character has the spellings that JSON writers in fact
produce: itself, its short escape, or `\\u` with four digits for what is not printable ASCII. Otherwise
`\\u0061` would be a second way to write `a`, and every rule about letters would have to know it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from moot.xprotocol.grammar.language.charsets import (
    CONTROLS,
    EVERY,
    HEX,
    NOT_ASCII,
    CharSet,
    chars,
    charset,
    span,
)
from moot.xprotocol.grammar.rule_book import EMPTY, Alt, Chars, Expr, Lit, Ref, Rep, RuleBook, alt, opt, seq

QUOTE = Lit('"')
_QUOTED = chars('"\\')
# What may stand in a JSON string as it is.
RAW = EVERY - CONTROLS - _QUOTED
_SHORT = {'"': '"', "\\": "\\", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}
# Code points whose \u spelling is offered; Python's json escapes DEL, too.
_HEXED = CONTROLS | chars("\x7f") | NOT_ASCII
# A set of more ranges than this gets no \u spellings; the letters of Unicode are 650.
_HEXED_RANGES = 1_000
_ASTRAL = charset((0x10000, 0x10FFFF))
_INDENT = 64


def whitespace(book: RuleBook) -> Ref:
    """Nothing, a blank, or a new line with its indentation: bounded, so that no model gets lost in it."""
    indent = book.shared("indent", seq(Lit("\n"), Rep(Chars(chars(" \t")), 0, _INDENT)))
    return book.shared("ws", opt(alt(Lit(" "), indent)))


def unlexed_whitespace(rules: dict[str, Expr]) -> None:
    """Rewrite `ws` so that rules which contain it stay rules for llguidance.

    gbnf_to_lark makes a lexeme of every rule without recursion, and lexemes are greedy without a way
    back: of two objects that begin alike, one a lexeme and one not, the second is lost. A carriage return
    that may repeat (it comes before a new line in some files) makes `ws` recursive and all of them rules.
    """
    if "ws" in rules:
        rules["ws"] = opt(alt(Lit(" "), Ref("indent"), seq(Lit("\r"), Ref("ws"))))


def free_character(book: RuleBook) -> Ref:
    """Any character of a string in any of its spellings; a pair of surrogate escapes is one character."""
    hexes = Chars(HEX)
    plain = alt(
        seq(Chars(HEX - chars("dD")), Rep(hexes, 3, 3)),
        seq(Chars(chars("dD")), Chars(span("0", "7")), Rep(hexes, 2, 2)),
        seq(_high_surrogates(), Lit("\\u"), _low_surrogates()),
    )
    escape = book.shared("escape", alt(Chars(chars('"\\/bfnrt')), seq(Lit("u"), book.rule("hex", plain))))
    return book.shared("char", alt(Chars(RAW), seq(Lit("\\"), escape)))


def _high_surrogates() -> Expr:
    return seq(Chars(chars("dD")), Chars(chars("89abAB")), Rep(Chars(HEX), 2, 2))


def _low_surrogates() -> Expr:
    return seq(Chars(chars("dD")), Chars(span("c", "f") | span("C", "F")), Rep(Chars(HEX), 2, 2))


def free_string(book: RuleBook) -> Ref:
    return book.shared("string", seq(QUOTE, Rep(free_character(book), 0, None), QUOTE))


def spelled(book: RuleBook, members: CharSet) -> Expr:
    """One character of the set as it stands inside a string, printable ASCII only as itself."""
    if members not in book.spelled:
        book.spelled[members] = _spelled(book, members)
    return book.spelled[members]


def _spelled(book: RuleBook, members: CharSet) -> Expr:
    parts: list[Expr] = []
    raw = members & RAW
    if raw:
        only = raw.single()
        parts.append(Chars(raw) if only is None else Lit(chr(only)))
    short = chars("".join(letter for code, letter in _SHORT.items() if ord(code) in members))
    if short:
        only = short.single()
        parts.append(Lit("\\" + chr(only)) if only is not None else seq(Lit("\\"), Chars(short)))
    parts += _hexed(book, members & _HEXED)
    whole = alt(*parts)
    if not isinstance(whole, Alt):
        return whole
    return book.shared("key-char", whole) if members == EVERY else book.rule("chars", whole)


def _hexed(book: RuleBook, members: CharSet) -> Iterator[Expr]:
    if not members:
        return
    whole_beyond = not (NOT_ASCII - members)
    if whole_beyond:
        beyond = alt(
            *_four_digits(NOT_ASCII - _ASTRAL), seq(_high_surrogates(), Lit("\\u"), _low_surrogates())
        )
        yield seq(Lit("\\u"), book.shared("uescape", beyond))
        members = members - NOT_ASCII
    if len(members.ranges) > _HEXED_RANGES:
        return
    digits = [*_four_digits(members - _ASTRAL), *_pairs(members & _ASTRAL)]
    if digits:
        yield seq(Lit("\\u"), alt(*digits))


def _four_digits(members: CharSet) -> Iterator[Expr]:
    for low, high in members.ranges:
        yield from _hex_between(f"{low:04x}", f"{high:04x}")


def _pairs(members: CharSet) -> Iterator[Expr]:
    for low, high in members.ranges:
        (first, first_low), (last, last_low) = _surrogates(low), _surrogates(high)
        whole = [
            (first, first, first_low, 0xDFFF),
            (first + 1, last - 1, 0xDC00, 0xDFFF),
            (last, last, 0xDC00, last_low),
        ]
        if first == last:
            whole = [(first, first, first_low, last_low)]
        for lead, lead_end, tail, tail_end in whole:
            if lead <= lead_end:
                leads = alt(*_hex_between(f"{lead:04x}", f"{lead_end:04x}"))
                tails = alt(*_hex_between(f"{tail:04x}", f"{tail_end:04x}"))
                yield seq(leads, Lit("\\u"), tails)


def _surrogates(code: int) -> tuple[int, int]:
    return 0xD800 + ((code - 0x10000) >> 10), 0xDC00 + ((code - 0x10000) & 0x3FF)


def _hex_between(low: str, high: str) -> Iterator[Expr]:
    """All numbers from `low` to `high`, written with as many hex digits as they have here."""
    if not low:
        yield EMPTY
        return
    if set(low) == {"0"} and set(high) == {"f"}:
        yield _hex_any(len(low))
        return
    first, last = int(low[0], 16), int(high[0], 16)
    rest = len(low) - 1
    if first == last:
        yield seq(_hex_digits(first, last), alt(*_hex_between(low[1:], high[1:])))
        return
    if low[1:].strip("0"):
        yield seq(_hex_digits(first, first), alt(*_hex_between(low[1:], "f" * rest)))
        first += 1
    upper = []
    if high[1:].strip("f"):
        upper.append(seq(_hex_digits(last, last), alt(*_hex_between("0" * rest, high[1:]))))
        last -= 1
    if first <= last:
        yield seq(_hex_digits(first, last), _hex_any(rest))
    yield from upper


def _hex_any(digits: int) -> Expr:
    return EMPTY if digits == 0 else Rep(Chars(HEX), digits, digits) if digits > 1 else Chars(HEX)


def _hex_digits(first: int, last: int) -> Expr:
    if first == last < 10:
        return Lit(str(first))
    return Chars(chars("".join(f"{n:x}{n:X}" for n in range(first, last + 1))))


def literal_string(book: RuleBook, text: str) -> Expr:
    """Exactly this text with its quotes; what is not ASCII is written as it is, or as escapes throughout."""
    return one_token(book, text, alt(_written(text, ascii_only=False), _written(text, ascii_only=True)))


def one_token(book: RuleBook, hint: str, expr: Expr) -> Expr:
    """As a literal or a rule: engines with a lexer must meet strings and numbers in one piece."""
    return expr if isinstance(expr, Lit) else book.rule(hint, expr)


def _written(text: str, *, ascii_only: bool) -> Expr:
    parts: list[Expr] = []
    run = ""
    for piece in _pieces(json.dumps(text, ensure_ascii=ascii_only)):
        if isinstance(piece, str):
            run += piece
        else:
            parts += [Lit(run)] * bool(run) + [piece]
            run = ""
    return seq(*parts, Lit(run))


def _pieces(written: str) -> Iterator[str | Expr]:
    """The JSON text in pieces; letters among the hex digits of an escape may be large or small."""
    at = 0
    while at < len(written):
        if written[at : at + 2] == "\\u":
            yield "\\u"
            for digit in written[at + 2 : at + 6]:
                yield digit if digit in "0123456789" else Chars(chars(digit.lower() + digit.upper()))
            at += 6
        elif written[at] == "\\":
            yield written[at : at + 2]
            at += 2
        elif written[at] == "\x7f":
            # In a literal one engine takes it for a mistake, in a set none does.
            yield Chars(chars("\x7f"))
            at += 1
        else:
            yield written[at]
            at += 1
