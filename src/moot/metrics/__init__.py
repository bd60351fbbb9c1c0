"""Counters, gauges and histograms, in the format that Prometheus reads (text format 0.0.4).

By hand, because counting must cost next to nothing: `counter.value += 1` is an attribute of a slotted object,
a twelfth of what `prometheus_client` takes for a lock and some calls, and its text of 100 spaces takes nine
times as long (decision 0173). All of it happens on one event loop, so no lock is needed. Each program
describes what it exposes in a `MetricTable`; ask a description once for a metric and keep what it gives.
Labels are for closed sets of words (a code, a space), never for what peers write.
"""

from __future__ import annotations

import math
import platform
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Final, Generic, Literal, TypeVar, cast

import msgspec

from moot.errors import UsageError

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

# From half a millisecond, a fast fan-out, to ten seconds, when a slow reader is closed.
SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*", re.ASCII)
_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)

Labels = tuple[tuple[str, str], ...]


class Number:
    """A counter or a gauge: set `value`, or give a function to `read` it at each scrape."""

    __slots__ = ("read", "value")

    def __init__(self) -> None:
        self.value: float = 0
        self.read: Callable[[], float] | None = None

    def heads(self, name: str, labels: Labels) -> list[str]:
        """What stands before each of `values`."""
        return [_sample_head(name, labels)]

    def values(self) -> tuple[float, ...]:
        return (self.value if self.read is None else self.read(),)


class Histogram:
    """Counts of values by fixed buckets, and the sum of all values."""

    __slots__ = ("_counts", "bounds", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.sum: float = 0
        # One more than there are bounds: what is larger than all of them.
        self._counts = [0] * (len(self.bounds) + 1)

    @property
    def count(self) -> int:
        return sum(self._counts)

    def observe(self, value: float) -> None:
        # A value equal to a bound is in its bucket: `le` is less or equal.
        self._counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def heads(self, name: str, labels: Labels) -> list[str]:
        """What stands before each of `values`."""
        bounds = [(*labels, ("le", _format_number(bound))) for bound in (*self.bounds, math.inf)]
        buckets = [_sample_head(f"{name}_bucket", each) for each in bounds]
        return [*buckets, _sample_head(f"{name}_sum", labels), _sample_head(f"{name}_count", labels)]

    def values(self) -> tuple[float, ...]:
        totals = tuple(accumulate(self._counts))
        return (*totals, self.sum, totals[-1])


Metric = Number | Histogram
MetricT = TypeVar("MetricT", Number, Histogram)


class Description(msgspec.Struct, Generic[MetricT], frozen=True):
    """One family of metrics: described once, registered from here, and printed in the reference."""

    name: str
    type: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()

    def of(self, registry: Registry, **labels: str) -> MetricT:
        """The metric with these labels; the same labels give the same metric."""
        if labels.keys() != set(self.labels):
            raise UsageError(f"{self.name}: is described as a {self.type} with the labels {self.labels}")
        return cast("MetricT", registry.series(self, labels))


AnyDescription = Description[Number] | Description[Histogram]


class MetricTable:
    """What one program exposes. Raises UsageError for a name that Prometheus would not take."""

    def __init__(self, *included: Description[Number]) -> None:
        self.descriptions: list[AnyDescription] = [*included]

    def counter(self, name: str, help: str, *labels: str) -> Description[Number]:
        """Only ever grows."""
        if not name.endswith("_total"):
            raise UsageError(f"{name}: the name of a counter ends in _total")
        return self._add(Description(name, "counter", help, labels))

    def gauge(self, name: str, help: str, *labels: str) -> Description[Number]:
        """Goes up and down."""
        return self._add(Description(name, "gauge", help, labels))

    def histogram(
        self, name: str, help: str, *labels: str, bounds: Sequence[float] = SECONDS
    ) -> Description[Histogram]:
        if not bounds or list(bounds) != sorted(set(bounds)) or not all(map(math.isfinite, bounds)):
            raise UsageError(f"{name}: bounds have to rise and be finite")
        if "le" in labels:
            raise UsageError(f"{name}: the label le is the histogram's own")
        return self._add(Description(name, "histogram", help, labels, tuple(bounds)))

    def _add(self, described: Description[MetricT]) -> Description[MetricT]:
        if _NAME.fullmatch(described.name) is None:
            raise UsageError(f"{described.name!r} is no name for a metric")
        for label in described.labels:
            if _LABEL.fullmatch(label) is None:
                raise UsageError(f"{described.name}: {label!r} is no name for a label")
        self.descriptions.append(described)
        return described


class Registry:
    """Every metric of a process."""

    def __init__(self) -> None:
        self._families: dict[str, _Family] = {}

    def series(self, described: Description[MetricT], labels: Mapping[str, str]) -> Metric:
        family = self._families.setdefault(described.name, _Family(described))
        known = family.described
        if (known.type, set(known.labels)) != (described.type, set(described.labels)):
            raise UsageError(
                f"{known.name}: is a {known.type} with the labels {sorted(known.labels)} already"
            )
        key = tuple(sorted(labels.items()))
        metric = family.members.get(key)
        if metric is None:
            made = Histogram(described.bounds) if described.type == "histogram" else Number()
            metric = family.members[key] = made
        return metric

    def remove(self, **labels: str) -> None:
        """Drop every metric that has these labels, such as those of a space that is gone."""
        for family in self._families.values():
            for key in [key for key in family.members if labels.items() <= dict(key).items()]:
                del family.members[key]
                family.heads.pop(key, None)

    def exposition(self) -> str:
        """Everything, in Prometheus' text format."""
        lines: list[str] = []
        for name, family in sorted(self._families.items()):
            lines.append(f"# HELP {name} {_escape(family.described.help)}")
            lines.append(f"# TYPE {name} {family.described.type}")
            for labels, metric in family.members.items():
                heads = family.heads.get(labels)
                if heads is None:
                    heads = family.heads[labels] = metric.heads(name, labels)
                values = metric.values()
                lines += [f"{head} {_format_number(each)}" for head, each in zip(heads, values, strict=True)]
        return "".join(f"{line}\n" for line in lines)


class _Family:
    """All metrics of one name."""

    __slots__ = ("described", "heads", "members")

    def __init__(self, described: AnyDescription) -> None:
        self.described = described
        self.members: dict[Labels, Metric] = {}
        # What does not change of the lines of each member: made once, because it is most of the work.
        self.heads: dict[Labels, list[str]] = {}


BUILD_INFO: Final = MetricTable().gauge(
    "moot_build_info", "Always 1; the labels say what runs.", "version", "python", "compiled"
)


def measure_build(registry: Registry, *, version: str, is_compiled: bool) -> None:
    """Register what runs: our version, Python's, and whether the compiled fast path is in use."""
    compiled = "true" if is_compiled else "false"
    BUILD_INFO.of(registry, version=version, python=platform.python_version(), compiled=compiled).value = 1


def _sample_head(name: str, labels: Labels) -> str:
    """A line without its value."""
    if not labels:
        return name
    inner = ",".join(f'{label}="{_escape(text, quotes=True)}"' for label, text in labels)
    return f"{name}{{{inner}}}"


def _format_number(value: float) -> str:
    if type(value) is int:
        return str(value)
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    # A gauge may be read from a yes or no, whose repr no scraper reads.
    return "NaN" if math.isnan(value) else repr(int(value) if value is True or value is False else value)


def _escape(text: str, *, quotes: bool = False) -> str:
    text = text.replace("\\", r"\\").replace("\n", r"\n")
    return text.replace('"', r"\"") if quotes else text
