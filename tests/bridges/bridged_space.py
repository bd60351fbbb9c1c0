"""A space with bridged servers in it, and members who ask them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moot.bridges.server.bridge_runner import bridged
from moot.bridges.server.bridge_settings import BridgeSettings
from moot.bridges.server.server_member import ServerMember
from moot.config.configuration import McpServerConfig
from moot.mcp.eras import JsonObject
from moot.mcp.upstream import Server, UpstreamOptions
from moot.participant import JoinedSpace, connect
from tests.gateway.running_gateway import LocalGateway, participants, running_gateway
from tests.mcp.upstreams import QUICK

# What a bridged server needs to tell of changes and to answer what everybody is asked.
HOST: list[Any] = [
    {"kind": "mcp/request", "payload": {"method": "notifications/*"}},
    "mcp/response",
    "mcp/reject",
    "chat",
    "moot/preview",
]


@dataclass(slots=True)
class BridgedSpace:
    """Everyone in a space: `alice` and `bob` may do everything, `carl` may only propose."""

    gateway: LocalGateway
    stack: AsyncExitStack
    members: dict[str, JoinedSpace] = field(default_factory=dict)
    hosts: list[ServerMember] = field(default_factory=list)

    async def join(self, name: str, **options: Any) -> JoinedSpace:
        space = await self.stack.enter_async_context(connect(self.gateway.url, "lab", f"t-{name}", **options))
        self.members[name] = space
        return space

    async def bridge(self, server: Server, name: str = "host", **settings: Any) -> ServerMember:
        options: dict[str, Any] = {"upstream": UpstreamOptions(limits=QUICK)} | settings
        said = {key: options.pop(key) for key in ("pin", "plans", "credentials") if key in options}
        made = BridgeSettings(
            server=server,
            gateway=self.gateway.url,
            space="lab",
            token=f"t-{name}",
            config=McpServerConfig(**said),
            **options,
        )
        host = await self.stack.enter_async_context(bridged(made))
        self.hosts.append(host)
        return host


@asynccontextmanager
async def bridged_space(folder: Path, people: Mapping[str, Any] | None = None) -> AsyncIterator[BridgedSpace]:
    proposer: list[Any] = ["mcp/proposal", "mcp/withdraw", "chat"]
    everybody: dict[str, Any] = {"alice": ["*"], "bob": ["*"], "carl": proposer, "host": HOST, "host2": HOST}
    async with (
        running_gateway(folder, participants(**(everybody | dict(people or {})))) as gateway,
        AsyncExitStack() as stack,
    ):
        yield BridgedSpace(gateway, stack)


async def call(
    space: JoinedSpace, tool: str, arguments: JsonObject | None = None, *, to: str = "host", **more: Any
) -> dict[str, Any]:
    """A direct `tools/call`, the raw result."""
    params: JsonObject = {"name": tool, "arguments": arguments or {}} | more.pop("also", {})
    return await space.request(to, "tools/call", params, **more)
