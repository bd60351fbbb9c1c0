"""ECMA-262 patterns, read into a tree. What a pattern means for a whole string is in `pattern_search`.

Where engines differ on a class (white space, word characters beyond ASCII), ECMA-262 counts.
"""

from __future__ import annotations

import sys
import unicodedata
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeAlias

from moot.xprotocol.grammar.grammar_limits import COUNT, PATTERN_DEPTH
from moot.xprotocol.grammar.language.charsets import (
    DIGITS,
    EVERY,
    NEWLINES,
    NONE,
    SPACE,
    WORD,
    CharSet,
    chars,
    charset,
)


class PatternUnsupported(Exception):
    """The pattern has something that no grammar of ours says; the text names it."""


@dataclass(frozen=True, slots=True)
class Char:
    members: CharSet


@dataclass(frozen=True, slots=True)
class Concat:
    items: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    items: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    item: Pattern
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class Anchor:
    """`^`, `$`, `\\b` or `\\B`."""

    kind: Literal["^", "$", "b", "B"]


@dataclass(frozen=True, slots=True)
class LookAround:
    item: Pattern
    ahead: bool
    negative: bool


Pattern: TypeAlias = Char | Concat | Choice | Repeat | Anchor | LookAround

_CLASSES = {"d": DIGITS, "w": WORD, "s": SPACE}
_CLASSES |= {letter.upper(): members.complement() for letter, members in list(_CLASSES.items())}
_CONTROL = {"n": "\n", "r": "\r", "t": "\t", "v": "\v", "f": "\f", "0": "\0"}


def parse(source: str) -> Pattern:
    """The pattern's tree; raises `PatternUnsupported`, also for what is no pattern at all."""
    reader = _RegexReader(source)
    tree = reader.choice()
    if reader.at < len(source):
        raise PatternUnsupported(f"`{source[reader.at]}` at {reader.at} has no partner")
    return tree


