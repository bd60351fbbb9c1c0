"""An MCP server behind TLS that asks for a certificate, and one of another authority (XP 8.2)."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from moot.mcp.downstream.http_access import HttpAccessPolicy
from moot.mcp.downstream.http_server import McpHttpServer
from moot.mcp.downstream.limits import McpServerLimits
from moot.mcp.downstream.mcp_server import McpServer
from moot.net.http_listener import bind_socket, serve_http
from moot.xprotocol.adapter.config.adapter_settings import AdapterLimits
from moot.xprotocol.adapter.operations.source_inspection import inspect_sources
from tests.authority import Authority
from tests.mcp.example_backend import ExampleBackend
from tests.xprotocol.adapter.test_settings_sources import source

PASSWORD = "open-sesame-for-the-key"


@asynccontextmanager
async def shop_behind_tls(authority: Authority) -> AsyncIterator[str]:
    """A backend that only talks to whoever shows a certificate of the authority."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.file)
    context.load_cert_chain(*authority.issue("shop"))
    context.verify_mode = ssl.CERT_REQUIRED
    inner = bind_socket("127.0.0.1", 0)
    inner_port = inner.getsockname()[1]

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        shop_reader, shop_writer = await asyncio.open_connection("127.0.0.1", inner_port)
        await asyncio.gather(carry(reader, shop_writer), carry(shop_reader, writer))

    door = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
    port = door.sockets[0].getsockname()[1]
    async with McpServer(ExampleBackend(), McpServerLimits()) as face:
        http = McpHttpServer(face, HttpAccessPolicy.of(port))
        try:
            async with serve_http(http, inner):
                yield f"https://127.0.0.1:{port}/mcp"
        finally:
            http.close()
            door.close()


@pytest.mark.requirement("XP-8.2-1")
async def test_a_client_certificate_opens_a_server_that_asks_for_one(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    other = Authority(tmp_path, "other")
    certificate, key = authority.issue("adapter", PASSWORD)
    stranger, stranger_key = other.issue("stranger")
    async with shop_behind_tls(authority) as url:

        async def outcome(auth: dict[str, Any] | None, ca_file: Path | None = authority.file) -> Any:
            entry: dict[str, Any] = {
                "name": "shop",
                "transport": "http",
                "url": url,
                "xprotocol_namespace": "com.acme.shop",
            }
            entry |= {"auth": auth} if auth is not None else {}
            entry |= {"ca_file": str(ca_file)} if ca_file is not None else {}
            found = source(tmp_path, entry, {"KEY_PASSWORD": PASSWORD})
            limits = AdapterLimits(upstream_start_seconds=10)
            (seen,) = await inspect_sources([found], limits=limits, environ={})
            return seen

        ours: dict[str, Any] = {
            "type": "client_certificate",
            "cert_file": str(certificate),
            "key_file": str(key),
            "password_env": "KEY_PASSWORD",
        }
        good = await outcome(ours)
        assert good.fault is None
        assert good.tools > 0
        theirs = ours | {"cert_file": str(stranger), "key_file": str(stranger_key)}
        del theirs["password_env"]
        for auth, ca_file in ((None, authority.file), (theirs, authority.file), (ours, None)):
            bad = await outcome(auth, ca_file)
            assert bad.fault is not None
            assert PASSWORD not in bad.fault
