"""Values inside a text, by what they mean: addresses, links, files, codes, numbers, days, ids, mentions.

Each value has a key that is the same however it is written: `$1,200.00` and 1200, `https://Example.com/`
and `example.com`, an account with spaces and without. A number of few digits is an id only where it is called
one: `file 13`, `ID: 13`, `#13`, or the member `id` of a result.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Final, NamedTuple

from moot.origins.date_words import days_in
from moot.origins.text_forms import fold_strictly

_VALUES: Final = re.compile(
    r"(?P<address>[a-z0-9_][\w.+%-]*@[\w-]+(?:\.[\w-]+)+)"
    r"|(?P<link>(?:[a-z][a-z0-9+-]{1,15}://|www\.)[^\s<>\"'`|\\]+|(?:mailto|tel|javascript|data):[^\s<>\"'`]+)"
    # With a dot or a slash inside: hosts, files, paths.
    r"|(?P<place>(?<![\w.])(?:[~.]{0,2}/)?[\w~-]+(?:[./]+[\w~%+=&?@:-]+)*[./][\w~%+=&?@:-]*[^\W\d][\w~%+=&?@:#-]*/?"
    r"|(?<![\w.])/[\w./~%-]+)"
    r"|(?P<time>(?<![\d:])[0-2]?\d:[0-5]\d(?::[0-5]\d)?(?:\.\d+)?(?:\s?[ap]m\b)?z?)"
    # Accounts, cards, telephones and other long numbers, with or without spaces inside.
    r"|(?P<account>(?<![\w-])[a-z]{2}\d{2}(?: ?[a-z0-9]{4}){2,8}(?: ?[a-z0-9]{1,4})?(?![\w-])"
    r"|(?<![\w-])\+?\d{2,4}(?:[ -]\d{2,6}){2,6}(?![\w-]))"
    # Letter by letter.
    r"|(?P<spaced>(?<![\w])\w(?:[\s.,;_-]+\w){4,}(?![\w]))"
    r"|(?P<number>(?<![\w.,-])[-+−]?(?:\d{1,3}(?:[,']\d{3})+|\d+)(?:\.\d+)?(?![\w-]|\.\d))"
    r"|(?P<mention>(?<![\w@])@[\w.-]*\w)"
    # Digits among letters, or a `_`: codes, hashes, identifiers, passwords.
    r"|(?P<code>[^\W_]*(?:\d|_)[\w]*(?:-[\w]+)*|[^\W\d_]+(?:-[^\W_]+)*-[\w-]*\d[\w-]*)"
)
_TOKENS: Final = re.compile(r"\S+")
_SIGNS: Final = re.compile(r"[\d@/_]|\w[^\w\s'’]\w")
_ID_WORDS: Final = frozenset({"id", "ids", "number", "no", "nr", "num", "key", "ref", "reference"})
_BETWEEN: Final = frozenset({"and", "or", "the", "with", "of", "is", "number", "no", "nr"})
_NAME_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
# Shorter codes occur by chance: they count only where they are called an id.
MIN_CODE_CHARS: Final = 4
# Longer runs of letters without a space are no words of a language.
MAX_WORD_CHARS: Final = 32
_LONG_RUN: Final = re.compile(rf"[^\s]{{{MAX_WORD_CHARS + 1},}}")
_CALLED_BEFORE: Final = 40

Key = tuple[str, str]


class FoundValue(NamedTuple):
    key: Key
    start: int
    end: int


def values_in(text: str, at: float) -> Iterator[FoundValue]:
    """The values of a text, in no certain order; `at` is when it was said, for days like tomorrow."""
    folded = fold_strictly(text)
    days = list(days_in(folded, at))
    for key, start, end in days:
        yield FoundValue(key, start, end)
    taken = [(start, end) for _, start, end in days]
    for found in _found_values(folded):
        start, end = found.span()
        if any(start < last and first < end for first, last in taken):
            continue
        kind, value = found.lastgroup or "", found[0]
        for key in _keys(kind, value):
            yield FoundValue(key, start, end)
        if kind in ("number", "code") and len(value) < 2 * MIN_CODE_CHARS:
            yield from _called(folded, start, end)
    for found in _LONG_RUN.finditer(folded):
        yield FoundValue(("code", compact(found[0])), found.start(), found.end())


def _found_values(folded: str) -> Iterator[re.Match[str]]:
    """Only words with signs or digits are looked at, and short ones between them: prose costs little."""
    first = last = -1
    signs = singles = 0
    for word in _TOKENS.finditer(folded):
        start, end = word.span()
        sign = _SIGNS.search(folded, start, end) is not None
        if sign or end - start <= MIN_CODE_CHARS:
            first, last = first if first >= 0 else start, end
            signs += sign
            singles += end - start <= 2
            continue
        if signs or singles > MIN_CODE_CHARS:
            yield from _VALUES.finditer(folded, first, last)
        first, signs, singles = -1, 0, 0
    if signs or singles > MIN_CODE_CHARS:
        yield from _VALUES.finditer(folded, first, last)


def _keys(kind: str, value: str) -> list[Key]:
    match kind:
        case "address":
            value = value.rstrip(".")
            name, _, host = value.partition("@")
            return [("address", value), ("place", host), ("part", name)]
        case "link" | "place":
            place = link_text(value)
            host, slash, _ = place.partition("/")
            return [("place", place), *([("place", host)] if slash and "." in host else [])]
        case "number":
            digits = re.sub("[^0-9]", "", value)
            code = [("code", digits)] if len(digits) > MIN_CODE_CHARS and digits == value else []
            return [("number", number_text(value)), *code]
        case "spaced":
            return [("code", re.sub(r"[\W_]", "", value))]
        case "account":
            return [("code", compact(value))]
        case "mention":
            return [("mention", value[1:].rstrip("."))]
        case "code":
            return [("code", compact(value))]
    return []


def link_text(value: str) -> str:
    """A link without its scheme, if it is a usual one, and without what ends a sentence."""
    return re.sub(r"^https?://", "", fold_strictly(value).rstrip(".,;:!?)]}'\"")).rstrip("/")


def number_text(value: str | float) -> str:
    try:
        number = Decimal(re.sub("[,'+]", "", str(value)).replace("−", "-"))
    except InvalidOperation:
        return str(value)
    return f"{number.normalize():f}" if number.is_finite() and abs(number.adjusted()) < 40 else str(value)


def compact(code: str) -> str:
    return re.sub(r"[\s-]", "", fold_strictly(code))


def _called(folded: str, start: int, end: int) -> Iterator[FoundValue]:
    """A short value by the words before it: `file 13`, `files 12, 13 and 14`, `ID '13'`, `#13`."""
    before = folded[max(0, start - _CALLED_BEFORE) : start]
    value = compact(folded[start:end])
    words = re.findall(r"[^\W\d_]+|#", before)
    names = [word for word in words if word not in _BETWEEN][-1:] + [
        word for word in words if word in _ID_WORDS
    ]
    for word in names:
        noun = "id" if word == "#" or word in _ID_WORDS else word.removesuffix("s")
        yield FoundValue(("called", f"{noun}:{value}"), start, end)


def name_words(name: str) -> frozenset[str]:
    """The words of an argument's or a tool's name: `file_id` and `fileId` are file and id."""
    return frozenset(run.lower() for run in _NAME_WORDS.findall(name))


def is_id_name(name: str) -> bool:
    return bool(name_words(name) & {"id", "ids", "uid", "uuid", "key", "ref", "number", "no", "nr"})


def id_keys(value: str, name: str) -> list[Key]:
    """The keys under which a short id is found, for an argument or a member of a result of this name."""
    nouns = {"id", *(word.removesuffix("s") for word in name_words(name) - _ID_WORDS)}
    return [("called", f"{noun}:{compact(value)}") for noun in sorted(nouns)]
