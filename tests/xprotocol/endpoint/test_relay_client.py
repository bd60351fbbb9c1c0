"""The client of relays, over real sockets: fall-back, restarts, slow listeners, hostile relays."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path
from random import Random

import orjson
import pytest
from websockets.asyncio.server import ServerConnection, serve

from moot.errors import OutboxFull, TimedOut, Unreachable, UsageError
from moot.xprotocol.endpoint import relay_client
from moot.xprotocol.endpoint.relay_client import RelayClient
from moot.xprotocol.endpoint.relay_subscriptions import RelayRefused, RelaySubscription
from tests.waiting import HANG_SECONDS, bounded, until
from tests.xprotocol.endpoint.relay_proxy import proxied_relay
from tests.xprotocol.people import ALICE, BOB
from tests.xprotocol.relay.raw_client import announce, event, relay_in

BOBS = [{"recipients": [BOB.key.text]}]
quick_relay_client = partial(RelayClient, reconnect_interval_seconds=0.05)


async def received_ids(subscription: RelaySubscription, count: int) -> list[str]:
    found = []
    async with bounded():
        async for raw in subscription:
            found.append(orjson.loads(raw)["id"])
            if len(found) == count:
                break
    return found


async def nothing_more(subscription: RelaySubscription, alice: RelayClient) -> None:
    """The next event that is sent is the next that is heard."""
    last = event()
    await alice.publish(last)
    assert await received_ids(subscription, 1) == [last.event.id]


async def test_a_published_event_has_an_ok_and_reaches_its_listener(tmp_path: Path) -> None:
    async with (
        relay_in(tmp_path) as relay,
        quick_relay_client([relay.url], ALICE) as alice,
        quick_relay_client([relay.url], BOB) as bob,
    ):
        early, late = event(), event()
        assert await alice.publish(early) == relay.url
        subscription = bob.subscribe(BOBS)
        await subscription.wait_stored()
        await alice.publish(late)
        assert await received_ids(subscription, 2) == [early.event.id, late.event.id]
        # To publish it again is no news to anybody.
        assert await alice.publish(late) == relay.url
        await nothing_more(subscription, alice)
        await subscription.close()
        with pytest.raises(StopAsyncIteration):
            await anext(subscription)


async def test_with_the_first_relay_down_the_next_is_used_and_the_first_again_when_it_is_back(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """XP 3.1: the first address is preferred, the rest is fall-back."""
    first = f"ws://127.0.0.1:{port}"
    changes: list[str | None] = []
    monkeypatch.setattr("moot.xprotocol.endpoint.relay_client.PREFERRED_RETRY_SECONDS", 0.3)
    async with relay_in(tmp_path / "b") as second:
        urls = [first, second.url]
        async with quick_relay_client(urls, ALICE, on_change=changes.append) as alice:
            sent = event()
            assert await alice.publish(sent) == second.url
            assert await second.store.get(sent.event.id) == sent.raw
            async with relay_in(tmp_path / "a", port=port):
                await until(lambda: alice.url == first)
                assert await alice.publish(event()) == first
            # And back, without anybody asking.
            assert await alice.publish(event()) == second.url
    assert [change for change in changes if change] == [second.url, first, second.url]


async def test_retries_are_as_far_apart_as_reconnect_interval_seconds_says() -> None:
    moments: list[float] = []
    enough = asyncio.Event()

    async def turn_away(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        moments.append(time.monotonic())
        writer.close()
        if len(moments) == 4:
            enough.set()

    server = await asyncio.start_server(turn_away, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    url = f"ws://127.0.0.1:{port}"
    began = time.monotonic()
    async with server, RelayClient([url], ALICE, reconnect_interval_seconds=0.25) as alice:
        await asyncio.wait_for(enough.wait(), HANG_SECONDS)
        with pytest.raises(Unreachable, match=f"no relay of {url}"):
            await alice.wait_connected(0.01)
        with pytest.raises(TimedOut, match="no relay confirmed"):
            await alice.publish(event(), timeout_seconds=0.05)
    # From the start: a connection that was noticed late is nearer to the next. Timers may be a bit early.
    assert moments[3] - began >= 3 * 0.25 - 0.02
    assert relay_client.RECONNECT_INTERVAL_SECONDS == 5


async def test_nothing_is_lost_or_doubled_when_a_relay_restarts_again_and_again(
    tmp_path: Path, port: int
) -> None:
    url = f"ws://127.0.0.1:{port}"
    sent = [event(correlation_id=f"c-{number}") for number in range(150)]
    async with quick_relay_client([url], ALICE) as alice, quick_relay_client([url], BOB) as bob:
        subscription = bob.subscribe(BOBS)
        listening = asyncio.create_task(received_ids(subscription, len(sent)))

        published: list[object] = []

        async def publish_all() -> None:
            for one in sent:
                await alice.publish(one)
                published.append(one)

        publishing = asyncio.create_task(publish_all())
        for number in range(4):
            async with relay_in(tmp_path, port=port):
                # It goes away in the middle of what is sent: a fifth each time.
                await until(lambda share=number: len(published) > 30 * share)  # type: ignore[misc]
        async with relay_in(tmp_path, port=port):
            await publishing
            found = await listening
            assert sorted(found) == sorted(one.event.id for one in sent)
            await nothing_more(subscription, alice)


async def test_a_relay_that_drops_delays_reorders_and_repeats_loses_nothing_and_doubles_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it drops is asked for again after a break; so the proxy also breaks connections."""
    draw = Random(7)
    held: list[bytes] = []

    def mangle(from_relay: bool, message: bytes) -> list[bytes]:
        if not message.startswith((b'["EVENT"', b'["OK","' + b"")) or b'"auth"' in message[:12]:
            return [message]
        chance = draw.random()
        if chance < 0.1:
            return []
        if chance < 0.2:
            return [message, message]
        if from_relay and message.startswith(b'["EVENT"') and chance < 0.4:
            # Kept back, and let go in another order later.
            held.append(message)
            return []
        if from_relay and held and chance < 0.6:
            draw.shuffle(held)
            out, held[:] = [message, *held], []
            return out
        return [message]

    async with proxied_relay(tmp_path) as (relay, proxy):
        proxy.mangle = mangle
        monkeypatch.setattr("moot.xprotocol.endpoint.relay_session.OK_TIMEOUT_SECONDS", 0.3)
        async with (
            quick_relay_client([proxy.url], ALICE) as alice,
            quick_relay_client([proxy.url], BOB) as bob,
        ):
            subscription = bob.subscribe(BOBS)
            sent = [event() for _ in range(40)]
            listening = asyncio.create_task(received_ids(subscription, len(sent)))
            for start in range(0, len(sent), 8):
                await asyncio.gather(*(alice.publish(one) for one in sent[start : start + 8]))
            # Whatever was acknowledged is there.
            for one in sent:
                assert await relay.store.get(one.event.id) == one.raw
            while not listening.done():
                held.clear()
                await proxy.cut()
                await asyncio.wait([listening], timeout=0.5)
            assert sorted(listening.result()) == sorted(one.event.id for one in sent)
            proxy.mangle = lambda _from_relay, message: [message]
            await nothing_more(subscription, alice)


