"""Finding out which era a server speaks, and agreeing on a version.

Over HTTP `server/discover` goes first: a stateless server answers it, and most handshake servers refuse it.
Over stdio the first request decides the era of the whole process, so `initialize` goes first: where a server
speaks both eras, tools that request input by asking their client work in the handshake era only, and those
that the SDKs translate work in either.

Some servers do not answer a method that they do not know, and some exit. So after `probe_seconds` of silence
the other request is sent as well, and whichever is answered first decides. A server that exited is started
again and gets only the other one. An era that worked once is tried first the next time.
"""

from __future__ import annotations

import asyncio
import logging
import re

from moot.errors import McpError
from moot.mcp.eras import (
    HANDSHAKE_VERSION,
    HANDSHAKE_VERSIONS,
    STATELESS_VERSION,
    STATELESS_VERSIONS,
    UNSUPPORTED_VERSION,
    CallerInfo,
    Era,
    to_discover_result,
    with_caller,
)
from moot.mcp.upstream.connection import PendingExchange, RpcConnection
from moot.mcp.upstream.server_session import ServerInfo
from moot.mcp.upstream.server_settings import UpstreamOptions
from moot.protocol.operation import Json

log = logging.getLogger(__name__)

_DATED = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)


class NoAgreement(Exception):
    """The server answered, but no era and version fit both sides; the text says what it answered."""


async def negotiate(
    connection: RpcConnection, options: UpstreamOptions, *, expected: Era | None = None, first: Era
) -> ServerInfo:
    """Agree on an era and a version; a handshake still has to be confirmed with `notifications/initialized`.

    Raises NoAgreement, McpError when the connection ends, TimeoutError.
    """
    caller = CallerInfo(STATELESS_VERSION, options.client_info, options.capabilities)
    async with asyncio.timeout(options.limits.start_seconds):
        if expected == "handshake":
            return await _finish(connection, _start_initialize(connection, options))
        if expected is None and first == "handshake":
            return await _initialize_first(connection, options, caller)
        discover = connection.start("server/discover", with_caller({}, caller))
        probe_seconds = None if expected == "stateless" else options.limits.probe_seconds
        done, _ = await asyncio.wait([discover.outcome], timeout=probe_seconds)
        if done:
            info = _stateless_info(connection, discover)
            if info is not None:
                return info
            if expected == "stateless" and options.era == "stateless":
                raise NoAgreement("does not speak the stateless era of MCP")
            return await _finish(connection, _start_initialize(connection, options))
        initialize = _start_initialize(connection, options)
        return await _first_of(connection, discover, initialize)


async def _initialize_first(
    connection: RpcConnection, options: UpstreamOptions, caller: CallerInfo
) -> ServerInfo:
    initialize = _start_initialize(connection, options)
    done, _ = await asyncio.wait([initialize.outcome], timeout=options.limits.probe_seconds)
    if done and (initialize.outcome.exception() is None or connection.ended.done()):
        return await _finish(connection, initialize)
    discover = connection.start("server/discover", with_caller({}, caller))
    if not done:
        return await _first_of(connection, discover, initialize)
    await asyncio.wait([discover.outcome])
    info = _stateless_info(connection, discover)
    return info if info is not None else await _finish(connection, initialize)


async def _first_of(
    connection: RpcConnection, discover: PendingExchange, initialize: PendingExchange
) -> ServerInfo:
    waiting = {discover.outcome, initialize.outcome}
    while discover.outcome in waiting:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if discover.outcome in done:
            info = _stateless_info(connection, discover)
            if info is not None:
                connection.exchanges.pop(initialize.id, None)
                return info
            break
        fault = initialize.outcome.exception()
        if not (isinstance(fault, McpError) and fault.code == UNSUPPORTED_VERSION):
            connection.exchanges.pop(discover.id, None)
            break
        # It reads slowly and took `discover` as its first message; the response to that is on its way.
    return await _finish(connection, initialize)


def _start_initialize(connection: RpcConnection, options: UpstreamOptions) -> PendingExchange:
    params = {
        "protocolVersion": HANDSHAKE_VERSION,
        "capabilities": options.capabilities,
        "clientInfo": options.client_info,
    }
    return connection.start("initialize", params)


async def _finish(connection: RpcConnection, initialize: PendingExchange) -> ServerInfo:
    try:
        result = await initialize.outcome
    except McpError as refusal:
        if connection.ended.done():
            raise
        raise NoAgreement(f"refused to initialize: {refusal}") from None
    assert result is not None  # noqa: S101  # no server request belongs to `initialize`
    version = result.get("protocolVersion")
    if not _is_dated(version):
        # MCP's versions are dates. A server that says anything else knows of none, so it gets the oldest.
        log.warning("MCP server names no version of MCP", extra={"version": str(version)[:64]})
        version = HANDSHAKE_VERSIONS[0]
    if version not in HANDSHAKE_VERSIONS:
        known = ", ".join((*HANDSHAKE_VERSIONS, *STATELESS_VERSIONS))
        raise NoAgreement(f"wants protocol version {version!r}; known here are {known}")
    return ServerInfo("handshake", version, to_discover_result(result))


def _is_dated(version: Json) -> bool:
    return isinstance(version, str) and _DATED.fullmatch(version) is not None


def _stateless_info(connection: RpcConnection, exchange: PendingExchange) -> ServerInfo | None:
    """What a stateless server answered; None when this is none. Raises when the connection ended."""
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
