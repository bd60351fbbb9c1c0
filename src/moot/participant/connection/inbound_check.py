"""Checks of what arrives (MEW 4.3, 7.2, 8.2; MCPx 4.3). They cannot be turned off.

The gateway checks who sends and what they may send, not whether it makes sense. So every envelope is checked
here first: only the gateway sends the gateway's kinds, the kind agrees with the payload, the payload has the
shape of its kind, and an answer comes from somebody who was asked. What fails is dropped, counted for its
sender and reported.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping

import msgspec

from moot.errors import KindPayloadMismatch
from moot.participant.connection.correlation_index import CorrelationIndex, KnownEnvelope
from moot.participant.connection.payload_shapes import PayloadShapeError, check_shape
from moot.protocol.agreement import check_agreement
from moot.protocol.envelope import Envelope
from moot.protocol.kinds import MEMBERS_KINDS, is_reserved
from moot.protocol.latest_dict import LatestDict
from moot.protocol.operation import Json
from moot.protocol.payloads import GATEWAY, STREAM_GATEWAY

_OBJECT: Json = {}
_GATEWAYS = frozenset({GATEWAY, STREAM_GATEWAY})


# Who breaks the protocol, and how often (MEW 4.3, MCPx 4.3). Counted and reported; nothing else happens.

log = logging.getLogger(__name__)

# The sender of bytes that name none.
UNKNOWN_SENDER = ""


class ProtocolViolation(msgspec.Struct, frozen=True):
    """One message that was dropped: who sent it, which rule it broke (`fault`), and what was wrong."""

    sender: str
    fault: str
    message: str
    kind: str
    envelope_id: str


class ViolationLog:
    """Counts violations by sender. `on_report` is called with each one; it must not raise.

    The checks themselves have no switch (MCPx 7): what fails them is dropped whatever anybody configures.
    """

    def __init__(self, *, max_senders: int, max_violations: int) -> None:
        self.on_report: Callable[[ProtocolViolation], None] | None = None
        self.recent: deque[ProtocolViolation] = deque(maxlen=max_violations)
        self.total = 0
        self._by_sender: LatestDict[str, Counter[str]] = LatestDict(max_senders)

    def count(self, sender: str) -> int:
        """How many messages of a sender were dropped."""
        return sum(self._by_sender.get(sender, Counter()).values())

    def of(self, sender: str) -> Mapping[str, int]:
        """The same by fault."""
        return dict(self._by_sender.get(sender, Counter()))

    def senders(self) -> list[str]:
        """Everybody who broke a rule, worst first."""
        return sorted(self._by_sender, key=self.count, reverse=True)

    def report(self, violation: ProtocolViolation) -> None:
        """Count a message that was dropped."""
        self.total += 1
        self.recent.append(violation)
        # Put in anew: the one whose last violation is the oldest is the first to go.
        faults = self._by_sender[violation.sender] = self._by_sender.get(violation.sender, Counter())
        faults[violation.fault] += 1
        log.debug(
            "dropped",
            extra={"participant": violation.sender, "fault": violation.fault, "kind": violation.kind},
        )
        if self.on_report is not None:
            try:
                self.on_report(violation)
            except Exception:
                # A hook of somebody else, in the connection's own task.
                log.exception("on_report failed")


class InboundValidator:
    """Checks envelopes and reports those that are to be dropped.

    `is_faithful` says whether a request that refers to proposals repeats them (D-28).
    """

    def __init__(
        self,
        correlations: CorrelationIndex,
        violations: ViolationLog,
        is_faithful: Callable[[Envelope], bool],
    ) -> None:
        self._correlations = correlations
        self._violations = violations
        self._is_faithful = is_faithful

    def check(self, envelope: Envelope) -> ProtocolViolation | None:
        """The rule that an envelope breaks, which is reported already; None if it may be acted on."""
        kind = envelope.kind
        if envelope.missing:
            return self.report(envelope, "incomplete", f"{', '.join(envelope.missing)} missing")
        if kind not in MEMBERS_KINDS and envelope.sender not in _GATEWAYS and is_reserved(kind):
            return self.report(envelope, "forged_sender", f"{kind} is the gateway's alone")
        try:
            if envelope.claim is not None:
                self._check_agreement(envelope)
            check_shape(kind, envelope.payload, envelope.correlation_id, envelope.context, received=True)
            if kind == "mcp/response" and envelope.payload.get("result", _OBJECT).__class__ is not dict:
                self._check_bare_result(envelope)
        except KindPayloadMismatch as fault:
            return self.report(envelope, "kind_payload_mismatch", fault.message)
        except PayloadShapeError as fault:
            return self.report(envelope, "bad_payload", str(fault))
        rule = _RULES.get(kind)
        if rule is not None and envelope.correlation_id:
            for id in envelope.correlation_id:
                known = self._correlations.known.get(id)
                broken_rule = None if known is None else rule(envelope, known)
                if broken_rule is not None:
                    return self.report(envelope, *broken_rule)
        if kind == "mcp/request" and envelope.correlation_id and not self._is_faithful(envelope):
            return self.report(envelope, "fulfilment_differs", "not what was proposed")
        return None

    def report_malformed(self, message: str, *, kind: str = "", id: str = "") -> None:
        """Bytes that were no envelope at all."""
        self._violations.report(ProtocolViolation(UNKNOWN_SENDER, "malformed", message, kind, id))

    def report(self, envelope: Envelope, fault: str, message: str) -> ProtocolViolation:
        """Count and report a violation; other parts report what they find here, too."""
        violation = ProtocolViolation(
            envelope.sender, fault, message, envelope.wire_kind or envelope.kind, envelope.id
        )
        self._violations.report(violation)
        return violation

    def _check_bare_result(self, envelope: Envelope) -> None:
        """A result that is no object: a tool ran and returned it (D-95); no list or resource looks so."""
        for _, known in self._correlations.requests_of(envelope):
            if known.operation is not None and known.operation.method != "tools/call":
                raise PayloadShapeError("payload.result must be an object")

    def _check_agreement(self, envelope: Envelope) -> None:
        if envelope.kind == "mcp/response":
            for _, known in self._correlations.requests_of(envelope):
                check_agreement(envelope, asked=known.operation)
        else:
            check_agreement(envelope, asked=None)


# Who may refer to what. Each rule is checked for every known id that an envelope correlates to.

_Fault = tuple[str, str]


def _check_responder(envelope: Envelope, known: KnownEnvelope) -> _Fault | None:
    """D-80: only a member that was asked answers."""
    if known.kind == "mcp/request" and known.to and envelope.sender not in known.to:
        return "unasked_answer", "the request was addressed to somebody else"
    return None


def _check_withdrawer(envelope: Envelope, known: KnownEnvelope) -> _Fault | None:
    if known.kind == "mcp/proposal" and envelope.sender != known.sender:
        return "not_proposer", "only its proposer withdraws a proposal"
    return None


def _check_grantee(envelope: Envelope, known: KnownEnvelope) -> _Fault | None:
    if known.kind == "capability/grant" and known.to and envelope.sender not in known.to:
        return "unasked_answer", "the grant went to somebody else"
    return None


def _check_controlled_member(envelope: Envelope, known: KnownEnvelope) -> _Fault | None:
    if known.kind.startswith("participant/") and known.to and envelope.sender not in known.to:
        return "unasked_answer", f"the {known.kind} was addressed to somebody else"
    return None


_RULES: dict[str, Callable[[Envelope, KnownEnvelope], _Fault | None]] = {
    "mcp/response": _check_responder,
    "mcp/withdraw": _check_withdrawer,
    "capability/grant-ack": _check_grantee,
    "participant/status": _check_controlled_member,
    "participant/compact-done": _check_controlled_member,
}
