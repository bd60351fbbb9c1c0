"""`moot mcp --http`: serves several clients over HTTP."""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING, Final

from moot.cli.options.tls_options import tls_files_of, warn_without_tls
from moot.errors import UsageError

if TYPE_CHECKING:
    from moot.bridges.space.late_backend import LateBackend
    from moot.mcp.downstream.mcp_server import McpServer

# Anybody who can reach the port could act as this member, so the token must not be guessable.
_TOKEN_CHARS: Final = 16
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})


async def serve_over_http(
    options: argparse.Namespace, server: McpServer, late: LateBackend, stop: asyncio.Event
) -> None:
    """Serve until `stop` is set. Raises UsageError."""
    from moot.mcp.downstream.cross_origin import with_cross_origin
    from moot.mcp.downstream.http_access import HttpAccessPolicy
    from moot.mcp.downstream.http_server import McpHttpServer
    from moot.net.http_listener import bind_socket, serve_http
    from moot.net.server_tls import ServerTls

    host, port = address_of(options.http)
    token = http_token(options)
    files = tls_files_of(options)
    tls = None if files is None else ServerTls(files)
    if tls is None and host not in _LOOPBACK:
        warn_without_tls(f"--http {options.http}")
    with bind_socket(host, port) as listening:
        port = listening.getsockname()[1]
        hosts = [*options.allow_host, *([] if host in _LOOPBACK else [f"{host}:{port}"])]
        access = HttpAccessPolicy.of(port, hosts=hosts, origins=options.allow_origin, token=token)
        http = McpHttpServer(server, access)
        try:
            async with serve_http(with_cross_origin(http, access.origins), listening, tls=tls):
                print(f"{late.me or 'moot mcp'}: MCP listening on {url_of(options, port)}", flush=True)
                await stop.wait()
                http.close()
        finally:
            http.close()


def address_of(text: str) -> tuple[str, int]:
    """Host and port of `--http`; raises UsageError."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise UsageError(f"--http needs HOST:PORT, as in 127.0.0.1:8090 or [::1]:8090, not {text!r}")
    return host, int(port)


def url_of(options: argparse.Namespace, port: int | None = None) -> str:
    """What clients connect to; `port` is the real one where the option says 0."""
    host, given = address_of(options.http)
    shown = f"[{host}]" if ":" in host else host
    scheme = "http" if tls_files_of(options) is None else "https"
    return f"{scheme}://{shown}:{given if port is None else port}/mcp"


def http_token(options: argparse.Namespace) -> str | None:
    """What clients must send; raises UsageError where there must be one, or it is too short."""
    from moot.participant import token_from

    host, port = address_of(options.http)
    if options.http_token_file is None:
        if host not in _LOOPBACK:
            raise UsageError(
                f"anyone who can reach {host}:{port} could act as this member: add --http-token-file FILE"
            )
        return None
    token = token_from(options.http_token_file)
    if len(token) < _TOKEN_CHARS:
        raise UsageError(f"the token in {options.http_token_file} has fewer than {_TOKEN_CHARS} characters")
    return token
