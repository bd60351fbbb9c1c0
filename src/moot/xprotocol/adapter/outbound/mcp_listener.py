"""The listener for MCP clients (XP 2.1, 3.1 `mcp_server`): stdio, or HTTP with both transports.

`stdio` is for the one client that started the adapter. `sse` serves Streamable HTTP at `/mcp` and HTTP+SSE at
`/sse` (D-73), `http` the former alone. Both eras of MCP are spoken everywhere (`moot.mcp.downstream`).

Whoever reaches the port acts with the adapter's key. So it listens on loopback by default, accepts only the
configured hosts and origins (D-84), and requires a token where one is configured.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any, Final, Self

from moot.mcp.downstream import stdio_server
from moot.mcp.downstream.backend import Backend, McpServerCounts
from moot.mcp.downstream.http_access import HttpAccessPolicy
from moot.mcp.downstream.http_server import McpHttpServer
from moot.mcp.downstream.mcp_server import McpServer
from moot.mcp.downstream.response_streams import Receive, Scope, Send, respond
from moot.net.http_listener import bind_socket, serve_http
from moot.xprotocol.adapter.config.adapter_settings import McpServerSettings

log = logging.getLogger(__name__)

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
WILDCARDS: Final = ("0.0.0.0", "::")  # noqa: S104  # compared, not bound


class McpListener:
    """Within `async with`. `settings` None, or transport `none`: nothing listens."""

    def __init__(
        self,
        settings: McpServerSettings | None,
        backend: Backend,
        *,
        port: int | None = None,
    ) -> None:
        """`port` is that of `start --port` (D-72)."""
        self._settings = settings
        self._port = port
        self._stop = asyncio.Event()
        self._ended = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None
        self._stack = AsyncExitStack()
        self._server = McpServer(backend)
        # Of the HTTP listener; None: there is none.
        self.url: str | None = None

    @property
    def counts(self) -> McpServerCounts:
        return self._server.counts

    async def __aenter__(self) -> Self:
        settings = self._settings
        if settings is None or settings.transport == "none":
            return self
        await self._stack.enter_async_context(self._server)
        try:
            if settings.transport == "stdio":
                self._serving = asyncio.create_task(self._serve_stdio())
            else:
                self.url = await self._stack.enter_async_context(self._serve_http(settings))
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop.set()
        if self._serving is not None:
            await asyncio.gather(self._serving, return_exceptions=True)
        await self._stack.aclose()

    async def wait_ended(self) -> None:
        """Wait until the stdio client has gone; an HTTP listener never ends by itself."""
        await self._ended.wait()

    async def _serve_stdio(self) -> None:
        try:
            await stdio_server.serve(self._server, stop=self._stop)
        except Exception:
            # A connection's task.
            log.exception("serving stdio failed")
        finally:
            self._ended.set()

    @asynccontextmanager
    async def _serve_http(self, settings: McpServerSettings) -> AsyncIterator[str]:
        host = settings.sse_host
        listener = bind_socket(
            host,
            settings.sse_port if self._port is None else self._port,
            host_name="mcp_server.sse_host",
            port_name="mcp_server.sse_port, or --port",
        )
        port: int = listener.getsockname()[1]
        http = McpHttpServer(self._server, _access_policy(settings, port))
        application = http if settings.transport == "sse" else _only_streamable(http)
        url_host = f"[{host}]" if ":" in host else host
        async with serve_http(application, listener):
            try:
                yield f"http://{'127.0.0.1' if host in WILDCARDS else url_host}:{port}/mcp"
            finally:
                http.close()


def _access_policy(settings: McpServerSettings, port: int) -> HttpAccessPolicy:
    """XP 3.1, D-84: the loopback names, the address of the listener, and what the operator adds."""
    token = None if settings.token is None else settings.token.reveal()
    host = settings.sse_host
    if host not in LOOPBACK and token is None:
        log.warning(
            "anyone who reaches this address can call as this adapter: use a proxy with authentication, "
            "or set mcp_server.token_env",
            extra={"host": host, "port": port},
        )
    hosts = [name for each in settings.allowed_hosts for name in (each, f"{each}:{port}")]
    if host not in LOOPBACK and host not in WILDCARDS:
        hosts.append(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    policy = HttpAccessPolicy.of(port, hosts=hosts, origins=settings.allowed_origins, token=token)
    return replace(policy, options=("mcp_server.allowed_hosts", "mcp_server.allowed_origins"))


def _only_streamable(http: McpHttpServer) -> Any:
    """D-73: `http` is Streamable HTTP and nothing else."""

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].rstrip("/") in ("/sse", "/messages"):
            body = b'{"error":"mcp_server.transport is http: MCP is served at /mcp alone"}'
            await respond(send, 404, body)
            return
        await http(scope, receive, send)

    return application


def usable_listener_settings(settings: McpServerSettings | None) -> McpServerSettings | None:
    """The listener as configured; None for `stdio` where stdin or stdout is a device such as /dev/null.

    A service has no client there. Such a device cannot be polled: libuv aborts the process.
    """
    if settings is None or settings.transport != "stdio":
        return settings
    if all(_is_pollable(descriptor) for descriptor in (0, 1)):
        return settings
    log.info("no MCP client can be connected over stdio: serving XProtocol alone")
    return None


def _is_pollable(descriptor: int) -> bool:
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return not stat.S_ISCHR(mode) or os.isatty(descriptor)
