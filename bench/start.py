"""What people wait for before anything happens: short commands, a gateway's start, the first proposal."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from bench.processes import gateway
from moot import connect, token_from

ROUNDS: Final = 15
_MOOT: Final = str(Path(sys.executable).parent / "moot")
# What nobody gets under.
_BARE: Final = "python -c pass"
_SERVE: Final = "moot serve, to listening"
_UP: Final = "moot up, to the first proposal"
_MOST_MILLISECONDS: Final = {"moot --help": 80, "moot proposals": 150, _SERVE: 400, _UP: 2_000}
_UP_ROUNDS: Final = 5
_TOKEN: Final = ".moot/tokens/you.token"
# A start that takes longer has failed.
_PATIENCE_SECONDS: Final = 120.0


async def run() -> dict[str, list[tuple[float, float]]]:
    """Milliseconds of CPU and of waiting, by command, in the folder of a space without messages."""
    space = {"default_participant": "me", "participants": {"me": {"profile": "full"}}}
    commands = {
        _BARE: [sys.executable, "-c", "pass"],
        "moot --help": [_MOOT, "--help"],
        "moot proposals": [_MOOT, "proposals"],
    }
    found: dict[str, list[tuple[float, float]]] = {}
    # Where no bytecode is written, each command would compile everything anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory(prefix="moot-start-") as name:
        stays = Path(name) / "stays"
        async with gateway(stays, {"gateway": {"port": _free_port()}, "spaces": {"lab": space}}):
            # The first round warms up and counts for nothing.
            for round in range(ROUNDS + 1):
                for words, command in commands.items():
                    cost = await asyncio.to_thread(_cost, command, stays)
                    found.setdefault(words, []).append(cost)
                start = time.monotonic()
                config = {"gateway": {"port": 0}, "spaces": {"lab": space}}
                async with gateway(Path(name) / str(round), config) as (process, _):
                    waited = time.monotonic() - start
                    found.setdefault(_SERVE, []).append((process.cpu_seconds * 1000, waited * 1000))
        for round in range(_UP_ROUNDS + 1):
            found.setdefault(_UP, []).append(await _first_proposal(Path(name) / f"up-{round}"))
    return {words: costs[1:] for words, costs in found.items()}


async def _first_proposal(folder: Path) -> tuple[float, float]:
    """Milliseconds in the space of the quick start; CPU is of all its processes, their end included."""
    await asyncio.to_thread(_cost, [_MOOT, "init", "filesystem", str(folder)], folder.parent)
    proposed, space = asyncio.Event(), folder.name
    start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    up = await asyncio.create_subprocess_exec(
        *(_MOOT, "up", "--plain", "--port", "0"), cwd=folder, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert up.stdout is not None
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while (found := re.search(rb"listening on (http://[^;]+)", await up.stdout.readline())) is None:
                pass
            async with connect(found[1].decode(), space, token_from(folder / _TOKEN)) as me:
                me.on_proposal(lambda _: proposed.set())
                await proposed.wait()
        waited = time.monotonic() - start
    finally:
        up.terminate()
        await up.communicate()
    return _cpu_since(before), waited * 1000


def _free_port() -> int:
    # Commands find the gateway by the port in its file.
    with socket.create_server(("127.0.0.1", 0)) as opened:
        port: int = opened.getsockname()[1]
        return port


def _cost(command: list[str], folder: Path) -> tuple[float, float]:
    start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, check=True)  # noqa: S603
    return _cpu_since(before), (time.monotonic() - start) * 1000


def _cpu_since(before: resource.struct_rusage) -> float:
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def main() -> None:
    print(f"{'ms, median (least to most)':32}{'CPU':>22}{'waiting':>24}")
    for words, costs in asyncio.run(run()).items():
        cells = [
            f"{statistics.median(column):.0f} ({min(column):.0f} to {max(column):.0f})"
            for column in zip(*costs, strict=True)
        ]
        most = _MOST_MILLISECONDS.get(words)
        print(f"{words:32}{cells[0]:>22}{cells[1]:>24}" + ("" if most is None else f"  at most {most}"))
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
