"""Records outbound calls in metrics and the audit log (XP 8.6): to whom, for what, with what outcome."""

from __future__ import annotations

from dataclasses import dataclass

from moot.xprotocol.adapter.telemetry.adapter_metrics import AdapterMetrics
from moot.xprotocol.adapter.telemetry.audit_log import AuditLog


@dataclass(frozen=True, slots=True)
class AuditedCall:
    """A finished call, without its content."""

    source: str
    key: str
    kind: str
    # `ok`, CANCELLED, a code of XP 5.3, or OTHER.
    outcome: str
    seconds: float
    # Nothing was sent.
    is_refused: bool = False


def record_call(call: AuditedCall, metrics: AdapterMetrics, audit: AuditLog) -> None:
    """Record a finished call; its arguments and result are never recorded."""
    metrics.count_call(call.source, call.outcome, call.seconds)
    record = audit.record_refusal if call.is_refused else audit.record
    record(
        {
            "direction": "outward",
            "source": call.source,
            "key": call.key or None,
            "kind": call.kind,
            "outcome": call.outcome,
            "seconds": round(call.seconds, 4),
        }
    )
