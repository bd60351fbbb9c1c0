"""Servers to try an upstream on: real processes, started for a test and gone after it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from moot.mcp.eras import Era, JsonObject
from moot.mcp.stdio_child import Command
from moot.mcp.upstream import (
    Server,
    ServerInfo,
    StdioServer,
    Upstream,
    UpstreamCallbacks,
    UpstreamLimits,
    UpstreamOptions,
    open_upstream,
)
from tests.waiting import HANG_SECONDS, bounded, until
from tests.warm_server import SDK_SERVERS
from tests.warm_start import sdk_server

SERVERS = Path(__file__).parent / "servers"
NODE = Path(__file__).parents[2] / ".node" / "node_modules" / ".bin"
# Quick to give up and to come back, so that tests are.
QUICK = UpstreamLimits(
    probe_seconds=0.5,
    health_seconds=HANG_SECONDS,
)


# Importing the SDK takes a second or two on a busy machine.
PATIENT = replace(QUICK, probe_seconds=HANG_SECONDS)


@dataclass(slots=True)
class RecordedEvents:
    """Everything that an upstream told."""

    ups: list[ServerInfo] = field(default_factory=list)
    downs: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    updated: list[tuple[JsonObject, tuple[str, ...]]] = field(default_factory=list)
    noticed: list[str] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def callbacks(self) -> UpstreamCallbacks:
        def note(into: list[Any]) -> Any:
            def noted(*args: Any) -> None:
                into.append(args[0] if len(args) == 1 else args)
                self.news.set()

            return noted

        return UpstreamCallbacks(
            on_up=note(self.ups),
            on_down=note(self.downs),
            on_list_changed=note(self.changed),
            on_resource_updated=note(self.updated),
            on_notification=lambda method, _params: note(self.noticed)(method),
        )

    async def until(self, met: Any) -> None:
        async with bounded():
            while not met():
                self.news.clear()
                await self.news.wait()


def _command(name: str) -> list[str]:
    return sdk_server(name) if name in SDK_SERVERS else [sys.executable, str(SERVERS / f"{name}.py")]


def script(name: str, *arguments: str, env: dict[str, str] | None = None) -> StdioServer:
    """A server of `tests/mcp/servers`."""
    argv = (*_command(name), *arguments)
    return StdioServer(command=Command(argv=argv, env=env or {}), inherited=os.environ)


@asynccontextmanager
async def open_ready(
    server: Server,
    *,
    limits: UpstreamLimits = QUICK,
    received: RecordedEvents | None = None,
    roots: tuple[JsonObject, ...] = (),
    era: Era | None = None,
) -> AsyncIterator[Upstream]:
    """A server that is up."""
    options = UpstreamOptions(limits=limits, roots=roots, era=era)
    async with open_upstream(server, options, (received or RecordedEvents()).callbacks()) as upstream:
        await upstream.wait_until_ready()
        yield upstream


async def call(upstream: Upstream, tool: str, arguments: JsonObject | None = None, **more: Any) -> JsonObject:
    meta = more.pop("meta", None)
    params: JsonObject = {"name": tool, "arguments": arguments or {}} | ({"_meta": meta} if meta else {})
    params |= more.pop("also", {})
    return await upstream.request("tools/call", params, **more)


def text_of(result: JsonObject) -> str:
    return str(result["content"][0]["text"])


def value_of(result: JsonObject) -> Any:
    return json.loads(text_of(result))


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that is dead but not yet waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


async def wait_until_gone(pid: int) -> None:
    """Wait until a process is gone: nobody tells us of a grandchild's end."""
    await until(lambda: not is_alive(pid))


@asynccontextmanager
async def serve_workshop(transport: str, port: int = 0) -> AsyncIterator[str]:
    """The workshop over HTTP; its address."""
    path = "mcp" if transport == "streamable-http" else "sse"
    async with _serve_script("workshop", transport, port) as found:
        yield f"http://127.0.0.1:{found}/{path}"


@asynccontextmanager
async def serve_two_eras(which: str = "both") -> AsyncIterator[str]:
    """The server whose tools request input, over HTTP; its address."""
    async with _serve_script("two_eras", which, 0) as port:
        yield f"http://127.0.0.1:{port}/mcp"


@contextmanager
def running_two_eras() -> Iterator[str]:
    """The same for several tests, each with an event loop of its own."""
    argv = [*_command("two_eras"), "both", "0"]
    with subprocess.Popen(argv, stderr=subprocess.PIPE) as process:  # noqa: S603
        try:
            assert process.stderr is not None
            while not (line := process.stderr.readline()).startswith(b"port "):
                assert line, "the server did not start"
            # Whatever it says later must not fill the pipe.
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield f"http://127.0.0.1:{int(line.split()[1])}/mcp"
        finally:
            process.kill()


@asynccontextmanager
async def _serve_script(name: str, argument: str, port: int) -> AsyncIterator[int]:
    """A server of `tests/mcp/servers` that tells its port."""
    process = await asyncio.create_subprocess_exec(
        *_command(name), argument, str(port), stderr=asyncio.subprocess.PIPE
    )
    try:
        assert process.stderr is not None
        async with bounded():
            while not (line := await process.stderr.readline()).startswith(b"port "):
                assert line, "the server did not start"
        yield int(line.split()[1])
    finally:
        process.kill()
        await process.communicate()
