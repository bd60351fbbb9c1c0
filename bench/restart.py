"""How long a gateway with 1,000,000 records takes to start again, with every record of its journal kept.

The first start behind `kill -9` or a stop reads what was written since the last one; of closed segments later
ones only see that they are the same files (decision 0325).
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path
from typing import Final

from bench.fanout import config
from bench.processes import gateway, load

RECORDS: Final = 1_000_000
MOST_SECONDS: Final = 3.0
# The load makes what it sends before it sends it.
_AT_ONCE: Final = 50_000
STARTS: Final = ("the first start, after kill -9", "the next one", "one more")


async def run(records: int = RECORDS) -> dict[str, tuple[float, float]]:
    """Seconds of CPU and of waiting until a gateway listens, by start."""
    found: dict[str, tuple[float, float]] = {}
    with tempfile.TemporaryDirectory(prefix="moot-restart-") as name:
        folder = Path(name) / "space"
        async with load(Path(name)) as crowd, gateway(folder, config()) as (process, url):
            await crowd.tell(job="connect", server="other", url=url + "bench", receivers=1)
            await crowd.answer()
            for _ in range(records // _AT_ONCE):
                await crowd.tell(job="flood", messages=_AT_ONCE, window=64)
                await crowd.answer()
                await crowd.tell(job="go")
                await crowd.answer()
            process.child.kill()
            await process.child.wait()
        for start in STARTS:
            before = time.monotonic()
            async with gateway(folder, config()) as (process, _):
                found[start] = (process.cpu_seconds, time.monotonic() - before)
    return found


def main() -> None:
    print(f"{f's, {RECORDS:,} records of 500 bytes':40}{'CPU':>8}{'waiting':>10}")
    for start, (cpu, waited) in asyncio.run(run()).items():
        print(f"{start:40}{cpu:8.2f}{waited:10.2f}  at most {MOST_SECONDS:g}")
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
