"""What arrives at the console in its benchmark: one member that talks at a steady pace, on its own thread."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Self

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

# A twentieth of a second: what was missed while the machine was busy is not made up for in one burst.
_MOST_OWED_SECONDS = 0.05


def _conversation(number: int) -> Iterator[str]:
    """A proposal, the request that fulfils it, and its answer; now and then a chat."""
    call = {
        "method": "tools/call",
        "params": {"name": f"tool_{number % 17}", "arguments": {"path": f"notes/{number}.txt"}},
    }
    yield json.dumps({"id": f"p{number}", "kind": "mcp/proposal", "to": ["agent"], "payload": call})
    about = {"correlation_id": [f"p{number}"]}
    yield json.dumps({"id": f"q{number}", "kind": "mcp/request", "to": ["agent"], "payload": call} | about)
    result = {"result": {"content": [{"type": "text", "text": f"line {number} of the file, and more of it"}]}}
    about = {"correlation_id": [f"q{number}"]}
    yield json.dumps({"id": f"r{number}", "kind": "mcp/response", "to": ["agent"], "payload": result} | about)
    yield json.dumps({"id": f"c{number}", "kind": "chat", "payload": {"text": f"done with {number}"}})


def _envelopes() -> Iterator[str]:
    number = 0
    while True:
        yield from _conversation(number)
        number += 1


class Load:
    """Says things at a pace that can be changed; leaving the block ends it."""

    def __init__(self, url: str, space: str, token: str) -> None:
        self._address = f"{url.replace('http://', 'ws://')}/ws?space={space}&echo=0"
        self._token = token
        self._pace, self._until = 0.0, 0
        self._stopping = False
        self.said = 0
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _fault: BaseException | None, _where: TracebackType | None
    ) -> None:
        self._stopping = True
        self._thread.join(10)

    def go(self, pace: float, until: int = sys.maxsize) -> None:
        """So many a second from now on, and no more than `until` in all."""
        self._pace, self._until = pace, until

    async def _run(self) -> None:
        headers = {"Authorization": f"Bearer {self._token}"}
        async with connect(
            self._address, additional_headers=headers, proxy=None, max_queue=None, ping_interval=None
        ) as socket:
            reader = asyncio.create_task(_read(socket))
            envelopes = _envelopes()
            owed, before = 0.0, time.perf_counter()
            while not self._stopping:
                await asyncio.sleep(0.005)
                now = time.perf_counter()
                owed = min(self._pace * _MOST_OWED_SECONDS, owed + (now - before) * self._pace)
                before = now
                while owed >= 1 and self.said < self._until:
                    await socket.send(next(envelopes))
                    owed -= 1
                    self.said += 1
            reader.cancel()


async def _read(socket: ClientConnection) -> None:
    with suppress(ConnectionClosed):
        async for _ in socket:
            pass
