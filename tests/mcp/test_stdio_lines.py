"""Lines over pipes with somebody who is busy writing, and does not read meanwhile."""

from __future__ import annotations

import asyncio
import os

from moot.mcp.stdio_lines import StdioLines
from tests.waiting import bounded

LARGE = 1 << 20


async def test_whoever_writes_a_large_message_before_it_reads_ours_is_heard() -> None:
    """An editor sends a large prompt while our answer waits: neither may wait for the other."""
    ours, theirs = os.pipe(), os.pipe()
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    lines = StdioLines(heard.put_nowait, lambda: None, line_bytes=2 * LARGE, unread_bytes=4 * LARGE)
    await lines.open(ours[0], theirs[1])
    try:
        lines.write(b"a" * LARGE)
        # It blocks until all of it is read, as a program does that does one thing at a time.
        writing = asyncio.to_thread(_write_all, ours[1], b"b" * LARGE + b"\n")
        async with bounded():
            await writing
            assert await heard.get() == b"b" * LARGE
            assert await asyncio.to_thread(_read, theirs[0], LARGE + 1) == b"a" * LARGE + b"\n"
        assert not lines.ended.is_set()
    finally:
        await lines.close()
        for each in (*ours, *theirs):
            os.close(each)


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _read(descriptor: int, size: int) -> bytes:
    parts: list[bytes] = []
    while sum(map(len, parts)) < size:
        parts.append(os.read(descriptor, size))
    return b"".join(parts)
