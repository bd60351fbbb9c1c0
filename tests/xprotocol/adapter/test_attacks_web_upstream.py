"""MCP servers over HTTP that send us elsewhere, keep us waiting or never stop talking."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from moot.protocol.operation import Json
from tests.waiting import until
from tests.xprotocol.adapter.adapter_environment import NAMESPACE, adapter_environment, notes_server
from tests.xprotocol.people import ALICE

TOKEN = "pear-tree-token-5512"
SPACE = "com.acme.web"
KIND = f"{NAMESPACE}.read_note"
ONE: dict[str, Json] = {"name": "one"}

Says = Callable[[], AsyncIterator[bytes]]


class Site:
    """A server that reads one request and says whatever it is told to."""

    def __init__(self, says: Says) -> None:
        self.says = says
        self.received: list[bytes] = []
        self.port = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.received.append(await reader.readuntil(b"\r\n\r\n"))
            async for piece in self.says():
                writer.write(piece)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def site(says: Says) -> AsyncIterator[Site]:
    made = Site(says)
    server = await asyncio.start_server(made.handle, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()


async def nothing() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


async def header_for_ever() -> AsyncIterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\n"
    for n in range(100_000):
        yield b"X-%d: %s\r\n" % (n, b"y" * 1_000)
        await asyncio.sleep(0)


async def body_for_ever() -> AsyncIterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
    for _ in range(400):
        yield b" " * 100_000


async def events_for_ever() -> AsyncIterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    for _ in range(400):
        yield b"data: " + b"x" * 100_000 + b"\n"


async def rubbish() -> AsyncIterator[bytes]:
    yield b"\x00\xff\xfe" * 1_000


def web(port: int, transport: str, auth: dict[str, Json]) -> dict[str, Json]:
    return {
        "name": "web",
        "transport": transport,
        "url": f"http://127.0.0.1:{port}/mcp",
        "auth": auth,
        "xprotocol_namespace": SPACE,
    }


@pytest.mark.parametrize("status", [302, 307, 308])
async def test_a_credential_never_follows_a_redirect(tmp_path: Path, status: int) -> None:
    """The operator named one address; where that one points is a stranger's wish."""

    async def caught() -> AsyncIterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

    async with site(caught) as elsewhere:

        async def away() -> AsyncIterator[bytes]:
            place = f"http://127.0.0.1:{elsewhere.port}/mcp"
            yield f"HTTP/1.1 {status} Away\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n".encode()

        async with site(away) as named:
            auth: dict[str, Json] = {"type": "bearer", "token_env": "WEB_TOKEN"}
            notes = notes_server(tmp_path)
            async with adapter_environment(tmp_path, notes) as environment:
                environment.environ["WEB_TOKEN"] = TOKEN
                environment.document["mcp_sources"].append(web(named.port, "sse", auth))
                environment.document["access"] = {ALICE.key.text: [f"{SPACE}.*", f"{NAMESPACE}.*"]}
                environment.document["limits"] = environment.document.get("limits", {}) | {
                    "upstream_start_seconds": 20
                }
                async with environment.running():
                    assert (await environment.alice.ask(KIND, ONE)).code is None
                    status_of = environment.adapter.status()
                    assert TOKEN not in str(status_of)
            assert any(TOKEN.encode() in each for each in named.received)
        assert elsewhere.received == []


@pytest.mark.parametrize("says", [nothing, header_for_ever, body_for_ever, events_for_ever, rubbish])
async def test_a_site_that_hangs_or_never_ends_holds_up_nobody(tmp_path: Path, says: Says) -> None:
    notes = notes_server(tmp_path)
    async with site(says) as named, adapter_environment(tmp_path, notes) as environment:
        environment.environ["WEB_TOKEN"] = TOKEN
        auth: dict[str, Json] = {"type": "api_key", "header": "X-Key", "token_env": "WEB_TOKEN"}
        environment.document["mcp_sources"].append(web(named.port, "http", auth))
        environment.document["access"] = {ALICE.key.text: [f"{SPACE}.*", f"{NAMESPACE}.*"]}
        environment.document["limits"] = environment.document.get("limits", {}) | {
            "upstream_start_seconds": 4
        }
        async with environment.running():
            # On a busy machine the good server, too, may have to be started twice.
            await until(lambda: KIND in environment.adapter.registry.catalog)
            await until(lambda: environment.adapter.sources["desk"].state == "up")
            assert (await environment.alice.ask(KIND, ONE)).payload["content"] == "first words"
            away = await environment.alice.ask(f"{SPACE}.read_anything", {})
            assert away.code in ("ENDPOINT_UNAVAILABLE", "NOT_FOUND")
            assert TOKEN not in str(away.payload)
            assert environment.adapter.sources["desk"].state == "up"
            assert environment.adapter.sources["web"].state != "up"
