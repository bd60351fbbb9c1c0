"""Numbers of rulings, as comments and docstrings cite them, become links in the pages that users read."""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from tools.shown import ROOT

_PAGE: Final = "decisions/rulings.md"
_NUMBER: Final = r"D-\d{2,3}"
# "D-22: a browser tab" or "MEW 4.1, D-05: …" at the beginning of a line or of a table's cell.
_LEADING: Final = re.compile(
    rf"(^|\| )((?:(?:MEW|MCPx|XP) [\d.]+, )?{_NUMBER}(?:, {_NUMBER})*): (\S)([^|\n]*?)( \||$)", re.MULTILINE
)


def link_rulings(text: str, folder: str = "../") -> str:
    """A number becomes a link to the line of the decision; `folder` leads to the folder of docs."""

    def link(number: str) -> str:
        anchor = number.lower()
        if anchor not in _anchors():
            raise ValueError(f"{_PAGE} has no {number}")
        return f"[why]({folder}{_PAGE}#{anchor})"

    text = _LEADING.sub(lambda k: f"{k[1]}{k[3].upper()}{k[4]} ({k[2]}){k[5]}", text)
    return re.sub(rf"(?<![\w`\[#]){_NUMBER}\b", lambda found: link(found[0]), text)


@cache
def _anchors() -> frozenset[str]:
    return frozenset(re.findall(r'<a id="(d-\d+)">', (ROOT / "docs" / _PAGE).read_text("utf-8")))