async def test_a_relay_that_withholds_its_ok_is_left_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with proxied_relay(tmp_path / "a") as (_, proxy), relay_in(tmp_path / "b") as other:
        proxy.mangle = lambda from_relay, message: (
            [] if from_relay and message.startswith(b'["OK"') and b"auth" not in message else [message]
        )
        monkeypatch.setattr("moot.xprotocol.endpoint.relay_client.PREFERRED_RETRY_SECONDS", 60)
        monkeypatch.setattr("moot.xprotocol.endpoint.relay_session.OK_TIMEOUT_SECONDS", 0.2)
        async with quick_relay_client([proxy.url, other.url], ALICE) as alice:
            sent = event()
            assert await alice.publish(sent) == other.url
            assert await other.store.get(sent.event.id) == sent.raw


async def test_a_forgery_under_the_id_of_an_event_does_not_hide_it(tmp_path: Path) -> None:
    async with proxied_relay(tmp_path) as (_, proxy):

        def forge(from_relay: bool, message: bytes) -> list[bytes]:
            if from_relay and message.startswith(b'["EVENT"'):
                return [message.replace(b'"c-1"', b'"c-2"'), message]
            return [message]

        proxy.mangle = forge
        async with (
            quick_relay_client([proxy.url], ALICE) as alice,
            quick_relay_client([proxy.url], BOB) as bob,
        ):
            subscription = bob.subscribe(BOBS)
            sent = event()
            await alice.publish(sent)
            async with bounded():
                found = [await anext(subscription), await anext(subscription)]
            assert sent.raw in found


async def test_a_listener_that_is_slow_holds_a_bounded_queue_and_still_hears_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.xprotocol.endpoint.relay_subscriptions.MAX_QUEUED_EVENTS", 8)
    async with (
        relay_in(tmp_path) as relay,
        quick_relay_client([relay.url], ALICE) as alice,
        quick_relay_client([relay.url], BOB) as bob,
    ):
        subscription = bob.subscribe(BOBS)
        await subscription.wait_stored()
        sent = [event(payload={"text": "x" * 30_000}) for _ in range(120)]
        for start in range(0, len(sent), 30):
            await asyncio.gather(*(alice.publish(one) for one in sent[start : start + 30]))
        # What one read from the socket brings may come on top.
        assert len(subscription._queue) < 40
        # The other connection still works: nobody waits for an OK behind unread events.
        await bob.publish(announce(BOB))
        assert sorted(await received_ids(subscription, len(sent))) == sorted(one.event.id for one in sent)
        await nothing_more(subscription, alice)


