"""The scope of a grant that follows an approval, always shown as the capability that it creates.

    exact    the tool, the host and all arguments as they were proposed, and no others (`$exact`, D-102)
    address  this tool on this host for everything below the folder of an address
    site     this tool on this host for everything on the host of an address
    tool     this tool on this host, with any arguments
    pattern  something between, to be edited: folders for paths, anything for long texts

A scope that cannot be written as a pattern that matches the proposal itself is not offered, with the reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal

import msgspec
import re2

from moot.errors import MootError, UsageError
from moot.operations.text.terminal_escape import printable
from moot.protocol.operation import Json
from moot.protocol.patterns import read_capability
from moot.protocol.patterns.compiler import EXACT, MAX_STRING_BYTES
from moot.protocol.patterns.globs import is_wild
from moot.protocol.patterns.pattern import is_regex
from moot.protocol.patterns.url_prefix import is_address, url_prefix_pattern, url_prefixes

if TYPE_CHECKING:
    # Commands that join nothing need not load what does.
    from moot.participant import JoinedSpace, SeenProposal

ScopeName = Literal["exact", "address", "site", "tool", "pattern"]

# Arguments that name a file, and those that are its text.
PATHS: Final = ("path", "file_path", "file", "filename", "uri")
TEXTS: Final = ("text", "content", "contents", "file_text", "new_content")
# A longer text is content for the tool, not what distinguishes one call from another.
_MAX_LITERAL_CHARS: Final = 60


# How long a grant lasts. The gateway keeps it, so that it ends whether or not this terminal is open.

_HOUR_SECONDS: Final = 3_600


def local_time() -> datetime:
    """The time where this terminal is."""
    return datetime.now().astimezone()


class GrantTerm(msgspec.Struct, frozen=True):
    """One choice, shortest first in `GRANT_TERMS`."""

    name: Literal["once", "one hour", "today", "until revoked"]

    @property
    def max_uses(self) -> int | None:
        return 1 if self.name == "once" else None

    def expires_in_seconds(self, now: datetime) -> float | None:
        """For the person at this terminal: a day ends at their midnight."""
        if self.name == "one hour":
            return _HOUR_SECONDS
        if self.name == "today":
            midnight = now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
            return max(1, int(midnight.timestamp() - now.timestamp()))
        return None

    def text(self, now: datetime) -> str:
        """For "agent can do this …"."""
        if self.name == "one hour":
            return f"until {now + timedelta(seconds=_HOUR_SECONDS):%H:%M}"
        return {
            "once": "one more time",
            "today": "until midnight",
            "until revoked": "until someone revokes it",
        }[self.name]


GRANT_TERMS: Final = (
    GrantTerm("once"),
    GrantTerm("one hour"),
    GrantTerm("today"),
    GrantTerm("until revoked"),
)
# Long enough for the work at hand, short enough to be forgotten without harm.
DEFAULT_TERM: Final = GRANT_TERMS[1]


def limit_to_places(capability: Json, places: Sequence[str]) -> Json:
    """The capability with each NAME=PLACE as a pattern for that argument; raises UsageError."""
    if not places:
        return capability
    payload = capability.get("payload") if isinstance(capability, dict) else None
    method = payload.get("method") if isinstance(payload, dict) else None
    if not isinstance(capability, dict) or not isinstance(payload, dict):
        raise UsageError("--below needs a capability with a method, such as mcp/request:tools/call:fetch")
    params = payload.get("params") or {}
    if not isinstance(params, dict):
        raise UsageError("--below needs a capability whose params are an object")
    for text in places:
        name, sign, place = text.partition("=")
        if not name or not sign or name.startswith("$") or is_wild(name):
            raise UsageError(f"--below takes NAME=PLACE, such as url=https://example.org/docs/, not {text!r}")
        pattern = _place_pattern(place)
        if method == "resources/read" and name == "uri":
            params = {**params, name: pattern}
        elif method == "tools/call":
            arguments = params.get("arguments") or {}
            if not isinstance(arguments, dict) or name in arguments or "$exact" in arguments:
                raise UsageError(f"the capability says already what {name} may be: leave --below out")
            params = {**params, "arguments": {**arguments, name: pattern}}
        else:
            raise UsageError("--below is for arguments of tools/call, and for the uri of resources/read")
    return {**capability, "payload": {**payload, "params": params}}


def _place_pattern(place: str) -> str:
    # A scheme of two letters or more: `C:/` is a folder.
    if is_address(place) or re.match(r"\s*[A-Za-z][A-Za-z0-9+.-]+:", place):
        pattern = url_prefix_pattern(place)
        if pattern is None:
            raise UsageError(
                f"{place!r} is not the beginning of an address: write a scheme, a whole host in small "
                "letters and a path that ends in /, such as https://example.org/docs/"
            )
        return pattern
    is_plain = not (is_wild(place) or place.startswith("!") or is_regex(place))
    if not is_plain or not place.strip("/") or not place.endswith("/") or ".." in place.split("/"):
        raise UsageError(f"{place!r} is not a folder: write its path with / at the end and without .. or *")
    return f"{place}**"


class GrantScope(msgspec.Struct, frozen=True):
    """One choice: the capability it creates, or the problem that prevents it."""

    name: ScopeName
    description: str
    capability: dict[str, Json] | None
    problem: str = ""

    def as_json(self) -> str:
        """The capability as it is shown and edited: JSON without control characters."""
        text = json.dumps(self.capability, ensure_ascii=False)
        return text if printable(text) == text else json.dumps(self.capability)


class _Inexpressible(Exception):
    """A value that no pattern matches exactly."""


def grant_scopes(space: JoinedSpace, seen: SeenProposal) -> tuple[GrantScope, ...]:
    """The choices for a proposal, narrowest first; the last one is to be edited."""
    return (
        _scope(space, seen, "exact", "exactly these arguments, and no others"),
        *_address_scopes(space, seen),
        _scope(space, seen, "tool", f"{_what(seen)} with any arguments"),
        _scope(space, seen, "pattern", "a custom pattern (e edits it)"),
    )


def _address_scopes(space: JoinedSpace, seen: SeenProposal) -> list[GrantScope]:
    """Everything below the address that was proposed, and everything on its host; none without an address."""
    arguments = seen.params.get("arguments")
    given: dict[str, Json] = {name: value for name, value in seen.params.items() if name == "uri"}
    given |= arguments if isinstance(arguments, dict) else {}
    found = next((name for name, value in given.items() if _is_address(name, value)), None)
    if found is None:
        return []
    prefixes = url_prefixes(str(given[found]))
    if not prefixes:
        why = f"{found} is not a plain address: a scheme, a host in small letters, a path without .."
        return [GrantScope("address", "everything below this address", None, why)]
    names: list[ScopeName] = ["site"] if len(prefixes) == 1 else ["address", "site"]
    return [
        _scope(
            space,
            seen,
            name,
            f"{_what(seen)} with {found} {'on' if name == 'site' else 'below'} {prefix}",
            (found, url_prefix_pattern(prefix) or ""),
        )
        for name, prefix in zip(names, prefixes, strict=True)
    ]


def _is_address(name: str, value: Json) -> bool:
    return name not in TEXTS and isinstance(value, str) and is_address(value)


def _what(seen: SeenProposal) -> str:
    name = seen.params.get("name")
    return name if isinstance(name, str) else seen.method


def _scope(
    space: JoinedSpace,
    seen: SeenProposal,
    name: ScopeName,
    description: str,
    address: tuple[str, str] | None = None,
) -> GrantScope:
    """`address` is the argument that has one, and the pattern for it."""
    try:
        params = _params(seen.params, name, address)
        payload: dict[str, Json] = {"method": _literal(seen.method)} | ({"params": params} if params else {})
        capability: dict[str, Json] = {"kind": "mcp/request", "payload": payload}
        if seen.to:
            capability["to"] = [_no_wildcard(host) for host in space.roster.names_of(seen.to)]
        check_scope(space, seen, capability)
    except (_Inexpressible, MootError) as fault:
        return GrantScope(name, description, None, str(fault))
    return GrantScope(name, description, capability)


def read_scope(space: JoinedSpace, seen: SeenProposal, text: str) -> dict[str, Json]:
    """Read a capability that a person edited; raises UsageError."""
    try:
        value = json.loads(text)
    except ValueError as fault:
        raise UsageError(f"not valid JSON: {fault}") from None
    if not isinstance(value, dict):
        raise UsageError('a capability is a JSON object, such as {"kind": "mcp/request"}')
    check_scope(space, seen, value)
    return value


def check_scope(space: JoinedSpace, seen: SeenProposal, capability: Mapping[str, Json]) -> None:
    """Raises MootError if it cannot be read or would not allow the proposed call."""
    pattern = read_capability(dict(capability))
    payload = {"jsonrpc": "2.0", "id": 0, **seen.envelope.payload}
    if not pattern.matches("mcp/request", payload, space.roster.names_of(seen.to)):
        raise UsageError("this would not allow the proposed call")


def _params(params: Mapping[str, Json], scope: ScopeName, address: tuple[str, str] | None) -> dict[str, Json]:
    found: dict[str, Json] = {}
    if scope == "exact" and "name" in params and "arguments" not in params:
        # Without arguments, and no call with some.
        return {EXACT: {name: value for name, value in params.items() if name != "_meta"}}
    for name, value in params.items():
        if name == "_meta":
            continue  # progress tokens and the like: another one each time
        if name == "arguments" and isinstance(value, dict):
            if scope == "tool":
                continue
            stated = _arguments(value, scope, address)
            if stated:
                found[name] = stated
        elif name == "uri" and address is not None and address[0] == name:
            found[name] = address[1]
        elif scope != "tool" or name in ("name", "uri"):
            found[_key(name)] = _exactly(value)
    return found


def _arguments(
    arguments: Mapping[str, Json], scope: ScopeName, address: tuple[str, str] | None
) -> dict[str, Json]:
    if scope == "exact":
        return {EXACT: dict(arguments)}
    stated: dict[str, Json] = {}
    for name, value in arguments.items():
        if address is not None and name == address[0]:
            stated[_key(name)] = address[1]
        elif isinstance(value, str) and (
            # No place is left open beside an address, and no address beside a path.
            _is_address(name, value) or (address is not None and name in PATHS)
        ):
            stated[_key(name)] = _literal(value)
        elif isinstance(value, str) and name in PATHS and "/" in value.strip("/"):
            folder = value.rpartition("/")[0]
            stated[name] = f"{_no_wildcard(folder)}/**"
        elif (
            isinstance(value, str)
            and name not in TEXTS
            and len(value) <= _MAX_LITERAL_CHARS
            and "\n" not in value
        ):
            stated[_key(name)] = _literal(value)
        elif isinstance(value, bool | int | float) or value is None:
            stated[_key(name)] = value
    return stated


def _exactly(value: Json) -> Json:
    return _literal(value) if isinstance(value, str) else {EXACT: value}


def _literal(text: str) -> str:
    """A pattern that matches this text alone, even if it contains pattern characters."""
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
