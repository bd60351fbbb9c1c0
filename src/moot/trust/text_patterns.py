"""The narrowest patterns that cover the texts seen: one value, some values, or a shape with a wildcard.

A text is read segment by segment (`/`). A segment that recurs stays as it is; one that is mostly new becomes
a shape: the kinds of characters that were seen, the lengths, the common start and ending. The patterns are
anchored RE2 expressions over ASCII, so what they match can be read from them: no `..`, no escape, no look-
alike, nothing longer. They are capability patterns, so a rule can become a grant.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from moot.protocol.patterns.compiler import MAX_STRING_BYTES
from moot.protocol.patterns.globs import is_wild
from moot.protocol.patterns.pattern import is_regex

# This many different values make a shape.
MIN_NEW_VALUES: Final = 5
# A value belongs to a list if it was approved this often.
MIN_REPEATS: Final = 2
# More alternatives than a person reads in one rule.
MAX_VALUES: Final = 24
# The share of values seen only once above which new ones are expected (Good-Turing estimate).
MAX_SINGLE_SHARE: Final = 0.1
# For prose; longer texts become any text. RE2 counts to 1000, and its memory is limited.
_MAX_PROSE_CHARS: Final = 400
_MAX_SEGMENT_CHARS: Final = 200
# Characters besides letters and digits that a wild segment may contain if they were seen. No `%` and no `\\`.
_SIGNS: Final = frozenset("-_.@+=,:#~ ")
# A text with this many different signs may contain all printable ASCII.
_PROSE_SIGNS: Final = 10


@dataclass(frozen=True, slots=True)
class TextCover:
    """Patterns of which one must match. `first_times`: the fewest different values behind a wildcard."""

    patterns: tuple[str, ...]
    first_times: int | None
    description: str


def literal(text: str) -> str | None:
    """The pattern that matches this text alone; None if it is too long."""
    if not (is_wild(text) or text.startswith("!") or is_regex(text)):
        return text if len(text.encode(errors="surrogatepass")) <= MAX_STRING_BYTES else None
    return anchored(quoted(text))


def anchored(expression: str) -> str | None:
    pattern = f"^{expression}$"
    return f"/{pattern}/" if len(pattern.encode(errors="surrogatepass")) <= MAX_STRING_BYTES else None


def quoted(text: str) -> str:
    """The text as an RE2 expression; signs stand in brackets, which reads better than backslashes."""
    return "".join(_quoted(char) for char in text)


def _quoted(char: str) -> str:
    if char.isalnum() or char in "/-_ :,=@~#\"'<>&%;`" or not char.isascii():
        return char
    return f"[{char}]" if char not in "^[]\\\n\r\t\0" and char.isprintable() else f"\\x{{{ord(char):x}}}"


def cover_texts(values: Sequence[str]) -> TextCover | None:
    """The narrowest patterns for these texts, as far as they support any; None if they support none.

    Some texts may stay outside: those seen once, or unlike all others.
    """
    counts = Counter(values)
    if len(counts) == 1:
        return _one_of(counts)
    if values_recur(counts):
        return _one_of({text: n for text, n in counts.items() if n >= MIN_REPEATS})
    if all(_is_prose(text) for text in counts):
        return _prose(counts) or _one_of({text: n for text, n in counts.items() if n >= MIN_REPEATS})
    found: list[_Shape] = []
    by_depth: dict[int, list[tuple[str, ...]]] = {}
    for text in values:
        segments = tuple(text.split("/"))
        by_depth.setdefault(len(segments), []).append(segments)
    for rows in by_depth.values():
        found += _shapes(rows, 0)
    if not found:
        return None
    return _covered(found)


def values_recur(counts: Counter[str]) -> bool:
    """Whether the same values recur, so that a list of them is enough."""
    total = counts.total()
    single = sum(1 for n in counts.values() if n == 1)
    return (
        len(counts) <= MAX_VALUES
        and single <= MAX_SINGLE_SHARE * total
        and len(counts) * MIN_REPEATS <= total
    )


def _one_of(texts: Iterable[str]) -> TextCover | None:
    patterns = {text: literal(text) for text in texts}
    kept = [pattern for pattern in patterns.values() if pattern is not None]
    if not kept or len(kept) > MAX_VALUES:
        return None
    shown = " or ".join(f"“{text}”" for text, pattern in patterns.items() if pattern is not None)
    return TextCover(tuple(kept), None, shown)


# Paths and names


@dataclass(frozen=True, slots=True)
class _Shape:
    """Expressions of the segments, how many texts stand behind it, and how many different wild ones."""

    expressions: tuple[str, ...]
    words: tuple[str, ...]
    support: int
    first_times: int | None


def _shapes(rows: Sequence[tuple[str, ...]], at: int) -> list[_Shape]:
    if at == len(rows[0]):
        return [_Shape((), (), len(rows), None)]
    counts = Counter(row[at] for row in rows)
    single = sum(1 for n in counts.values() if n == 1)
    if len(counts) >= MIN_NEW_VALUES and (single > MAX_SINGLE_SHARE * len(rows) or len(counts) > MAX_VALUES):
        wild = [row for row in rows if _may_be_wild(row[at])]
        names = sorted({row[at] for row in wild})
        if len(names) >= MIN_NEW_VALUES:
            expression, words = _segment(names, Counter(row[at] for row in wild))
            return [
                _Shape(
                    (expression, *rest.expressions),
                    (words, *rest.words),
                    rest.support,
                    min(len(names), rest.first_times or len(names)),
                )
                for rest in _shapes(wild, at + 1)
            ]
    found: list[_Shape] = []
    for value, count in counts.most_common(MAX_VALUES):
        if count < MIN_REPEATS:
            continue
        inside = [row for row in rows if row[at] == value]
        found += [
            _Shape((quoted(value), *rest.expressions), (value, *rest.words), rest.support, rest.first_times)
            for rest in _shapes(inside, at + 1)
        ]
    return found


def _may_be_wild(segment: str) -> bool:
    return (
        0 < len(segment) <= _MAX_SEGMENT_CHARS
        and segment[0] != "."
        and all(char.isascii() and (char.isalnum() or char in _SIGNS) for char in segment)
    )


def _segment(names: Sequence[str], counts: Counter[str]) -> tuple[str, str]:
    """The expression of one wild segment and how to say it: what it starts with, letters, an ending."""
    endings: Counter[str] = Counter()
    for name, count in counts.items():
        endings[_ending(name)] += count
    stems = names
    tail, tail_words = "", ""
    if "" not in endings and len(endings) <= 4 and min(endings.values()) >= MIN_REPEATS:
        listed = sorted(endings)
        tail = quoted(listed[0]) if len(listed) == 1 else f"(?:{'|'.join(quoted(e) for e in listed)})"
        tail_words = listed[0] if len(listed) == 1 else f"({' or '.join(listed)})"
        stems = [name.removesuffix(_ending(name)) for name in names]
    head = _common_start(stems)
    rests = [stem[len(head) :] for stem in stems]
    least, most = min(map(len, rests)), max(map(len, rests))
    if most == 0:
        return quoted(head) + tail, head + tail_words
    letters = _letters("".join(rests))
    # Nothing starts with a dot unless it was seen: `..` and hidden files stay outside.
    first = _letters("".join(rest[:1] for rest in rests)) if not head else letters
    if first == letters or not least:
        wild = f"[{letters}]{{{least},{most}}}"
    else:
        wild = f"[{first}]" + (f"[{letters}]{{{least - 1},{most - 1}}}" if most > 1 else "")
    return quoted(head) + wild + tail, f"{head}…{tail_words}"


def _ending(name: str) -> str:
    stem, dot, ending = name.rpartition(".")
    return dot + ending if stem and ending.isalnum() and len(ending) <= 8 else ""


def _common_start(texts: Sequence[str]) -> str:
    """What all begin with, cut back to where a word or number begins: 17 and 18 do not share a 1."""
    first, last = min(texts), max(texts)
    length = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    while length and any(_same_run(text, length) for text in (first, last)):
        length -= 1
    return first[:length]


def _same_run(text: str, at: int) -> bool:
    """Whether a word or a number goes on across this place."""
    around = text[at - 1 : at + 1]
    return len(around) == 2 and (around.isdigit() or around.isalpha())


def _letters(text: str) -> str:
    """The inside of a character class: the kinds of letters seen, and the signs as they were."""
    text = "".join(set(text))
    kinds = ""
    if re.search("[a-z]", text):
        kinds += "a-z"
    if re.search("[A-Z]", text):
        kinds += "A-Z"
    if re.search("[0-9]", text):
        kinds += "0-9"
    signs = sorted({char for char in text if not (char.isascii() and char.isalnum())} - {"-"})
    return kinds + "".join(_in_class(char) for char in signs) + ("-" if "-" in text else "")


def _in_class(char: str) -> str:
    if char in "^[]\\\n\r\t\0" or not char.isprintable():
        return f"\\x{{{ord(char):x}}}"
    return char


def _covered(shapes: Sequence[_Shape]) -> TextCover | None:
    patterns: list[str] = []
    words: list[str] = []
    first_times: list[int] = []
    for shape in sorted(shapes, key=lambda shape: -shape.support)[:MAX_VALUES]:
        said = "/".join(shape.words)
        pattern = literal(said) if shape.first_times is None else anchored("/".join(shape.expressions))
        if pattern is None:
            continue
        patterns.append(pattern)
        words.append(f"“{said}”")
        if shape.first_times is not None:
            first_times.append(shape.first_times)
    if not patterns:
        return None
    return TextCover(tuple(patterns), min(first_times, default=None), " or ".join(words))


# Prose


def _is_prose(text: str) -> bool:
    """Whether a text is neither a name nor a path: several lines, long, or with spaces and no slash.

    All texts of an argument must be prose: one path with a space must not open the argument to any text.
    """
    return len(text) > _MAX_SEGMENT_CHARS or "\n" in text or (" " in text and "/" not in text)


def _prose(counts: Counter[str]) -> TextCover | None:
    """A pattern for texts that people or models write: the characters seen, no longer than the longest."""
    if len(counts) < MIN_NEW_VALUES:
        return None
    least, longest = min(map(len, counts)), max(map(len, counts))
    everything = "".join(sorted(set("".join(counts))))
    foreign = {char for char in everything if not char.isascii()}
    if longest > _MAX_PROSE_CHARS or len(foreign) > MIN_NEW_VALUES:
        return TextCover(("*",), len(counts), "any text")
    signs = {char for char in everything if char.isascii() and char.isprintable() and not char.isalnum()}
    if len(signs) >= _PROSE_SIGNS:
        rest = [char for char in everything if not (char.isascii() and char.isprintable())]
        letters = " -~" + "".join(_in_class(char) for char in rest)
    else:
        letters = _letters(everything)
    blank = next((blank for blank in "\n " if all(blank in text for text in counts)), None)
    if blank is None:
        pattern = anchored(f"[{letters}]{{{least},{longest}}}")
    else:
        part = f"[{letters}]{{0,{longest - 1}}}"
        pattern = anchored(part + (" " if blank == " " else "\\n") + part)
    if pattern is None:
        return None
    return TextCover((pattern,), len(counts), f"any similar text of up to {longest} characters")
