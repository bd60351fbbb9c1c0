"""A space with members who offer things, and an MCP client that takes part in it through `moot mcp`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp import Client
from moot.bridges.space.space_backend import BackendSettings, SpaceBackend
from moot.mcp.downstream.http_access import HttpAccessPolicy
from moot.mcp.downstream.http_server import McpHttpServer
from moot.mcp.downstream.limits import McpServerLimits
from moot.mcp.downstream.mcp_server import McpServer
from moot.net.http_listener import bind_socket, serve_http
from moot.participant import JoinedSpace, connect
from tests.gateway.running_gateway import LocalGateway, participants, running_gateway

# A decision takes longer than this, so that every way of telling the client of it is taken.
HASTY = McpServerLimits(decision_seconds=0.05, answer_seconds=5)
HOST: list[Any] = ["mcp/response", "chat", {"kind": "mcp/request", "payload": {"method": "notifications/*"}}]
PROPOSER: list[Any] = ["mcp/proposal", "mcp/withdraw", "chat"]


@dataclass
class ServedSpace:
    """`files` and `notes` offer things, `alice` may do everything, `guest` may only propose."""

    gateway: LocalGateway
    stack: AsyncExitStack

    async def join(self, name: str, **options: Any) -> JoinedSpace:
        return await self.stack.enter_async_context(connect(self.gateway.url, "lab", f"t-{name}", **options))

    async def serve(
        self,
        name: str,
        limits: McpServerLimits | None = None,
        settings: BackendSettings | None = None,
        joining: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> ServedMember:
        """Join under this name and serve the space over HTTP."""
        space = await self.join(name, **(joining or {}))
        return await serve_member(space, self.stack, limits, settings, **options)


@dataclass
class ServedMember:
    """A member whose MCP server clients can reach."""

    space: JoinedSpace
    backend: SpaceBackend
    server: McpServer
    http: McpHttpServer
    url: str

    def client(self, mode: Any = "2026-07-28", **more: Any) -> Client:
        return Client(self.url, mode=mode, **more)


async def serve_member(
    space: JoinedSpace,
    stack: AsyncExitStack,
    limits: McpServerLimits | None = None,
    settings: BackendSettings | None = None,
    **options: Any,
) -> ServedMember:
    """The space as this member sees it, served over HTTP until the stack is left."""
    backend = await stack.enter_async_context(SpaceBackend(space, settings, space_name="lab", **options))
    server = await stack.enter_async_context(McpServer(backend, limits or McpServerLimits()))
    listening = bind_socket("127.0.0.1", 0)
    port = listening.getsockname()[1]
    http = McpHttpServer(server, HttpAccessPolicy.of(port))
    stack.callback(http.close)
    await stack.enter_async_context(serve_http(http, listening))
    return ServedMember(space, backend, server, http, f"http://127.0.0.1:{port}/mcp")


@asynccontextmanager
async def served_space(
    folder: Path, people: Mapping[str, Any] | None = None, rules: Mapping[str, Any] | None = None
) -> AsyncIterator[ServedSpace]:
    everybody: dict[str, Any] = {
        "alice": ["*"],
        "bob": ["*"],
        "guest": PROPOSER,
        "files": HOST,
        "notes": HOST,
    }
    async with (
        running_gateway(folder, participants(**(everybody | dict(people or {}))), rules=rules) as gateway,
        AsyncExitStack() as stack,
    ):
        yield ServedSpace(gateway, stack)


def offer_files(space: JoinedSpace) -> dict[str, str]:
    """Tools, resources and a prompt of a member; returns what the tools write into."""
    kept: dict[str, str] = {"a.txt": "hello"}

    @space.tool
    def read_file(path: str) -> str:
        """Read a file."""
        return kept[path]

    @space.tool
    def write_file(path: str, text: str) -> str:
        """Write a text into a file."""
        kept[path] = text
        return f"wrote {path}"

    @space.resource("file:///a.txt", mime_type="text/plain")
    def a() -> str:
        return kept["a.txt"]

    @space.resource("file:///{name}")
    def by_name(name: str) -> str:
        return kept[name]

    @space.prompt
    def summarise(path: str) -> str:
        """Summarise a file."""
        return f"Summarise {path}"

    return kept


def text_of(result: Any) -> str:
    return "\n".join(item.text for item in result.content if item.type == "text")
