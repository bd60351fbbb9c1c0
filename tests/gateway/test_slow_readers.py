"""A reader too far behind is told why and closed 1013 (bytes, messages, seconds); nobody waits for it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from moot.protocol.operation import Json
from tests.gateway.raw import CLOSE, PING, TEXT, Frame, RawClient, raw_client
from tests.gateway.running_gateway import Client, LocalGateway, participants, running_gateway
from tests.waiting import HANG_SECONDS, until

PEOPLE = participants(alice=["*"], bob=["chat"], carol=["chat"])
# No pings: a slow machine would send some, and hang up on who does not read them.
QUIET: dict[str, Any] = {"ping_seconds": 2 * HANG_SECONDS}
# Longer than any test takes: whoever reads at last hears why it was let go. And no time at all.
PATIENT: dict[str, Any] = QUIET | {"close_seconds": 600}
BRUSQUE: dict[str, Any] = QUIET | {"close_seconds": 0.001}
RULES: Json = {"limits": {"messages_per_second": 0, "bytes_per_second": 0}}
# More than the kernel keeps for a socket whose reader has a small window, and our own buffers.
PLENTY = 24 << 20
CHUNK = "x" * (256 << 10)


@asynccontextmanager
async def stalled(gateway: LocalGateway) -> AsyncIterator[RawClient]:
    """bob has joined and reads nothing more until he is asked to."""
    async with raw_client(gateway.port, receive_buffer=4096) as client:
        await client.upgraded(token="t-bob")
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        yield client


async def read_all(client: RawClient) -> list[Frame]:
    """What the gateway had sent before it hung up."""
    client.writer.transport.resume_reading()  # type: ignore[attr-defined]
    return await client.frames_until(CLOSE)


async def fill(alice: Client, size: int = PLENTY) -> list[str]:
    """Say this much, each piece heard by alice herself before the next: nothing piles up on her side."""
    ids = []
    for _ in range(size // len(CHUNK)):
        answer = await alice.ask("chat", {"text": CHUNK})
        assert answer["kind"] == "chat"
        ids.append(answer["id"])
    return ids


def left(client: Client) -> set[str]:
    """Whom it has heard leaving, at any time."""
    payloads = [each["payload"] for each in client.received]
    return {each["participant"]["id"] for each in payloads if each.get("event") == "leave"}


def is_let_go(caplog: pytest.LogCaptureFixture) -> bool:
    """Whether the gateway has made up its mind about a slow reader, which has not heard of it yet."""
    return any(record.getMessage() == "slow" for record in caplog.records)


async def check_told(client: RawClient, words: str) -> None:
    frames = await read_all(client)
    assert frames[-1].opcode == CLOSE, "cut without a word"
    assert frames[-1].code == 1013
    assert words in frames[-1].reason
    # Whole messages up to the end: nothing was cut in the middle.
    assert all(one.opcode == TEXT and one.payload.endswith(b"}") for one in frames[:-1])


async def test_too_many_bytes_behind(tmp_path: Path) -> None:
    """The others lose nothing, and hear it in order."""
    async with running_gateway(tmp_path, PEOPLE, rules=RULES, outbox_bytes=1 << 20, **PATIENT) as gateway:
        alice, carol = await gateway.join("alice"), await gateway.join("carol")
        async with stalled(gateway) as bob:
            answer = await fill(alice)
            await check_told(bob, "bytes behind, more than 1048576")
        await until(lambda: left(alice) == {"bob"})
        await carol.fence()
        received = [each for each in carol.received if each["kind"] == "chat"]
        assert [each["id"] for each in received] == answer
        assert all(each["payload"]["text"] == CHUNK for each in received)


async def test_too_many_messages_behind(tmp_path: Path) -> None:
    gateway: dict[str, Any] = {"outbox_bytes": 1 << 30, "outbox_messages": 200, "outbox_seconds": 600}
    async with running_gateway(tmp_path, PEOPLE, rules=RULES, **gateway, **PATIENT) as running:
        alice = await running.join("alice")
        async with stalled(running) as bob:
            await fill(alice)
            for _ in range(300):
                await alice.say("chat", {"text": "small"})
            await alice.fence()
            await check_told(bob, "messages behind, more than 200")


@pytest.mark.parametrize("goes_on", [True, False], ids=["with more traffic", "in silence"])
async def test_too_many_seconds_behind(
    tmp_path: Path, goes_on: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Who took nothing for so long is stuck, also when nobody says anything more."""
    caplog.set_level(logging.INFO, "moot.gateway.websocket_handler")
    gateway: dict[str, Any] = {"outbox_bytes": 1 << 30, "outbox_messages": 1 << 20, "outbox_seconds": 0.5}
    async with running_gateway(tmp_path, PEOPLE, rules=RULES, **gateway, **PATIENT) as running:
        alice = await running.join("alice")
        async with stalled(running) as bob:
            await fill(alice)
            if goes_on:
                while not is_let_go(caplog):
                    await alice.ask("chat", {"text": "small"})
            else:
                await until(lambda: is_let_go(caplog))
            await check_told(bob, " s behind")


