"""Handlers and readers: order, bounds, and honest gaps."""

from __future__ import annotations

import asyncio
import functools
from pathlib import Path

import pytest

from moot.errors import OutboxFull
from moot.participant import JoinedSpace, MissedMessages
from moot.participant.connection.envelope_sender import SendCounts
from moot.participant.connection.message_feed import Feed, is_async
from moot.protocol.dialects import MEW
from moot.protocol.envelope import Envelope
from tests.participant.gateway_with_members import ReceivedEnvelopes, gateway_with, settled
from tests.waiting import until


async def test_a_slow_reader_gets_a_gap_and_the_newest() -> None:
    counts = SendCounts()
    feed: Feed[int] = Feed(3, counts)
    for n in range(10):
        feed.put(n)
    feed.end()
    items = [item async for item in feed]
    assert items == [MissedMessages("slow", 7), 7, 8, 9]
    assert counts.gaps == 7
    feed.put(11)
    assert [item async for item in feed] == []


async def test_readers_hear_everything_in_order_and_own_words_if_they_wish(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=["*"], bob=["*"]) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob")
        others, everything = alice.envelopes(), alice.envelopes(own=True)
        got: list[list[str]] = [[], []]

        async def read(index: int) -> None:
            async for item in (others, everything)[index]:
                if isinstance(item, Envelope) and item.kind == "chat":
                    got[index].append(item.payload["text"])

        tasks = [asyncio.create_task(read(index)) for index in range(2)]
        await asyncio.sleep(0)
        for n in range(20):
            await (alice if n % 2 else bob).chat(str(n))
        await settled(alice)
        await until(lambda: len(got[1]) == 20)
        assert got[1] == [str(n) for n in range(20)]
        assert got[0] == [str(n) for n in range(0, 20, 2)]
        for task in tasks:
            task.cancel()


async def test_handlers_by_kind_and_pattern_keep_the_order(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=["*"], bob=["*"]) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob")
        seen: list[tuple[str, str]] = []

        @alice.on("chat")
        async def slow(envelope: Envelope) -> None:
            await asyncio.sleep(0.001)
            seen.append(("slow", envelope.payload["text"]))

        @alice.on("chat/*")
        def more(envelope: Envelope) -> None:
            seen.append(("more", envelope.kind))

        @alice.on("vendor/*")
        def vendor(envelope: Envelope) -> None:
            seen.append(("vendor", envelope.kind))

        @alice.on("chat")
        def failing(envelope: Envelope) -> None:
            raise ValueError("a handler's own affair")

        @alice.on("chat")
        async def failing_later(envelope: Envelope) -> None:
            raise ValueError("a handler's own affair")

        for n in range(5):
            sent = await bob.chat(str(n))
        await bob.chats.cancel(sent)
        await bob.send("vendor/thing", {}, confirm=True)
        await alice.chat("own words are not for handlers")
        await until(lambda: len([1 for who, _ in seen if who == "slow"]) == 5)
        assert [text for who, text in seen if who == "slow"] == ["0", "1", "2", "3", "4"]
        assert ("more", "chat/cancel") in seen
        assert ("vendor", "vendor/thing") in seen
        assert alice.counts.failed_handlers == 10


async def test_a_flood_costs_a_slow_reader_items_and_never_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.participant.connection.message_feed.MAX_FEED_MESSAGES", 50)
    async with gateway_with(tmp_path, alice=["*"], bob=["*"]) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob")
        go = asyncio.Event()
        got: list[Envelope] = []

        @alice.on("chat")
        async def stuck(envelope: Envelope) -> None:
            await go.wait()
            got.append(envelope)

        feed = alice._parts.readers.open(10, own=False)
        for n in range(300):
            await bob.send("chat", {"text": str(n)})
        await settled(bob)
        await settled(alice)
        gap = await anext(feed)
        assert isinstance(gap, MissedMessages)
        assert gap.why == "slow"
        assert (gap.missed or 0) + len(feed) == 301
        assert len(feed) == 10
        go.set()
        await until(lambda: bool(got) and got[-1].payload["text"] == "299")
        assert len(got) <= 52
        assert alice.state == "joined"


async def test_a_few_huge_messages_do_not_fill_a_queue_either() -> None:
    feed: Feed[Envelope] = Feed(1000, SendCounts(), max_bytes=3_000)
    for n in range(5):
        raw = b'{"id":"%d","kind":"chat","payload":{"text":"%b"}}' % (n, b"x" * 1_000)
        feed.put(MEW.decode(raw))
    feed.end()
    items = [item async for item in feed]
    assert items[0] == MissedMessages("slow", 3)
    assert [item.id for item in items if isinstance(item, Envelope)] == ["3", "4"]


async def test_a_reader_hears_from_the_moment_it_was_asked_for(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=["*"], bob=["*"]) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob")
        reader = alice.envelopes()
        await bob.chat("before anybody iterates")
        async for item in reader:
            if isinstance(item, Envelope) and item.kind == "chat":
                assert item.payload["text"] == "before anybody iterates"
                break
        # Letting go of it closes it.
        assert len(alice._parts.readers.feeds) == 1
        del reader
        assert alice._parts.readers.feeds == []
        other = alice.envelopes()
        await other.aclose()
        assert [each async for each in other] == []


async def test_more_than_the_outbox_holds_is_refused_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.net.websocket_client.OUTBOX_BYTES", 200_000)
    async with gateway_with(tmp_path, alice=["*"]) as gateway:
        alice = await gateway.join("alice")
        with pytest.raises(OutboxFull, match="and 200000 may"):
            _flood(alice)
        await until(lambda: not alice._sender.socket.is_full)
        await alice.chat("after a breath")


async def test_what_nobody_waits_for_is_counted_when_refused(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=["*"]) as gateway:
        alice = await gateway.join("alice")
        received = ReceivedEnvelopes(alice)
        await alice.send("participant/resume", {}, to="nobody")
        error = await received.wait("system/error")
        assert error.payload["error"] == "participant_not_found"
        assert alice.counts.unasked_refusals == 1


def _flood(space: JoinedSpace) -> None:
    """Nothing is given a chance to leave in between."""
    for _ in range(200):
        space._sender.send("chat", {"text": "x" * 50_000})


def test_what_is_async() -> None:
    async def one() -> None: ...

    def two() -> None: ...

    class Three:
        async def __call__(self) -> None: ...

    assert is_async(one)
    assert is_async(functools.partial(one))
    assert is_async(Three())
    assert not is_async(two)
    assert not is_async(functools.partial(two))
