"""Calls to endpoints, counted and written down (XP 8.6): who was asked for what, and how it ended."""

from __future__ import annotations

from moot.adapter.operations.adapter_metrics import AdapterMetrics
from moot.adapter.operations.audit_log import AuditLog
from moot.adapter.outbound.endpoints_backend import AuditedCall


def note_call(call: AuditedCall, measures: AdapterMetrics, audit: AuditLog) -> None:
    """A call of direction 2 is over; what was said in it stays between the two."""
    measures.call(call.source, call.outcome, call.seconds)
    audit.note(
        {
            "direction": "outward",
            "source": call.source,
            "key": call.key or None,
            "kind": call.kind,
            "outcome": call.outcome,
            "seconds": round(call.seconds, 4),
        }
    )
