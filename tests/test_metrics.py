"""Metrics and the text that Prometheus reads, held to its format line by line."""

from __future__ import annotations

import math
import platform
import re
import time
from collections.abc import Sequence

import pytest
from prometheus_client.parser import text_string_to_metric_families

from moot.errors import UsageError
from moot.gateway.cluster.cluster_metrics import CLUSTER_METRICS
from moot.gateway.gateway_metrics import GATEWAY_METRICS
from moot.metrics import CONTENT_TYPE, SECONDS, Histogram, MetricTable, Number, Registry, measure_build
from moot.metrics.process import measure_process
from moot.xprotocol.adapter.telemetry.adapter_metrics import ADAPTER_METRICS
from tests.rows import for_each_row

LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
SAMPLE = re.compile(
    rf"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{{({LABEL}(?:,{LABEL})*)\}})? (-?[0-9][0-9.e+-]*|\+Inf|-Inf|NaN)"
)


def counter(registry: Registry, name: str, help: str, **labels: str) -> Number:
    return MetricTable().counter(name, help, *labels).of(registry, **labels)


def gauge(registry: Registry, name: str, help: str, **labels: str) -> Number:
    return MetricTable().gauge(name, help, *labels).of(registry, **labels)


def histogram(
    registry: Registry, name: str, help: str, bounds: Sequence[float] = SECONDS, **labels: str
) -> Histogram:
    return MetricTable().histogram(name, help, *labels, bounds=bounds).of(registry, **labels)


def parsed(text: str) -> dict[str, dict[str, float]]:
    """Family → sample with its labels → value; fails on anything that is not in the format."""
    assert text.endswith("\n") or not text
    families: dict[str, dict[str, float]] = {}
    type = family = ""
    lines = text.split("\n")[:-1]
    for index, line in enumerate(lines):
        if line.startswith("# HELP "):
            family = line.split(" ")[2]
            assert family not in families, "the lines of a family stand together"
            assert lines[index + 1].startswith(f"# TYPE {family} ")
            families[family] = {}
        elif line.startswith("# TYPE "):
            type = line.rpartition(" ")[2]
            assert type in ("counter", "gauge", "histogram")
        else:
            found = SAMPLE.fullmatch(line)
            assert found is not None, line
            suffixes = ("_bucket", "_sum", "_count") if type == "histogram" else ("",)
            assert found[1] in {family + suffix for suffix in suffixes}
            key = line.rpartition(" ")[0]
            assert key not in families[family], "no sample twice"
            families[family][key] = float(found[3])
    return families


def test_an_empty_registry_says_nothing() -> None:
    assert Registry().exposition() == ""


def test_counters_and_gauges_are_one_line_each() -> None:
    registry = Registry()
    counter(registry, "moot_messages_total", "Envelopes accepted.").value += 3
    gauge(registry, "moot_members", "Members present.", space="lab").value = 2.5
    assert registry.exposition() == (
        "# HELP moot_members Members present.\n"
        "# TYPE moot_members gauge\n"
        'moot_members{space="lab"} 2.5\n'
        "# HELP moot_messages_total Envelopes accepted.\n"
        "# TYPE moot_messages_total counter\n"
        "moot_messages_total 3\n"
    )
    assert CONTENT_TYPE == "text/plain; version=0.0.4; charset=utf-8"


def test_a_histogram_counts_upwards_and_a_bound_belongs_to_its_bucket() -> None:
    registry = Registry()
    seconds = histogram(registry, "moot_join_seconds", "Time to join.", bounds=(0.5, 1), space="lab")
    for value in (0.25, 0.5, 0.75, 1, 3):
        seconds.observe(value)
    assert (seconds.count, seconds.sum) == (5, 5.5)
    assert registry.exposition() == (
        "# HELP moot_join_seconds Time to join.\n"
        "# TYPE moot_join_seconds histogram\n"
        'moot_join_seconds_bucket{space="lab",le="0.5"} 2\n'
        'moot_join_seconds_bucket{space="lab",le="1"} 4\n'
        'moot_join_seconds_bucket{space="lab",le="+Inf"} 5\n'
        'moot_join_seconds_sum{space="lab"} 5.5\n'
        'moot_join_seconds_count{space="lab"} 5\n'
    )


def test_the_same_name_and_labels_are_the_same_metric() -> None:
    registry = Registry()
    first = counter(registry, "x_total", "X.", space="a", code="b")
    assert counter(registry, "x_total", "X.", code="b", space="a") is first
    assert counter(registry, "x_total", "X.", code="c", space="a") is not first


def test_what_stands_in_labels_and_help_is_escaped() -> None:
    registry = Registry()
    gauge(registry, "x", 'a "b" \\ c\nd', label='a "b" \\ c\nd')
    assert registry.exposition().splitlines() == [
        r'# HELP x a "b" \\ c\nd',
        "# TYPE x gauge",
        r'x{label="a \"b\" \\ c\nd"} 0',
    ]


def test_a_gauge_can_be_read_when_it_is_asked_for() -> None:
    registry = Registry()
    members = ["a"]
    gauge(registry, "x", "X.").read = lambda: len(members)
    gauge(registry, "x", "X.")
    members.append("b")
    assert registry.exposition().endswith("x 2\n")


