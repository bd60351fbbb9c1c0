"""Ways to write a text for comparing: strictly, for what people said, and loosely, for what others wrote.

Strict: letter case and digits of other scripts make no difference. Loose: neither do look-alike letters,
characters that nobody sees, separators, and `[at]` or `(dot)`. A value is a person's only if it is strictly
what they said; it is another's even if it was respelled. Encoded text is decoded before it is read.

All of it is linear in the length of a text, whatever is in it: others choose what is read here.
"""

from __future__ import annotations

import base64
import binascii
import quopri
import re
import unicodedata
from collections.abc import Callable, Collection
from functools import lru_cache
from html import unescape
from typing import Final, NamedTuple
from urllib.parse import unquote

# Letters of other alphabets that look like Latin ones in common fonts.
_ALIKE_LETTERS: Final = str.maketrans(
    "абвгеёзикмнорстухіјѕԁԛԝһӏαβγεηικνορτυχωϲϳßſ",
    "a6breesukmhopctyxijsdqwhlabyenikvoptuxwcjss",
)
# What is easily taken for another letter or passed over: the same as for names of members.
_ALIKE_SIGNS: Final = str.maketrans("01i|!", "ollll", "._:+-/\\'\"` \t\n,;()[]<>")
_INVISIBLE: Final = frozenset({"Mn", "Cf", "Me", "Cc"})
# Unicode takes these for K, a semicolon and a backtick; people do not say them.
_ODD_TWINS: Final = re.compile("([\u212a\u037e\u1fef])")
# Lower case makes an ASCII letter or two characters of these; digits of other scripts are ours.
_ODD_LOWER: Final = re.compile("[\u212a\u0130]|(?![0-9])\\d")
_SPELLED_AT: Final = re.compile(r" ?[\[({<] ?(?:at|@|arroba|ät) ?[\])}>] ?", re.IGNORECASE)
_SPELLED_DOT: Final = re.compile(
    r" ?[\[({<] ?(?:dot|\.|punkt|punto|ponto|point) ?[\])}>] ?|(?<=\w)[\W_]{1,4}dot[\W_]{1,4}(?=\w)",
    re.IGNORECASE,
)
_MAY_BE_SPELLED: Final = re.compile(r"[\[({<]|[dD][oO][tT]")
_PLAIN_AT: Final = re.compile(r"(?<=\w)[\W_]{1,4}at[\W_]{1,4}(?=[\w-]+\.\w)", re.IGNORECASE)
# Digits in English, German, French and Spanish.
_DIGIT_WORDS: Final = {
    word: str(digit)
    for digit, words in enumerate(
        ("zero null zéro cero", "one eins uno", "two zwei deux dos", "three drei trois tres",
         "four vier quatre cuatro", "five fünf cinq cinco", "six sechs seis", "seven sieben sept siete",
         "eight acht huit ocho", "nine neun neuf nueve")
    )
    for word in words.split()
}  # fmt: skip
_DIGIT: Final = rf"(?:{'|'.join(_DIGIT_WORDS)}|\d)"
# A number digit by digit, in words: at least four.
_SPELLED_NUMBER: Final = re.compile(rf"\b{_DIGIT}(?:[\W_]{{1,3}}{_DIGIT}\b){{3,}}")
_SPACES: Final = re.compile(r"\s+")
_WORDS: Final = re.compile(r"[^\W_]+")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]{12,}={0,2}")
# A line end inside of what mails wrap after so many characters.
_WRAPPED: Final = re.compile(r"\r?\n(?<=[A-Za-z0-9+/]{12}\n)(?=[A-Za-z0-9+/=])")
_HEX: Final = re.compile(r"(?:[0-9a-fA-F]{2}[ :]?){6,}")
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2}))")
# Encodings of single characters: a sign that each has, how it is written, and what reads the whole text.
_ENCODINGS: Final[tuple[tuple[str, re.Pattern[str], Callable[[str], str]], ...]] = (
    ("%", re.compile(r"%[0-9A-Fa-f]{2}"), lambda text: unquote(text, errors="replace")),
    ("&", re.compile(r"&(?:#\d{1,7}|#x[0-9a-fA-F]{1,6}|[a-z]{2,8});", re.IGNORECASE), unescape),
    ("\\", _ESCAPE, lambda text: _ESCAPE.sub(lambda found: chr(int(found[1] or found[2], 16)), text)),
    (
        "=",
        re.compile(r"=[0-9A-Fa-f]{2}|=\r?\n"),
        lambda text: quopri.decodestring(text.encode("utf-8", "replace")).decode("utf-8", "replace"),
    ),
)
# Encoded in an encoding in an encoding: nobody does that by accident.
MAX_DECODINGS: Final = 2
# What is decoded of one text; the rest is not known.
MAX_DECODED_CHARS: Final = 65_536
MAX_ENCODED_RUNS: Final = 2_048
# Names and values, which come again and again.
MAX_SHORT_CHARS: Final = 64


