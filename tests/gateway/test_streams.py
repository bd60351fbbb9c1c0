"""Streams over sockets: bytes stay as they are, and go to whom they are meant for (MEW 3.10)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from moot.protocol.operation import Json
from tests.gateway.running_gateway import Client, SharedGateway, participants, refusal_in, space_settings

# tim is the target who is removed at the end, so no other test has him.
PEOPLE = participants(alice=["*"], bob=["*"], carol=["*"], tim=["chat"])

# One for each test: no stream is left over from another.
SPACES = ["bytes", "order", "target", "writers", "shape", "limits", "posted"]


@pytest.fixture(scope="module")
def shared_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedGateway]:
    rules: Json = {"limits": {"max_streams_per_member": 3, "stream_owner_grace_seconds": 0.3}}
    spaces = {name: space_settings(PEOPLE, **rules) for name in SPACES}
    shared_gateway = SharedGateway(tmp_path_factory.mktemp("streams"), spaces, max_connections_per_address=0)
    yield shared_gateway
    shared_gateway.close()


async def joined(shared_gateway: SharedGateway, space: str, *names: str) -> list[Client]:
    return [await shared_gateway.gateway.join(name, space=space) for name in names]


async def opened(client: Client, **request: Json) -> str:
    await client.say("stream/request", {"direction": "upload", **request})
    message = await client.hear(lambda each: each["kind"] in ("stream/open", "system/error"))
    assert message["kind"] == "stream/open", message
    return str(message["payload"]["stream_id"])


def frames_of(client: Client) -> list[str | bytes]:
    return [each for each in client.received if isinstance(each, str | bytes)]


async def test_text_stays_text_and_binary_stays_binary(shared_gateway: SharedGateway) -> None:
    """Byte for byte, also where the data holds `#`, nothing, or JSON; the writer gets its own back."""
    alice, bob = (
        await shared_gateway.gateway.join("alice", space="bytes"),
        await shared_gateway.gateway.join("bob", space="bytes"),
    )
    stream = await opened(alice, content_type="text/plain")
    data: list[str | bytes] = [
        f"#{stream}#plain",
        f"#{stream}##hash#es##",
        f"#{stream}#",
        f'#{stream}#{{"kind":"chat"}}',
        f"#{stream}#Grüße 𝄞\n\0",
        f"#{stream}#bytes".encode(),
        f"#{stream}#".encode() + bytes(range(256)),
        f"#{stream}#".encode() + b"x" * 500_000,
    ]
    for message in data:
        await alice.send(message)
    for client in (alice, bob):
        assert [await client.hear_frame() for _ in data] == data


async def test_frames_and_envelopes_keep_one_order(shared_gateway: SharedGateway) -> None:
    alice, bob = (
        await shared_gateway.gateway.join("alice", space="order"),
        await shared_gateway.gateway.join("bob", space="order"),
    )
    stream = await opened(alice)
    await bob.fence()
    for number in range(100):
        await alice.send(f"#{stream}#{number}" if number % 3 else f'{{"kind":"chat","id":"o-{number}"}}')
    await alice.fence()
    received = [each if isinstance(each, str) else each["id"] for each in await bob.fence()]
    assert received == [f"#{stream}#{number}" if number % 3 else f"o-{number}" for number in range(100)]
    await alice.say("stream/close", {"stream_id": stream})


async def test_a_targeted_stream_reaches_exactly_its_targets(shared_gateway: SharedGateway) -> None:
    """On all their sockets, not on the writer's; and nobody while they are away (D-36, D-39)."""
    gateway = shared_gateway.gateway
    alice, carol = await gateway.join("alice", space="target"), await gateway.join("carol", space="target")
    tims = [await gateway.join("tim", space="target"), await gateway.join("tim", space="target")]
    stream = await opened(alice, target=["tim"])
    await alice.send(f"#{stream}#for tim")
    for tim in tims:
        assert await tim.hear_frame() == f"#{stream}#for tim"
    for tim in tims:
        await tim.leave()
    await alice.hear(lambda each: each["payload"].get("event") == "leave")
    # A second socket of carol's: whoever was the last audience must not be the next.
    second = await gateway.join("carol", space="target")
    await alice.send(f"#{stream}#while tim is away")
    await alice.fence()
    back = await gateway.join("tim", space="target")
    await alice.send(f"#{stream}#tim is back")
    assert await back.hear_frame() == f"#{stream}#tim is back"
    await alice.ask("space/kick", {"participant_id": "tim"})
    await alice.send(f"#{stream}#tim is out")
    await alice.fence()
    for client in (alice, carol, second):
        await client.fence()
        assert frames_of(client) == []


