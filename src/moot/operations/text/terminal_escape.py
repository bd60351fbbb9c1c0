"""What a peer wrote, made harmless for a terminal: it shows what is there and obeys none of it."""

from __future__ import annotations

import re
import unicodedata


def printable(text: str) -> str:
    """Control characters, escape sequences, bidi and other invisible controls are shown as escapes."""
    if text.isprintable():
        return text
    return "".join(character if _is_harmless(character) else _escape(character) for character in text)


def printable_json(raw: bytes) -> str:
    """The same for a JSON text: the escapes are JSON's own, so that it still is the same value."""
    text = raw.decode("utf-8", "replace")
    # Outside of strings a control character is white space; inside there is none.
    text = re.sub(r"[\t\r\n]", " ", text)
    return text if text.isprintable() else "".join(map(_json_character, text))


def _json_character(character: str) -> str:
    if _is_harmless(character):
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[place]:02x}{units[place + 1]:02x}" for place in range(0, len(units), 2))


def _is_harmless(character: str) -> bool:
    # Spaces of other scripts are no control characters, though Python calls them unprintable.
    return character.isprintable() or unicodedata.category(character) == "Zs"


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()
