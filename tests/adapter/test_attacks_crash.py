"""Adapters that are killed where they stand: no event runs twice, and what was acknowledged is not lost."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from random import Random

from moot.xprotocol.events import SignedDirected
from tests.adapter.test_inbound_relays import ADAPTER
from tests.adapter.worlds import NAMESPACE, Desk, World, desk, empty_world, run, until

WRITE = f"{NAMESPACE}.write_note"


def ran(notes: Desk) -> Counter[str]:
    """How often each event ran, by the name that it wrote."""
    return Counter(each["arguments"]["name"] for each in notes.requests())


def test_killed_again_and_again_no_event_runs_twice_and_those_it_never_saw_still_run(tmp_path: Path) -> None:
    """Four lives that end by SIGKILL in the middle of calls; what the relay took meanwhile waits for the fifth."""

    async def story() -> None:
        notes = desk(tmp_path)
        random = Random(5)
        async with empty_world(tmp_path, notes) as here:
            async with here.running():
                sent = [here.alice.event(WRITE, {"name": f"note-{n}", "text": "x"}) for n in range(40)]
            for life in range(4):
                await one_life(here, notes, sent[8 * life : 8 * life + 8], calls=random.randrange(1, 8))
            for each in sent[32:]:
                await here.alice.send(each)
            assert sum(ran(notes).values()) < 32, "some were cut off"
            async with here.running():
                for each in sent[32:]:
                    assert (await here.alice.answer(each)).code is None
                # The relay has told of all forty once more by now.
                counts = ran(notes)
                assert set(counts.values()) == {1}
                for n, each in enumerate(sent):
                    told = [heard for heard in here.alice.heard if heard.event.in_reply_to == each.event.id]
                    assert len(told) <= 1
                    assert not told or (told[0].code is None and counts[f"note-{n}"] == 1)

    run(story())


async def one_life(here: World, notes: Desk, events: list[SignedDirected], *, calls: int) -> None:
    """A process of the adapter, killed with its servers as soon as these were asked so often."""
    before = len(notes.requests())
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", ADAPTER, str(here.write()), start_new_session=True
    )
    sending = asyncio.gather(*(here.alice.send(each) for each in events))
    try:
        await until(lambda: len(notes.requests()) >= before + calls)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    await sending


def test_a_disk_that_takes_no_ids_lets_nothing_run(tmp_path: Path) -> None:
    """What cannot be remembered could run twice: it is refused, and the process does not fall over."""

    async def story() -> None:
        notes = desk(tmp_path)
        async with empty_world(tmp_path, notes) as here:
            async with here.running():
                event = here.alice.event(WRITE, {"name": "two", "text": "x"})
            # 2 MiB of files at most, most of which the padding takes: SQLite's log cannot grow.
            program = (
                "import resource, signal\n"
                "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
                "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n" + ADAPTER
            )
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                program,
                str(here.write()),
                start_new_session=True,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            try:
                await here.alice.send(event)
                ended = asyncio.create_task(process.communicate())
                told = asyncio.create_task(here.alice.answer(event))
                done, _ = await asyncio.wait({ended, told}, timeout=15, return_when=asyncio.FIRST_COMPLETED)
                assert done, "neither answered nor ended"
                if told in done:
                    assert told.result().code == "ENDPOINT_UNAVAILABLE"
                told.cancel()
            finally:
                if process.returncode is None:
                    os.killpg(process.pid, signal.SIGKILL)
                await asyncio.gather(ended, told, return_exceptions=True)
            assert notes.requests() == []

    run(story())
