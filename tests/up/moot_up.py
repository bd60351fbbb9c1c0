"""`moot up` as people run it: in a process of its own, its status read as JSON."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

from tests.waiting import bounded
from tests.warm_start import WarmProcess, start_moot

MOOT = [sys.executable, "-m", "moot.cli"]


def write_config(folder: Path, text: str, name: str = "moot.yaml") -> Path:
    path = folder / name
    path.write_text(dedent(text), "utf-8")
    path.chmod(0o600)
    return path


def environment(**more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "PYTHONUNBUFFERED": "1"} | more


class MootUp:
    """A running `moot up`: every change that it reported, and the latest status of each part."""

    def __init__(self, process: asyncio.subprocess.Process | WarmProcess, folder: Path) -> None:
        self.process = process
        self.folder = folder
        self.data = folder / ".moot"
        self.changes: list[dict[str, Any]] = []
        self.now: dict[str, dict[str, Any]] = {}
        self._changed = asyncio.Condition()
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            row = json.loads(line)
            async with self._changed:
                self.changes.append(row)
                if "name" in row:
                    self.now[row["name"]] = row
                self._changed.notify_all()
        async with self._changed:
            self._changed.notify_all()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds for what was reported."""
        try:
            async with bounded(), self._changed:
                await self._changed.wait_for(lambda: holds() or self._reader.done())
        except TimeoutError:
            raise AssertionError(f"never so: {self.changes[-12:]}") from None
        assert holds(), f"ended before it was so: {self.changes[-12:]}"

    async def wait_for_state(self, name: str, state: str, **facts: object) -> dict[str, Any]:
        """Wait until a part has this state."""

        def so() -> bool:
            row = self.now.get(name, {})
            return row.get("state") == state and all(row.get(key) == value for key, value in facts.items())

        await self.until(so)
        return self.now[name]

    @property
    def url(self) -> str:
        return str(self.run_file()["url"])

    def run_file(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.data / "run/up.json").read_text("utf-8"))
        return found

    def log(self, name: str) -> str:
        """What a member has printed so far."""
        file = self.data / "logs" / f"{name}.log"
        return file.read_text("utf-8") if file.exists() else ""

    def token(self, name: str) -> str:
        return (self.data / "tokens" / f"{name}.token").read_text("ascii").strip()

    async def end(self, number: int = signal.SIGTERM) -> int:
        """Stop it; the exit code."""
        if self.process.returncode is None:
            self.process.send_signal(number)
        async with bounded():
            code = await self.process.wait()
            await self._reader
        return code


@asynccontextmanager
async def moot_up(
    folder: Path,
    *options: str,
    environ: Mapping[str, str] | None = None,
    ready: bool = True,
    program: Sequence[str] = MOOT,
) -> AsyncIterator[MootUp]:
    """`moot up` in a folder on any free port, stopped at the end and without a traceback in its log."""
    with (folder / "up.err").open("ab") as errors:
        words = ("up", "--port", "0", "--json", *options)
        variables = environ or environment()
        process: asyncio.subprocess.Process | WarmProcess
        if program is MOOT:
            process = await start_moot(*words, environ=variables, cwd=folder, stderr=errors)
        else:
            process = await asyncio.create_subprocess_exec(
                *(*program, *words),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                cwd=folder,
                env=variables,
            )
    up = MootUp(process, folder)
    try:
        if ready:
            await up.wait_for_state("gateway", "running")
        yield up
    finally:
        await up.end()
    assert (folder / "up.err").read_text("utf-8") == ""
    log = up.data / "logs/gateway.log"
    assert "Traceback" not in (log.read_text("utf-8") if log.exists() else "")


async def run_moot(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run `moot …` in a folder to its end; its exit code and all that it printed."""
    process = await start_moot(
        *arguments, environ=environment(), cwd=folder, stderr=asyncio.subprocess.STDOUT
    )
    async with bounded():
        output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
