"""One form for all values that mean the same to people: for comparing, never for showing or sending.

    "INV-7", " inv-7", "ＩＮＶ-7", "ІNV-7" (a Cyrillic letter), "INV–7"     the same
    1, 1.0, 1e0, "1", "01"                                                   the same
    "José", "Jose"                                                           the same

Where it takes two for one that differ, somebody is asked once too often; it is not to take one for two.
"""

from __future__ import annotations

import re
import unicodedata
from decimal import Decimal
from typing import Any, Final

# Longer texts and numbers are not compared.
MAX_CHARS: Final = 1_000
MAX_DEPTH: Final = 16
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,40}(?:\.[0-9]{1,40})?(?:e[+-]?[0-9]{1,4})?")
# Small letters of other alphabets that look like Latin ones, and signs that are taken for each other.
_ALIKE: Final = str.maketrans(
    "аеорсхуіјѕһԁԛԝкмтвнгпɑαοερτυνκιχγωηβдłøđıℓ01|i",
    "aeopcxyijshdqwkmtbhrnaaoeptuvkixywnbdlodllolll",
)


class NotComparable(Exception):
    """A value that cannot be compared; says why."""


def same_form(value: Any, depth: int = 0) -> Any:
    """Equal for values that mean the same; raises NotComparable. Numbers may be `Decimal`."""
    if depth > MAX_DEPTH:
        raise NotComparable("is nested too deeply to be compared")
    if isinstance(value, bool):
        return ["is", value]
    if isinstance(value, int | float | Decimal):
        return _number(str(value))
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list):
        return [same_form(each, depth + 1) for each in value]
    if isinstance(value, dict):
        return {str(name): same_form(each, depth + 1) for name, each in value.items()}
    raise NotComparable("is empty" if value is None else "cannot be compared")


def _text(text: str) -> Any:
    if len(text) > MAX_CHARS:
        raise NotComparable("is too long to be compared")
    plain = unicodedata.normalize("NFKD", text).casefold()
    shown = [each for each in plain if unicodedata.category(each)[0] not in "MCZ"]
    folded = "".join("-" if unicodedata.category(each) == "Pd" else each for each in shown)
    if not folded:
        raise NotComparable("is empty")
    if _NUMBER.fullmatch(folded):
        return _number(folded)
    # Twice: a letter may turn into one that looks like a third.
    return "t" + folded.translate(_ALIKE).translate(_ALIKE)


def _number(text: str) -> str:
    """A number by what it is worth, exactly, however it is written."""
    if len(text) > MAX_CHARS:
        raise NotComparable("is too long to be compared")
    sign, digits, exponent = Decimal(text).as_tuple()
    if not isinstance(exponent, int):
        raise NotComparable("is no number")
    significant = "".join(map(str, digits)).lstrip("0")
    stripped = significant.rstrip("0")
    if not stripped:
        return "n0"
    return f"n{'-' * sign}{stripped}e{exponent + len(significant) - len(stripped)}"
