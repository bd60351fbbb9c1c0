"""Streams (MEW 3.10): opening, writing, reading, sharing, handing over."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from moot.errors import (
    InvalidOperation,
    NotAllowed,
    ParticipantNotFound,
    StreamNotFound,
    TargetNotFound,
    Unauthorized,
    UsageError,
)
from moot.participant import Chunk, JoinedSpace, MissedMessages, StreamInfo, connect
from moot.participant.conversation.stream import stream_info
from tests.participant.gateway_with_members import QUICK, ReceivedEnvelopes, gateway_with, settled
from tests.waiting import bounded, until

ALL = ["*"]


async def read_all(space: JoinedSpace, id: str) -> list[Chunk | MissedMessages]:
    async with bounded():
        return [chunk async for chunk in space.streams.read(id)]


@pytest.mark.requirement("MEW-3.10.1-1")
async def test_text_stays_text_and_bytes_stay_bytes(tmp_path: Path) -> None:
    """MEW 3.10.3, D-35: frame by frame, in order, echoed to the writer (D-36)."""
    async with gateway_with(tmp_path, alice=ALL, bob=ALL) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob")
        received = ReceivedEnvelopes(bob)
        opened: list[StreamInfo] = []
        bob.streams.on_open(opened.append)
        async with alice.streams.open(
            description="a file", content_type="application/pdf", metadata={"pages": 3}, x_vendor="y"
        ) as stream:
            await stream.write("text #with# marks")
            await stream.write(b"\x00\xff#")
            await stream.write("")
            own = asyncio.create_task(read_all(alice, stream.id))
        (info,) = opened
        assert info.owner == "alice"
        assert info.details == {
            "description": "a file",
            "content_type": "application/pdf",
            "metadata": {"pages": 3},
            "x_vendor": "y",
        }
        # Read after it was closed: what had come was kept.
        await received.wait("stream/close")
        expected = [Chunk(b"text #with# marks", False), Chunk(b"\x00\xff#", True), Chunk(b"", False)]
        assert await read_all(bob, info.id) == expected
        assert await own == expected
        request = received.of("stream/request")[0]
        assert request.to == ["gateway"]
        assert bob.streams.active == {}
        with pytest.raises(StreamNotFound):
            await read_all(bob, info.id)


async def test_a_targeted_stream_reaches_its_target_alone(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=ALL, bob=ALL, carol=ALL) as gateway:
        alice, bob, carol = [await gateway.join(name) for name in ("alice", "bob", "carol")]
        async with alice.streams.open("bob", content_type="text/plain") as stream:
            await stream.write("for bob")
            await until(lambda: stream.id in bob.streams.active and stream.id in carol.streams.active)
            assert carol.streams.active[stream.id].target == ("bob",)
        assert await read_all(bob, stream.id) == [Chunk(b"for bob", False)]
        await settled(carol)
        assert stream.id not in carol.streams._readers
        with pytest.raises(TargetNotFound, match="nobody"):
            await alice.streams.open("nobody")


async def test_writing_is_granted_revoked_and_handed_over(tmp_path: Path) -> None:
    """MEW 3.10.5 to 3.10.7; D-38."""
    async with gateway_with(tmp_path, alice=ALL, bob=ALL) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob")
        stream = await alice.streams.open(content_type="text/plain")
        await until(lambda: stream.id in bob.streams.active)
        with pytest.raises(UsageError, match="its owner is alice"):
            await bob.streams.writer(stream.id).write("not yet")
        with pytest.raises(Unauthorized):
            await bob.streams.writer(stream.id).grant_write("bob")
        assert await stream.grant_write("bob") == ("alice", "bob")
        await until(lambda: bob.streams.active[stream.id].writers == ("alice", "bob"))
        await bob.streams.writer(stream.id).write("from bob")
        assert await stream.revoke_write("bob", reason="enough") == ("alice",)
        with pytest.raises(InvalidOperation):
            await stream.revoke_write("alice")
        with pytest.raises(ParticipantNotFound):
            await stream.grant_write("nobody")
        assert await stream.transfer("bob") == ("bob",)
        assert stream.info.owner == "bob"
        with pytest.raises(UsageError, match="its owner is bob"):
            await stream.write("no longer")
        await until(lambda: bob.streams.active[stream.id].owner == "bob")
        handle = bob.streams.writer(stream.id)
        await handle.write("mine now")
        await handle.close("cancelled")
        await handle.close()
        with pytest.raises(StreamNotFound, match="cancelled"):
            await handle.write("over")
        assert await read_all(alice, stream.id) == [Chunk(b"from bob", False), Chunk(b"mine now", False)]


@pytest.mark.requirement("MEW-3.10.8-2", "MEW-3.10.8-3")
def test_without_a_list_of_writers_the_owner_writes() -> None:
    info = stream_info({"stream_id": "s", "owner": "alice", "direction": "upload", "created": "x"})
    assert info.writers == ("alice",)
    assert info.target is None
    assert stream_info({"stream_id": "s", "owner": "alice", "authorized_writers": ["bob"]}).writers == (
        "bob",
    )


async def test_a_late_joiner_knows_the_open_streams_and_can_read_on(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=ALL, late=ALL) as gateway:
        alice = await gateway.join("alice")
        stream = await alice.streams.open(description="live", content_type="text/plain")
        await stream.write("missed")
        late = await gateway.join("late")
        info = late.streams.active[stream.id]
        assert (info.owner, info.details["description"]) == ("alice", "live")
        await stream.write("received")
        await stream.close()
        assert await read_all(late, stream.id) == [Chunk(b"received", False)]


async def test_a_slow_reader_finds_a_gap_and_memory_stays_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.participant.conversation.stream_client.MAX_STREAM_UNREAD_BYTES", 10_000)
    monkeypatch.setattr("moot.participant.conversation.stream_client.MAX_STREAMS_UNREAD_BYTES", 15_000)
    async with gateway_with(tmp_path, alice=ALL, bob=ALL) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob")
        one = await alice.streams.open(content_type="text/plain")
        two = await alice.streams.open(content_type="text/plain")
        for n in range(30):
            await one.write(f"{n:04}" * 250)
        for n in range(10):
            await two.write(f"{n:04}" * 250)
        await settled(alice)
        await one.close()
        await two.close()
        await settled(bob)
        assert sum(reader.size for reader in bob.streams._readers.values()) <= 15_000
        items = await read_all(bob, one.id)
        assert isinstance(items[0], MissedMessages)
        assert items[0].why == "slow"
        chunks = [item for item in items if isinstance(item, Chunk)]
        assert (items[0].missed or 0) + len(chunks) == 30
        assert chunks[-1].text.startswith("0029")
        await read_all(bob, two.id)
        assert bob.streams._unread == 0


@pytest.mark.requirement("MEW-3.10.1-17")
async def test_a_format_of_ones_own_without_a_type_is_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with gateway_with(tmp_path, alice=ALL) as gateway:
        alice = await gateway.join("alice")
        await alice.streams.open(format="my-format/1")
        assert "should have a content_type" in caplog.text
        caplog.clear()
        await alice.streams.open(format="my-format/1", content_type="application/x-mine")
        await alice.streams.open()
        assert "content_type" not in caplog.text


async def test_leaving_closes_own_streams_and_rights_are_asked_first(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=ALL, bob=ALL, mute=["chat"]) as gateway:
        bob, mute = await gateway.join("bob"), await gateway.join("mute")
        received = ReceivedEnvelopes(bob)
        with pytest.raises(NotAllowed):
            await mute.streams.open()
        async with connect(gateway.url, "lab", "t-alice", limits=QUICK) as alice:
            stream = await alice.streams.open()
        close = await received.wait("stream/close")
        assert close.payload == {"stream_id": stream.id, "reason": "owner_left"}
        assert close.correlation_id == [received.of("stream/open")[0].id]


async def test_a_stream_that_nobody_waits_for_any_more_is_closed(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=ALL, bob=ALL) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob")
        received = ReceivedEnvelopes(bob)
        opening = asyncio.ensure_future(alice.streams.open())
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        close = await received.wait("stream/close")
        assert close.payload["reason"] == "cancelled"
        await until(lambda: alice.streams.active == {})


async def test_a_frame_that_is_refused_is_told_by_the_next_write(tmp_path: Path) -> None:
    """D-36: refusals of frames have no correlation."""
    async with gateway_with(tmp_path, alice=ALL, bob=ALL) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob")
        stream = await alice.streams.open()
        await until(lambda: stream.id in bob.streams.active)
        await stream.grant_write("bob")
        await until(lambda: "bob" in bob.streams.active[stream.id].writers)
        handle = bob.streams.writer(stream.id)
        # As if the revocation had not been received yet.
        await stream.revoke_write("bob")
        await until(lambda: "bob" not in bob.streams.active[stream.id].writers)
        bob.streams.active[stream.id].writers = ("alice", "bob")
        await handle.write("x")
        await until(lambda: handle._refusal is not None)
        with pytest.raises(Exception, match="may not write"):
            await handle.write("y")


async def test_many_senders_and_one_target_each_frame_once(tmp_path: Path) -> None:
    """MEW 3.10.3: aggregation, and bulk that fills the transport."""
    async with gateway_with(tmp_path, hub=ALL, a=ALL, b=ALL, c=ALL) as gateway:
        hub = await gateway.join("hub")
        senders = [await gateway.join(name) for name in ("a", "b", "c")]
        streams = [await sender.streams.open("hub", content_type="text/plain") for sender in senders]
        await until(lambda: len(hub.streams.active) == 3)
        readers = [asyncio.create_task(read_all(hub, stream.id)) for stream in streams]
        await asyncio.sleep(0)

        async def send(n: int) -> None:
            for k in range(50):
                await streams[n].write(f"{n}:{k} " + "x" * 20_000)
                if k % 10 == 9:
                    await settled(senders[n])
            await streams[n].close()

        await asyncio.gather(*(send(n) for n in range(3)))
        for n, reader in enumerate(readers):
            chunks = await reader
            assert [item.text.split(" ")[0] for item in chunks if isinstance(item, Chunk)] == [
                f"{n}:{k}" for k in range(50)
            ]