class _RegexReader:
    def __init__(self, source: str) -> None:
        self.source = source
        self.at = 0
        self.depth = 0

    def peek(self, width: int = 1) -> str:
        return self.source[self.at : self.at + width]

    def eat(self, words: str) -> bool:
        if self.source.startswith(words, self.at):
            self.at += len(words)
            return True
        return False

    def next(self) -> str:
        if self.at >= len(self.source):
            raise PatternUnsupported("it ends in the middle")
        self.at += 1
        return self.source[self.at - 1]

    def choice(self) -> Pattern:
        self.depth += 1
        if self.depth > PATTERN_DEPTH:
            raise PatternUnsupported(f"it is nested deeper than {PATTERN_DEPTH}")
        branches = [self.concat()]
        while self.eat("|"):
            branches.append(self.concat())
        self.depth -= 1
        return branches[0] if len(branches) == 1 else Choice(tuple(branches))

    def concat(self) -> Pattern:
        items: list[Pattern] = []
        while self.at < len(self.source) and self.peek() not in "|)":
            items.append(self.quantified())
        return items[0] if len(items) == 1 else Concat(tuple(items))

    def quantified(self) -> Pattern:
        atom = self.atom()
        while (bounds := self.quantifier()) is not None:
            self.eat("?")  # lazy or not: the same texts match
            if self.peek() == "+":
                raise PatternUnsupported("possessive quantifiers")
            if isinstance(atom, Anchor | LookAround):
                raise PatternUnsupported("a repeated assertion")
            atom = Repeat(atom, *bounds)
        return atom

    def quantifier(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self.eat(sign):
                return bounds
        start = self.at
        if self.eat("{"):
            low = self.number()
            high = low
            if low is not None and self.eat(","):
                high = self.number()
            if low is not None and self.eat("}"):
                if high is not None and high < low:
                    raise PatternUnsupported(f"{{{low},{high}}} is upside down")
                return low, high
            # Not a quantifier after all: Annex B takes the brace as a character, others refuse it.
            self.at = start
            raise PatternUnsupported("a brace that is no quantifier")
        return None

    def number(self) -> int | None:
        start = self.at
        while self.peek() and self.peek() in "0123456789":
            self.at += 1
        digits = self.source[start : self.at].lstrip("0") or "0"
        if len(digits) > len(str(COUNT)) or int(digits) > COUNT:
            raise PatternUnsupported(f"a count above {COUNT}")
        return int(digits) if self.at > start else None

    def atom(self) -> Pattern:
        char = self.next()
        match char:
            case ".":
                return Char(NEWLINES.complement())
            case "^" | "$":
                return Anchor("^" if char == "^" else "$")
            case "(":
                return self.group()
            case "[":
                return Char(self.bracket())
            case "\\":
                return self.escape()
            case "*" | "+" | "?" | "{":
                raise PatternUnsupported(f"`{char}` with nothing to repeat")
        return Char(chars(_whole(char)))

    def group(self) -> Pattern:
        look: tuple[bool, bool] | None = None
        if self.eat("?"):
            if self.eat("<="):
                look = (False, False)
            elif self.eat("<!"):
                look = (False, True)
            elif self.eat("="):
                look = (True, False)
            elif self.eat("!"):
                look = (True, True)
            elif self.eat("P<") or self.eat("<"):
                while self.next() != ">":
                    pass
            elif not self.eat(":"):
                raise PatternUnsupported("inline flags")
        inner = self.choice()
        if not self.eat(")"):
            raise PatternUnsupported("a parenthesis is not closed")
        return inner if look is None else LookAround(inner, *look)

    def escape(self) -> Pattern:
        char = self.peek()
        if char in ("b", "B"):
            self.at += 1
            return Anchor("b" if char == "b" else "B")
        if char and char in "123456789":
            raise PatternUnsupported("back references")
        if char == "k":
            raise PatternUnsupported("back references")
        if char == "A" or char in ("z", "Z"):
            self.at += 1
            return Anchor("^" if char == "A" else "$")
        return Char(self.escaped_set())

    def escaped_set(self) -> CharSet:
        """After a backslash, inside a class or out of it."""
        char = self.next()
        if char in _CLASSES:
            return _CLASSES[char]
        if char in ("p", "P"):
            return self.property(negative=char == "P")
        if char in _CONTROL:
            return chars(_CONTROL[char])
        if char == "c":
            letter = self.next()
            if not (letter.isascii() and letter.isalpha()):
                raise PatternUnsupported("`\\c` without a letter")
            return chars(chr(ord(letter) % 32))
        if char == "x":
            return chars(_whole(chr(self.hexadecimal(2))))
        if char == "u":
            return charset((code := self.unicode(), code))
        if char.isascii() and char.isalnum():
            raise PatternUnsupported(f"`\\{char}`")
        return chars(_whole(char))

    def unicode(self) -> int:
        if self.eat("{"):
            start = self.at
            while self.next() != "}":
                pass
            digits = self.source[start : self.at - 1]
            if not 0 < len(digits) <= 6 or not set(digits) <= set("0123456789abcdefABCDEF"):
                raise PatternUnsupported("`\\u{…}` without a code point")
            code = int(digits, 16)
        else:
            code = self.hexadecimal(4)
            if 0xD800 <= code < 0xDC00 and self.eat("\\u"):
                code = 0x10000 + ((code - 0xD800) << 10) + (self.hexadecimal(4) - 0xDC00)
        if code > sys.maxunicode or 0xD800 <= code <= 0xDFFF:
            raise PatternUnsupported("half a surrogate pair")
        return code

    def hexadecimal(self, width: int) -> int:
        digits = self.peek(width)
        if len(digits) < width or not set(digits) <= set("0123456789abcdefABCDEF"):
            raise PatternUnsupported("an escape without its hex digits")
        self.at += width
        return int(digits, 16)

    def property(self, *, negative: bool) -> CharSet:
        name = self.next()
        if name == "{":
            start = self.at
            while self.next() != "}":
                pass
            name = self.source[start : self.at - 1]
        members = category(_CATEGORIES.get(name, name))
        if not members:
            raise PatternUnsupported(f"`\\p{{{name}}}`")
        return members.complement() if negative else members

    def bracket(self) -> CharSet:
        negative = self.eat("^")
        members = NONE
        if self.peek() == "]":
            raise PatternUnsupported("an empty class")
        while not self.eat("]"):
            low = self.class_atom()
            if self.peek() == "-" and self.peek(2) != "-]" and self.at + 1 < len(self.source):
                self.at += 1
                high = self.class_atom()
                first, last = low.single(), high.single()
                if first is None or last is None or last < first:
                    raise PatternUnsupported("a range whose ends make no range")
                members = members | charset((first, last))
            else:
                members = members | low
        return members.complement() if negative else members

    def class_atom(self) -> CharSet:
        char = self.next()
        if char == "[":
            # A nested set to some engines, a character to others.
            raise PatternUnsupported("`[` inside a class without a backslash")
        if self.peek() == char and char in "&~":
            raise PatternUnsupported("set operations in a class")
        if char != "\\":
            return chars(_whole(char))
        if self.eat("b"):
            return chars("\b")
        if self.eat("-"):
            return chars("-")
        return self.escaped_set()


def _whole(char: str) -> str:
    if "\ud800" <= char <= "\udfff":
        raise PatternUnsupported("half a surrogate pair")
    return char


_CATEGORIES = {
    "Letter": "L", "Alphabetic": "?", "Lowercase_Letter": "Ll", "Uppercase_Letter": "Lu", "Mark": "M",
    "Number": "N", "Decimal_Number": "Nd", "Punctuation": "P", "Symbol": "S", "Separator": "Z",
}  # fmt: skip


@cache
def category(name: str) -> CharSet:
    """All characters of a Unicode general category, or of a group of them (`L`); empty if there is none."""
    name = name.removeprefix("General_Category=").removeprefix("gc=")
    ranges: list[tuple[int, int]] = []
    for code in range(sys.maxunicode + 1):
        if unicodedata.category(chr(code)).startswith(name):
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1] = (ranges[-1][0], code)
            else:
                ranges.append((code, code))
    return charset(*ranges) & EVERY if name and name != "C" else NONE
