"""The three dialects of a space: bytes to envelopes, envelopes and notices to bytes (dialects.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from moot.protocol.dialects.m3p import M3P
from moot.protocol.dialects.mcpx import MCPX
from moot.protocol.dialects.mew import MEW
from moot.protocol.envelope import DEFAULT_LIMITS, DialectName, Envelope, EnvelopeLimits
from moot.protocol.operation import Operation
from moot.protocol.payloads import GatewayNotice

__all__ = ["DIALECTS", "M3P", "MCPX", "MEW", "Dialect"]


class Dialect(Protocol):
    """What one connection speaks."""

    @property
    def name(self) -> DialectName: ...

    @property
    def protocol(self) -> str:
        """The value of an envelope's `protocol`; MCPx and m3p share it (D-51)."""
        ...

    def decode(
        self,
        raw: bytes,
        limits: EnvelopeLimits = DEFAULT_LIMITS,
        *,
        accept_protocols: frozenset[str] = frozenset(),
    ) -> Envelope:
        """The envelope in these bytes; raises MalformedEnvelope, and nothing else, if there is none.

        Absent protocol, id, ts and from are listed in `missing`; `envelope.completed` fills them.
        """
        ...

    def encode(
        self, envelope: Envelope, *, operation: Operation | None = None, proposer: str | None = None
    ) -> bytes | None:
        """What a member with this dialect gets of a complete envelope, or None when it has no words for it.

        `operation` is what the request did that a response answers; `proposer` made the proposal behind it.
        """
        ...

    def encode_notice(self, notice: GatewayNotice) -> bytes | None:
        """A message of the gateway's own, or None when this dialect does not have it."""
        ...


DIALECTS: Final[Mapping[DialectName, Dialect]] = {"mew": MEW, "mcpx": MCPX, "m3p": M3P}
