"""`xprotocol-adapter` as somebody at a shell meets it: in this process, or in one of its own."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from moot.cli.adapter import main
from tests.waiting import HANG_SECONDS
from tests.warm_start import warm_programs


def program(env: Mapping[str, str] = MappingProxyType({}), *, cold: bool = False) -> str:
    """Forked, unless it has to be `cold` or the environment changes what Python itself does."""
    cold = cold or any(name.startswith("PYTHON") for name in env)
    folder = Path(sys.executable).parent if cold else warm_programs()
    return str(folder / "xprotocol-adapter")


@dataclass(frozen=True)
class CommandResult:
    """What a command said and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Shell:
    """Commands in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: str | Path) -> CommandResult:
        self._capsys.readouterr()
        try:
            code = main([str(word) for word in words])
        except SystemExit as left:
            # How argparse says that it was called wrongly, or that it has helped.
            code = left.code if isinstance(left.code, int) else 1
        out, err = self._capsys.readouterr()
        return CommandResult(code, out, err)


def run_program(
    *words: str | Path, env: dict[str, str] | None = None, cwd: Path | None = None
) -> CommandResult:
    """One command in a process of its own, to its end."""
    done = subprocess.run(  # noqa: S603  # our own program
        [program(env or {}), *map(str, words)],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        env={**os.environ, **(env or {})},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    return CommandResult(done.returncode, done.stdout, done.stderr)


@asynccontextmanager
async def start_adapter(
    *words: str | Path, env: dict[str, str] | None = None, cold: bool = False
) -> AsyncIterator[asyncio.subprocess.Process]:
    """`xprotocol-adapter start …` as a process, ended at the end if it has not ended by itself.

    If `cold`, it has the number that we know.
    """
    child = await asyncio.create_subprocess_exec(
        program(env or {}, cold=cold),
        "start",
        *map(str, words),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **(env or {})},
    )
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.communicate()
