"""What a waiting model and its user read about a call that needs approval: the exact call, who can decide on
it, and where."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final
from urllib.parse import quote, urlsplit, urlunsplit

from moot.mcp.eras import JsonObject
from moot.participant import JoinedSpace
from moot.protocol import strict_json
from moot.protocol.hidden_text import show_hidden

# Of the arguments of one call: enough to recognise it. The console shows all of them.
MAX_ARGUMENT_BYTES: Final = 1_500
# Of those who can decide.
_MAX_NAMES: Final = 8


def console_address(gateway: str) -> str:
    """The web console of a gateway, from the address at which clients join it."""
    # Of a cluster's gateways the first one.
    parts = urlsplit(gateway.split(",")[0].strip())
    scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
    return urlunsplit((scheme, parts.netloc, parts.path.rstrip("/").removesuffix("/ws"), "", ""))


def proposal_link(console: str, space: str, id: str) -> str:
    """The page of one proposal in the web console; empty where its address is not known."""
    return f"{console}/#/{quote(space, safe='')}/approvals/{quote(id, safe='')}" if console and space else ""


def show_arguments(method: str, params: JsonObject, limit_bytes: int = MAX_ARGUMENT_BYTES) -> str:
    """The arguments of a call as JSON in one line, with hidden characters made visible."""
    value = params.get("arguments", {}) if method in ("tools/call", "prompts/get") else params
    text = show_hidden(strict_json.encode(value).decode())
    data = text.encode()
    if len(data) <= limit_bytes:
        return text
    return f"{data[:limit_bytes].decode(errors='ignore')}… ({len(text)} characters)"


def who_can_approve(space: JoinedSpace, host: str, method: str, params: JsonObject) -> list[str]:
    """The members in the space now who may make exactly this call, as far as their rights are shown to us."""
    payload = {"jsonrpc": "2.0", "id": 0, "method": method, "params": params}
    to = [host]
    return sorted(
        member.id
        for member in space.roster.values()
        if member.name != host and member.may("mcp/request", payload, to)
    )


def rule_appliers(space: JoinedSpace) -> set[str]:
    """Members that decide by rules: they suggest some, and do not accept any."""
    members = space.roster.values()
    return {each.id for each in members if each.may("trust/suggestion") and not each.may("trust/accept")}


def describe_deciders(names: list[str], link: str, id: str, rules: Collection[str] = ()) -> str:
    """Who can decide and how, in two sentences; `rules` are those that decide by rules."""
    people = [name for name in names if name not in rules]
    if people:
        more = f" and {len(people) - _MAX_NAMES} more" if len(people) > _MAX_NAMES else ""
        who = f"It can be approved by {', '.join(people[:_MAX_NAMES])}{more}"
    elif names:
        who = "A rule may approve it; otherwise it waits for a person who can, and none is in the space now"
    else:
        who = "Nobody who can approve it is in the space now; it waits for them"
    where = f"in the browser at {link}, or " if link else ""
    return f"{who}. They decide {where}in a shell with `moot approve {id}` or `moot reject {id}`."