async def test_what_a_relay_will_never_take_is_said_at_once_and_what_it_takes_later_is_sent_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("moot.xprotocol.relay.relay.MAX_SENDER_BURST_EVENTS", 2)
    monkeypatch.setattr("moot.xprotocol.relay.relay.SENDER_EVENTS_PER_SECOND", 5)
    async with relay_in(tmp_path) as relay, quick_relay_client([relay.url], ALICE) as alice:
        old = event(now=time.time() - 9_000, ttl=60)
        with pytest.raises(RelayRefused, match="expired"):
            await alice.publish(old)
        urls = await asyncio.gather(*(alice.publish(event()) for _ in range(5)))
        assert urls == [relay.url] * 5


async def test_a_subscription_that_a_relay_refuses_ends_with_its_words(tmp_path: Path) -> None:
    async with relay_in(tmp_path) as relay, quick_relay_client([relay.url], ALICE) as alice:
        with pytest.raises(RelayRefused, match="restricted"):
            await anext(alice.subscribe(BOBS))
        with pytest.raises(RelayRefused, match="invalid"):
            await alice.subscribe([{"kindz": ["x"]}]).wait_stored()
        with pytest.raises(UsageError, match="needs a filter"):
            alice.subscribe([])


async def test_more_events_than_max_pending_events_are_refused_before_they_are_sent(port: int) -> None:
    url = f"ws://127.0.0.1:{port}"
    async with RelayClient([url], ALICE, max_pending_events=2) as alice:
        waiting = [
            asyncio.create_task(alice.publish(event(), timeout_seconds=HANG_SECONDS)) for _ in range(2)
        ]
        await asyncio.sleep(0)
        with pytest.raises(OutboxFull, match="max_pending_events is 2"):
            await alice.publish(event())
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_an_event_that_finds_no_room_while_others_are_sent_again_is_sent_too() -> None:
    class FullSession:
        url = "ws://full"
        has_room = asyncio.Event()
        waited_for = asyncio.Event()

        def __init__(self) -> None:
            self.sent: list[bytes] = []

        def publish(self, raw: bytes) -> None:
            if not self.has_room.is_set():
                raise OutboxFull("full")
            self.sent.append(raw)

        async def writable(self) -> None:
            self.waited_for.set()
            await self.has_room.wait()

    alice, session, events = quick_relay_client(["ws://full"], ALICE), FullSession(), [event(), event()]
    alice._session = session  # type: ignore[assignment]
    publishing = []
    async with bounded():
        for each in events:
            publishing.append(asyncio.create_task(alice.publish(each, timeout_seconds=HANG_SECONDS)))
            # The second comes while the first waits for room.
            await session.waited_for.wait()
        await asyncio.sleep(0)
        session.has_room.set()
        assert alice._resending is not None
        await alice._resending
    assert session.sent == [each.raw for each in events]
    await alice.close()
    assert len(await asyncio.gather(*publishing, return_exceptions=True)) == 2


@pytest.mark.parametrize(
    "says",
    [
        ["garbage"] * 100,
        ['["AUTH"]', "[", "[]", '["EVENT"]', '["OK",1,2,3]', "{}", "null", "[" * 5_000] * 10,
        ['["AUTH","c"]', '["OK","auth",false,"restricted: not you"]'],
        [],
    ],
)
async def test_what_is_no_relay_is_left_and_the_next_is_used(
    tmp_path: Path, says: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def talk_nonsense(client: ServerConnection) -> None:
        for one in says:
            await client.send(one)
        await client.wait_closed()

    monkeypatch.setattr("moot.xprotocol.endpoint.relay_client.PREFERRED_RETRY_SECONDS", 60)
    monkeypatch.setattr("moot.xprotocol.endpoint.relay_session.AUTH_TIMEOUT_SECONDS", 0.3)
    async with (
        serve(talk_nonsense, "127.0.0.1", 0, close_timeout=1) as server,
        relay_in(tmp_path) as relay,
    ):
        url = f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"
        async with quick_relay_client([url, relay.url], ALICE) as alice:
            assert await alice.wait_connected(HANG_SECONDS) == relay.url


def test_addresses_that_are_none_are_refused_with_words() -> None:
    for urls in ([], ["http://relay.example"], ["relay.example"], ["ws://user:secret@relay.example"]):
        with pytest.raises(UsageError, match="relay"):
            RelayClient(urls, ALICE)
