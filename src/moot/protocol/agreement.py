"""Whether a kind agrees with its payload (D-48, D-49, MCPx 4.3, M3P).

MCPx and m3p name the operation twice, in the kind and in the payload. Whoever looks at one and acts on
the other can be fooled, so the two must agree before anybody sees the envelope. MEW names it once.
"""

from __future__ import annotations

from moot.errors import KindPayloadMismatch
from moot.protocol.dialects.translation import CHAT_FORMATS
from moot.protocol.envelope import Envelope
from moot.protocol.operation import CONTEXT_PATHS, Operation, operation_of


def check_agreement(envelope: Envelope, *, asked: Operation | None) -> None:
    """Raises KindPayloadMismatch where a legacy kind contradicts the payload.

    `asked` is the operation of the request that a response answers, None when it is not known.
    """
    if envelope.claim is None:
        return
    match envelope.kind:
        case "mcp/request" | "mcp/proposal":
            _check_operation(envelope.claim, operation_of(envelope.payload), "the payload")
        case "mcp/response":
            if asked is not None and asked.method is not None:
                _check_operation(envelope.claim, asked, "the request")
        case "mcp/withdraw" | "mcp/reject":
            if not envelope.correlation_id:
                raise KindPayloadMismatch(f"{envelope.wire_kind} must name its proposal in correlation_id")
        case "chat":
            _check_format(envelope)
        case _:
            pass


def _check_operation(claim: Operation, facts: Operation, where: str) -> None:
    # A kind without METHOD (m3p alone has it) claims nothing that could be wrong.
    if claim.method is None:
        return
    if claim.method != facts.method:
        raise KindPayloadMismatch(
            f"the kind says method {_shown(claim.method)}, {where} says {_shown(facts.method)}"
        )
    # D-49: lists and the like have no field to compare with.
    if claim.context is not None and claim.method in CONTEXT_PATHS and claim.context != facts.context:
        raise KindPayloadMismatch(
            f"the kind says {_shown(claim.method)} of {_shown(claim.context)},"
            f" {where} says {_shown(facts.context)}"
        )


def _check_format(envelope: Envelope) -> None:
    claimed = CHAT_FORMATS.get(envelope.wire_kind)
    if claimed is not None and "format" in envelope.payload and envelope.payload["format"] != claimed:
        raise KindPayloadMismatch(
            f"{envelope.wire_kind} means format {claimed!r}, payload.format says"
            f" {_shown(envelope.payload['format'])}"
        )


def _shown(value: object) -> str:
    return "nothing" if value is None else repr(value)[:80]
