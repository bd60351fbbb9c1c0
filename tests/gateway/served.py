"""A gateway as people run it: `moot serve` in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.config.former_constants import constants_of
from tests.gateway.running_gateway import GatewayUnderTest
from tests.waiting import bounded, until
from tests.warm_start import WarmProcess, start_moot

_ROOT = Path(__file__).resolve().parents[2]
_READY = re.compile(r"moot gateway listening on (http://\S+)")


class Finished(Exception):
    """The process ended instead of serving."""

    def __init__(self, code: int | None, stdout: str, stderr: str) -> None:
        super().__init__(f"exit {code}\n{stdout}\n{stderr}")
        self.code = code
        self.stdout = stdout
        self.stderr = stderr


class Served(GatewayUnderTest):
    """A process that listens, and what it says."""

    def __init__(
        self, process: asyncio.subprocess.Process | WarmProcess, url: str, lines: list[str], errors: Path
    ) -> None:
        super().__init__(url)
        self.process = process
        self.lines = lines
        self.errors = errors
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.lines.append(line.decode().rstrip())

    async def wait_for_line(self, text: str, start: int = 0) -> str:
        """The first line of stdout from `start` on that holds this text."""
        return await until(lambda: next((line for line in self.lines[start:] if text in line), ""))

    async def reload(self) -> str:
        """SIGHUP; returns what the gateway says to it."""
        start = len(self.lines)
        self.process.send_signal(signal.SIGHUP)
        return await self.wait_for_line("reloaded", start)

    async def end(self, number: int = signal.SIGTERM) -> tuple[int, float]:
        """Stop it with a signal; its exit code, and how long it took."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        if self.process.returncode is None:
            self.process.send_signal(number)
        async with bounded():
            code = await self.process.wait()
        seconds = loop.time() - start
        await self._reader
        return code, seconds

    def stderr(self) -> str:
        return self.errors.read_text("utf-8")

    def limit_file_size(self, size: int | None) -> None:
        """No file of the process grows beyond this from now on (EFBIG); None lifts it."""
        soft = resource.RLIM_INFINITY if size is None else size
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (soft, resource.RLIM_INFINITY))

    def cpu_seconds(self) -> float:
        """What it has used so far, however long it had to wait for it."""
        numbers = Path(f"/proc/{self.process.pid}/stat").read_text("ascii").rpartition(")")[2].split()
        return (int(numbers[11]) + int(numbers[12])) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text("ascii")
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) * 1024


async def started(
    file: Path,
    *arguments: str,
    environ: Mapping[str, str] | None = None,
    before: Sequence[str] = (),
    module: str = "moot.cli",
) -> Served:
    """Start `moot serve FILE`; raises Finished when it ends before it listens.

    `before` stands before the command, and `module` is run instead of Moot's own.
    """
    errors = file.parent / f"stderr-{os.urandom(4).hex()}.txt"
    words = ("serve", str(file), *(arguments or ("--port", "0")))
    variables = {"PATH": os.environ["PATH"], "PYTHONUNBUFFERED": "1"} | dict(environ or {})
    constants = constants_of(file) if module == "moot.cli" else {}
    process: asyncio.subprocess.Process | WarmProcess
    with errors.open("wb") as handle:
        if before or module != "moot.cli":
            modules = [module]
            if constants:
                modules.insert(0, "tests.gateway.moot_with_constants")
                variables |= {"TRIED_CONSTANTS": json.dumps(constants), "PYTHONPATH": str(_ROOT)}
            process = await asyncio.create_subprocess_exec(
                *(*before, sys.executable, "-m", *modules, *words),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=handle,
                env=variables,
                cwd=file.parent,
            )
        else:
            process = await start_moot(
                *words, environ=variables, cwd=file.parent, stderr=handle, constants=constants
            )
    lines: list[str] = []
    assert process.stdout is not None
    async with bounded():
        while line := (await process.stdout.readline()).decode():
            lines.append(line.rstrip())
            if ready := _READY.search(line):
                return Served(process, ready[1], lines, errors)
        code = await process.wait()
    raise Finished(code, "\n".join(lines), errors.read_text("utf-8"))


@asynccontextmanager
async def served(file: Path, *arguments: str, **more: Any) -> AsyncIterator[Served]:
    """A running gateway; it is stopped when the block ends, and has left no traceback."""
    gateway = await started(file, *arguments, **more)
    try:
        yield gateway
    finally:
        await gateway.close()
        await gateway.end()
    assert "Traceback" not in gateway.stderr()


async def command(*arguments: str, cwd: Path, environ: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Run `moot …` to its end; its exit code, and all that it printed."""
    process = await start_moot(
        *arguments,
        environ={"PATH": os.environ["PATH"]} | dict(environ or {}),
        cwd=cwd,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with bounded():
        output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()
