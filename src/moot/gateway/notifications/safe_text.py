"""What strangers wrote, made harmless for the places where people read notifications. Pure.

The name of a tool, the id of a proposal and its arguments are chosen by whoever proposes. In a mail, a chat
or on a phone such a text must be nothing but text: on one line, with every hidden character visible, and
without links and mentions, which those programs make of anything that looks like one.
"""

from __future__ import annotations

import re
from typing import Final

from moot.protocol.hidden_text import show_hidden

# MCP's own bound on tool names.
MAX_NAME_CHARS: Final = 128

# Joiners too, which a name does not need; and line ends, which would begin another header or paragraph.
_UNSEEN: Final = re.compile("[\t\n\r\u200c\u200d\u2028\u2029\ufe00-\ufe0f]")
# Blanks of other widths can push text out of sight.
_BLANKS: Final = re.compile(r"\s+")
# A host's name: a dot between a letter or digit and at least two letters. `3.14` and `a.b` stay.
_HOST_DOT: Final = re.compile(r"(?<=\w)\.(?=[^\W\d_]{2})")
# Full stops of other scripts, which browsers take for a dot in an address.
_OTHER_DOTS: Final = re.compile("[\u3002\uff0e\uff61]")
_SCHEME: Final = re.compile(
    r":(?=/)|(?<=\bmailto):|(?<=\btel):|(?<=\bjavascript):|(?<=\bdata):", re.IGNORECASE
)
_ADDRESS: Final = re.compile(r"(?<=\d)\.(?=\d{1,3}\.\d{1,3}\b)")
# Signs of Markdown and of Slack's mrkdwn; `_` only where it can begin or end emphasis.
_MARKUP: Final = re.compile(r"[*~`<>&|]|\](?=\s*[(:])|(?<![^\W_])_|_(?![^\W_])")


def shown(text: str, max_chars: int = MAX_NAME_CHARS) -> str:
    """A stranger's text as one line that is only text: nothing hidden, no link, no mention; cut."""
    # Cut before anything else too: a name may have as many characters as a message.
    text = text[: max_chars + 1]
    text = _BLANKS.sub(" ", _UNSEEN.sub(_escaped, show_hidden(text))).strip()
    if len(text) > max_chars:
        text = text[: max_chars - 1] + "…"
    text = _OTHER_DOTS.sub(_escaped, text)
    text = _HOST_DOT.sub("[.]", _ADDRESS.sub("[.]", text))
    return _SCHEME.sub("[:]", text).replace("@", "[at]").replace("\uff20", "[at]")


def without_markup(text: str) -> str:
    """A shown text for a place that reads Markdown: its signs as visible escapes."""
    return _MARKUP.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return "".join(
        f"\\u{ord(each):04x}" if ord(each) < 0x10000 else f"\\U{ord(each):08x}" for each in found[0]
    )
