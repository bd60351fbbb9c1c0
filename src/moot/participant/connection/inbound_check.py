"""What is believed of what arrives (MEW 4.3, 7.2, 8.2; MCPx 4.3). There is no switch to turn this off.

The gateway checks who speaks and what they may say, not whether it makes sense, so every envelope passes here
before anything else sees it: only the gateway speaks for the gateway, the kind agrees with the payload, the
payload has its kind's shape, and an answer comes from somebody who was asked. What fails is dropped, counted
against its sender and reported.
"""

from __future__ import annotations

from collections.abc import Callable

from moot.errors import KindPayloadMismatch
from moot.participant.connection.correlation_index import CorrelationIndex, KnownEnvelope
from moot.participant.connection.payload_shapes import PayloadShapeError, check_shape
from moot.participant.connection.violation_log import NOBODY, ProtocolViolation, ViolationLog
from moot.protocol.agreement import check_agreement
from moot.protocol.envelope import Envelope
from moot.protocol.kinds import is_reserved
from moot.protocol.payloads import GATEWAY, STREAM_GATEWAY

_GATEWAYS = frozenset({GATEWAY, STREAM_GATEWAY})


class InboundValidator:
    """Says of each envelope whether it is let in."""

    def __init__(self, lineage: CorrelationIndex, misbehaviour: ViolationLog) -> None:
        self.lineage = lineage
        self.misbehaviour = misbehaviour
        # Whether a request that refers to proposals repeats them (D-28); the ledger of proposals knows.
        self.is_faithful: Callable[[Envelope], bool] = lambda _: True
        # Told of an answer that was dropped: somebody may be waiting for a better one in vain.
        self.on_bad_answer: list[Callable[[Envelope, str], None]] = []

    def lets_in(self, envelope: Envelope) -> bool:
        """Whether an envelope may be acted on; if not, its sender's score has grown."""
        kind = envelope.kind
        if envelope.missing:
            return self._dropped(envelope, "incomplete", f"{', '.join(envelope.missing)} missing")
        if envelope.sender not in _GATEWAYS and is_reserved(kind):
            return self._dropped(envelope, "forged_sender", f"{kind} is the gateway's alone")
        try:
            if envelope.claim is not None:
                self._check_agreement(envelope)
            check_shape(kind, envelope.payload, envelope.correlation_id, envelope.context)
        except KindPayloadMismatch as fault:
            return self._dropped(envelope, "kind_payload_mismatch", fault.message)
        except PayloadShapeError as fault:
            return self._dropped(envelope, "bad_payload", str(fault))
        rule = _RULES.get(kind)
        if rule is not None and envelope.correlation_id:
            for id in envelope.correlation_id:
                known = self.lineage.get(id)
                fault_and_words = None if known is None else rule(envelope, known)
                if fault_and_words is not None:
                    return self._dropped(envelope, *fault_and_words)
        if kind == "mcp/request" and envelope.correlation_id and not self.is_faithful(envelope):
            return self._dropped(envelope, "fulfilment_differs", "not what was proposed")
        return True

    def broken(self, message: str, *, kind: str = "", id: str = "") -> None:
        """Bytes that were no envelope at all."""
        self.misbehaviour.report(ProtocolViolation(NOBODY, "malformed", message, kind, id))

    def report(self, envelope: Envelope, fault: str, message: str) -> None:
        """Somebody further in found fault with an envelope."""
        misdeed = ProtocolViolation(
            envelope.sender, fault, message, envelope.wire_kind or envelope.kind, envelope.id
        )
        self.misbehaviour.report(misdeed)

    def _check_agreement(self, envelope: Envelope) -> None:
        if envelope.kind == "mcp/response":
            for _, known in self.lineage.requests_of(envelope):
                check_agreement(envelope, asked=known.operation)
        else:
            check_agreement(envelope, asked=None)

    def _dropped(self, envelope: Envelope, fault: str, message: str) -> bool:
        self.report(envelope, fault, message)
        if envelope.kind == "mcp/response" and fault != "unasked_answer":
            for tell in self.on_bad_answer:
                tell(envelope, message)
        return False


# Rules about who may refer to what. Each is asked for every known id that an envelope correlates to.

_Fault = tuple[str, str]


def _answered_by_the_asked(envelope: Envelope, known: KnownEnvelope) -> _Fault | None:
    """D-80: whoever was not asked does not answer."""
    if known.kind == "mcp/request" and known.to and envelope.sender not in known.to:
        return "unasked_answer", "the request was addressed to somebody else"
    return None


def _withdrawn_by_its_proposer(envelope: Envelope, known: KnownEnvelope) -> _Fault | None:
    if known.kind == "mcp/proposal" and envelope.sender != known.sender:
        return "not_proposer", "only its proposer withdraws a proposal"
    return None


def _acknowledged_by_the_recipient(envelope: Envelope, known: KnownEnvelope) -> _Fault | None:
    if known.kind == "capability/grant" and known.to and envelope.sender not in known.to:
        return "unasked_answer", "the grant went to somebody else"
    return None


def _told_by_the_asked(envelope: Envelope, known: KnownEnvelope) -> _Fault | None:
    if known.kind.startswith("participant/") and known.to and envelope.sender not in known.to:
        return "unasked_answer", f"the {known.kind} was addressed to somebody else"
    return None


_RULES: dict[str, Callable[[Envelope, KnownEnvelope], _Fault | None]] = {
    "mcp/response": _answered_by_the_asked,
    "mcp/withdraw": _withdrawn_by_its_proposer,
    "capability/grant-ack": _acknowledged_by_the_recipient,
    "participant/status": _told_by_the_asked,
    "participant/compact-done": _told_by_the_asked,
}
