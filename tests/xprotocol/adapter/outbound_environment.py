"""Direction 2 in a test: a relay, a far endpoint, and an `Outward` that shows it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moot.mcp.downstream.backend import BackendCall, Change
from moot.mcp.eras import JsonObject
from moot.xprotocol.adapter.config.source_settings import XProtocolSource
from moot.xprotocol.adapter.outbound.outbound import Outbound
from moot.xprotocol.contracts.contracts import Contract
from moot.xprotocol.endpoint import relay_client
from moot.xprotocol.relay.relay_server import RelayServer
from tests.config.former_constants import OF_THIS_TEST
from tests.waiting import HANG_SECONDS
from tests.xprotocol.adapter.stub_endpoint import StubEndpoint, quick_relay_client, stub_endpoint
from tests.xprotocol.endpoint.web_and_dns_servers import no_lookup
from tests.xprotocol.people import ALICE, BOB
from tests.xprotocol.relay.raw_client import relay_in


def source(url: str, name: str = "weather-service", **more: Any) -> XProtocolSource:
    """By key and relay."""
    options: dict[str, Any] = {"name": name, "key": BOB.key.text, "relay": url} | more
    return XProtocolSource(**options)


@dataclass
class OutboundEnvironment:
    """Alice's adapter shows what Bob's endpoint offers."""

    relay: RelayServer
    far: StubEndpoint
    outward: Outbound
    changes: list[Change]

    async def call(self, tool: str, /, **arguments: Any) -> JsonObject:
        return await self.do("tools/call", name=tool, arguments=arguments)

    async def do(self, method: str, **params: Any) -> JsonObject:
        result = await self.outward.backend.perform(BackendCall(method, params))
        assert isinstance(result, dict)
        return result

    async def names(self) -> list[str]:
        return [tool["name"] for tool in await self.outward.backend.offers("tools")]

    def health(self) -> JsonObject:
        return self.outward.health()[0]


@asynccontextmanager
async def open_outbound(url: str, *sources: XProtocolSource, **more: Any) -> AsyncIterator[Outbound]:
    OF_THIS_TEST.setattr(relay_client, "RECONNECT_INTERVAL_SECONDS", 0.1)
    options: dict[str, Any] = {"lookup": no_lookup} | more
    async with (
        quick_relay_client([url], ALICE) as relays,
        Outbound(sources, ALICE, relays, **options) as outward,
    ):
        yield outward


@asynccontextmanager
async def outbound_environment(
    folder: Path, *contracts: Contract, **more: Any
) -> AsyncIterator[OutboundEnvironment]:
    """`more` is for the source."""
    async with (
        relay_in(folder / "relay") as relay,
        stub_endpoint(relay.url, BOB, *contracts, caller=ALICE) as far,
        open_outbound(relay.url, source(relay.url, **more), store=folder / "store") as outward,
    ):
        changes: list[Change] = []
        await outward.wait_settled(HANG_SECONDS)
        outward.backend.watch(changes.append)
        yield OutboundEnvironment(relay, far, outward, changes)


def later() -> float:
    return time.time() + 600
