"""Starts `moot` processes that need not load the product first: half of what tests cost was loading it.

A server for each worker of pytest has loaded it, and forks a process for each command (`warm_server`). In
nothing else does such a process differ from one that a shell starts; `tests/cli/test_program.py` and others
start theirs by a shell's way. Where the environment changes what Python itself does, so does `start_moot`.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import IO

from moot.protocol.operation import Json

_SERVER = Path(__file__).with_name("warm_server.py")
_ROOT = _SERVER.parent.parent
# What the interpreter, the loader, the C library or our modules read once, when they are loaded.
_READ_BEFORE = ("PYTHON", "MOOT_PURE_PYTHON", "LD_", "LC_", "LANG", "TZ", "MALLOC_", "SSL_", "OPENSSL_")
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

    def __init__(self, pid: int, output: _Pipe, status: _Pipe) -> None:
        self.pid = pid
        self.stdout = output.reader
        self.returncode: int | None = None
        self._ended = asyncio.Event()
        watch = asyncio.create_task(self._wait_for_end(output, status))
        _WATCHES.add(watch)
        watch.add_done_callback(_WATCHES.discard)

    async def _wait_for_end(self, output: _Pipe, status: _Pipe) -> None:
        try:
            self.returncode = await status.number()
            self._ended.set()
            await output.lost.wait()
        finally:
            # Also when a test is over before.
            output.transport.close()
            status.transport.close()

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
) -> asyncio.subprocess.Process | WarmProcess:
    """`moot …` in a process of its own, with a pipe as its stdout, nothing to read, and these constants."""
    own = {name for name in environ if name.startswith(_READ_BEFORE)} - {"PYTHONUNBUFFERED"}
    own |= {name for name in constants if name.startswith(_TAKEN_OVER)}
    # Loaded before, it starts when it is told to.
    shim = environ.get("LD_PRELOAD") if "FAULT_SHIM" in environ else None
    own -= {"LD_PRELOAD"} if shim else set()
    if own or sys.platform != "linux":
        module = "moot.cli"
        if constants:
            module = "tests.gateway.moot_with_constants"
            environ = {**environ, "TRIED_CONSTANTS": json.dumps(constants), "PYTHONPATH": str(_ROOT)}
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", module, *arguments),
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
            "arguments": arguments,
            "environ": dict(environ),
            "cwd": str(cwd),
            "constants": dict(constants),
        }
        socket.send_fds(_server(shim), [json.dumps(request).encode()], [nothing, writing, errors, told])
    finally:
        for descriptor in (writing, told, nothing):
            os.close(descriptor)
    output, status = await _Pipe.opened(reading), await _Pipe.opened(telling)
    return WarmProcess(await status.number(), output, status)


def _number(stream: IO[bytes] | int) -> int:
    return stream if isinstance(stream, int) else stream.fileno()


@cache
def _server(shim: str | None = None) -> socket.socket:
    """That of this worker, or the one with the library that makes faults.

    It ends, and whatever it has started, when the socket is closed.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        # Not with its own folder before all others: `tests/mcp` is not `mcp`.
        server = subprocess.Popen(  # noqa: S603
            [sys.executable, "-P", str(_SERVER)],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            env={"PATH": os.environ["PATH"]} | ({"LD_PRELOAD": shim} if shim else {}),
        )

    def end() -> None:
        ours.close()
        server.wait()

    atexit.register(end)
    return ours
