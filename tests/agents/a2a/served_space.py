"""A space whose member `coder` is published, and callers with the official SDK."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from a2a.client import Client, ClientConfig, ClientFactory
from a2a.types import (
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    StreamResponse,
    Task,
    TaskState,
)
from google.protobuf.json_format import ParseDict

from moot.agents.a2a.a2a_server import published
from moot.agents.a2a.a2a_settings import ServeSettings
from moot.net.http_listener import bind_socket, serve_http
from moot.participant import JoinedSpace, connect
from moot.participant.connection.envelope_writer import new_id
from moot.protocol.envelope import Envelope
from tests.gateway.running_gateway import LocalGateway, participants, running_gateway
from tests.waiting import HANG_SECONDS, until_told

LIST: dict[str, Any] = {"kind": "mcp/request", "payload": {"method": "tools/list"}}
READ: dict[str, Any] = {
    "kind": "mcp/request",
    "payload": {"method": "tools/call", "params": {"name": "read"}},
}
CODER: list[Any] = ["chat", "chat/*", "reasoning/*", "mcp/proposal", "mcp/withdraw", "mcp/response"]
CALLER: list[Any] = ["chat", "chat/*", "mcp/proposal", "mcp/withdraw", LIST, READ]


@dataclass(slots=True)
class ServedSpace:
    """The gateway, the service's address, `coder` and `alice` who decides."""

    gateway: LocalGateway
    folder: Path
    url: str
    coder: JoinedSpace
    alice: JoinedSpace
    heard: list[Envelope] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def client(self, token: str = "t-acme", **config: Any) -> Client:
        """A caller that uses the card, as callers do."""
        http = await self.stack.enter_async_context(
            httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=HANG_SECONDS)
        )
        return await ClientFactory(ClientConfig(httpx_client=http, **config)).create_from_url(
            f"{self.url}/coder"
        )

    async def task(self, client: Client, id: str, state: TaskState) -> Task:
        """The task, once it is in this state."""

        async def look() -> Task | None:
            found = await client.get_task(GetTaskRequest(id=id))
            return found if found.status.state == state else None

        found = await until_told(look)
        assert found is not None
        return found


def request(text: str = "", **more: Any) -> SendMessageRequest:
    """A message, or with `data` a call of a tool."""
    data = more.pop("data", None)
    part = Part(text=text) if data is None else ParseDict({"data": data}, Part())
    given: dict[str, Any] = {"message_id": new_id(), "role": Role.ROLE_USER, "parts": [part]}
    configuration = more.pop("configuration", None)
    return SendMessageRequest(message=Message(**(given | more)), configuration=configuration)


async def collect(client: Client, sent: SendMessageRequest) -> list[StreamResponse]:
    return [event async for event in client.send_message(sent)]


@asynccontextmanager
async def service(served: ServedSpace, port: int = 0, **more: Any) -> AsyncIterator[str]:
    """`moot a2a serve`, in this process."""
    listening = bind_socket("127.0.0.1", port)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    given: dict[str, Any] = {
        "gateway": served.gateway.url,
        "space": "lab",
        "members": ("coder",),
        "public_url": url,
        "state_folder": served.folder / "state",
        "console": "https://moot.example",
    }
    settings = ServeSettings(**(given | more))
    async with (
        connect(served.gateway.url, "lab", "t-a2a") as space,
        published(space, settings) as app,
        serve_http(app, listening),
    ):
        served.url = url
        yield url


@asynccontextmanager
async def space_with_coder(
    folder: Path, rules: Mapping[str, Any] | None = None
) -> AsyncIterator[ServedSpace]:
    (folder / "gateway").mkdir()
    everybody = participants(alice=["*"], coder=CODER, acme=CALLER, other=CALLER, mute=[], a2a=[LIST])
    async with (
        running_gateway(folder / "gateway", everybody, rules=rules) as gateway,
        connect(gateway.url, "lab", "t-alice") as alice,
        connect(gateway.url, "lab", "t-coder") as coder,
        AsyncExitStack() as stack,
    ):
        served = ServedSpace(gateway, folder, "", coder, alice, stack=stack)
        alice.on("*")(served.heard.append)

        @coder.tool
        def read(name: str) -> str:
            """Read a file."""
            return f"content of {name}"

        @coder.tool
        def write(name: str, lines: int) -> str:
            """Write a file."""
            served.written.append(f"{name} {lines!r}")
            return "written"

        yield served


@asynccontextmanager
async def served_space(folder: Path, **more: Any) -> AsyncIterator[ServedSpace]:
    async with space_with_coder(folder) as lab, service(lab, **more):
        yield lab


def write_config(folder: Path, gateway: LocalGateway, everybody: Mapping[str, Any]) -> None:
    """The moot.yaml of the running gateway, for commands with `--as`."""
    port = int(gateway.url.rpartition(":")[2])
    config = {"gateway": {"port": port}, "spaces": {"lab": {"participants": everybody}}}
    (folder / "moot.yaml").write_text(json.dumps(config))


def answering(served: ServedSpace, text: str = "Done.") -> None:
    """The member answers every chat, with reasoning before it."""

    @served.coder.on("chat")
    async def answer(chat: Envelope) -> None:
        if "coder" in chat.to:
            await served.coder.chats.acknowledge(chat)
            async with served.coder.reasoning("thinking", about=chat.id) as reasoning:
                await reasoning.thought("a secret thought")
                await asyncio.sleep(0)
            await served.coder.chat(text, to=chat.sender, about=chat.id)
