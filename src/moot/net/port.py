"""A port of our own for an HTTP application: bound first, watched at the door, gone at the end."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

from moot.errors import UsageError
from moot.net.http import Door, DoorLimits, http_protocol

Application = Callable[[Any, Any, Any], Awaitable[None]]

# Streams that a client keeps open are cut after this when we stop.
_GOODBYE_SECONDS = 1


def bound(host: str, port: int, *, host_name: str = "", port_name: str = "") -> socket.socket:
    """A listening socket; raises UsageError saying what to try instead, by the names of the settings."""
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError):
        named = f"{host_name} {host}" if host_name else f"cannot listen on {host}"
        raise UsageError(f"{named}: no such address on this machine. Try 127.0.0.1") from None
    family, kind, protocol, _, address = infos[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as fault:
        listening.close()
        named = f" ({port_name})" if port_name else ""
        raise UsageError(
            f"cannot listen on {host}:{port}{named}: {fault.strerror}. Is it taken? Port 0 takes a free one"
        ) from fault
    return listening


@asynccontextmanager
async def served(
    application: Application, listening: socket.socket, *, keep_alive_seconds: int = 60
) -> AsyncIterator[None]:
    """Serve an ASGI application on this socket while the block runs; the socket is closed at the end."""
    # uvicorn tells of its own starting and stopping; whoever serves says it better.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    config = uvicorn.Config(
        application,
        http=http_protocol(Door(DoorLimits())),
        ws="none",
        proxy_headers=False,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GOODBYE_SECONDS,
        timeout_keep_alive=keep_alive_seconds,
    )
    server = uvicorn.Server(config)
    # Not `serve`: its signal handlers would stop us before the rest is told.
    serving = asyncio.create_task(server._serve(sockets=[listening]))
    try:
        while not server.started and not serving.done():
            await asyncio.sleep(0.005)
        yield
    finally:
        server.should_exit = True
        await serving
        listening.close()
