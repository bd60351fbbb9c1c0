"""What an MCP server may show in a space: visible names, and texts without hidden characters.

People, models and terminals read these lists. An entry without a usable name is withheld, and so is one whose
arguments could not be named as they are seen. In descriptions and titles hidden characters become visible
escapes: they are for reading only, so the tool works as before.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from moot.errors import McpError
from moot.mcp.eras import JsonObject
from moot.protocol.hidden_text import (
    find_hidden,
    has_hidden_in,
    has_line_ends,
    is_visible_name,
    readable,
    show_hidden,
    show_hidden_in,
)
from moot.protocol.kinds import WIDEN_BOX
from moot.protocol.operation import Json
from moot.protocol.rpc_codes import INVALID_PARAMS

log = logging.getLogger(__name__)

# By list: the member that requests name an entry by.
_KEYS: Final = {"tools": "name", "prompts": "name", "resources": "uri", "resourceTemplates": "uriTemplate"}
# Read by people and models, and by no program.


class OfferScreen:
    """Screens the lists of one server; reports each withheld entry once."""

    def __init__(self, server: str) -> None:
        self._server = server
        # Bounded: a server may invent names for ever.
        self._reported: set[str] = set()

    def withhold(self, member: str, entries: Sequence[Json]) -> list[JsonObject]:
        """The entries of a list (`tools`, `resources`, …) that may be shown, as the server wrote them."""
        shown = []
        for entry in entries:
            if isinstance(entry, dict) and is_visible_offer(member, entry):
                shown.append(entry)
            else:
                self._report(member, entry.get(_KEYS[member]) if isinstance(entry, dict) else None)
        return shown

    def has_withheld(self, member: str, name: object) -> bool:
        """Whether an entry of this name was withheld."""
        return isinstance(name, str) and _reported_as(member, name) in self._reported

    def _report(self, member: str, name: object) -> None:
        shown = _reported_as(member, name)
        if shown not in self._reported and len(self._reported) < _MAX_REPORTED:
            self._reported.add(shown)
            log.warning(
                "withheld: an entry without a visible name, or with hidden characters in its arguments",
                extra={"server": self._server, "entry": shown},
            )


_MAX_REPORTED: Final = 1_000


def _reported_as(member: str, name: object) -> str:
    return f"{member}: {show_hidden(str(name))[:200]}"


def is_visible_offer(member: str, entry: JsonObject) -> bool:
    """Whether an entry of a list can be named and used as people see it."""
    key = entry.get(_KEYS[member])
    if member in ("tools", "prompts"):
        # A tool of the server that is called as ours is would be taken for it.
        if not is_visible_name(key) or key == WIDEN_BOX:
            return False
    elif not isinstance(key, str) or not key.strip() or find_hidden(key) or has_line_ends(key):
        return False
    return not has_hidden_in(readable(entry))


def readable_error(fault: McpError) -> McpError:
    """An error of a server as people may read it."""
    return McpError(fault.code, show_hidden(fault.message), show_hidden_in(fault.data))


def withheld_error(name: object) -> McpError:
    """The error of a call to a tool that has changed."""
    text = f"the tool {name} has changed since it was first seen, so it is withheld"
    return McpError(INVALID_PARAMS, f"{text} until the operator of this bridge accepts the change")


def only_reads(tool: JsonObject) -> bool:
    """Whether a tool says so of itself."""
    said = tool.get("annotations")
    return isinstance(said, dict) and said.get("readOnlyHint") is True
