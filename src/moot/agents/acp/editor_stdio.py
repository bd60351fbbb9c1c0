"""The lines of an editor: our own stdin and stdout, with bounds."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Final

from moot.agents.acp.json_rpc import PeerGone
from moot.mcp.stdio_child import LineSplitter

# A prompt with a few large files in it.
_LINE_BYTES: Final = 16 << 20
# What an editor has not read yet.
_UNREAD_BYTES: Final = 16 << 20


class _Input(asyncio.Protocol):
    def __init__(self, on_data: Callable[[bytes], None], ended: asyncio.Event) -> None:
        self._on_data = on_data
        self._ended = ended

    def data_received(self, data: bytes) -> None:
        self._on_data(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._ended.set()


class EditorLines:
    """Lines to and from the editor. `ended` is set when it has gone, or does not read."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self._reading: asyncio.ReadTransport | None = None
        self._writing: asyncio.WriteTransport | None = None

    async def open(self, stdin: int, stdout: int, on_line: Callable[[bytes], None]) -> None:
        """Begin to write, and then to read: the first line may be there already."""
        loop = asyncio.get_running_loop()
        out = os.fdopen(os.dup(stdout), "wb", buffering=0)
        self._writing, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, out)
        splitter = LineSplitter(on_line, lambda *_: self.ended.set(), max_line_bytes=_LINE_BYTES)
        given = os.fdopen(os.dup(stdin), "rb", buffering=0)
        self._reading, _ = await loop.connect_read_pipe(lambda: _Input(splitter.feed, self.ended), given)

    def write(self, line: bytes) -> None:
        writing = self._writing
        if writing is None or writing.is_closing():
            raise PeerGone("the editor has gone")
        if writing.get_write_buffer_size() > _UNREAD_BYTES:
            self.ended.set()
            raise PeerGone("the editor does not read")
        writing.write(line + b"\n")

    def close(self) -> None:
        for transport in (self._reading, self._writing):
            if transport is not None:
                transport.close()
