"""What the adapter counts, for `/metrics` and `status`. Labels are sources and codes, never keys."""

from __future__ import annotations

from collections import Counter as Tally
from typing import Final

from moot.metrics import Counter, Histogram, Registry

_EVENTS: Final = "moot_adapter_events_total"
_EVENTS_HELP: Final = "Events that came, by what became of them"
_CALLS: Final = "moot_adapter_calls_total"
_CALLS_HELP: Final = "Requests that were carried out, by source and outcome"
_SECONDS: Final = "moot_adapter_call_seconds"
_SECONDS_HELP: Final = "From a request's checks to its answer, without the relay"


class Measures:
    """Counters of one adapter, looked up once and kept."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.events: Tally[str] = Tally()
        self.calls: Tally[str] = Tally()
        self._events: dict[str, Counter] = {}
        self._calls: dict[tuple[str, str], Counter] = {}
        self._seconds: dict[str, Histogram] = {}

    def event(self, outcome: str) -> None:
        """An event that was no call: an answer, dropped, or refused with a code."""
        counter = self._events.get(outcome)
        if counter is None:
            counter = self._events[outcome] = self.registry.counter(_EVENTS, _EVENTS_HELP, outcome=outcome)
        counter.value += 1
        self.events[outcome] += 1

    def call(self, source: str, outcome: str, seconds: float) -> None:
        """A request that was carried out; source empty: one of the protocol's own."""
        counter = self._calls.get((source, outcome))
        if counter is None:
            counter = self.registry.counter(_CALLS, _CALLS_HELP, source=source, outcome=outcome)
            self._calls[(source, outcome)] = counter
        counter.value += 1
        self.calls[outcome] += 1
        histogram = self._seconds.get(source)
        if histogram is None:
            histogram = self._seconds[source] = self.registry.histogram(
                _SECONDS, _SECONDS_HELP, source=source
            )
        histogram.observe(seconds)

    def forget(self, source: str) -> None:
        """A source is gone."""
        self.registry.forget(source=source)
        self._calls = {key: counter for key, counter in self._calls.items() if key[0] != source}
        self._seconds.pop(source, None)
