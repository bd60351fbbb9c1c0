"""The process that answers for the hooks of one command, so that each of them need not load Moot.

`hook_client` starts it, and it ends by itself when no hook came for a while. It keeps nothing between two
events: each is decided as `moot hook` does it, over a connection of its own and with the token that is in the
file by then. A hook that goes away takes its event with it: what nobody waits for is not released.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from moot.cli.agents.hook import answer_event
from moot.cli.agents.hook_client import MAX_EVENT_BYTES, command_key, is_own_peer, socket_path
from moot.cli.command_table import parser_for

# Longer than a model thinks between two calls.
IDLE_SECONDS: Final = 600.0


class HookService:
    """Answers hooks of one command until none came for a while."""

    def __init__(
        self, options: argparse.Namespace, key: bytes, *, idle_seconds: float = IDLE_SECONDS
    ) -> None:
        self._options = options
        self._idle_seconds = idle_seconds
        self._hello = b"%s\n%g\n" % (key, options.wait_seconds)
        self._open_events = 0
        self._used = asyncio.Event()

    async def serve(self, path: str, on_ready: Callable[[], None]) -> None:
        listening = _bind(path)
        own = os.stat(path).st_ino
        server = await asyncio.start_unix_server(self._answer, sock=listening, limit=MAX_EVENT_BYTES)
        async with server:
            on_ready()
            await self._wait_until_idle()
            # Another service may have taken our place.
            with suppress(OSError):
                if os.stat(path).st_ino == own:
                    os.unlink(path)
            server.close()
            while self._open_events:
                # It came at the last moment.
                self._used.clear()
                await self._used.wait()

    async def _wait_until_idle(self) -> None:
        while True:
            self._used.clear()
            try:
                await asyncio.wait_for(self._used.wait(), self._idle_seconds)
            except TimeoutError:
                if not self._open_events:
                    return

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open_events += 1
        try:
            if is_own_peer(writer.get_extra_info("socket")):
                await self._answer_one(reader, writer)
        except (OSError, ValueError, EOFError):
            # It is gone, or no hook of ours: it gets no answer.
            pass
        finally:
            self._open_events -= 1
            self._used.set()
            writer.close()

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(self._hello)
        size = int(await reader.readline())
        if not 0 <= size <= MAX_EVENT_BYTES:
            return
        event = await reader.readexactly(size)
        answering = asyncio.ensure_future(answer_event(self._options, event))
        gone = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({answering, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not gone.done():
                status, text = answering.result()
                said = text.encode(errors="backslashreplace")
                writer.write(b"%d %d\n" % (status, len(said)) + said)
                await writer.drain()
        finally:
            answering.cancel()
            gone.cancel()
            await asyncio.gather(answering, gone, return_exceptions=True)


def _bind(path: str) -> socket.socket:
    """Listen for our own user alone. What an earlier service left there, dead or alive, is replaced."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    own = f"{path}.{os.getpid()}"
    before = os.umask(0o177)
    try:
        listening.bind(own)
    finally:
        os.umask(before)
    listening.listen(64)
    os.rename(own, path)
    return listening


def _say_ready() -> None:
    """The hook that started us waits for this; then nothing connects us with it or with its agent."""
    os.write(1, b"+")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def main() -> int:
    words = sys.argv[1:]
    options = parser_for(["hook", *words]).parse(["hook", *words])
    key = command_key(words)
    path = None if key is None else socket_path(key)
    if key is None or path is None:
        return 1
    asyncio.run(HookService(options, key).serve(path, _say_ready))
    return 0


if __name__ == "__main__":
    sys.exit(main())
