"""Text that a model or a terminal reads and a person does not see: found, and made visible.

Names and descriptions of tools come from strangers, and people decide by what they see. Shared by the bridge,
which makes such text visible or withholds it, and the adapter, which refuses to publish it.
"""

from __future__ import annotations

import re
from typing import Final

from moot.protocol.operation import Json
from moot.protocol.strict_json import map_texts, texts_in

# MCP's own bound on tool names.
MAX_NAME_CHARS: Final = 128

# Listed by number, not by Unicode category: the tables of two Python versions differ.
# Control characters but tab and line ends; soft hyphen; marks and overrides of direction; zero-width signs;
# fillers that show as nothing; annotation marks; tags and the second set of variation selectors, in which
# whole sentences have been hidden from people; halves of characters, which no UTF-8 can hold. Left alone:
# U+200C and U+200D, which Persian and emoji need.
_HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f"
    "\u202a-\u202e\u2060-\u206f\u3164\ufeff\ud800-\udfff\uffa0\ufff0-\ufffb\ufffe\uffff\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
    # No script and no emoji needs three joiners or variation selectors in a row; hidden bits do.
    "|[\u200c\u200d\ufe00-\ufe0f]{3}"
)
_FOR_READERS: Final = frozenset({"description", "title"})
_LINE_ENDS: Final = re.compile("[\t\n\r\u2028\u2029]")


def find_hidden(text: str) -> str | None:
    """The first hidden character as `U+202E`; None if all of the text can be seen."""
    found = None if text.isascii() and text.isprintable() else _HIDDEN.search(text)
    return None if found is None else f"U+{ord(found[0][0]):04X}"


def has_line_ends(text: str) -> bool:
    """Whether it has line ends or tabs."""
    return _LINE_ENDS.search(text) is not None


def is_visible_name(name: object) -> bool:
    """Whether this can be the name of a tool or prompt: short, visible, on one line. Any script will do."""
    return (
        isinstance(name, str)
        and 1 <= len(name) <= MAX_NAME_CHARS
        and name == name.strip()
        and find_hidden(name) is None
        and not has_line_ends(name)
    )


def show_hidden(text: str) -> str:
    """The text with every hidden character as a visible escape, such as `\\u202e`."""
    if find_hidden(text) is None:
        return text
    return _HIDDEN.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def show_hidden_in(value: Json) -> Json:
    """A JSON value with the hidden characters of all its texts made visible, names of members included."""
    return map_texts(value, show_hidden)


def has_hidden_in(value: Json) -> bool:
    """Whether any text of a JSON value, names of members included, has hidden characters."""
    return any(find_hidden(text) is not None for text in texts_in(value))


def readable(value: Json) -> Json:
    """A definition with hidden characters made visible in its descriptions and titles, at any depth."""
    if isinstance(value, dict):
        return {
            name: show_hidden(member)
            if name in _FOR_READERS and isinstance(member, str)
            else readable(member)
            for name, member in value.items()
        }
    return [readable(item) for item in value] if isinstance(value, list) else value