def compose(text: str) -> str:
    """With letters and their accents in one character: offsets into it and into its strict form agree."""
    if text.isascii():
        return text
    parts = _ODD_TWINS.split(text)
    return "".join(part if at % 2 else unicodedata.normalize("NFC", part) for at, part in enumerate(parts))


def fold_strictly(text: str) -> str:
    """In lower case, character by character: no letter becomes another one, or two."""
    if text.isascii():
        return text.lower()
    text = compose(text)
    return "".join(map(_fold_char, text)) if _ODD_LOWER.search(text) else text.lower()


def _fold_char(char: str) -> str:
    if char.isascii():
        return char.lower()
    if char.isdecimal():
        return str(unicodedata.decimal(char))
    lower = char.lower()
    return char if len(lower) != 1 or lower.isascii() else lower


def without_disguise(text: str) -> str:
    """A text as people read it: look-alike letters are the Latin ones, accents and hidden characters gone."""
    if text.isascii():
        return text.lower()
    plain = unicodedata.normalize("NFKD", text)
    plain = "".join(_digit(char) for char in plain if unicodedata.category(char) not in _INVISIBLE)
    return plain.lower().translate(_ALIKE_LETTERS)


def fold_loosely(text: str) -> str:
    """The same for all texts that people take for this one; empty if nothing of it can be compared."""
    return _fold_short(text) if len(text) <= MAX_SHORT_CHARS else _fold_loosely(text)


def _fold_loosely(text: str) -> str:
    text = without_disguise(unspell(text)).translate(_ALIKE_SIGNS)
    return text.replace("rn", "m").replace("vv", "w")


# The same values come again in the next messages.
_fold_short: Final = lru_cache(maxsize=4096)(_fold_loosely)


def unspell(text: str) -> str:
    """`mark [at] example (dot) com` as the address that it is."""
    if not _MAY_BE_SPELLED.search(text):
        return text
    line = _SPACES.sub(" ", text)
    spelled = _SPELLED_DOT.sub(".", _SPELLED_AT.sub("@", line))
    return text if spelled == line else _PLAIN_AT.sub("@", spelled)


def with_digits(text: str, words: Collection[str]) -> str:
    """`four two five five` as the number that it is; `words` are the words of the text."""
    return text if _DIGIT_WORDS.keys().isdisjoint(words) else _SPELLED_NUMBER.sub(_digits, text.lower())


def _digits(found: re.Match[str]) -> str:
    words = _WORDS.findall(found[0].replace("_", " "))
    # Digits alone are a list, or a number that is read as one anyway.
    return (
        found[0] if all(map(str.isdigit, words)) else "".join(_DIGIT_WORDS.get(word, word) for word in words)
    )


def words_of(text: str) -> list[str]:
    """The words of a text in strict form: runs of letters and digits, without what stands between them."""
    return _WORDS.findall(fold_strictly(text))


def word_starts(text: str) -> list[int]:
    """Where each of the words begins, in a composed text."""
    return [found.start() for found in _WORDS.finditer(fold_strictly(text))]


class DecodedText(NamedTuple):
    """What the encoded parts of a text say. `whole`: nothing of it was too long to look at."""

    forms: list[str]
    whole: bool


def decoded(text: str) -> DecodedText:
    """Base64, hexadecimal, percent, quoted-printable, entities, escapes, and one of these in another."""
    forms: list[str] = []
    layer, left = [text], MAX_DECODED_CHARS
    for _ in range(MAX_DECODINGS):
        inner: list[str] = []
        for each in layer:
            if len(each) > left:
                return DecodedText(forms, whole=False)
            left -= len(each)
            found = _decode_once(each)
            if found is None or len(forms) + len(found) > MAX_ENCODED_RUNS:
                return DecodedText(forms, whole=False)
            inner += found
        # What is decoded is mostly one long text or many short ones: a set would not be worth it.
        layer = list(dict.fromkeys(inner))
        forms += layer
    return DecodedText(forms, whole=True)


def _decode_once(text: str) -> list[str] | None:
    """None if there is too much of it."""
    found = [decode(text) for sign, run, decode in _ENCODINGS if sign in text and run.search(text)]
    runs = _BASE64.findall(_WRAPPED.sub("", text) if "\n" in text else text)
    pairs = _HEX.findall(text)
    if len(runs) + len(pairs) > MAX_ENCODED_RUNS:
        return None
    for run in runs:
        found += _readable(_base64(run))
    for run in pairs:
        found += _readable(bytes.fromhex(run.replace(" ", "").replace(":", "")))
    # Halves of characters cannot be written by anybody.
    return [each.encode("utf-8", "replace").decode() for each in found if each != text]


def _base64(run: str) -> bytes:
    plain = run.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except binascii.Error:
        return b""


def _readable(data: bytes) -> list[str]:
    """What was decoded, if it is text: any word can be read as base64, and nearly none gives a text."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return []
    if len(text) < 4 or not (
        text.isprintable() or all(char.isprintable() or char in "\t\r\n" for char in text)
    ):
        return []
    return [text]


def _digit(char: str) -> str:
    return str(unicodedata.decimal(char)) if char.isdecimal() else char
