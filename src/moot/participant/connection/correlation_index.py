"""Which envelope answers which: recent envelopes by id (MEW 3, `correlation_id`).

A message may have several parents, so related messages form a graph, not a tree (MEW 3). The index is
bounded: whoever joined late or looks back too far finds nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from moot.protocol.envelope import Envelope
from moot.protocol.kinds import OPERATION_KINDS
from moot.protocol.operation import Operation, operation_of


class KnownEnvelope(NamedTuple):
    """What is remembered of an envelope."""

    kind: str
    sender: str
    to: Sequence[str]
    correlation_id: Sequence[str]
    context: str | None
    # Of a request or proposal: what it does. Of a response: what its kind claims, if its dialect has that.
    operation: Operation | None


class CorrelationIndex:
    """The latest envelopes, oldest forgotten first."""

    def __init__(self, max_envelopes: int) -> None:
        # By id, oldest first.
        self.known: dict[str, KnownEnvelope] = {}
        self._max_envelopes = max_envelopes

    def add(self, envelope: Envelope) -> None:
        kind = envelope.kind
        operation = None
        if kind in OPERATION_KINDS:
            operation = envelope.claim if kind == "mcp/response" else operation_of(envelope.payload)
        known = self.known
        if len(known) >= self._max_envelopes:
            del known[next(iter(known))]
        known[envelope.id] = KnownEnvelope(
            kind, envelope.sender, envelope.to, envelope.correlation_id, envelope.context, operation
        )

    def add_known(self, id: str, envelope: KnownEnvelope) -> None:
        """Add an envelope of our own that does not come back to us."""
        if len(self.known) >= self._max_envelopes:
            del self.known[next(iter(self.known))]
        self.known[id] = envelope

    def get(self, id: str) -> KnownEnvelope | None:
        return self.known.get(id)

    def latest(self, count: int) -> frozenset[str]:
        """The ids of the newest `count` envelopes."""
        return frozenset(itertools.islice(reversed(self.known), count))

    def parents(self, id: str) -> tuple[str, ...]:
        """The ids that an envelope refers to."""
        known = self.known.get(id)
        return () if known is None else tuple(known.correlation_id)

    def ancestors(self, id: str) -> list[str]:
        """All ids that it refers to directly or indirectly, nearest first, each once, known or not."""
        found: dict[str, None] = {}
        layer = list(self.parents(id))
        while layer:
            fresh = [each for each in layer if each not in found and each != id]
            found.update(dict.fromkeys(fresh))
            layer = [parent for each in fresh for parent in self.parents(each)]
        return list(found)

    def children(self, id: str) -> list[str]:
        """The ids of known envelopes that refer to it directly, in the order of arrival."""
        return [each for each, known in self.known.items() if id in known.correlation_id]

    def requests_of(self, response: Envelope) -> Iterator[tuple[str, KnownEnvelope]]:
        """The requests that a response answers, as far as they are known here."""
        for id in response.correlation_id:
            known = self.known.get(id)
            if known is not None and known.kind == "mcp/request":
                yield id, known

    def operation_of(self, envelope: Envelope) -> Operation | None:
        """The operation of an envelope: its own, else that of the request it answers (D002)."""
        if envelope.kind == "mcp/response":
            if envelope.claim is not None and envelope.claim.method is not None:
                return envelope.claim
            return next((known.operation for _, known in self.requests_of(envelope)), None)
        return operation_of(envelope.payload) if envelope.kind in OPERATION_KINDS else None