@for_each_row(
    ("value", "text"),
    [
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (math.nan, "NaN"),
        (1e21, "1e+21"),
        (0.1, "0.1"),
        (True, "1"),
        (False, "0"),
        (2**60, str(2**60)),
    ],
)
def test_numbers_are_written_as_go_reads_them(value: float, text: str) -> None:
    registry = Registry()
    gauge(registry, "x", "X.").value = value
    assert registry.exposition().endswith(f"x {text}\n")


def test_metrics_of_what_is_gone_are_forgotten() -> None:
    registry = Registry()
    for space in ("a", "b"):
        counter(registry, "x_total", "X.", space=space, code="c")
        histogram(registry, "y", "Y.", space=space)
    gauge(registry, "z", "Z.")
    registry.remove(space="a")
    text = registry.exposition()
    assert 'space="a"' not in text
    assert 'space="b"' in text
    assert "z 0" in text


def test_everything_that_is_written_is_in_the_format() -> None:
    registry = Registry()
    words = ["", "plain", 'quo"te', "back\\slash", "line\nend", "ümläut", "a,b={}"]
    for word in words:
        counter(registry, "a_total", "A.", word=word, other=word).value = 1.5
        histogram(registry, "b_seconds", word, word=word).observe(0.01)
        histogram(registry, "c_bytes", "C.", bounds=(256.0, 1_024.0), word=word).observe(10**9)
    families = parsed(registry.exposition())
    assert set(families) == {"a_total", "b_seconds", "c_bytes"}
    assert len(families["a_total"]) == len(words)
    assert len(families["b_seconds"]) == len(words) * (len(SECONDS) + 3)
    for family, samples in families.items():
        for key, value in samples.items():
            if 'le="+Inf"' in key and family != "a_total":
                assert value == 1


@pytest.mark.parametrize("name", ["", "1x_total", "a-b_total", "a b_total", "ä_total"])
def test_a_name_that_prometheus_does_not_take_is_refused(name: str) -> None:
    with pytest.raises(UsageError):
        counter(Registry(), name, "X.")


def test_misuse_is_refused() -> None:
    registry = Registry()
    counter(registry, "x_total", "X.", space="a")
    with pytest.raises(UsageError, match="is a counter"):
        gauge(registry, "x_total", "X.", space="a")
    with pytest.raises(UsageError, match="with the labels"):
        counter(registry, "x_total", "X.")
    with pytest.raises(UsageError, match="ends in _total"):
        counter(registry, "x", "X.")
    with pytest.raises(UsageError, match="no name for a label"):
        counter(registry, "y_total", "Y.", **{"a-b": "c"})
    with pytest.raises(UsageError, match="no name for a label"):
        gauge(registry, "y", "Y.", __name__="c")
    with pytest.raises(UsageError, match="the histogram's own"):
        histogram(registry, "y", "Y.", le="1")
    for bounds in ((), (1.0, 1.0), (2.0, 1.0), (1.0, math.inf)):
        with pytest.raises(UsageError, match="have to rise"):
            histogram(registry, "y", "Y.", bounds=bounds)


def test_a_description_is_registered_as_it_says_and_not_otherwise() -> None:
    described = MetricTable().histogram("x_seconds", "X.", "space", bounds=(0.5, 1.0))
    registry = Registry()
    described.of(registry, space="lab").observe(0.7)
    assert 'x_seconds_bucket{space="lab",le="1.0"} 1' in registry.exposition()
    with pytest.raises(UsageError, match="is described as a histogram with the labels"):
        described.of(registry)


def test_every_metric_that_we_describe_follows_the_conventions() -> None:
    """Base units, a suffix that says the unit or `_total`, few labels, and a help that is a sentence."""
    for each in {*GATEWAY_METRICS, *CLUSTER_METRICS, *ADAPTER_METRICS}:
        assert re.fullmatch(r"(moot|process)_[a-z_]+", each.name)
        assert each.name.endswith("_total") == (each.type == "counter"), each.name
        assert each.type != "histogram" or each.name.endswith(("_seconds", "_bytes")), each.name
        assert not re.search(r"_(ms|milliseconds|minutes|kb|mb)(_|$)", each.name)
        assert each.help.endswith((".", ").")), each.help
        known = {"space", "shard", "code", "outcome", "source", "version", "python", "compiled"}
        assert set(each.labels) <= known


def test_the_process_tells_of_itself() -> None:
    registry = Registry()
    measure_process(registry)
    measure_build(registry, version="1.2", is_compiled=True)
    found = {
        sample.name: sample
        for family in text_string_to_metric_families(registry.exposition())
        for sample in family.samples
    }
    assert found["process_cpu_seconds_total"].value > 0
    assert 1.6e9 < found["process_start_time_seconds"].value <= time.time()
    assert found["process_resident_memory_bytes"].value > 1 << 20
    assert 0 < found["process_open_fds"].value < found["process_max_fds"].value
    labels = {"version": "1.2", "python": platform.python_version(), "compiled": "true"}
    assert (found["moot_build_info"].labels, found["moot_build_info"].value) == (labels, 1)


def test_counting_is_an_attribute_and_nothing_more() -> None:
    """No call, no lock, no dictionary: that is why it is cheap."""
    assert not hasattr(Number(), "__dict__")
