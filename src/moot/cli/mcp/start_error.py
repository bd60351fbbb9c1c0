"""Why `moot mcp` ends at the start, as the answer to the client's first request over stdio."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from contextlib import suppress
from typing import Final

import orjson

from moot.mcp.downstream.rpc import InvalidRpcMessage, RpcRequest, parse_message

# How long to wait for the client's first request.
_FIRST_REQUEST_SECONDS: Final = 2.0


async def answer_with_error(why: str) -> None:
    """Answer the client's first request with the reason, so that it shows more than a closed pipe."""
    loop = asyncio.get_running_loop()
    first: asyncio.Future[bytes] = loop.create_future()

    def read_first() -> None:
        # The loop may be closed by now: then there is nothing to do.
        with suppress(RuntimeError, OSError):
            loop.call_soon_threadsafe(_settle, first, _first_line(sys.stdin.fileno()))

    # A daemon thread: nothing can wake it while it waits for the client.
    threading.Thread(target=read_first, name="standard input", daemon=True).start()
    try:
        async with asyncio.timeout(_FIRST_REQUEST_SECONDS):
            line = await first
        message = parse_message(line)
    except (TimeoutError, InvalidRpcMessage, OSError):
        return
    if isinstance(message, RpcRequest):
        error = {"code": -32000, "message": f"moot mcp: {why}"}
        sys.stdout.buffer.write(orjson.dumps({"jsonrpc": "2.0", "id": message.id, "error": error}) + b"\n")
        sys.stdout.buffer.flush()


def _first_line(handle: int) -> bytes:
    # Not sys.stdin: if a waiting thread holds its lock, the interpreter cannot exit.
    kept = b""
    while b"\n" not in kept and len(kept) < 1 << 20 and (data := os.read(handle, 1 << 16)):
        kept += data
    return kept.partition(b"\n")[0]


def _settle(first: asyncio.Future[bytes], line: bytes) -> None:
    if not first.done():
        first.set_result(line)
