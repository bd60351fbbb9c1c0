"""Every limit of the MCP server that a client can run into."""

from __future__ import annotations

import msgspec


class McpServerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long the server waits and how much one client may use. All seconds are bounds, not delays."""

    # A call that needs somebody's decision waits this long before the client is told that it is pending.
    # 20 s: a person at a desk decides within that, and clients give up after 60 s (the TypeScript SDK).
    decision_seconds: float = 20.0
    # A call that needs a decision answers "pending" at the latest after this, also while a dialog is open or
    # the approved tool still runs: clients give up after 60 s, and then nobody reads the answer.
    answer_seconds: float = 50.0
    # Handshake sessions over HTTP. Above that number a new one takes the place of the one that has been idle
    # longest.
    max_sessions: int = 256


DEFAULT_LIMITS = McpServerLimits()
