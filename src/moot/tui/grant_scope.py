"""How wide a grant is that follows an approval, always shown as the capability that it creates.

    exact    this very call: the tool, the host and all arguments as they were proposed
    tool     this tool at this host, with any arguments
    pattern  something between, to be edited: folders for paths, anything for long texts

A capability cannot forbid arguments that it does not name, so even the exact one says so. What cannot be
written as a pattern that matches the proposal itself is not offered, with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import re2

from moot.errors import MootError, UsageError
from moot.participant import JoinedSpace, SeenProposal
from moot.protocol.operation import Json
from moot.protocol.patterns import read_capability
from moot.protocol.patterns.compiler import MAX_STRING_BYTES
from moot.protocol.patterns.globs import is_wild
from moot.protocol.patterns.pattern import is_regex
from moot.tui.terminal_escape import printable
from moot.tui.text_diff import PATHS, TEXTS

WidthName = Literal["exact", "tool", "pattern"]

# A text longer than this is what a tool is given to work on, not what tells one call from another.
_LONG: Final = 60


@dataclass(frozen=True, slots=True)
class GrantScope:
    """One choice: the capability it makes, or why it cannot be made."""

    name: WidthName
    words: str
    capability: dict[str, Json] | None
    why_not: str = ""

    def as_json(self) -> str:
        """As it is shown and edited: JSON that holds nothing a terminal might obey."""
        text = json.dumps(self.capability, ensure_ascii=False)
        return text if printable(text) == text else json.dumps(self.capability)


class _Inexpressible(Exception):
    """A value that no pattern states exactly."""


def widths_of(space: JoinedSpace, seen: SeenProposal) -> tuple[GrantScope, ...]:
    """The three choices for a proposal, narrowest first."""
    return (
        _width(space, seen, "exact", "exactly these arguments"),
        _width(space, seen, "tool", f"{_what(seen)} with any arguments"),
        _width(space, seen, "pattern", "a custom pattern (e edits it)"),
    )


def _what(seen: SeenProposal) -> str:
    name = seen.params.get("name")
    return name if isinstance(name, str) else seen.method


def _width(space: JoinedSpace, seen: SeenProposal, name: WidthName, words: str) -> GrantScope:
    try:
        params = _params(seen.params, name)
        payload: dict[str, Json] = {"method": _literal(seen.method)} | ({"params": params} if params else {})
        capability: dict[str, Json] = {"kind": "mcp/request", "payload": payload}
        if seen.to:
            capability["to"] = [_no_wildcard(host) for host in space.roster.names_of(seen.to)]
        check_width(space, seen, capability)
    except (_Inexpressible, MootError) as fault:
        return GrantScope(name, words, None, str(fault))
    return GrantScope(name, words, capability)


def read_width(space: JoinedSpace, seen: SeenProposal, text: str) -> dict[str, Json]:
    """A capability as somebody edited it; raises UsageError saying what is wrong with it."""
    try:
        value = json.loads(text)
    except ValueError as fault:
        raise UsageError(f"not valid JSON: {fault}") from None
    if not isinstance(value, dict):
        raise UsageError('a capability is a JSON object, such as {"kind": "mcp/request"}')
    check_width(space, seen, value)
    return value


def check_width(space: JoinedSpace, seen: SeenProposal, capability: Mapping[str, Json]) -> None:
    """Raises what is wrong: it cannot be read, or would not even let this call through."""
    pattern = read_capability(dict(capability))
    payload = {"jsonrpc": "2.0", "id": 0, **seen.envelope.payload}
    if not pattern.matches("mcp/request", payload, space.roster.names_of(seen.to)):
        raise UsageError("this would not allow the proposed call")


def _params(params: Mapping[str, Json], width: WidthName) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for name, value in params.items():
        if name == "_meta":
            continue  # progress tokens and the like: another one each time
        if name == "arguments" and isinstance(value, dict):
            if width == "tool":
                continue
            stated = _arguments(value, width)
            if stated:
                found[name] = stated
        elif width != "tool" or name in ("name", "uri"):
            found[_key(name)] = _exactly(value)
    return found


def _arguments(arguments: Mapping[str, Json], width: WidthName) -> dict[str, Json]:
    if width == "exact":
        return {_key(name): _exactly(value) for name, value in arguments.items()}
    stated: dict[str, Json] = {}
    for name, value in arguments.items():
        if isinstance(value, str) and name in PATHS and "/" in value.strip("/"):
            folder = value.rpartition("/")[0]
            stated[name] = f"{_no_wildcard(folder)}/**"
        elif isinstance(value, str) and name not in TEXTS and len(value) <= _LONG and "\n" not in value:
            stated[_key(name)] = _literal(value)
        elif isinstance(value, bool | int | float) or value is None:
            stated[_key(name)] = value
    return stated


def _exactly(value: Json) -> Json:
    if isinstance(value, str):
        return _literal(value)
    if isinstance(value, dict):
        return {_key(name): _exactly(each) for name, each in value.items()}
    if isinstance(value, list):
        raise _Inexpressible("its arguments contain a list, which a capability cannot match exactly")
    return value


def _literal(text: str) -> str:
    """A text that matches itself and nothing else, though it may hold signs of the pattern language."""
    if is_wild(text) or text.startswith("!") or is_regex(text):
        text = f"/^{re2.escape(text)}$/"
    if len(text.encode(errors="replace")) > MAX_STRING_BYTES:
        raise _Inexpressible(f"an argument is longer than the {MAX_STRING_BYTES} bytes allowed in a pattern")
    return text


def _no_wildcard(text: str) -> str:
    if is_wild(text) or text.startswith("!") or is_regex(text):
        raise _Inexpressible(f"{text!r} contains pattern characters")
    return text


def _key(name: str) -> str:
    if name.startswith("$") or is_wild(name):
        raise _Inexpressible(f"the argument name {name!r} has a special meaning in a pattern")
    return name
