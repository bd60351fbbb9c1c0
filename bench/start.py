"""What people wait for before anything happens: short commands and the start of a gateway, in turns."""

from __future__ import annotations

import asyncio
import os
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

ROUNDS: Final = 15
_MOOT: Final = str(Path(sys.executable).parent / "moot")
# What nobody gets under.
_BARE: Final = "python -c pass"
_SERVE: Final = "moot serve, to listening"
_MOST_MILLISECONDS: Final = {"moot --help": 80, "moot proposals": 150, _SERVE: 400}


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
    return {words: costs[1:] for words, costs in found.items()}


def _free_port() -> int:
    # Commands find the gateway by the port in its file.
    with socket.create_server(("127.0.0.1", 0)) as opened:
        port: int = opened.getsockname()[1]
        return port


def _cost(command: list[str], folder: Path) -> tuple[float, float]:
    start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, check=True)  # noqa: S603
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu * 1000, (time.monotonic() - start) * 1000


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
