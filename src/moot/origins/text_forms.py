"""Two ways to write a text for comparing: strictly, for what people said, and loosely, for what others wrote.

Strict: letter case, digits of other scripts and how an accent is composed make no difference. Loose: neither
do look-alike letters, characters that nobody sees, separators, and `[at]` or `(dot)`. A value is a person's
only if it is strictly what they said; it is another's even if it was respelled. Encoded text is decoded
before it is read.
"""

from __future__ import annotations

import base64
import binascii
import quopri
import re
import unicodedata
from html import unescape
from typing import Final
from urllib.parse import unquote

# Letters of other alphabets that look like Latin ones in common fonts.
_ALIKE_LETTERS: Final = str.maketrans(
    "абвгеёзикмнорстухіјѕԁԛԝһӏαβγεηικνορτυχωϲϳ",
    "a6breesukmhopctyxijsdqwhlabyenikvoptuxwcj",
)
# What is easily taken for another letter or passed over: the same as for names of members.
_ALIKE_SIGNS: Final = str.maketrans("01i|!", "ollll", "._:+-/\\'\"` \t\n,;()[]<>")
_MAY_BE_SPELLED: Final = re.compile(r"[\[({<]|\sdot\s", re.IGNORECASE)
_SPELLED_AT: Final = re.compile(r"\s*[\[({<]\s*(?:at|@)\s*[\])}>]\s*", re.IGNORECASE)
_SPELLED_DOT: Final = re.compile(
    r"\s*[\[({<]\s*(?:dot|\.)\s*[\])}>]\s*|(?<=\w)\s+dot\s+(?=\w)", re.IGNORECASE
)
_PLAIN_AT: Final = re.compile(r"(?<=\w)\s+at\s+(?=[\w-]+\.\w)", re.IGNORECASE)
_WORDS: Final = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]{12,}={0,2}")
_HEX: Final = re.compile(r"(?:[0-9a-fA-F]{2}[ :]?){6,}")
_QUOTED: Final = re.compile(r"=[0-9A-F]{2}")
_PERCENT: Final = re.compile(r"%[0-9A-Fa-f]{2}")
_ENTITY: Final = re.compile(r"&(?:#\d{1,7}|#x[0-9a-fA-F]{1,6}|[a-z]{2,8});")
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2}))")
# Encoded in an encoding in an encoding: nobody does that by accident, and it is asked for.
MAX_DECODINGS: Final = 2
MAX_DECODED_CHARS: Final = 16_384
MAX_ENCODED_RUNS: Final = 32


def fold_strictly(text: str) -> str:
    if text.isascii():
        return text.lower()
    return _ascii_digits(unicodedata.normalize("NFC", text)).casefold()


def fold_loosely(text: str) -> str:
    """The same for all texts that people take for this one; empty if nothing of it can be compared."""
    text = unspell(text)
    if not text.isascii():
        text = unicodedata.normalize("NFKD", text)
        text = "".join(char for char in text if unicodedata.category(char) not in ("Mn", "Cf", "Me", "Cc"))
        text = _ascii_digits(text)
    text = text.casefold().translate(_ALIKE_LETTERS).translate(_ALIKE_SIGNS)
    return text.replace("rn", "m").replace("vv", "w")


def unspell(text: str) -> str:
    """`mark [at] example (dot) com` as the address that it is."""
    if not _MAY_BE_SPELLED.search(text):
        return text
    spelled = _SPELLED_DOT.sub(".", _SPELLED_AT.sub("@", text))
    return spelled if spelled == text else _PLAIN_AT.sub("@", spelled)


def words_of(text: str) -> list[str]:
    """The words of a text in strict form: runs of letters and digits, without what stands between them."""
    return _WORDS.findall(fold_strictly(text))


def word_starts(text: str) -> list[int]:
    """Where each of the words begins, in the strict form."""
    return [found.start() for found in _WORDS.finditer(fold_strictly(text))]


def decoded(text: str) -> list[str]:
    """What encoded parts of a text say: base64, hexadecimal, percent, quoted-printable, entities, escapes."""
    found: list[str] = []
    layer = [text[:MAX_DECODED_CHARS]]
    for _ in range(MAX_DECODINGS):
        layer = [inner for each in layer for inner in _decode_once(each) if inner not in found]
        found += layer
    return found[:MAX_ENCODED_RUNS]


def _decode_once(text: str) -> list[str]:
    found: list[str] = []
    if _PERCENT.search(text):
        found.append(unquote(text))
    if _ENTITY.search(text):
        found.append(unescape(text))
    if _ESCAPE.search(text):
        found.append(_ESCAPE.sub(lambda each: chr(int(each[1] or each[2], 16)), text))
    if _QUOTED.search(text):
        found.append(quopri.decodestring(text.encode()).decode("utf-8", "replace"))
    for run in _BASE64.findall(text)[:MAX_ENCODED_RUNS]:
        found += _readable(_base64(run))
    for run in _HEX.findall(text)[:MAX_ENCODED_RUNS]:
        compact = run.replace(" ", "").replace(":", "")
        found += _readable(bytes.fromhex(compact))
    return [each for each in found if each != text]


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
    seen = sum(char.isprintable() or char in "\t\r\n" for char in text)
    return [text] if len(text) >= 4 and seen == len(text) else []


def _ascii_digits(text: str) -> str:
    return "".join(str(unicodedata.decimal(char)) if char.isdecimal() else char for char in text)
