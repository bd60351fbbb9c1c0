"""`moot xp relay`, as somebody at a shell meets it."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from moot.xprotocol.event_store.event_store import EventStore
from tests.waiting import HANG_SECONDS, bounded
from tests.warm_start import warm_programs
from tests.xprotocol.relay.crash import started
from tests.xprotocol.relay.raw_client import event, raw_client


async def test_a_relay_says_where_it_listens_and_stops_cleanly(tmp_path: Path) -> None:
    child, url = await started(tmp_path)
    async with raw_client(url) as alice:
        sent = event()
        assert (await alice.publish(sent.raw))[2] is True
        child.send_signal(signal.SIGTERM)
        assert (await alice.closed())[0] == 1001
    async with bounded():
        assert await child.wait() == 0
    store = EventStore.open(tmp_path)
    assert await store.get(sent.event.id) == sent.raw
    await store.close()


def test_a_relay_that_cannot_start_says_why_and_what_to_do(tmp_path: Path) -> None:
    moot = str(warm_programs() / "moot")
    for words, why in (
        (["--host", "0.0.0.0"], "--url wss://"),  # noqa: S104
        (["--port", "70000"], "0 to 65535"),
        (["--url", "https://x"], "wss://relay.example"),
        (["--data", "/dev/null/x"], "cannot use"),
        (["--max-events", "0"], "at least 1"),
    ):
        command = [moot, "xp", "relay", "--port", "0", "--data", str(tmp_path), *words]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=HANG_SECONDS, check=False)  # noqa: S603
        assert ended.returncode == 2, words
        assert why in ended.stderr, ended.stderr
        assert "Traceback" not in ended.stderr
