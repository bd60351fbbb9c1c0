"""Finding out which era a server speaks, and greeting it.

`server/discover` goes first: a stateless server answers it, most handshake servers refuse it. Some of those
say nothing to what they do not know, some end; so after `probe_seconds` of silence `initialize` is sent as
well, and whichever answers first decides. A server that ended is started again and only asked to
`initialize`. An era that worked once is asked for first the next time.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from moot.errors import McpError
from moot.mcp.eras import (
    HANDSHAKE_VERSION,
    HANDSHAKE_VERSIONS,
    SERVER_INFO_KEY,
    STATELESS_VERSION,
    STATELESS_VERSIONS,
    UNSUPPORTED_VERSION,
    CallerInfo,
    Era,
    JsonObject,
    discovered,
    with_caller,
)
from moot.mcp.upstream.connection import PendingExchange, RpcConnection
from moot.mcp.upstream.server_settings import UpstreamLimits


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What a server said of itself: always as a `server/discover` result, whatever its era."""

    era: Era
    version: str
    discovered: JsonObject

    @property
    def capabilities(self) -> JsonObject:
        found = self.discovered.get("capabilities")
        return found if isinstance(found, dict) else {}

    @property
    def server_info(self) -> JsonObject:
        meta = self.discovered.get("_meta")
        found = meta.get(SERVER_INFO_KEY) if isinstance(meta, dict) else None
        return found if isinstance(found, dict) else {}

    def offers(self, feature: str) -> bool:
        """Whether the server declares tools, resources, prompts, completions or logging."""
        return isinstance(self.capabilities.get(feature), dict)

    def tells(self, feature: str, what: str) -> bool:
        """Whether the server declares `listChanged` or `subscribe` of a feature."""
        found = self.capabilities.get(feature)
        return isinstance(found, dict) and found.get(what) is True


class NoAgreement(Exception):
    """The server answered, but not so that anyone could work with it; the text says what it said."""


async def negotiate(
    connection: RpcConnection,
    *,
    client_info: JsonObject,
    capabilities: JsonObject,
    limits: UpstreamLimits,
    expected: Era | None = None,
) -> ServerInfo:
    """Agree on an era and a version; a handshake still has to be confirmed with `notifications/initialized`.

    Raises NoAgreement, McpError when the connection ends, TimeoutError.
    """
    caller = CallerInfo(version=STATELESS_VERSION, info=client_info, capabilities=capabilities)
    async with asyncio.timeout(limits.start_seconds):
        if expected == "handshake":
            return await _finish(connection, _start_initialize(connection, client_info, capabilities))
        discover = connection.start("server/discover", with_caller({}, caller))
        patience = None if expected == "stateless" else limits.probe_seconds
        done, _ = await asyncio.wait([discover.outcome], timeout=patience)
        if done:
            greeting = _discovered(connection, discover)
            if greeting is not None:
                return greeting
            return await _finish(connection, _start_initialize(connection, client_info, capabilities))
        initialize = _start_initialize(connection, client_info, capabilities)
        return await _first_of(connection, discover, initialize)


async def _first_of(
    connection: RpcConnection, discover: PendingExchange, initialize: PendingExchange
) -> ServerInfo:
    waiting = {discover.outcome, initialize.outcome}
    while discover.outcome in waiting:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if discover.outcome in done:
            greeting = _discovered(connection, discover)
            if greeting is not None:
                connection.exchanges.pop(initialize.id, None)
                return greeting
            break
        fault = initialize.outcome.exception()
        if not (isinstance(fault, McpError) and fault.code == UNSUPPORTED_VERSION):
            connection.exchanges.pop(discover.id, None)
            break
        # It reads slowly and takes `discover` for its greeting; the answer to that is on its way.
    return await _finish(connection, initialize)


def _start_initialize(
    connection: RpcConnection, client_info: JsonObject, capabilities: JsonObject
) -> PendingExchange:
    offer = {"protocolVersion": HANDSHAKE_VERSION, "capabilities": capabilities, "clientInfo": client_info}
    return connection.start("initialize", offer)


async def _finish(connection: RpcConnection, initialize: PendingExchange) -> ServerInfo:
    try:
        result = await initialize.outcome
    except McpError as refusal:
        if connection.ended.done():
            raise
        raise NoAgreement(f"refused to initialize: {refusal}") from None
    assert result is not None  # noqa: S101  # nobody is asked anything before the greeting
    version = result.get("protocolVersion")
    if version not in HANDSHAKE_VERSIONS:
        known = ", ".join((*HANDSHAKE_VERSIONS, *STATELESS_VERSIONS))
        raise NoAgreement(f"wants to speak version {version!r}; known here are {known}")
    return ServerInfo("handshake", version, discovered(result))


def _discovered(connection: RpcConnection, exchange: PendingExchange) -> ServerInfo | None:
    """The greeting of a stateless server; None when this is none. Raises when the connection ended."""
    fault = exchange.outcome.exception()
    if fault is not None:
        if isinstance(fault, McpError) and not connection.ended.done():
            supported = fault.data.get("supported") if isinstance(fault.data, dict) else None
            if (
                fault.code == UNSUPPORTED_VERSION
                and isinstance(supported, list)
                and not set(map(str, supported)) & set(HANDSHAKE_VERSIONS)
            ):
                raise NoAgreement(f"speaks only {', '.join(map(str, supported))}")
            return None
        raise fault
    result = exchange.outcome.result()
    versions = result.get("supportedVersions") if result is not None else None
    if result is None or not isinstance(versions, list):
        return None
    shared = [version for version in STATELESS_VERSIONS if version in versions]
    return ServerInfo("stateless", shared[-1], result) if shared else None