async def test_who_does_not_read_up_is_dropped_all_the_same(tmp_path: Path) -> None:
    """It hears nothing of it, as nothing can be written to it any more; but it is gone from the space."""
    async with running_gateway(tmp_path, PEOPLE, rules=RULES, outbox_bytes=1 << 20, **BRUSQUE) as gateway:
        alice = await gateway.join("alice")
        async with stalled(gateway) as bob:
            await fill(alice)
            await until(lambda: left(alice) == {"bob"})
            frames = await read_all(bob)
            assert all(one.opcode == TEXT for one in frames)


async def test_a_reader_that_catches_up_in_time_loses_nothing(tmp_path: Path) -> None:
    gateway: dict[str, Any] = {"outbox_bytes": PLENTY * 2, "outbox_seconds": 600}
    async with running_gateway(tmp_path, PEOPLE, rules=RULES, **gateway, **QUIET) as running:
        alice = await running.join("alice")
        async with stalled(running) as bob:
            answer = await fill(alice, PLENTY)
            answer.append(await alice.say("chat", {"text": "last"}))
            bob.writer.transport.resume_reading()  # type: ignore[attr-defined]
            received: list[str] = []
            while not received or received[-1] != answer[-1]:
                one = await bob.frame()
                assert one is not None
                if one.opcode == PING:
                    continue
                assert one.opcode == TEXT, one.reason
                message = orjson.loads(one.payload)
                if message["kind"] == "chat":
                    received.append(message["id"])
            assert received == answer
            await alice.fence()


async def test_a_burst_within_the_default_limits_cuts_nobody_off(tmp_path: Path) -> None:
    """Eight messages of a megabyte are what one member may say in a second; a slow line takes longer."""
    async with running_gateway(tmp_path, PEOPLE, outbox_seconds=600, **QUIET) as gateway:
        alice = await gateway.join("alice")
        async with stalled(gateway) as bob:
            said = [(await alice.ask("chat", {"text": "x" * 1_000_000}))["id"] for _ in range(8)]
            bob.writer.transport.resume_reading()  # type: ignore[attr-defined]
            received: list[str] = []
            while len(received) < len(said):
                one = await bob.frame()
                assert one is not None
                assert one.opcode == TEXT, one.reason
                message = orjson.loads(one.payload)
                if message["kind"] == "chat":
                    received.append(message["id"])
            assert received == said
            await alice.fence()


async def test_many_slow_readers_at_once_do_not_hold_up_the_others(tmp_path: Path) -> None:
    people = PEOPLE | participants(**{f"slow-{number}": ["chat"] for number in range(12)})
    async with (
        running_gateway(tmp_path, people, rules=RULES, **BRUSQUE) as gateway,
        AsyncExitStack() as stack,
    ):
        alice, carol = await gateway.join("alice"), await gateway.join("carol")
        for number in range(12):
            client = await stack.enter_async_context(raw_client(gateway.port, receive_buffer=4096))
            await client.upgraded(token=f"t-slow-{number}")
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        answer = await fill(alice)
        await carol.fence()
        assert [each["id"] for each in carol.received if each["kind"] == "chat"] == answer
        await until(lambda: len(left(alice)) == 12)
        # What was kept for them is let go of.
        outboxes = [line.outbox for line in gateway.gateway.directory.hosts["lab"].delivery.sessions.values()]
        assert len(outboxes) == 2
