"""Server-sent events from a byte stream, as endpoints of models send them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

# A byte order mark is allowed at the beginning.
_MARK: Final = b"\xef\xbb\xbf"


class EventDecoder:
    """Bytes in, the data of events out. Comments, names and other fields are ignored.

    Lines end with CR, LF or both, and with nothing else: JSON may contain other line separators of Unicode.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._is_first = True

    def feed(self, received: bytes) -> list[str]:
        # A CR at the end may be half of a line end.
        received = self._rest + received
        keep = b"\r" if received.endswith(b"\r") else b""
        *lines, rest = _split(received[: len(received) - len(keep)])
        self._rest = rest + keep
        return self._events(lines)

    def end(self) -> list[str]:
        """An event without the empty line that should follow it counts, too: some endpoints just stop."""
        lines, self._rest = _split(self._rest), b""
        return self._events([*lines, b""])

    def _events(self, lines: list[bytes]) -> list[str]:
        events = []
        for line in lines:
            if self._is_first:
                line, self._is_first = line.removeprefix(_MARK), False
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line and self._data:
                events.append(b"\n".join(self._data).decode("utf-8", "replace"))
                self._data = []
        return events


def _split(received: bytes) -> list[bytes]:
    return received.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")


async def decode_events(received: AsyncIterator[bytes]) -> AsyncIterator[str]:
    decoder = EventDecoder()
    async for part in received:
        for event in decoder.feed(part):
            yield event
    for event in decoder.end():
        yield event
