"""A client of a relay that says exactly what it is told to, for tests; and events made right now."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
from websockets.asyncio.client import ClientConnection, connect

from moot.xprotocol.events.event_composer import publish
from moot.xprotocol.events.events import ANNOUNCE, SignedDirected, SignedPublic
from moot.xprotocol.events.relay_auth import prove
from moot.xprotocol.identity.keys import Identity
from moot.xprotocol.relay.relay_server import RelayServer, open_relay
from moot.xprotocol.relay.relay_settings import RelaySettings
from tests.waiting import bounded
from tests.xprotocol.people import ALICE, BOB, call


def event(sender: Identity = ALICE, recipient: Identity = BOB, **more: Any) -> SignedDirected:
    return call(sender, recipient, **({"now": time.time()} | more))


def announce(sender: Identity = ALICE, *, now: float | None = None, **payload: Any) -> SignedPublic:
    return publish(sender, ANNOUNCE, payload, now=time.time() if now is None else now)


class RawRelayClient:
    """One connection."""

    def __init__(self, socket: ClientConnection, url: str) -> None:
        self.socket = socket
        self.url = url
        self.challenge = ""

    async def say(self, *message: Any) -> None:
        await self.socket.send(orjson.dumps(message).decode())

    async def say_raw(self, text: str | bytes) -> None:
        await self.socket.send(text)

    async def hear(self) -> list[Any]:
        async with bounded():
            answer = await self.socket.recv(decode=False)
        received: list[Any] = orjson.loads(answer)
        return received

    async def hear_raw(self) -> bytes:
        async with bounded():
            answer = await self.socket.recv(decode=False)
        assert isinstance(answer, bytes)
        return answer

    async def publish(self, raw: bytes) -> list[Any]:
        """The OK for an event, on a connection without subscriptions."""
        await self.socket.send(b'["EVENT",' + raw + b"]", text=True)
        return await self.hear()

    async def prove(self, identity: Identity, **more: Any) -> list[Any]:
        options: dict[str, Any] = {"relay": self.url, "challenge": self.challenge, "now": time.time()} | more
        proof = prove(identity, options["relay"], options["challenge"], now=options["now"])
        await self.socket.send(b'["AUTH",' + proof + b"]", text=True)
        return await self.hear()

    async def stored(self, name: str, *filters: dict[str, Any]) -> list[bytes]:
        """The raw events up to EOSE."""
        await self.say("REQ", name, *filters)
        head = b'["EVENT",' + orjson.dumps(name) + b","
        found: list[bytes] = []
        while (answer := await self.hear_raw()).startswith(head):
            found.append(answer[len(head) : -1])
        assert orjson.loads(answer) == ["EOSE", name]
        return found

    async def closed(self) -> tuple[int, str]:
        async with bounded():
            await self.socket.wait_closed()
        return self.socket.close_code or 1006, self.socket.close_reason or ""


@asynccontextmanager
async def raw_client(url: str, **options: Any) -> AsyncIterator[RawRelayClient]:
    async with connect(url, max_size=None, close_timeout=1, **options) as socket:
        client = RawRelayClient(socket, url)
        word, client.challenge = await client.hear()
        assert word == "AUTH"
        yield client


@asynccontextmanager
async def relay_in(folder: Path, **settings: Any) -> AsyncIterator[RelayServer]:
    options: dict[str, Any] = {"data": folder, "port": 0} | settings
    async with open_relay(RelaySettings(**options)) as relay:
        yield relay
