"""What a bridge needs to know: which server, which space, and how careful to be."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from moot.mcp.eras import JsonObject
from moot.mcp.upstream import Server, UpstreamLimits
from moot.participant import ParticipantLimits
from moot.protocol.envelope import DialectName


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeSettings:
    """One MCP server as one member of one space."""

    server: Server
    gateway: str
    space: str = ""
    token: str | None = field(default=None, repr=False)
    dialect: DialectName = "mew"
    # D-87: a tool whose definition changed is withheld until somebody accepts it.
    pin: bool = True
    # Where pins are kept; None: only while the bridge runs.
    pins_file: Path | None = None
    # Consent, once, to everything that changed since the last run.
    accept_changes: bool = False
    # Whether a server that does not come up at first is a reason not to join.
    must_start: bool = False
    # What the server hears that asks for roots outside of any call.
    roots: tuple[JsonObject, ...] = ()
    limits: UpstreamLimits = field(default_factory=UpstreamLimits)
    # Twice the calls that run at once may wait.
    member: ParticipantLimits = field(
        default_factory=lambda: ParticipantLimits(handlers=256, queued_requests=512)
    )
