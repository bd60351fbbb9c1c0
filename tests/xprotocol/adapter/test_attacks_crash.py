"""Adapters that are killed where they stand: no event runs twice, and what was acknowledged is not lost."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random

from moot.xprotocol.events.event_composer import compose
from moot.xprotocol.events.events import SignedDirected
from tests.waiting import until, until_told
from tests.xprotocol.adapter.adapter_environment import (
    NAMESPACE,
    AdapterEnvironment,
    NotesServer,
    adapter_environment,
    notes_server,
)
from tests.xprotocol.adapter.test_inbound_relays import ADAPTER

WRITE, SLOW = f"{NAMESPACE}.write_note", f"{NAMESPACE}.run_slow"


def ran(notes: NotesServer) -> Counter[str]:
    """How often each event ran, by the name that it wrote."""
    return Counter(each["arguments"]["name"] for each in notes.requests())


async def test_killed_again_and_again_no_event_runs_twice_and_those_it_never_saw_still_run(
    tmp_path: Path,
) -> None:
    """Four lives end by SIGKILL in the middle of calls; what the relay took meanwhile waits for the fifth."""
    notes = notes_server(tmp_path)
    random = Random(5)
    async with adapter_environment(tmp_path, notes) as environment:
        async with environment.running():
            # Every other one takes a while, so that there is a middle to be killed in.
            sent = [
                environment.alice.event(SLOW, {"name": f"{n}", "seconds": n % 2 * 0.4}) for n in range(40)
            ]
        for life in range(4):
            await one_life(environment, notes, sent[8 * life : 8 * life + 8], calls=random.randrange(1, 8))
        for each in sent[32:]:
            await environment.alice.send(each)
        answered_before = len(environment.alice.received)
        async with environment.running():
            for each in sent[32:]:
                assert (await environment.alice.answer(each)).code is None
            assert answered_before < 32
            # The relay has told of all forty once more by now.
            counts = ran(notes)
            assert set(counts.values()) == {1}
            for n, each in enumerate(sent):
                answer = [
                    received
                    for received in environment.alice.received
                    if received.event.in_reply_to == each.event.id
                ]
                assert len(answer) <= 1
                assert not answer or (answer[0].code is None and counts[f"{n}"] == 1)


async def one_life(
    environment: AdapterEnvironment, notes: NotesServer, events: list[SignedDirected], *, calls: int
) -> None:
    """A process of the adapter, killed with its servers as soon as these were asked so often."""
    before = len(notes.requests())
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", ADAPTER, str(environment.write()), start_new_session=True
    )
    sending = asyncio.gather(*(environment.alice.send(each) for each in events))
    try:
        await until(lambda: len(notes.requests()) >= before + calls)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    await sending


async def test_a_disk_that_takes_no_more_ids_lets_nothing_run_until_it_does(tmp_path: Path) -> None:
    """What cannot be remembered could run twice: it is refused with words, and later calls run again."""

    async def until_taken(environment: AdapterEnvironment, last: SignedDirected) -> None:
        """The audit log is tried again after a second; until then calls are refused."""

        async def is_taken() -> bool:
            event = compose(
                environment.alice.identity,
                WRITE,
                {"name": "again", "text": "x"},
                recipient=last.event.recipient,
                enc_key=last.event.enc_key,
                now=time.time(),
            )
            await environment.alice.send(event)
            answer = await environment.alice.answer(event)
            assert answer.code in (None, "ENDPOINT_UNAVAILABLE")
            return answer.code is None

        await until_told(is_taken)

    notes = notes_server(tmp_path)
    async with adapter_environment(tmp_path, notes) as environment:
        async with environment.running():
            events = [environment.alice.event(WRITE, {"name": f"{n}", "text": "x"}) for n in range(3)]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", ADAPTER, str(environment.write()), start_new_session=True
        )
        try:
            await environment.alice.send(events[0])
            assert (await environment.alice.answer(events[0])).code is None
            # No file of that process may grow from here on: what a full disk looks like.
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
            await environment.alice.send(events[1])
            assert (await environment.alice.answer(events[1])).code == "ENDPOINT_UNAVAILABLE"
            assert ran(notes) == {"0": 1}
            unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, unlimited)
            await until_taken(environment, events[2])
            assert ran(notes)["1"] == 0
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
