"""The adapter's metrics, for `/metrics` and `status`. Labels are sources and codes, never keys."""

from __future__ import annotations

from collections import Counter as Tally
from importlib.util import find_spec
from typing import Final

from moot import __version__
from moot.metrics import BUILD_INFO, Counter, Description, Histogram, Registry, measure_build
from moot.metrics.process import PROCESS_METRICS, measure_process

EVENTS: Final = Description(
    "moot_adapter_events_total", "counter", "Events received, by outcome.", ("outcome",)
)
CALLS: Final = Description(
    "moot_adapter_calls_total",
    "counter",
    "Requests run, by source and outcome.",
    ("source", "outcome"),
)
CALL_SECONDS: Final = Description(
    "moot_adapter_call_seconds",
    "histogram",
    "From a request's checks to its answer, without the relay.",
    ("source",),
)
CALLS_IN_PROGRESS: Final = Description("moot_adapter_calls_in_progress", "gauge", "Calls in progress.")
SUBSCRIPTIONS: Final = Description("moot_adapter_subscriptions", "gauge", "Resources followed.")
CONTRACTS: Final = Description("moot_adapter_contracts", "gauge", "Contracts published.")
RELAY_CONNECTED: Final = Description("moot_adapter_relay_connected", "gauge", "1 while a relay is connected.")
SOURCES: Final = Description("moot_adapter_sources", "gauge", "MCP servers configured.")
SOURCES_UP: Final = Description("moot_adapter_sources_up", "gauge", "MCP servers that answer.")
SEEN_EVENTS: Final = Description("moot_adapter_seen_events", "gauge", "Ids of events remembered.")
AUDIT_WRITABLE: Final = Description(
    "moot_adapter_audit_writable", "gauge", "1 while the audit log can be written and calls are accepted."
)
AUDIT_LOST_REFUSALS: Final = Description(
    "moot_adapter_audit_lost_refusals",
    "gauge",
    "Refusals since the start that are counted but not recorded in the audit log.",
)

ADAPTER_METRICS: Final = (
    BUILD_INFO,
    EVENTS,
    CALLS,
    CALL_SECONDS,
    CALLS_IN_PROGRESS,
    SUBSCRIPTIONS,
    CONTRACTS,
    RELAY_CONNECTED,
    SOURCES,
    SOURCES_UP,
    SEEN_EVENTS,
    AUDIT_WRITABLE,
    AUDIT_LOST_REFUSALS,
    *PROCESS_METRICS,
)


class AdapterMetrics:
    """Counters of one adapter."""

    def __init__(self) -> None:
        self.registry = Registry()
        is_compiled = find_spec("moot.protocol._scan_envelope") is not None
        measure_build(self.registry, version=__version__, is_compiled=is_compiled)
        measure_process(self.registry)
        self.events: Tally[str] = Tally()
        self.calls: Tally[str] = Tally()
        self._events: dict[str, Counter] = {}
        self._calls: dict[tuple[str, str], Counter] = {}
        self._seconds: dict[str, Histogram] = {}

    def count_event(self, outcome: str) -> None:
        """Count an event that was not a call: an answer, a dropped one, or one refused with a code."""
        counter = self._events.get(outcome)
        if counter is None:
            counter = self._events[outcome] = EVENTS.counter(self.registry, outcome=outcome)
        counter.value += 1
        self.events[outcome] += 1

    def count_call(self, source: str, outcome: str, seconds: float) -> None:
        """Count a request that was run. The source is empty for the protocol's own requests."""
        counter = self._calls.get((source, outcome))
        if counter is None:
            counter = CALLS.counter(self.registry, source=source, outcome=outcome)
            self._calls[(source, outcome)] = counter
        counter.value += 1
        self.calls[outcome] += 1
        histogram = self._seconds.get(source)
        if histogram is None:
            histogram = self._seconds[source] = CALL_SECONDS.histogram(self.registry, source=source)
        histogram.observe(seconds)

    def remove_source(self, source: str) -> None:
        """Drop the series of a source that is gone."""
        self.registry.remove(source=source)
        self._calls = {key: counter for key, counter in self._calls.items() if key[0] != source}
        self._seconds.pop(source, None)
