"""kill -9 in the middle of a flood: whatever was confirmed with an OK is there afterwards, bytes and all.

`run_relay_crashes` does it many times (for the soak), the test a few.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from moot.xprotocol.event_store.event_tables import FILE_NAME, connect_reading
from tests.waiting import bounded
from tests.xprotocol.people import ALICE, BOB
from tests.xprotocol.relay.raw_client import event


async def started(
    folder: Path, *, environ: Mapping[str, str] | None = None
) -> tuple[asyncio.subprocess.Process, str]:
    """`moot xp relay` as a process of its own, and where it listens."""
    moot = Path(sys.executable).parent / "moot"
    child = await asyncio.create_subprocess_exec(
        str(moot),
        *("xp", "relay", "--port", "0", "--data", str(folder), "--no-rate-limits", "--log-level", "error"),
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | dict(environ or {}),
    )
    assert child.stdout is not None
    async with bounded():
        line = (await child.stdout.readline()).decode()
    found = re.fullmatch(r"moot relay listening on (ws://\S+)\n", line)
    assert found is not None, line
    return child, found[1]


async def crash_once(folder: Path, acknowledged: dict[str, bytes], kill_after: int) -> None:
    """Flood a relay and kill it after so many OKs; adds what was confirmed."""
    child, url = await started(folder)
    count = 0
    try:
        sent = {
            (one := event(ALICE, BOB, now=time.time())).event.id: one.raw for _ in range(kill_after + 400)
        }
        async with connect(url, close_timeout=0.1, max_size=None) as socket:
            await socket.recv()

            async def flood() -> None:
                for raw in sent.values():
                    await socket.send(b'["EVENT",' + raw + b"]", text=True)

            flooding = asyncio.create_task(flood())
            try:
                async with bounded():
                    while True:
                        answer = await socket.recv(decode=False)
                        assert b",true," in answer, answer
                        id = answer[7:71].decode()
                        acknowledged[id] = sent[id]
                        count += 1
                        if count == kill_after:
                            child.kill()
            except ConnectionClosed:
                pass
            flooding.cancel()
            await asyncio.gather(flooding, return_exceptions=True)
    finally:
        # Also when something above went wrong before it was time.
        if child.returncode is None and count < kill_after:
            child.kill()
        await child.wait()


def check(folder: Path, acknowledged: dict[str, bytes]) -> int:
    """How many are stored; raises AssertionError when one that was confirmed is not, or not as it came."""
    connection = connect_reading(folder / FILE_NAME)
    try:
        (verdict,) = connection.execute("PRAGMA integrity_check").fetchone()
        assert verdict == "ok", verdict
        stored = [raw for (raw,) in connection.execute("SELECT raw FROM events")]
    finally:
        connection.close()
    assert len(set(stored)) == len(stored)
    lost = set(acknowledged.values()) - set(stored)
    assert not lost, f"{len(lost)} of {len(acknowledged)} confirmed events are gone"
    return len(stored)


def run_relay_crashes(rounds: int, seed: int) -> str:
    """Crash a relay this many times; raises AssertionError for anything confirmed and lost."""
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="moot-relay-crash-") as name:
        folder = Path(name)
        acknowledged: dict[str, bytes] = {}
        stored = 0
        for _ in range(rounds):
            asyncio.run(crash_once(folder, acknowledged, draw.randint(1, 300)))
            stored = check(folder, acknowledged)
        return f"{rounds} kills, {len(acknowledged)} of {stored} stored events were confirmed, none was lost"


if __name__ == "__main__":
    print(run_relay_crashes(int(os.environ.get("ROUNDS", "5")), int(time.time())))
