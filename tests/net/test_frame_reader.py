"""Frames to messages, in the compiled way and in the pure one: the same rules, and the same bounds."""

from __future__ import annotations

import random
from typing import Any

import pytest

from moot.net import frame_reader
from moot.net.frame_reader import FrameReader, PurePythonFrameReader
from moot.net.websocket_frame import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, FrameError
from tests.gateway.raw import frame

MESSAGE_BYTES = 10_000
FRAGMENTS = 8

READERS = [PurePythonFrameReader, FrameReader]


def test_the_compiled_reader_is_there_to_be_tested() -> None:
    """Wherever the tests run it is built; without it the others would try the pure one twice."""
    assert frame_reader.COMPILED


class Client:
    """What one client sent, and what was made of it."""

    def __init__(self, make: type[PurePythonFrameReader]) -> None:
        self.seen: list[Any] = []
        self.reader = make(self._on_message, self._on_control, MESSAGE_BYTES, FRAGMENTS)

    def _on_message(self, data: bytes, binary: bool) -> None:
        self.seen.append((data, binary))

    def _on_control(self, opcode: int, payload: bytes) -> None:
        self.seen.append((opcode, payload))

    def send(self, data: bytes, *, max_frames: int = 1_000, seconds: float = 1e9) -> bool:
        self.reader.take(bytearray(data), len(data))
        return self.reader.read(max_frames, seconds)

    def fails(self, data: bytes) -> tuple[int, str]:
        with pytest.raises(FrameError) as caught:
            self.send(data)
        return caught.value.code, caught.value.reason


@pytest.fixture(params=READERS, ids=lambda each: each.__module__.rpartition(".")[2])
def client(request: pytest.FixtureRequest) -> Client:
    return Client(request.param)


def test_messages_and_control_frames_come_in_order(client: Client) -> None:
    sent = (
        frame(TEXT, "é1".encode()) + frame(PING, b"p") + frame(BINARY, b"\xff") + frame(PONG) + frame(CLOSE)
    )
    assert client.send(sent) is False
    assert client.seen == [
        ("é1".encode(), False),
        (PING, b"p"),
        (b"\xff", True),
        (PONG, b""),
        (CLOSE, b""),
    ]


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 125, 126, 127, 9_999, 10_000])
def test_any_size_comes_out_unmasked_in_any_pieces(client: Client, size: int) -> None:
    payload = bytes(number % 251 for number in range(size))
    sent = frame(BINARY, payload)
    for step in (1, 3, 64, len(sent)):
        client.seen.clear()
        for start in range(0, len(sent), step):
            client.send(sent[start : start + step])
        assert client.seen == [(payload, True)]
    assert client.reader.held_bytes == 0


def test_no_more_frames_than_allowed_are_handled_at_a_time(client: Client) -> None:
    client.reader.take(bytearray(frame(PING) * 25), 25 * 6)
    assert [client.reader.read(10, 1e9) for _ in range(3)] == [True, True, False]
    assert len(client.seen) == 25


def test_no_more_time_than_allowed_is_used(client: Client) -> None:
    """A time that is over before it begins still lets one frame through: everybody gets on."""
    client.reader.take(bytearray(frame(PING) * 5), 5 * 6)
    assert client.reader.read(1_000, 0.0) is True
    assert len(client.seen) == 1
    assert client.reader.read(1_000, 1e9) is False
    assert len(client.seen) == 5


def test_fragments_make_one_message_with_pings_between(client: Client) -> None:
    client.send(frame(TEXT, b"a\xc3", final=False) + frame(PING) + frame(CONTINUATION, b"\xa9"))
    assert client.seen == [(PING, b""), ("aé".encode(), False)]


def test_a_message_has_so_many_fragments_at_most(client: Client) -> None:
    """Also empty ones, which never make it too large."""
    first, empty = frame(TEXT, b"x", final=False), frame(CONTINUATION, b"", final=False)
    client.send(first + empty * (FRAGMENTS - 2) + frame(CONTINUATION))
    assert client.seen == [(b"x", False)]
    assert client.fails(first + empty * FRAGMENTS) == (1008, f"message in more than {FRAGMENTS} fragments")
    assert client.reader.held_bytes == 0


def test_a_message_that_is_too_large_is_refused_by_its_head(client: Client) -> None:
    head = frame(TEXT, b"", size=MESSAGE_BYTES + 1)
    assert client.fails(head) == (1009, f"message larger than {MESSAGE_BYTES} bytes")
    assert client.seen == []


def test_fragments_together_are_as_large_as_one_message_at_most(client: Client) -> None:
    client.send(frame(BINARY, bytes(MESSAGE_BYTES - 1), final=False))
    assert client.fails(frame(CONTINUATION, b"xx"))[0] == 1009


def test_the_limit_of_a_message_can_be_changed(client: Client) -> None:
    client.reader.max_message_bytes = 4
    client.send(frame(TEXT, b"1234"))
    client.reader.max_message_bytes = 5
    client.send(frame(TEXT, b"12345"))
    assert client.fails(frame(TEXT, b"123456"))[0] == 1009


