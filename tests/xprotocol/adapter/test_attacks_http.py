"""The two HTTP doors of an adapter: the public pages and the MCP listener, before whom strangers stand."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson

from moot.protocol.operation import Json
from tests.waiting import HANG_SECONDS
from tests.xprotocol.adapter.adapter_environment import (
    NAMESPACE,
    AdapterEnvironment,
    notes_server,
    running_adapter,
)

WELL_KNOWN = "/.well-known/xprotocol-endpoint"
INITIALIZE: dict[str, Json] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "x", "version": "1"},
    },
}


async def exchange(port: int, data: bytes, *, within: float = HANG_SECONDS) -> bytes:
    """What comes back to these bytes: one answer, or all until the other side hangs up or time is up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    received = b""
    try:
        writer.write(data)
        await writer.drain()
        async with asyncio.timeout(within):
            while piece := await reader.read(1 << 16):
                received += piece
                if is_whole(received):
                    break
    except (OSError, TimeoutError):
        pass
    finally:
        writer.transport.abort()
    return received


def is_whole(received: bytes) -> bool:
    """Whether this is an answer with all of its body; one without a length ends when the other side does."""
    head, end, body = received.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: *(\d+)", head.lower())
    return bool(end) and length is not None and len(body) >= int(length[1])


def asking(path: str, *headers: str, method: str = "GET", body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", *headers]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def port_of(address: str) -> int:
    found = urlsplit(address).port
    assert found is not None
    return found


async def calls_go_on(environment: AdapterEnvironment) -> None:
    answer = await environment.alice.ask(f"{NAMESPACE}.read_note", {"name": "one"})
    assert answer.payload["content"] == "first words"


async def test_the_public_pages_bear_slow_huge_and_broken_requests(tmp_path: Path) -> None:
    async with running_adapter(tmp_path, notes_server(tmp_path)) as adapter:
        port = port_of(adapter.adapter.address)
        host = f"Host: 127.0.0.1:{port}"
        huge = await exchange(port, asking(WELL_KNOWN, host, "X: " + "y" * 60_000))
        assert huge.startswith(b"HTTP/1.1 400")
        many = await exchange(port, asking(WELL_KNOWN, host, *(f"X-{n}: y" for n in range(5_000))))
        assert many.startswith(b"HTTP/1.1 400")
        broken = (
            b"\x00\x01\x02\r\n\r\n",
            b"GET\r\n\r\n",
            asking("/" + "a" * 30_000, host),
            asking(WELL_KNOWN, host, "Content-Length: -1"),
            asking(WELL_KNOWN, host, "Content-Length: 5", "Content-Length: 6") + b"hello!",
            asking(WELL_KNOWN, host, "Transfer-Encoding: chunked", "Content-Length: 3") + b"zzz\r\n",
            asking("/../../../etc/passwd", host),
            asking("/xp/schemas/..%2f..%2fetc%2fpasswd", host),
            asking(WELL_KNOWN, host, method="POST", body=b"{}"),
            asking(WELL_KNOWN, host, "Upgrade: websocket", "Connection: Upgrade"),
        )
        for each in broken:
            answer = await exchange(port, each, within=2)
            assert b"root:" not in answer
            assert b"Traceback" not in answer
        # Slow ones hold a place each, and not all of them.
        slow = [await asyncio.open_connection("127.0.0.1", port) for _ in range(40)]
        for _, writer in slow:
            writer.write(b"GET / HTTP/1.1\r\nX:")
        page = await exchange(port, asking(WELL_KNOWN, host))
        assert adapter.adapter.key.encode() in page
        await calls_go_on(adapter)
        for _, writer in slow:
            writer.transport.abort()


async def test_a_made_up_host_is_never_written_into_the_page(tmp_path: Path) -> None:
    """Whatever a stranger says his host is, it breaks out of no address that others read."""
    async with running_adapter(tmp_path, notes_server(tmp_path)) as adapter:
        port = port_of(adapter.adapter.address)
        for host in (
            'x"/><script>',
            "x@evil.example",
            "evil.example/path?",
            "evil.example#",
            "[::1",
            "a b",
            "x" * 300,
            "1.2.3.4:99999999",
            "évil.example",
        ):
            page = await exchange(port, asking(WELL_KNOWN, f"Host: {host}"))
            _, _, body = page.partition(b"\r\n\r\n")
            if page.startswith(b"HTTP/1.1 200"):
                document = orjson.loads(body)
                assert document["schema_url"] == f"{adapter.adapter.address}/xp/schemas", host


async def test_the_listener_takes_calls_from_no_web_page_and_no_stranger(tmp_path: Path) -> None:
    """D-84: CSRF, DNS rebinding, other content types, and a token that has to be shown in every request."""
    notes = notes_server(tmp_path)
    listener: dict[str, Json] = {"transport": "sse", "sse_port": 0, "token_env": "LISTENER_TOKEN"}
    async with _with_listener(tmp_path, notes, listener) as here:
        url = here.adapter.listener.url
        assert url is not None
        port = port_of(url)
        host, token = f"Host: 127.0.0.1:{port}", "Authorization: Bearer open-sesame-1"
        json_type, accept = (
            "Content-Type: application/json",
            "Accept: application/json, text/event-stream",
        )
        body = orjson.dumps(INITIALIZE)

        async def post(*headers: str, path: str = "/mcp") -> int:
            received = await exchange(port, asking(path, *headers, method="POST", body=body))
            return int(received.split(b" ", 2)[1])

        assert await post(host, token, json_type, accept) == 200
        assert await post(host, json_type, accept) == 401
        assert await post(host, "Authorization: Bearer open-sesame-2", json_type, accept) == 401
        assert await post(host, "Authorization: Bearer", json_type, accept) == 401
        assert await post(host, json_type, accept, path="/mcp?token=open-sesame-1") == 401
        rebound = f"Host: evil.example:{port}"
        assert await post(rebound, token, json_type, accept) in (403, 421)
        assert await post(host, token, json_type, accept, "Origin: https://evil.example") == 403
        assert await post(host, token, json_type, accept, "Origin: null") == 403
        for simple in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
            assert await post(host, token, f"Content-Type: {simple}", accept) in (400, 415)
        for path in ("/sse", "/messages", "/mcp"):
            received = await exchange(port, asking(path, host, accept))
            assert received.split(b" ", 2)[1] in (b"401", b"405"), path
        flight = asking(
            "/mcp",
            host,
            "Origin: https://evil.example",
            "Access-Control-Request-Method: POST",
            method="OPTIONS",
        )
        assert b"access-control-allow-origin" not in (await exchange(port, flight)).lower()
        await calls_go_on(here)


def _with_listener(tmp_path: Path, notes: Any, listener: dict[str, Json]) -> Any:
    from contextlib import asynccontextmanager

    from tests.xprotocol.adapter.adapter_environment import adapter_environment

    @asynccontextmanager
    async def opened() -> Any:
        async with adapter_environment(tmp_path, notes, mcp_server=listener) as environment:
            environment.environ["LISTENER_TOKEN"] = "open-sesame-1"
            async with environment.running():
                yield environment

    return opened()
