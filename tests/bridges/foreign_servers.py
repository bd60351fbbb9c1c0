"""The everything-servers that others keep for MCP's conformance suite: fetched, started, and ended again.

None of them is published as a package. So they are fetched from their repositories at a fixed commit, into
`build/foreign`, and run with the published SDKs. Without a network git can be pointed to copies of the
repositories, by its own setting `url.COPY.insteadOf`.
"""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from moot.net.http_listener import bind_socket
from tests.waiting import until_told

ROOT: Final = Path(__file__).resolve().parents[2]
MODULES: Final = ROOT / ".node" / "node_modules"
_ARCHITECTURE: Final = {"aarch64": "arm64", "arm64": "arm64", "x86_64": "x64"}.get(platform.machine(), "x64")
NODE: Final = MODULES / f"node-linux-{_ARCHITECTURE}" / "bin" / "node"
_FETCHED: Final = ROOT / "build" / "foreign"


@dataclass(frozen=True, slots=True)
class ForeignServer:
    """An everything-server; `argv` is run in `folder` of its repository, see `listening`."""

    title: str
    repository: str
    commit: str
    folder: str
    argv: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.repository.rpartition("/")[2]

    @property
    def path(self) -> Path:
        return _FETCHED / f"{self.name}-{self.commit[:12]}"


SERVERS: Final = (
    ForeignServer(
        "Python SDK",
        "https://github.com/modelcontextprotocol/python-sdk",
        "57394b0548d1e2dc2dce8d67d84985769df3b8bb",
        "examples/servers/everything-server",
        (sys.executable, "-m", "mcp_everything_server", "--port", "{port}"),
    ),
    ForeignServer(
        "TypeScript SDK",
        "https://github.com/modelcontextprotocol/typescript-sdk",
        "3924de99df834302d89f5997a1b64ca268282284",
        "test/conformance",
        (str(NODE), "--import", "tsx", "src/everythingServer.ts"),
    ),
    ForeignServer(
        "the suite's own",
        "https://github.com/modelcontextprotocol/conformance",
        "c321dd32035556e6769d3724a8ee97d87c3faaac",
        "examples/servers/typescript",
        (str(NODE), "--import", "tsx", "everything-server.ts"),
    ),
)


async def fetch(server: ForeignServer) -> Path:
    """The folder of the server, fetched unless it is there; raises RuntimeError with what git says."""
    folder = server.path / server.folder
    if not folder.exists():
        partial = server.path.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        await _run("git", "init", "--quiet", cwd=partial)
        await _run("git", "fetch", "--quiet", "--depth=1", server.repository, server.commit, cwd=partial)
        await _run("git", "checkout", "--quiet", server.commit, "--", server.folder, cwd=partial)
        # Where Node looks for what the server imports.
        (partial / "node_modules").symlink_to(MODULES)
        partial.rename(server.path)
    return folder


@asynccontextmanager
async def running(server: ForeignServer) -> AsyncIterator[str]:
    """The server while the block runs; its URL."""
    async with listening(server.argv, await fetch(server)) as url:
        yield url


@asynccontextmanager
async def listening(argv: tuple[str, ...], folder: Path) -> AsyncIterator[str]:
    """A server while the block runs; its URL. It gets its port as `{port}` in `argv` and as PORT."""
    with bind_socket("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        *(argument.format(port=port) for argument in argv),
        cwd=folder,
        env={**os.environ, "PORT": str(port)},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )

    async def listens() -> bool:
        assert process.returncode is None, f"{argv} ended at once"
        try:
            _, writer = await asyncio.open_connection("localhost", port)
        except OSError:
            return False
        writer.close()
        return True

    try:
        await until_told(listens)
        # Not 127.0.0.1: one of them accepts `localhost` alone.
        yield f"http://localhost:{port}/mcp"
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _run(*argv: str, cwd: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *argv, cwd=cwd, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{' '.join(argv)} failed:\n{output.decode()}")
