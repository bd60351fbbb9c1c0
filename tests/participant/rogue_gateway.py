"""A gateway that checks nothing and sends whatever it is told to: what an SDK must withstand by itself."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import websockets
from websockets.asyncio.server import ServerConnection, serve

from moot.protocol.operation import Json
from tests.waiting import bounded

_numbers = itertools.count(1)
GATEWAY = "system:gateway"


class RogueGateway:
    """One connection of the SDK under test, seen from the other side."""

    def __init__(self, *, echo: bool = True) -> None:
        self.received: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.url = ""
        self.sockets: list[ServerConnection] = []
        self.capabilities: list[Json] = [{"kind": "*"}]
        self.participants: list[Json] = [{"id": "bob", "capabilities": []}]
        self._echo = echo
        self.welcomes = True
        # As the gateway of the reference implementation: who sends no join frame hears nothing.
        self.waits_for_join = False
        self.joins: list[dict[str, Any]] = []
        # Kinds that are not echoed, as if the gateway had refused them.
        self.kept: set[str] = set()
        self.protocol = "mew/v0.4"
        self.welcome = "system/welcome"
        # What its welcome tells besides.
        self.welcome_facts: dict[str, Json] = {}
        # How many chats, and then a call of our tool, come in the same breath as the welcome.
        self.behind_the_welcome = 0

    async def serve(self, socket: ServerConnection) -> None:
        self.sockets.append(socket)
        me = "me"
        if self.waits_for_join:
            self.joins.append(json.loads(await socket.recv()))
            me = self.joins[-1].get("participantId", "somebody")
        if self.welcomes:
            await self.emit(
                self.welcome,
                {"you": {"id": me, "capabilities": self.capabilities}, "participants": self.participants}
                | self.welcome_facts,
                to=[me],
            )
        for _ in range(self.behind_the_welcome):
            await self.emit("chat", {"text": "already"}, sender="bob")
        if self.behind_the_welcome:
            call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "hello"}}
            await self.emit("mcp/request", call, sender="bob", to=["me"])
        try:
            async for message in socket:
                if isinstance(message, bytes) or message.startswith("#"):
                    continue
                fields = json.loads(message)
                if fields.get("type") == "join":
                    self.joins.append(fields)
                    continue
                if self._echo and fields["kind"] not in self.kept:
                    await socket.send(message)
                await self.received.put(fields)
        except websockets.ConnectionClosed:
            pass

    async def emit(
        self,
        kind: str,
        payload: Json = None,
        *,
        sender: str = GATEWAY,
        to: Sequence[str] = (),
        about: Sequence[str] = (),
        **more: Json,
    ) -> str:
        fields: dict[str, Json] = {
            "protocol": self.protocol,
            "id": f"rogue-{next(_numbers)}",
            "ts": "2026-01-01T00:00:00Z",
            "from": sender,
            "kind": kind,
            "payload": {} if payload is None else payload,
        }
        if to:
            fields["to"] = list(to)
        if about:
            fields["correlation_id"] = list(about)
        fields |= more
        await self.send(json.dumps(fields))
        return str(fields["id"])

    async def send(self, message: str | bytes) -> None:
        await self.sockets[-1].send(message)

    async def wait_for(self, kind: str) -> dict[str, Any]:
        async with bounded():
            while True:
                fields = await self.received.get()
                if fields["kind"] == kind:
                    return fields

    async def fence(self) -> None:
        """Everything sent so far has been read by the SDK: it has answered a ping that came after it."""
        async with bounded():
            await (await self.sockets[-1].ping())


@asynccontextmanager
async def rogue_gateway(**options: Any) -> AsyncIterator[RogueGateway]:
    gateway = RogueGateway(**options)
    async with serve(gateway.serve, "127.0.0.1", 0, compression=None, ping_interval=None) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        gateway.url = f"http://127.0.0.1:{port}"
        yield gateway
