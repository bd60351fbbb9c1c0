"""The limits of a member, and where their numbers come from."""

from __future__ import annotations

from typing import Final

import msgspec

from moot.protocol.envelope import EnvelopeLimits


class ParticipantLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long a member waits, how much it keeps, and what it does at once."""

    # How long the first connection is tried.
    connect_seconds: float = 5.0
    # How long a lost connection is tried again: an hour outlasts an upgrade.
    reconnect_seconds: float = 3_600.0

    # A request without a timeout of its own; MCP clients commonly give up after a minute.
    request_seconds: float = 60.0
    # A proposal waits for a person; the gateway's own limit is the same.
    proposal_seconds: float = 86_400.0
    # How long to wait for an answer of the gateway, or of a member to a control (a status, a grant).
    answer_seconds: float = 10.0
    # How long a host may be away before requests to it fail.
    host_return_seconds: float = 5.0

    # Requests of others that run at once; some more wait for their turn.
    max_running_requests: int = 64

    envelope: EnvelopeLimits = EnvelopeLimits()


DEFAULT_LIMITS: Final = ParticipantLimits()