def test_what_came_before_a_fault_is_handled(client: Client) -> None:
    """Autobahn 7.1.2 and others: the second frame in a packet does not undo the first."""
    client.fails(frame(TEXT, b"one") + frame(CLOSE, b"\x03\xe8") + frame(3))
    assert client.seen == [(b"one", False), (CLOSE, b"\x03\xe8")]
    assert client.send(frame(TEXT, b"two")) is False
    assert len(client.seen) == 2


FAULTS = {
    "reserved bits": (frame(TEXT, b"x", reserved=4), 1002),
    "opcode 3": (frame(0x3), 1002),
    "opcode 11": (frame(0xB), 1002),
    "no mask": (frame(TEXT, b"x", masked=False), 1002),
    "a fragmented ping": (frame(PING, b"", final=False), 1002),
    "a large ping": (frame(PING, bytes(126)), 1002),
    "a continuation of nothing": (frame(CONTINUATION), 1002),
    "a message inside another": (frame(TEXT, b"x", final=False) + frame(TEXT), 1002),
    "a short length in two bytes": (b"\x81\xfe\x00\x7d", 1002),
    "a short length in eight bytes": (b"\x81\xff" + (65_535).to_bytes(8, "big"), 1002),
    "a negative length": (b"\x81\xff" + (1 << 63).to_bytes(8, "big"), 1002),
    "no UTF-8": (frame(TEXT, b"\xff"), 1007),
    "a cut character": (frame(TEXT, b"\xc3"), 1007),
    "a surrogate": (frame(TEXT, b"\xed\xa0\x80"), 1007),
    "a character cut in the last fragment": (
        frame(TEXT, b"\xc3", final=False) + frame(CONTINUATION, b"", final=True),
        1007,
    ),
    "no UTF-8 in a fragment": (frame(TEXT, b"ok\xff", final=False), 1007),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_have_their_close_code(client: Client, fault: str) -> None:
    data, code = FAULTS[fault]
    assert client.fails(data)[0] == code
    assert client.reader.held_bytes == 0


def test_messages_that_are_ignored_are_not_kept(client: Client) -> None:
    """After our close only the answer to it counts, however much stands before it."""
    client.reader.ignores_messages = True
    large = frame(BINARY, bytes(70_000))
    client.send(large[:100])
    assert client.reader.held_bytes == 0
    client.send(large[100:] + frame(TEXT, b"\xff") + frame(CLOSE))
    assert client.seen == [(CLOSE, b"")]


def test_nothing_is_held_once_a_large_message_is_handled(client: Client) -> None:
    large = frame(BINARY, bytes(MESSAGE_BYTES))
    for start in range(0, len(large), 1_000):
        client.send(large[start : start + 1_000])
    assert client.seen == [(bytes(MESSAGE_BYTES), True)]
    assert client.reader.held_bytes == 0


def test_a_callback_that_raises_loses_only_its_own_frame(client: Client) -> None:
    def fail(_data: bytes, _binary: bool) -> None:
        raise ValueError("not this one")

    reader = type(client.reader)(fail, client._on_control, MESSAGE_BYTES, FRAGMENTS)
    sent = frame(TEXT, b"x") + frame(PING)
    reader.take(bytearray(sent), len(sent))
    with pytest.raises(ValueError, match="not this one"):
        reader.read(10, 1e9)
    assert reader.read(10, 1e9) is False
    assert client.seen == [(PING, b"")]


def test_both_readers_make_the_same_of_any_bytes() -> None:
    """20,000 frames, right and wrong, cut anywhere and read in slices of any length."""
    dice = random.Random(7)  # the same every time
    for _ in range(2_000):
        sent = b"".join(_random_frame(dice) for _ in range(dice.randrange(1, 20)))
        cuts = sorted(dice.sample(range(len(sent) + 1), min(dice.randrange(6), len(sent))))
        pieces = [sent[a:b] for a, b in zip([0, *cuts], [*cuts, len(sent)], strict=True)]
        slices = [dice.randrange(1, 5) for _ in pieces]
        outcomes = [_outcome(make, pieces, slices) for make in READERS]
        assert outcomes[0] == outcomes[1], sent.hex()


def _random_frame(dice: random.Random) -> bytes:
    if dice.random() < 0.02:
        return dice.randbytes(dice.randrange(1, 12))
    opcode = dice.choice(
        [TEXT, BINARY, CONTINUATION, CONTINUATION, PING, CLOSE]
        + [dice.randrange(16)] * (dice.random() < 0.05)
    )
    payload = dice.choice([b"", b"a", "é".encode(), b"\xc3", b"\xa9", b"x" * dice.randrange(300)])
    return frame(opcode, payload, final=dice.random() < 0.6, mask=dice.randbytes(4))


def _outcome(make: type[PurePythonFrameReader], pieces: list[bytes], slices: list[int]) -> list[Any]:
    client = Client(make)
    try:
        for piece, max_frames in zip(pieces, slices, strict=True):
            more = client.send(piece, max_frames=max_frames)
            client.seen.append(more)
            while more:
                more = client.reader.read(max_frames, 1e9)
    except FrameError as fault:
        client.seen.append((fault.code, fault.reason))
    return client.seen
