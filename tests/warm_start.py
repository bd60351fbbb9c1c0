"""Starts `moot` processes that need not load the product first: half of what tests cost was loading it.

A server for all workers of pytest has loaded it, and forks a process for each command (`warm_server`). In
nothing else does such a process differ from one that a shell starts; `tests/cli/test_program.py` and others
start theirs by a shell's way. Where the environment changes what Python itself does, so does `start_moot`.
Where somebody else starts it (a shell, a client, `subprocess`), `warm_command` or `warm_programs` stands for
it; not where it has a terminal, or is sent a signal that nobody can pass on.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import shlex
import signal
import socket
import struct
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from types import MappingProxyType
from typing import IO

from moot.protocol.operation import Json
from tests.cli.programs import MODULES
from tests.fork_server import ForkServer, OwnForkServer
from tests.warm_server import SDK_SERVERS

# Where the servers of all workers listen: that of our programs, and that of MCP servers made with the SDK.
SERVER = "MOOT_TESTS_WARM_SERVER"
SDK_SERVER = "MOOT_TESTS_WARM_SDK_SERVER"
_ROOT = Path(__file__).parent.parent
# What the interpreter, the loader, the C library or our modules read once, when they are loaded.
_READ_BEFORE = ("PYTHON", "MOOT_PURE_PYTHON", "LD_", "LC_", "LANG", "TZ", "MALLOC_", "SSL_", "OPENSSL_")
_AT_START = dict(os.environ)
# Constants that other modules took over when they were loaded.
_TAKEN_OVER = ("moot.protocol.", "moot.logs.", "moot.gateway.notifications.channels.")


# A loop keeps neither its tasks nor, where it is uvloop, its pipes.
_WATCHES: set[asyncio.Task[None]] = set()


class _Pipe(asyncio.StreamReaderProtocol):
    """Its end that is read, and when nothing more will come."""

    def __init__(self) -> None:
        self.reader = asyncio.StreamReader()
        self.lost = asyncio.Event()
        self.transport: asyncio.BaseTransport
        super().__init__(self.reader)

    @classmethod
    async def opened(cls, descriptor: int) -> _Pipe:
        loop = asyncio.get_running_loop()
        transport, pipe = await loop.connect_read_pipe(cls, os.fdopen(descriptor, "rb", 0))
        pipe.transport = transport
        return pipe

    async def number(self) -> int:
        number: int = struct.unpack("i", await self.reader.readexactly(4))[0]
        return number

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.lost.set()


class WarmProcess:
    """What tests use of `asyncio.subprocess.Process`."""

    def __init__(self, pid: int, output: _Pipe, status: _Pipe, asked: socket.socket) -> None:
        self.pid = pid
        self.stdout = output.reader
        self.returncode: int | None = None
        self._ended = asyncio.Event()
        watch = asyncio.create_task(self._wait_for_end(output, status, asked))
        _WATCHES.add(watch)
        watch.add_done_callback(_WATCHES.discard)

    async def _wait_for_end(self, output: _Pipe, status: _Pipe, asked: socket.socket) -> None:
        try:
            self.returncode = await status.number()
            self._ended.set()
            await output.lost.wait()
        finally:
            # Also when a test is over before.
            output.transport.close()
            status.transport.close()
            asked.close()

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    async def communicate(self) -> tuple[bytes, None]:
        """All that it prints until it ends."""
        output = await self.stdout.read()
        await self.wait()
        return output, None

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            # It may have ended already, and nobody told us yet: it is the server's child.
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


async def start_moot(
    *arguments: str,
    environ: Mapping[str, str],
    cwd: Path,
    stderr: IO[bytes] | int,
    constants: Mapping[str, Json] = MappingProxyType({}),
    program: str = "moot",
) -> asyncio.subprocess.Process | WarmProcess:
    """`moot …` in a process of its own, with a pipe as its stdout, nothing to read, and these constants.

    Or another program of ours.
    """
    own = {name for name in environ if name.startswith(_READ_BEFORE)} - {"PYTHONUNBUFFERED"}
    own -= {name for name in own if environ[name] == _AT_START.get(name)}
    own |= {name for name in constants if name.startswith(_TAKEN_OVER)}
    # Loaded before, it starts when it is told to.
    shim = environ.get("LD_PRELOAD") if "FAULT_SHIM" in environ else None
    own -= {"LD_PRELOAD"} if shim else set()
    if own or sys.platform != "linux":
        module = [MODULES[program]]
        if constants:
            module.insert(0, "tests.gateway.moot_with_constants")
            environ = {**environ, "TRIED_CONSTANTS": json.dumps(constants), "PYTHONPATH": str(_ROOT)}
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", *module, *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            env=environ,
            cwd=cwd,
        )
    reading, writing = os.pipe()
    telling, told = os.pipe()
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        errors = writing if stderr == asyncio.subprocess.STDOUT else _number(stderr)
        request = {
            "arguments": [program, *arguments],
            "environ": dict(environ),
            "cwd": str(cwd),
            "constants": dict(constants),
        }
        asked = _server(shim).ask(request, [nothing, writing, errors, told])
    finally:
        for descriptor in (writing, told, nothing):
            os.close(descriptor)
    output, status = await _Pipe.opened(reading), await _Pipe.opened(telling)
    return WarmProcess(await status.number(), output, status, asked)


def _number(stream: IO[bytes] | int) -> int:
    return stream if isinstance(stream, int) else stream.fileno()


def warm_command(program: str = "moot") -> list[str]:
    """The command line for it, to which its words are added."""
    return _server().command(program)


def sdk_server(name: str) -> list[str]:
    """The command line of a server of `tests/mcp/servers` that is made with the official SDK."""
    if sys.platform != "linux":
        return [sys.executable, "-m", SDK_SERVERS[name]]
    return _sdk_server().command(name)


@cache
def warm_programs() -> Path:
    """A folder for the PATH, with all programs."""
    folder = Path(mkdtemp(prefix="programs-", dir=_server().folder))
    for program in MODULES:
        file = folder / program
        file.write_text(f'#!/bin/sh\nexec {shlex.join(warm_command(program))} "$@"\n', "utf-8")
        file.chmod(0o700)
    return folder


@cache
def _server(shim: str | None = None) -> ForkServer:
    """That of all workers, our own if there are none, or one with the library that makes faults."""
    if shim is None and SERVER in os.environ:
        return ForkServer(Path(os.environ[SERVER]))
    return own_server(shim=shim)


@cache
def _sdk_server() -> ForkServer:
    if SDK_SERVER in os.environ:
        return ForkServer(Path(os.environ[SDK_SERVER]))
    return own_server("sdk")


def own_server(*words: str, shim: str | None = None) -> OwnForkServer:
    """One that lasts as long as this process."""
    environ = _AT_START | ({"LD_PRELOAD": shim} if shim else {})
    server = OwnForkServer("tests.warm_server", *words, environ=environ)
    atexit.register(server.end)
    return server
