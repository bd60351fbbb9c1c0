"""What one connection waits for: given to its transport piece by piece, and given up without progress."""

from __future__ import annotations

from moot.net.outbox import MAX_SECONDS, Outbox

HIGH, LOW = 256 << 10, 64 << 10
MESSAGE = b"x" * 1_000_000


class SteppedTransport:
    """A transport whose reader takes as much as the test says; it calls back as asyncio's do."""

    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox
        self.now = 100.0
        self.buffered = self.largest = self.taken = 0
        self._is_full = False
        outbox.attach(self)

    def write(self, data: bytes) -> None:
        self.buffered += len(data)
        self.largest = max(self.largest, self.buffered)
        if self.buffered > HIGH and not self._is_full:
            self._is_full = True
            self.outbox.pause(self.now)

    def take(self, size: int) -> None:
        size = min(size, self.buffered)
        self.buffered -= size
        self.taken += size
        if self._is_full and self.buffered <= LOW:
            self._is_full = False
            self.outbox.resume(self.now)


def outbox_and_reasons(**limits: int) -> tuple[Outbox, list[str]]:
    reasons: list[str] = []
    return Outbox("mew", reasons.append, **limits), reasons


def test_who_makes_progress_is_not_cut_off_however_long_it_takes() -> None:
    """16 Mbit/s are 2 MB a second; here it is a tenth of that, and a message comes now and then."""
    outbox, reasons = outbox_and_reasons()
    transport = SteppedTransport(outbox)
    for _ in range(8):
        outbox.pending.append(MESSAGE)
        outbox.flush(transport.now)
    while transport.taken < 8 * len(MESSAGE):
        transport.now += 1.0
        transport.take(200_000)
        outbox.pending.append(b"small")
        outbox.flush(transport.now)
    assert transport.now - 100.0 > 3 * MAX_SECONDS
    assert reasons == []
    # The rest was not copied before its turn.
    assert transport.largest < len(MESSAGE) + HIGH


def test_who_takes_nothing_for_so_long_is_cut_off() -> None:
    outbox, reasons = outbox_and_reasons()
    transport = SteppedTransport(outbox)
    for _ in range(4):
        outbox.pending.append(MESSAGE)
        outbox.flush(transport.now)
    transport.now += MAX_SECONDS + 1.0
    outbox.pending.append(b"small")
    outbox.flush(transport.now)
    assert reasons == ["11 s behind, more than 10"]


def test_what_waits_is_counted_anew_after_a_piece_was_taken() -> None:
    outbox, reasons = outbox_and_reasons(max_bytes=5 * len(MESSAGE), max_messages=100)
    transport = SteppedTransport(outbox)
    for _ in range(20):
        outbox.pending.append(MESSAGE)
        outbox.flush(transport.now)
        transport.take(2 * len(MESSAGE))
    assert reasons == []
    for _ in range(6):
        outbox.pending.append(MESSAGE)
        outbox.flush(transport.now)
    assert reasons == []
    outbox.pending.append(MESSAGE)
    outbox.flush(transport.now)
    assert reasons == [f"{6 * len(MESSAGE)} bytes behind, more than {5 * len(MESSAGE)}"]


def test_small_messages_are_joined_and_all_of_them_go_in_order() -> None:
    outbox, _ = outbox_and_reasons()
    written: list[bytes] = []

    class Writer:
        def write(self, data: bytes) -> None:
            written.append(data)

    outbox.attach(Writer())
    messages = [b"%d," % number for number in range(1_000)] + [b"y" * (300 << 10), b"end"]
    outbox.pending.extend(messages)
    outbox.flush(0.0)
    assert b"".join(written) == b"".join(messages)
    assert len(written) == 2
