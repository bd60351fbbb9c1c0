"""Lines over pipes, in and out, with bounds: of a child process, or of our own standard streams.

Reading and writing happen on the event loop: a thread for each line, as the MCP SDK does it, costs more than
a whole answer.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable
from typing import Final

# Enough for `{"jsonrpc":"2.0","id":…` at either end.
_EDGE_BYTES: Final = 256
_CHUNK: Final = 1 << 16
_FLUSH_SECONDS: Final = 2.0


class LineSplitter:
    """Cuts output into lines: `on_line` gets each without its end, `on_oversize` the edges of a long one."""

    def __init__(
        self,
        on_line: Callable[[bytes], None],
        on_oversize: Callable[[bytes, bytes, int], None],
        *,
        max_line_bytes: int,
    ) -> None:
        self._on_line = on_line
        self._on_oversize = on_oversize
        self._max_line_bytes = max_line_bytes
        self._is_closed = False
        self._pieces: list[bytes] = []
        self._kept_bytes = 0
        # Set while a line that is too long still arrives: its first and its latest bytes.
        self._head: bytes | None = None
        self._tail = b""

    def close(self) -> None:
        """Drop whatever comes from now on."""
        self._is_closed = True

    def feed(self, data: bytes) -> None:
        """Take the next bytes, wherever they are cut."""
        if self._is_closed:
            return
        *lines, rest = data.split(b"\n")
        for line in lines:
            if self._head is not None:
                head, size = self._head, self._kept_bytes + len(line)
                self._head, self._kept_bytes = None, 0
                self._on_oversize(head, (self._tail + line)[-_EDGE_BYTES:], size)
                continue
            if self._pieces:
                line = b"".join((*self._pieces, line))
                self._pieces.clear()
            self._kept_bytes = 0
            if len(line) > self._max_line_bytes:
                self._on_oversize(line[:_EDGE_BYTES], line[-_EDGE_BYTES:], len(line))
            elif line:
                self._on_line(line)
        if rest:
            self._keep_partial(rest)

    def _keep_partial(self, rest: bytes) -> None:
        self._kept_bytes += len(rest)
        if self._head is not None:
            self._tail = (self._tail + rest)[-_EDGE_BYTES:]
        elif self._kept_bytes > self._max_line_bytes:
            line = b"".join((*self._pieces, rest))
            self._pieces.clear()
            self._head, self._tail = line[:_EDGE_BYTES], line[-_EDGE_BYTES:]
        else:
            self._pieces.append(rest)


class StdioLines(asyncio.Protocol):
    """Lines with whoever is at the other end of two descriptors.

    While half of `unread_bytes` waits to be read by it, nothing of it is read. `ended` is set when it has
    gone; or when more than `unread_bytes` wait, and then `is_read` is False.
    """

    def __init__(
        self,
        on_line: Callable[[bytes], None],
        on_too_long: Callable[[], None],
        *,
        line_bytes: int,
        unread_bytes: int,
    ) -> None:
        self._splitter = LineSplitter(on_line, lambda *_: on_too_long(), max_line_bytes=line_bytes)
        self._unread_bytes = unread_bytes
        self._reading: asyncio.ReadTransport | None = None
        # A transport, or the descriptor of a file.
        self._writing: asyncio.WriteTransport | int | None = None
        self.ended = asyncio.Event()
        self.is_read = True

    async def open(self, stdin: int, stdout: int) -> None:
        """Begin to write, and then to read: the first line may be there already."""
        loop = asyncio.get_running_loop()
        if _is_file(stdout):
            self._writing = stdout
        else:
            out = os.fdopen(os.dup(stdout), "wb", buffering=0)
            self._writing, _ = await loop.connect_write_pipe(lambda: _WriteSide(self), out)
            # Not asyncio's 64 KiB: whoever writes a large message before it reads ours would wait for us, and
            # we for it. What waits to be read is bounded all the same.
            self._writing.set_write_buffer_limits(high=self._unread_bytes // 2)
        if _is_file(stdin):
            # All of it is there already.
            while data := os.read(stdin, _CHUNK):
                self.data_received(data)
            self.eof_received()
        else:
            given = os.fdopen(os.dup(stdin), "rb", buffering=0)
            self._reading, _ = await loop.connect_read_pipe(lambda: self, given)

    def write(self, line: bytes) -> None:
        """Write a line, or nothing if nobody reads it; never waits."""
        if isinstance(self._writing, int):
            data = line + b"\n"
            while data:
                data = data[os.write(self._writing, data) :]
        elif self._writing is not None and not self._writing.is_closing():
            self._writing.write(line + b"\n")
            if self._writing.get_write_buffer_size() > self._unread_bytes:
                self.is_read = False
                self.ended.set()

    async def close(self) -> None:
        """Stop reading, and give what was written a moment to be read."""
        if self._reading is not None:
            self._reading.close()
        if self._writing is not None and not isinstance(self._writing, int):
            end = asyncio.get_running_loop().time() + _FLUSH_SECONDS
            while self._writing.get_write_buffer_size() and asyncio.get_running_loop().time() < end:
                await asyncio.sleep(0.01)
            self._writing.close()

    def pause(self, is_paused: bool) -> None:
        if self._reading is not None and not self._reading.is_closing():
            (self._reading.pause_reading if is_paused else self._reading.resume_reading)()

    # Called by asyncio

    def data_received(self, data: bytes) -> None:
        self._splitter.feed(data)

    def eof_received(self) -> bool:
        # The last line may lack its end.
        self._splitter.feed(b"\n")
        self.ended.set()
        return False

    def connection_lost(self, _: Exception | None) -> None:
        self.ended.set()


class _WriteSide(asyncio.BaseProtocol):
    """Stops the reading while what is written is not read, and notices when nobody is there any more."""

    def __init__(self, lines: StdioLines) -> None:
        self._lines = lines

    def pause_writing(self) -> None:
        self._lines.pause(True)

    def resume_writing(self) -> None:
        self._lines.pause(False)

    def connection_lost(self, _: Exception | None) -> None:
        self._lines.ended.set()


def _is_file(descriptor: int) -> bool:
    """A file, or a device such as /dev/null: event loops cannot wait for those, and libuv aborts."""
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISREG(mode) or (stat.S_ISCHR(mode) and not os.isatty(descriptor))
