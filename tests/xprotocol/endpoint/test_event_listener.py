"""What an endpoint does with what a relay tells it: read within bounds, verified, acted on once."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moot.xprotocol.endpoint import relay_messages
from moot.xprotocol.endpoint.relay_client import RelayClient
from moot.xprotocol.endpoint.relay_messages import (
    Challenge,
    EndOfStored,
    InvalidRelayMessage,
    PublishResult,
    RelayEvent,
    RelayNotice,
    SubscriptionClosed,
)
from moot.xprotocol.endpoint.relay_subscriptions import RelaySubscription, SubscriptionMemory
from moot.xprotocol.event_store.event_store import EventStore
from moot.xprotocol.events.event_receiver import Accepted, Dropped, Outcome
from tests.waiting import bounded
from tests.xprotocol.endpoint.relay_proxy import proxied_relay
from tests.xprotocol.people import ALICE, BOB, ReceivingEndpoint
from tests.xprotocol.relay.raw_client import event, relay_in


def test_every_message_of_a_relay_is_read() -> None:
    assert relay_messages.parse_message(b'["EVENT","s1",{"a":1}]') == RelayEvent("s1", b'{"a":1}')
    assert relay_messages.parse_message(b'[ "EVENT", "s1", {"a": 1} ]') == RelayEvent("s1", b'{"a": 1}')
    assert relay_messages.parse_message(b'["OK","ab",false,"full: no"]') == PublishResult(
        "ab", False, "full: no"
    )
    assert relay_messages.parse_message(b'["EOSE","s1"]') == EndOfStored("s1")
    assert relay_messages.parse_message(b'["CLOSED","s1","x"]') == SubscriptionClosed("s1", "x")
    assert relay_messages.parse_message(b'["NOTICE","x"]') == RelayNotice("x")
    assert relay_messages.parse_message(b'["AUTH","c"]') == Challenge("c")
    assert len(relay_messages.parse_message(b'["NOTICE","%b"]' % (b"x" * 9_000)).reason) == 500  # type: ignore[union-attr]


@given(st.binary(max_size=200) | st.text(max_size=100).map(lambda text: f'["EVENT","s",{text}]'.encode()))
def test_whatever_a_relay_sends_is_a_message_or_none(data: bytes) -> None:
    with suppress(InvalidRelayMessage):
        assert relay_messages.parse_message(data)


async def test_after_a_break_a_subscription_asks_from_the_overlap_on_and_only_where_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("moot.xprotocol.endpoint.relay_subscriptions.OVERLAP_SECONDS", 1_000)
    wishes: list[dict[str, Any]] = [
        {"recipients": ["k"], "limit": 5},
        {"kinds": ["xp.key.revoke"]},
        {"recipients": ["k"], "since": 9_500},
    ]
    subscription = RelaySubscription("s1", wishes, lambda: None, lambda _: None)
    assert subscription.filters_for("ws://a") == wishes
    subscription.set_complete_until("ws://a", 10_000.7)
    assert subscription.filters_for("ws://a") == [
        {"recipients": ["k"], "since": 9_000},
        # A revocation may come to a relay however late.
        {"kinds": ["xp.key.revoke"]},
        {"recipients": ["k"], "since": 9_500},
    ]
    assert subscription.filters_for("ws://b") == wishes


def test_the_memory_of_heard_events_is_bounded_and_forgets_the_oldest() -> None:
    memory = SubscriptionMemory(2)
    assert [memory.is_new(raw) for raw in (b"a", b"b", b"a", b"c", b"b", b"a")] == [
        True,
        True,
        False,
        True,
        False,
        True,
    ]


async def test_an_event_that_a_relay_tells_again_after_a_restart_is_not_acted_on_twice(
    tmp_path: Path,
) -> None:
    """xp1, Replay: seen ids are kept on disk until they expire."""

    async def lives_once(url: str) -> Outcome:
        """An endpoint that starts, takes one event through all checks, and stops."""
        store = EventStore.open(tmp_path / "bob")
        endpoint = ReceivingEndpoint()
        endpoint.seen_ids = store.seen_ids  # type: ignore[assignment]
        async with RelayClient([url], BOB) as bob:
            subscription = bob.subscribe([{"recipients": [BOB.key.text]}])
            async with bounded():
                raw = await anext(subscription)
        outcome = endpoint.receiver.receive(raw, time.time())
        await store.seen_ids.wait_committed()
        await store.close()
        return outcome

    async with relay_in(tmp_path / "relay") as relay:
        async with RelayClient([relay.url], ALICE) as alice:
            await alice.publish(event())
        assert isinstance(await lives_once(relay.url), Accepted)
        again = await lives_once(relay.url)
        assert isinstance(again, Dropped)
        assert again.reason == "seen"


@pytest.mark.parametrize(
    ("reason", "before", "after"),
    [
        ("id", b'"c-1"', b'"c-2"'),
        ("signature", b'"signature":"ed25519:', b'"signature":"ed25519:AA'),
        ("malformed", b'"v":"xp1"', b'"v":"xp2"'),
        ("malformed", b'"v":"xp1"', b'"v":"xp1","v":"xp1"'),
    ],
)
async def test_what_a_relay_changes_in_an_event_is_dropped_by_the_receiver(
    tmp_path: Path, reason: str, before: bytes, after: bytes
) -> None:
    async with proxied_relay(tmp_path) as (_, proxy):
        proxy.mangle = lambda from_relay, message: [
            message.replace(before, after) if from_relay and message.startswith(b'["EVENT"') else message
        ]
        async with RelayClient([proxy.url], ALICE) as alice, RelayClient([proxy.url], BOB) as bob:
            subscription = bob.subscribe([{"recipients": [BOB.key.text]}])
            await alice.publish(event())
            async with bounded():
                outcome = ReceivingEndpoint().receiver.receive(await anext(subscription), time.time())
            assert isinstance(outcome, Dropped)
            assert outcome.reason == reason
