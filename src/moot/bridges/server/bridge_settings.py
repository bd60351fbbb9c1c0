"""The settings of one bridge: which server, which space, and whether tools are pinned."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from moot.box.boxed_child import Box
from moot.bridges.server.call_secrets import CallSecrets
from moot.config.configuration import McpServerConfig
from moot.mcp.upstream import DEFAULT_OPTIONS, Server, UpstreamOptions
from moot.oauth.oauth_settings import OAuthSettings
from moot.participant import ParticipantLimits
from moot.participant.programs.join_target import JoinTarget
from moot.protocol.envelope import DialectName


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeSettings(JoinTarget):
    """One MCP server as one member of one space."""

    server: Server
    # What confines a server that is started here; None: nothing does.
    box: Box | None = None
    # Values that only the bridge knows; None: it has none.
    secrets: CallSecrets | None = None
    dialect: DialectName = "mew"
    # Of what a file says of the server: `pin` (D-87), `plans`, and whose account calls use (`credentials`).
    config: McpServerConfig = field(default_factory=McpServerConfig)
    # Where pins are kept; None: only while the bridge runs.
    pins_file: Path | None = None
    # Accept, once, every tool that changed since the last start.
    accept_changes: bool = False
    # Do not join if the first attempt to start the server fails.
    must_start: bool = False
    # How to sign in at a server over HTTP that asks for it; None: never.
    oauth: OAuthSettings | None = None
    # How to talk to the server.
    upstream: UpstreamOptions = DEFAULT_OPTIONS
    member: ParticipantLimits = field(default_factory=lambda: ParticipantLimits(max_running_requests=256))
