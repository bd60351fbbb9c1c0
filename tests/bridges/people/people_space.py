"""A space, a provider of identities, and an MCP server for the people whom it knows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from moot.bridges.people.gateway_exchange import GatewayExchange
from moot.bridges.people.people_server import PeopleServer
from moot.bridges.people.person_server import PersonSettings
from moot.bridges.space.shared_offers import SharedOffers
from moot.bridges.space.space_backend import BackendSettings
from moot.cli.mcp.defaults import MAX_PEOPLE
from moot.config import load
from moot.gateway.app import Gateway
from moot.mcp.downstream.http_access import HttpAccessPolicy
from moot.mcp.downstream.limits import McpServerLimits
from moot.net.http_listener import bind_socket, serve_http
from moot.participant import JoinedSpace, connect
from moot.protocol.operation import Json
from tests.bridges.served_space import HOST, PROPOSER
from tests.config.former_constants import former_constants
from tests.gateway.running_gateway import (
    LocalGateway,
    gateway_settings,
    participants,
    space_settings,
    write_config,
)
from tests.gateway.sign_in.oidc_provider import Provider, person, running_provider
from tests.waiting import HANG_SECONDS, until

READ, CALL = "moot:read", "moot:call"
LISTS: list[Any] = [{"kind": "mcp/request", "payload": {"method": "*/list"}}]
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
META |= {"io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"}}
# The boss may do everything, whoever else signs in may propose.
RULES: list[Json] = [
    person(match={"sub": "u-boss"}, capabilities=["*"]),
    person(capabilities=[*PROPOSER, *LISTS]),
]


@dataclass
class PeopleSpace:
    """`files` offers things; `mcp` is the server that people come by."""

    gateway: LocalGateway
    provider: Provider
    people: PeopleServer
    url: str
    http: httpx.AsyncClient
    stack: AsyncExitStack

    def token(self, name: str, *scopes: str, **claims: Any) -> str:
        answer: dict[str, Any] = {"aud": self.url, "scope": " ".join(scopes or (READ, CALL))}
        answer |= {"client_id": "editor", "seconds": 3_600}
        return self.provider.token(f"u-{name}", **(answer | claims))

    async def join(self, name: str, **options: Any) -> JoinedSpace:
        return await self.stack.enter_async_context(connect(self.gateway.url, "lab", f"t-{name}", **options))

    async def restart_gateway(self) -> None:
        """The same gateway from its disk, at the same address."""
        port = self.gateway.gateway.port
        await self.gateway.gateway.stop()
        self.gateway.gateway = Gateway(load(self.gateway.folder / "moot.yaml", environ={}, port=port))
        await self.gateway.gateway.start()

    async def post(self, token: str | None, body: Json, **headers: str) -> httpx.Response:
        sent = {"Accept": "application/json, text/event-stream"} | headers
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        return await self.http.post(self.url, json=body, headers=sent)

    async def ask(self, token: str | None, method: str, **params: Any) -> httpx.Response:
        """One request of the stateless era."""
        headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method}
        if "name" in params:
            headers["Mcp-Name"] = params["name"]
        body: Json = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}
        return await self.post(token, body, **headers)

    async def initialize(self, token: str) -> httpx.Response:
        """The first request of the handshake era."""
        info: Json = {"name": "test", "version": "1"}
        params: Json = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        return await self.post(token, {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})


@asynccontextmanager
async def people_space(
    folder: Path,
    *rules: Json,
    scopes: bool = True,
    max_people: int = MAX_PEOPLE,
    limits: McpServerLimits | None = None,
    oidc: Json | None = None,
    **gateway: Json,
) -> AsyncIterator[PeopleSpace]:
    """`oidc`: further settings of the provider; the variable SECRET is there."""
    everybody: dict[str, Any] = {"root": ["*"], "files": HOST, "mcp": LISTS}
    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(running_provider())
        listening = stack.enter_context(bind_socket("127.0.0.1", 0))
        port = listening.getsockname()[1]
        url = f"http://127.0.0.1:{port}/mcp"
        entry: dict[str, Json] = {"space": "lab", "server": "mcp", "resource": url}
        if scopes:
            entry |= {"read_scope": READ, "call_scope": CALL}
        section = provider.rules(*(rules or RULES), mcp=entry) | (oidc or {})
        spaces = {"lab": space_settings(participants(**everybody))}
        file = write_config(folder, gateway_settings(spaces, oidc=section, **gateway))
        stack.enter_context(former_constants(file))
        started = Gateway(load(file, environ={"SECRET": "of the gateway"}))
        await started.start()
        running = LocalGateway(started, folder)
        # The one that runs by then.
        stack.push_async_callback(lambda: running.gateway.stop())
        stack.push_async_callback(running.close)
        service = running.gateway.sign_in
        assert service is not None
        await until(lambda: service.keys[0]._fetched_at is not None)
        exchange = GatewayExchange(running.url, "lab", "t-mcp")
        own = await stack.enter_async_context(connect(running.url, "lab", "t-mcp"))
        shared = await stack.enter_async_context(SharedOffers(own))
        made = PersonSettings(
            url=running.url,
            description=await exchange.describe(),
            backend=BackendSettings(),
            limits=limits or McpServerLimits(decision_seconds=0.05, max_sessions=4),
            state_secret="t-mcp",
            calls_file=lambda _name: None,
        )
        access = HttpAccessPolicy.of(port)
        people = PeopleServer(max_people, made, shared, exchange, access)
        await stack.enter_async_context(people)
        shared.asks = lambda each: not people.is_person(each)
        await stack.enter_async_context(serve_http(people, listening))
        http = await stack.enter_async_context(httpx.AsyncClient(timeout=HANG_SECONDS))
        yield PeopleSpace(running, provider, people, url, http, stack)
