"""Who lives, from the log alone; and what one message of the log holds."""

from __future__ import annotations

import msgspec
import pytest

from moot.errors import UsageError
from moot.gateway.cluster.cluster_shard import LogClock
from moot.gateway.cluster.nats.batch import (
    FORMAT,
    BatchHead,
    InputParts,
    LogBatch,
    LoggedInput,
    decode_batch,
    encode_batch,
    encode_inputs,
    encode_part,
)
from moot.gateway.cluster.nats.gateway_table import GatewayTable
from moot.gateway.hosting.mint import FreshMint, SeededMint


def table_of(*names: str, gone_beats: int = 3) -> GatewayTable:
    table = GatewayTable(gone_beats)
    for name in names:
        table.note_batch(name, 1)
    return table


def test_who_is_silent_while_another_beats_is_gone() -> None:
    table = table_of("a", "b")
    assert [table.note_beat("a", float(time)) for time in range(3)] == [[], [], ["b"]]
    assert table.living() == ["a"]
    assert table.note_beat("a", 9.0) == []


def test_whatever_it_writes_shows_that_it_lives() -> None:
    table = table_of("a", "b")
    for time in range(20):
        table.note_batch("b", 1)
        assert table.note_beat("a", float(time)) == []


def test_heartbeats_of_several_others_are_not_added_up() -> None:
    """Twelve gateways that beat once each are one second, not twelve."""
    table = table_of("a", "b", "c", "d")
    for time in range(2):
        assert [table.note_beat(name, float(time)) for name in ("b", "c", "d")] == [[], [], []]
        for name in ("b", "c", "d"):
            table.note_batch(name, 1)
    assert "a" in table.living()


def test_what_an_earlier_process_wrote_late_does_not_count() -> None:
    table = table_of("a")
    assert table.note_batch("a", 2)
    assert not table.note_batch("a", 1)
    assert table.known["a"].epoch == 2


def test_a_table_is_the_same_from_a_snapshot() -> None:
    table = table_of("a", "b")
    table.note_beat("a", 1.0)
    other = GatewayTable(3)
    other.load(table.save())
    for each in (table, other):
        each.note_beat("a", 2.0)
    assert table.note_beat("a", 3.0) == other.note_beat("a", 3.0) == ["b"]


def test_time_passes_while_the_clock_of_nats_stands_still() -> None:
    """A grant for an hour must not last for two because somebody set a clock back."""
    table, clock = table_of("a"), LogClock()
    for _ in range(100):
        at = max(1_000.0, table.earliest_time("a", 1, 1.0))
        table.note_beat("a", clock.advance(at))
    assert 1_089 < clock() < 1_100


def test_time_never_goes_back_and_no_two_messages_have_the_same() -> None:
    clock = LogClock()
    times = [clock.advance(at) for at in (5.0, 5.0, 3.0, 6.0)]
    assert times == sorted(set(times))
    assert times[-1] == 6.0


def test_every_gateway_makes_the_same_ids_of_a_seed() -> None:
    one, other, third = SeededMint(b"s"), SeededMint(b"s"), SeededMint(b"t")
    ids = [one.id() for _ in range(3)]
    assert ids == [other.id() for _ in range(3)]
    assert len({*ids, *(third.id() for _ in range(3))}) == 6


def test_a_seed_makes_no_tokens() -> None:
    """A token that can be computed from the log would be everybody's."""
    token = FreshMint().token()
    assert SeededMint(b"s", [token]).token() is token
    with pytest.raises(UsageError, match="more tokens"):
        SeededMint(b"s").token()


def test_a_batch_comes_back_as_it_was_written() -> None:
    head = BatchHead(FORMAT, "a", 2, 3, "00", beat=True)
    inputs = [LoggedInput(b'{"in":"receive"}', b'{"a":\n1}'), LoggedInput(b"{}", b"")]
    assert decode_batch(encode_batch(head, encode_inputs(inputs))) == LogBatch(head, inputs)


def test_an_input_in_parts_counts_when_the_last_one_is_there() -> None:
    data = encode_inputs([LoggedInput(b"{}", b"0123456789")])
    parts, head = InputParts(), BatchHead(FORMAT, "a", 1, 1, "00")

    def add(part: int, gateway: str = "a") -> list[LoggedInput]:
        written = encode_part(msgspec.structs.replace(head, gateway=gateway), part, 2, data[part * 12 :][:12])
        return parts.add(*decode_batch(written)[::2])

    assert add(0) == [] == add(0, "b")
    assert parts
    assert add(1) == [LoggedInput(b"{}", b"0123456789")]
    parts.drop("b")
    assert not parts
    assert add(1, "b") == [], "its beginning was dropped"
    assert not parts
    assert add(0) == [] == add(0), "it was begun anew"
    assert add(1) == [LoggedInput(b"{}", b"0123456789")]


def test_a_batch_that_is_cut_off_or_from_the_future_is_refused() -> None:
    whole = encode_batch(BatchHead(FORMAT, "a", 1, 1, "00"), encode_inputs([LoggedInput(b"{}", b"xyz")]))
    for size in range(len(whole) - 1, whole.index(b"\n") + 1, -1):
        with pytest.raises(UsageError):
            decode_batch(whole[:size])
    with pytest.raises(UsageError, match="run one version"):
        decode_batch(encode_batch(BatchHead(FORMAT + 2, "b", 1, 1, "00"), b""))


def test_a_clock_that_begins_at_a_snapshot_goes_on_as_those_that_ran_while_nats_clock_was_set_back() -> None:
    """Otherwise states differ by parts of a microsecond, and the gateway ends itself at the next snapshot."""
    live = LogClock()
    live.advance(1794886944.3201)
    for _ in range(5_000):
        before = live.latest
        live.advance(1794883344.0)
        assert live.latest > before
        loaded = LogClock()
        assert loaded.advance(live.latest) == live.latest
