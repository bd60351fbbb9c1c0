"""The configuration of the space under test, its inputs, and how one input is applied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moot.config.space.space_reader import read_space
from moot.conformance.pure_driver import CountingMint
from moot.protocol.operation import Json
from moot.space.effects import Effect, Mint, Token
from moot.space.space import Space

SETTINGS: Mapping[str, Json] = {
    "participants": {
        "human": ["*"],
        "boss": ["mcp/*", "chat", "capability/*", "space/*", "participant/*", "moot/approve", "stream/*"],
        "agent": ["mcp/proposal", "mcp/withdraw", "chat", "capability/grant", "stream/*", "moot/approve"],
        "tool": {"capabilities": ["chat", "stream/*", "participant/pause"], "exclusive": True},
        "scribe": ["mcp/request:*", "mcp/proposal:*", "chat", "capability/grant", "moot/approve", "stream/*"],
        "dot": ["mcp.proposal.*", "mcp.request.tools/call:read_*", "chat.*", "mcpx.*", "capability.grant"],
        # Joins only at the very end, to clear the room.
        "root": ["*"],
    },
    "anonymous": ["chat", "mcp/proposal", "mcp/reject", "stream/*"],
    "dialects": ["mew", "mcpx", "m3p"],
    "separation_of_duties": True,
    "quorum": [
        {"payload": {"method": "tools/call", "params": {"name": "delete_file"}}, "approvals_needed": 2}
    ],
    # Small, so that every limit is met within a walk.
    "limits": {
        "messages_per_second": 0,
        "bytes_per_second": 0,
        "max_recent_ids": 40,
        "request_seconds": 30,
        "proposal_seconds": 60,
        "max_open_requests": 6,
        "max_open_proposals": 4,
        "max_sessions_per_member": 3,
        "max_streams_per_member": 3,
        "max_invited_participants": 3,
    },
}
# Limits that are constants.
SMALL: Mapping[str, Json] = {
    "spaces.*.limits.max_settled_proposals": 12,
    "spaces.*.limits.max_grants_per_member": 5,
    "spaces.*.limits.stream_owner_grace_seconds": 20,
}
CONFIG = read_space("lab", SETTINGS)
APPROVALS_FOR_DELETING = 2


class RecordingMint(CountingMint):
    """Keeps every draw since it was last emptied."""

    def __init__(self) -> None:
        super().__init__()
        self.draws: list[str | Token] = []

    def id(self) -> str:
        drawn = super().id()
        self.draws.append(drawn)
        return drawn

    def token(self) -> Token:
        drawn = super().token()
        self.draws.append(drawn)
        return drawn


@dataclass(frozen=True)
class Input:
    """One input of a space, as a journal would keep it (D-89)."""

    what: str
    arguments: tuple[Any, ...]
    now: float
    draws: tuple[str | Token, ...] = ()
    refused: bool = False


def feed(space: Space, given: Input, mint: Mint) -> list[Effect]:
    """Carry one input out; raises Refused where the space does."""
    arguments, now = given.arguments, given.now
    match given.what:
        case "restore_member":
            timed: tuple[Any, ...] = (mint,)
        case "health":
            return space.health(journal_writable=arguments[0])
        case "add_token":
            timed = ()
        case "rotate_credential":
            name, token, keep = arguments
            return space.rotate_credential(name, token, now, mint, keep=keep)
        case "sign_out":
            keys, before, forget_at = arguments
            return space.sign_out(keys, issued_before=before, forget_at=forget_at, now=now, mint=mint)
        case "restart":
            return space.restart(now, mint, clock_lost=arguments[0])
        case _:
            timed = (now, mint)
    effects: list[Effect] = getattr(space, given.what)(*arguments, *timed)
    return effects