async def test_only_writers_write_and_a_closed_stream_is_closed(shared_gateway: SharedGateway) -> None:
    alice, bob, carol = [
        await shared_gateway.gateway.join(name, space="writers") for name in ("alice", "bob", "carol")
    ]
    stream = await opened(alice)
    await bob.send(f"#{stream}#not yet")
    error = await bob.hear("system/error")
    assert error["payload"]["error"] == "unauthorized_stream_write"
    assert error["payload"]["stream_id"] == stream
    assert "correlation_id" not in error
    assert await alice.ask("stream/grant-write", {"stream_id": stream, "participant_id": "bob"})
    await bob.hear("stream/write-granted")
    await bob.send(f"#{stream}#now")
    assert await carol.hear_frame() == f"#{stream}#now"
    await alice.ask("stream/transfer-ownership", {"stream_id": stream, "new_owner": "carol"})
    await alice.send(f"#{stream}#no longer mine")
    assert (await alice.hear("system/error"))["payload"]["error"] == "unauthorized_stream_write"
    await carol.hear("stream/ownership-transferred")
    await carol.say("stream/close", {"stream_id": stream})
    await carol.send(f"#{stream}#too late")
    assert (await carol.hear("system/error"))["payload"]["error"] == "stream_not_found"
    assert frames_of(alice) == [f"#{stream}#now"]


BAD_FRAMES = {
    "no second #": "#stream-1",
    "no id": "##data",
    "a long id": "#" + "x" * 300 + "#data",
    "unknown": "#stream-0#data",
    "control characters": "#stre\nam#data",
}


@pytest.mark.parametrize("message", BAD_FRAMES.values(), ids=BAD_FRAMES)
async def test_a_frame_out_of_shape_is_told_so(shared_gateway: SharedGateway, message: str) -> None:
    alice, bob = (
        await shared_gateway.gateway.join("alice", space="shape"),
        await shared_gateway.gateway.join("bob", space="shape"),
    )
    for sent in (message, message.encode()):
        await alice.send(sent)
    errors = {refusal_in(each) for each in await alice.fence()} - {None}
    assert errors <= {"invalid_envelope", "stream_not_found"}
    assert len(errors) == 1
    await bob.fence()
    assert frames_of(bob) == []


async def test_streams_are_limited_per_member_and_end_with_their_owner(shared_gateway: SharedGateway) -> None:
    """D-39: after the grace the gateway closes what its owner left behind."""
    alice, bob = (
        await shared_gateway.gateway.join("alice", space="limits"),
        await shared_gateway.gateway.join("bob", space="limits"),
    )
    streams = [await opened(bob) for _ in range(3)]
    assert await bob.refused("stream/request", {"direction": "upload"}) == "resource_limit"
    late = await shared_gateway.gateway.join("carol", space="limits")
    welcome = next(each for each in late.received if each["kind"] == "system/welcome")
    assert [each["stream_id"] for each in welcome["payload"]["active_streams"]] == streams
    await bob.leave()
    closed: list[Any] = [await alice.hear("stream/close") for _ in streams]
    assert [each["payload"] for each in closed] == [
        {"stream_id": stream, "reason": "owner_disconnected"} for stream in streams
    ]
    assert {each["from"] for each in closed} == {"gateway"}


async def test_a_stream_opened_over_http_is_announced_and_named_in_the_answer(
    shared_gateway: SharedGateway,
) -> None:
    alice = await shared_gateway.gateway.join("alice", space="posted")
    request = {"kind": "stream/request", "payload": {"direction": "upload"}}
    posted = await shared_gateway.gateway.post("alice", request, space="posted")
    body = posted.json()
    assert (posted.status_code, body["status"]) == (200, "stream_opened")
    assert (await alice.hear("stream/open"))["payload"]["stream_id"] == body["stream_id"]
    await alice.send(f"#{body['stream_id']}#mine")
    assert await alice.hear_frame() == f"#{body['stream_id']}#mine"
    await alice.say("stream/close", {"stream_id": body["stream_id"]})
