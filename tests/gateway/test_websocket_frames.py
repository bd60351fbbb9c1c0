"""WebSocket edges as the Autobahn suite tests them, frame by frame on a TCP socket (RFC 6455).

The gateway echoes stream frames to their writer, so a stream is the echo server that these cases need.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import orjson
import pytest

from tests.gateway.raw import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    RawClient,
    closing,
    frame,
    raw_client,
)
from tests.gateway.running_gateway import SharedGateway, participants, space_settings

PROTOCOL_ERROR = 1002
INVALID_TEXT = 1007
TOO_BIG = 1009
FRAME_BYTES = 1 << 20


@pytest.fixture(scope="module")
def shared_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedGateway]:
    space = space_settings(
        participants(echo=["stream/*", "chat"]),
        limits={"max_sessions_per_member": 1_000, "max_streams_per_member": 1_000},
    )
    shared_gateway = SharedGateway(
        tmp_path_factory.mktemp("frames"), {"lab": space}, max_connections_per_address=0
    )
    yield shared_gateway
    shared_gateway.close()


@asynccontextmanager
async def echoing(shared_gateway: SharedGateway) -> AsyncIterator[tuple[RawClient, bytes]]:
    """A joined connection and `#stream#`, the beginning of every message that comes back."""
    async with raw_client(shared_gateway.gateway.port) as client:
        await client.upgraded(token="t-echo")
        client.send(frame(TEXT, b'{"kind":"stream/request","payload":{"direction":"upload"}}'))
        while True:
            one = await client.frame()
            assert one is not None
            message = orjson.loads(one.payload)
            assert message["kind"] != "system/error", message
            if message["kind"] == "stream/open":
                break
        yield client, b"#%b#" % message["payload"]["stream_id"].encode()


async def next_frame(client: RawClient, prefix: bytes) -> tuple[int, bytes]:
    """The next message of the stream: its opcode, and what follows the prefix."""
    while True:
        one = await client.frame()
        assert one is not None, "the connection ended"
        assert one.opcode in (TEXT, BINARY), one
        if one.payload.startswith(prefix):
            assert one.final
            return one.opcode, one.payload[len(prefix) :]


def fragments(opcode: int, *parts: bytes) -> list[bytes]:
    last = len(parts) - 1
    return [
        frame(opcode if index == 0 else CONTINUATION, part, final=index == last)
        for index, part in enumerate(parts)
    ]


SIZES = [0, 1, 80, 125, 126, 127, 128, 65_000, 65_535, 65_536, 65_537, 500_000]


@pytest.mark.parametrize("opcode", [TEXT, BINARY], ids=["text", "binary"])
async def test_messages_of_every_size_come_back_as_they_went(
    shared_gateway: SharedGateway, opcode: int
) -> None:
    """Autobahn 1.*; the sizes stand on both sides of every change of the length field."""
    async with echoing(shared_gateway) as (client, prefix):
        for size in SIZES:
            data = b"x" * (size % 2) + (b"\xc3\xa9" if opcode == TEXT else b"\xff\x00") * (size // 2)
            client.send(frame(opcode, prefix + data))
            assert await next_frame(client, prefix) == (opcode, data)


@pytest.mark.parametrize("step", [1, 7, 997])
async def test_it_does_not_matter_how_packets_are_cut(shared_gateway: SharedGateway, step: int) -> None:
    """Autobahn 1.1.8, 6.1 to 6.2: chopped on any byte."""
    async with echoing(shared_gateway) as (client, prefix):
        data = "héllo wörld €𝄞 ".encode() * (4 if step == 1 else 400)
        await client.send_in_pieces(frame(TEXT, prefix + data), step)
        assert await next_frame(client, prefix) == (TEXT, data)


@pytest.mark.parametrize("opcode", [TEXT, BINARY], ids=["text", "binary"])
async def test_fragments_make_one_message_with_pings_between(
    shared_gateway: SharedGateway, opcode: int
) -> None:
    """Autobahn 5.3 to 5.8, 5.19, 5.20."""
    async with echoing(shared_gateway) as (client, prefix):
        first, second, third = fragments(opcode, prefix + b"one ", b"", b"two")
        client.send(first + frame(PING, b"p1") + second + frame(PING, b"p2") + third)
        for payload in (b"p1", b"p2"):
            answer = await client.frame()
            assert answer is not None
            assert (answer.opcode, answer.payload) == (PONG, payload)
        assert await next_frame(client, prefix) == (opcode, b"one two")


@pytest.mark.parametrize("size", [0, 1, 125])
async def test_a_ping_comes_back_with_its_payload(shared_gateway: SharedGateway, size: int) -> None:
    """Autobahn 2.1 to 2.4, 2.10, 2.11."""
    async with echoing(shared_gateway) as (client, _):
        payloads = [bytes([number]) * size for number in range(10)]
        client.send(b"".join(frame(PING, payload) for payload in payloads))
        for payload in payloads:
            answer = await client.frame()
            assert answer is not None
            assert (answer.opcode, answer.payload) == (PONG, payload)


async def test_a_pong_that_nobody_asked_for_is_passed_over(shared_gateway: SharedGateway) -> None:
    """Autobahn 2.7 to 2.9."""
    async with echoing(shared_gateway) as (client, prefix):
        client.send(frame(PONG) + frame(PONG, b"unasked") + frame(TEXT, prefix + b"on"))
        assert await next_frame(client, prefix) == (TEXT, b"on")


BROKEN = {
    # Autobahn 3
    "reserved bit 1": frame(TEXT, b"x", reserved=4),
    "reserved bit 2": frame(TEXT, b"x", reserved=2),
    "reserved bit 3": frame(BINARY, b"x", reserved=1),
    "reserved bit of a ping": frame(PING, b"x", reserved=4),
    "reserved bit of a close": frame(CLOSE, b"\x03\xe8", reserved=7),
    # 4
    **{f"opcode {number}": frame(number, b"x") for number in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)},
    # 2.5, 2.6, 5.1, 5.2
    "ping of 126 bytes": frame(PING, b"x" * 126),
    "pong of 126 bytes": frame(PONG, b"x" * 126),
    "close of 126 bytes": frame(CLOSE, b"\x03\xe8" + b"x" * 124),
    "ping in fragments": frame(PING, b"x", final=False) + frame(CONTINUATION, b"y"),
    "pong in fragments": frame(PONG, b"x", final=False) + frame(CONTINUATION, b"y"),
    # 5.9 to 5.18
    "continuation of nothing": frame(CONTINUATION, b"x"),
    "continuation of nothing, unfinished": frame(CONTINUATION, b"x", final=False),
    "message inside a message": frame(TEXT, b"x", final=False) + frame(TEXT, b"y"),
    "binary inside a text": frame(TEXT, b"x", final=False) + frame(BINARY, b"y", final=False),
    # RFC 6455, 5.1
    "unmasked": frame(TEXT, b"x", masked=False),
    "unmasked ping": frame(PING, b"x", masked=False),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
async def test_broken_frames_end_the_connection_with_1002(
    shared_gateway: SharedGateway, broken: bytes
) -> None:
    async with echoing(shared_gateway) as (client, prefix):
        client.send(broken + frame(TEXT, prefix + b"after"))
        frames = await client.frames_until(CLOSE)
        # Nothing of it is answered, what followed is not read, and the connection does not linger.
        assert [(one.opcode, one.code) for one in frames] == [(CLOSE, PROTOCOL_ERROR)]
        assert await client.ended() == b""


NOT_UTF8 = {
    "a lone continuation byte": b"\x80",
    "half a character": b"\xc3",
    "half a character, then text": b"\xe2\x82 x",
    "an overlong slash": b"\xc0\xaf",
    "an overlong slash of three bytes": b"\xe0\x80\xaf",
    "a surrogate": b"\xed\xa0\x80",
    "beyond the last character": b"\xf4\x90\x80\x80",
    "five bytes": b"\xf8\x88\x80\x80\x80",
    "byte 0xfe": b"\xfe",
    "Autobahn 6.3.1": "κόσμε".encode() + b"\xed\xa0\x80" + b"edited",
}


@pytest.mark.parametrize("text", NOT_UTF8.values(), ids=NOT_UTF8)
async def test_text_that_is_not_utf8_ends_the_connection_with_1007(
    shared_gateway: SharedGateway, text: bytes
) -> None:
    """Autobahn 6.3 to 6.21, whole and in fragments that cut the character."""
    cut = len(text) // 2
    for sent in (
        [frame(TEXT, text)],
        fragments(TEXT, b"fine ", text),
        fragments(TEXT, text[:cut], text[cut:]),
        fragments(TEXT, text, b""),
    ):
        async with echoing(shared_gateway) as (client, _):
            client.send(b"".join(sent))
            assert await client.closed() == INVALID_TEXT


async def test_any_bytes_pass_as_binary_and_any_cut_of_good_text_passes(
    shared_gateway: SharedGateway,
) -> None:
    """Autobahn 6.2: a fragment may end inside a character."""
    async with echoing(shared_gateway) as (client, prefix):
        for bad in NOT_UTF8.values():
            client.send(frame(BINARY, prefix + bad))
            assert await next_frame(client, prefix) == (BINARY, bad)
        text = "κόσμε 𝄞 \U0010ffff �".encode()
        client.send(b"".join(fragments(TEXT, prefix, *(text[i : i + 1] for i in range(len(text))))))
        assert await next_frame(client, prefix) == (TEXT, text)


GOOD_CODES = [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999]
BAD_CODES = [0, 999, 1004, 1005, 1006, 1016, 1100, 2000, 2999, 5000, 65_535]


@pytest.mark.parametrize("code", GOOD_CODES)
async def test_a_close_is_answered_with_its_own_code(shared_gateway: SharedGateway, code: int) -> None:
    """Autobahn 7.1, 7.3, 7.7."""
    async with echoing(shared_gateway) as (client, prefix):
        client.send(closing(code, "au revoir, à bientôt".encode()) + frame(TEXT, prefix + b"after"))
        assert await client.closed() == code
        assert await client.ended() == b""


@pytest.mark.parametrize("code", BAD_CODES)
async def test_a_close_code_that_may_not_be_sent_is_a_protocol_error(
    shared_gateway: SharedGateway, code: int
) -> None:
    """Autobahn 7.9, 7.13."""
    async with echoing(shared_gateway) as (client, _):
        client.send(closing(code))
        assert await client.closed() == PROTOCOL_ERROR


async def test_closes_without_a_code_with_half_a_code_and_with_a_bad_reason(
    shared_gateway: SharedGateway,
) -> None:
    """Autobahn 7.3.1, 7.3.2, 7.3.6, 7.5.1; the longest reason is fine."""
    for sent, expected in (
        (frame(CLOSE), {None, 1000}),
        (frame(CLOSE, b"\x03"), {PROTOCOL_ERROR}),
        (closing(1000, b"x" * 123), {1000}),
        (closing(1000, "κόσμε".encode() + b"\xed\xa0\x80"), {PROTOCOL_ERROR, INVALID_TEXT}),
    ):
        async with echoing(shared_gateway) as (client, _):
            client.send(sent)
            frames = await client.frames_until(CLOSE)
            assert frames[-1].opcode == CLOSE
            assert frames[-1].code in expected
            assert await client.ended() == b""


async def test_a_second_close_and_a_ping_after_a_close_get_no_answer(shared_gateway: SharedGateway) -> None:
    """Autobahn 7.1.2 to 7.1.5; an unfinished message is dropped."""
    async with echoing(shared_gateway) as (client, prefix):
        client.send(frame(TEXT, prefix + b"half", final=False) + closing(1000) + closing(1001))
        client.send(frame(PING, b"late") + frame(CONTINUATION, b"whole"))
        assert [one.opcode for one in await client.frames_until(CLOSE)] == [CLOSE]
        assert await client.ended() == b""


async def test_a_frame_or_message_beyond_the_limit_ends_with_1009_before_it_is_read(
    shared_gateway: SharedGateway,
) -> None:
    """Autobahn 9 in reverse: the length alone is enough; many small fragments add up."""
    beyond = FRAME_BYTES + (64 << 10) + 1
    async with echoing(shared_gateway) as (client, prefix):
        client.send(frame(TEXT, b"x", size=beyond)[:-1])
        assert await client.closed() == TOO_BIG
    async with echoing(shared_gateway) as (client, prefix):
        client.send(frame(BINARY, b"x", size=(1 << 63) - 1)[:-1])
        assert await client.closed() == TOO_BIG
    async with echoing(shared_gateway) as (client, prefix):
        part = b"x" * 65_536
        client.send(frame(TEXT, prefix, final=False))
        client.send(b"".join(frame(CONTINUATION, part, final=False) for _ in range(beyond // 65_536 + 1)))
        assert await client.closed() == TOO_BIG


async def test_a_length_with_its_highest_bit_set_is_refused(shared_gateway: SharedGateway) -> None:
    """RFC 6455, 5.2: the most significant bit MUST be 0."""
    async with echoing(shared_gateway) as (client, _):
        client.send(b"\x82\xff" + b"\xff" * 8 + b"\0\0\0\0")
        assert await client.closed() in (PROTOCOL_ERROR, TOO_BIG)


async def test_the_largest_message_passes(shared_gateway: SharedGateway) -> None:
    async with echoing(shared_gateway) as (client, prefix):
        data = b"x" * (FRAME_BYTES - len(prefix))
        client.send(frame(BINARY, prefix + data))
        assert await next_frame(client, prefix) == (BINARY, data)
