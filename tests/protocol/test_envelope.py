"""Members of an envelope, and the fewest bytes changed (MEW 3, D-05 to D-07, D-19)."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moot.errors import InvalidEnvelope
from moot.protocol.dialects import MEW
from moot.protocol.envelope import (
    EnvelopeLimits,
    append_members,
    check_context,
    check_id,
    check_names,
    check_timestamp,
    fill_missing,
    readdress,
    rewrite,
    rfc3339,
)
from tests.examples import examples
from tests.protocol.corpus import TS, read, text
from tests.rows import for_each_row

LIMITS = EnvelopeLimits()
MISSING = ("protocol", "id", "ts", "from")
ODD = b'{ "kind" : "chat" , "x" : 1.50 , "payload" : { "n" : 1E2, "t" : "\\u00e9" } }\n'


@for_each_row(
    "ts",
    [
        "2026-01-31T12:00:00Z",
        "2026-01-31T12:00:00.123Z",
        "2026-01-31T12:00:00.1Z",
        "2026-01-31T12:00:00.123456789Z",
        "2026-01-31T12:00:00+01:00",
        "2026-01-31T12:00:00.5-23:59",
        "2026-01-31t12:00:00z",
        "2026-01-31 12:00:00Z",
        "2016-12-31T23:59:60Z",
        "2024-02-29T00:00:00Z",
        "0000-02-29T00:00:00Z",
        "2026-01-31T00:00:00-00:00",
    ],
)
@pytest.mark.requirement("MEW-3-4", "MCPX-3-4")
def test_a_timestamp_of_rfc_3339_is_taken_as_it_is(ts: str) -> None:
    check_timestamp(ts)
    assert read("mew", "chat", ts=ts).ts == ts


@pytest.mark.requirement("MEW-3-4")
@pytest.mark.parametrize("ts", ["2026-02-29T00:00:00Z", "2026-04-31T00:00:00Z", "2100-02-29T00:00:00.000Z"])
def test_a_day_that_does_not_exist_is_named(ts: str) -> None:
    with pytest.raises(InvalidEnvelope, match=ts[:10]):
        check_timestamp(ts)


def test_limits_are_named_when_they_are_hit() -> None:
    small = EnvelopeLimits(max_bytes=100)
    with pytest.raises(InvalidEnvelope, match="longer than 256 characters"):
        check_id("x" * 257)
    with pytest.raises(InvalidEnvelope, match="more than 1 entries"):
        check_names(["a", "b"], "to", 1)
    with pytest.raises(InvalidEnvelope, match="at most 256 characters"):
        check_names(["x" * 257], "to", 1)
    with pytest.raises(InvalidEnvelope, match="at most 1024 characters"):
        check_context("x" * 1025)
    with pytest.raises(InvalidEnvelope, match="max_bytes 100"):
        MEW.decode(text("mew", "chat", payload={"text": "x" * 100}), small)


def test_a_member_is_replaced_where_it_stood_and_all_others_keep_their_bytes() -> None:
    assert rewrite(ODD, {"kind": "chat/cancel", "new": [1]}) == (
        b'{"kind":"chat/cancel","x":1.50,"payload":{ "n" : 1E2, "t" : "\\u00e9" },"new":[1]}'
    )


def test_a_member_is_removed_and_one_that_is_not_there_stays_away() -> None:
    assert rewrite(ODD, {"x": None, "y": None}) == (
        b'{"kind":"chat","payload":{ "n" : 1E2, "t" : "\\u00e9" }}'
    )


def test_members_are_added_before_the_last_brace() -> None:
    assert append_members(ODD, {"id": "e1"}) == ODD.rstrip()[:-1] + b',"id":"e1"}'


@settings(max_examples=examples(25), derandomize=True, deadline=None)
@given(st.sets(st.sampled_from(MISSING)), st.booleans())
@pytest.mark.requirement("MEW-8.1-14")
def test_what_is_missing_is_filled_and_what_was_given_keeps_its_bytes(absent: set[str], odd: bool) -> None:
    """D-05."""
    fields = json.loads(text("mew", "chat", payload={"text": "hi"}, x_unknown=[1.5]))
    kept = {name: value for name, value in fields.items() if name not in absent}
    raw = json.dumps(kept, indent=2 if odd else None).encode()
    envelope = MEW.decode(raw)
    assert envelope.missing == tuple(name for name in MISSING if name in absent)

    whole = fill_missing(envelope, protocol="mew/v0.4", id="new", ts="2027-01-01T00:00:00Z", sender="me")

    assert whole.raw.startswith(raw[:-1])
    filled = {"protocol": "mew/v0.4", "id": "new", "ts": "2027-01-01T00:00:00Z", "from": "me"}
    assert json.loads(whole.raw) == {**kept, **{name: filled[name] for name in absent}}
    assert MEW.decode(whole.raw) == whole


def test_an_envelope_that_lacks_nothing_is_completed_by_itself() -> None:
    envelope = read("mew", "chat", payload={})
    assert fill_missing(envelope, protocol="mew/v0.4", id="x", ts=TS, sender="bob") is envelope


def test_addressing_by_runtime_id_changes_only_to() -> None:
    """D-19."""
    envelope = read("mew", "chat", to=["Bob"], payload={"text": "hi"}, x_unknown=1.50)
    moved = readdress(envelope, ["bob-2"])
    assert moved.to == ["bob-2"]
    assert moved.raw == envelope.raw.replace(b'["Bob"]', b'["bob-2"]')
    assert MEW.decode(moved.raw) == moved


def test_a_moment_is_written_in_utc_to_the_millisecond() -> None:
    assert rfc3339(1767182400.5) == "2025-12-31T12:00:00.500Z"
    check_timestamp(rfc3339(0.0))


@given(st.floats(-1e9, 4e9) | st.integers(0, 4_000_000_000).map(lambda second: second + 0.9999996))
def test_a_moment_is_written_as_the_standard_library_does_it(now: float) -> None:
    expected = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")
    assert rfc3339(now) == expected.replace("+00:00", "Z")
