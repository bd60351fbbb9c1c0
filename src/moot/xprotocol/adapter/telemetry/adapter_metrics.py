"""The adapter's metrics, for `/metrics` and `status`. Labels are sources and codes, never keys."""

from __future__ import annotations

from collections import Counter as Tally
from importlib.util import find_spec
from typing import Final

from moot import __version__
from moot.metrics import BUILD_INFO, MetricTable, Registry, measure_build
from moot.metrics.process import PROCESS_METRICS, measure_process

_TABLE: Final = MetricTable(BUILD_INFO)
EVENTS: Final = _TABLE.counter("moot_adapter_events_total", "Events received, by outcome.", "outcome")
CALLS: Final = _TABLE.counter(
    "moot_adapter_calls_total", "Requests run, by source and outcome.", "source", "outcome"
)
CALL_SECONDS: Final = _TABLE.histogram(
    "moot_adapter_call_seconds", "From a request's checks to its answer, without the relay.", "source"
)
CALLS_IN_PROGRESS: Final = _TABLE.gauge("moot_adapter_calls_in_progress", "Calls in progress.")
SUBSCRIPTIONS: Final = _TABLE.gauge("moot_adapter_subscriptions", "Resources followed.")
CONTRACTS: Final = _TABLE.gauge("moot_adapter_contracts", "Contracts published.")
RELAY_CONNECTED: Final = _TABLE.gauge("moot_adapter_relay_connected", "1 while a relay is connected.")
SOURCES: Final = _TABLE.gauge("moot_adapter_sources", "MCP servers configured.")
SOURCES_UP: Final = _TABLE.gauge("moot_adapter_sources_up", "MCP servers that answer.")
SEEN_EVENTS: Final = _TABLE.gauge("moot_adapter_seen_events", "Ids of events remembered.")
AUDIT_WRITABLE: Final = _TABLE.gauge(
    "moot_adapter_audit_writable", "1 while the audit log can be written and calls are accepted."
)
AUDIT_LOST_REFUSALS: Final = _TABLE.gauge(
    "moot_adapter_audit_lost_refusals",
    "Refusals since the start that are counted but not recorded in the audit log.",
)

ADAPTER_METRICS: Final = (*_TABLE.descriptions, *PROCESS_METRICS)


class AdapterMetrics:
    """Counters of one adapter."""

    def __init__(self) -> None:
        self.registry = Registry()
        is_compiled = find_spec("moot.protocol._scan_envelope") is not None
        measure_build(self.registry, version=__version__, is_compiled=is_compiled)
        measure_process(self.registry)
        self.events: Tally[str] = Tally()
        self.calls: Tally[str] = Tally()

    def count_event(self, outcome: str) -> None:
        """Count an event that was not a call: an answer, a dropped one, or one refused with a code."""
        EVENTS.of(self.registry, outcome=outcome).value += 1
        self.events[outcome] += 1

    def count_call(self, source: str, outcome: str, seconds: float) -> None:
        """Count a request that was run. The source is empty for the protocol's own requests."""
        CALLS.of(self.registry, source=source, outcome=outcome).value += 1
        self.calls[outcome] += 1
        CALL_SECONDS.of(self.registry, source=source).observe(seconds)

    def remove_source(self, source: str) -> None:
        """Drop the series of a source that is gone."""
        self.registry.remove(source=source)
