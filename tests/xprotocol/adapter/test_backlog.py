"""Requests that came while the adapter was away are served when it is back (decision 0046), all of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from moot.xprotocol.adapter.inbound.backlog import MAX_EVENTS, Backlog
from tests.waiting import until
from tests.xprotocol.adapter.adapter_environment import NAMESPACE, adapter_environment, notes_server

WAITED = 300


async def test_what_waited_at_the_relay_is_served_at_the_adapters_own_pace(tmp_path: Path) -> None:
    """More than a minute's rate, and more than one sender may have at a time; none is refused."""
    server = notes_server(tmp_path)
    async with adapter_environment(tmp_path, server) as environment:
        environment.document["limits"] = {
            "requests_per_minute": 60,
            "max_calls_per_sender": 4,
            "max_calls": 8,
        }
        async with environment.running() as adapter:
            key, enc_key = adapter.key, adapter.identity.enc_key.text
        alice = environment.alice
        events = [
            alice.event(f"{NAMESPACE}.read_note", {"name": "one"}, recipient=key, enc_key=enc_key)
            for _ in range(WAITED)
        ]
        for event in events:
            await alice.send(event)
        most = 0
        async with environment.running() as adapter:
            waiting = asyncio.gather(*(alice.answer(event) for event in events))
            while not waiting.done():
                most = max(most, adapter.requests.in_progress)
                await asyncio.sleep(0)
            answers = await waiting
            assert [answer.code for answer in answers if answer.code is not None] == []
            assert most <= 4
            # Who is there now is held to the rate, as before.
            codes = [(await alice.ask(f"{NAMESPACE}.read_note", {"name": "one"})).code for _ in range(61)]
            assert "RATE_LIMITED" in codes
        assert len(server.requests()) >= WAITED


async def test_a_stop_in_the_middle_loses_none_that_had_not_begun(tmp_path: Path) -> None:
    server = notes_server(tmp_path)
    async with adapter_environment(tmp_path, server) as environment:
        environment.document["limits"] = {"max_calls_per_sender": 1, "max_calls": 2}
        async with environment.running() as adapter:
            key, enc_key = adapter.key, adapter.identity.enc_key.text
        alice = environment.alice
        more = {"recipient": key, "enc_key": enc_key}
        events = [alice.event(f"{NAMESPACE}.read_note", {"name": "one"}, **more) for _ in range(40)]
        for event in events:
            await alice.send(event)
        async with environment.running() as adapter:
            await alice.answer(events[0])
        async with environment.running() as adapter:
            answers = await asyncio.gather(*(alice.answer(event) for event in events))
        # Those that had begun when it stopped may have been told so.
        assert sum(answer.code is not None for answer in answers) <= 2


async def test_what_is_too_much_waits_at_the_relay() -> None:
    begun: list[bytes] = []
    room = False
    backlog = Backlog(begun.append, lambda: room)
    for _ in range(MAX_EVENTS):
        await backlog.put(b"x")
    one_more = asyncio.create_task(backlog.put(b"y"))
    await asyncio.sleep(0)
    assert (len(backlog), one_more.done(), begun) == (MAX_EVENTS, False, [])
    room = True
    backlog.pump()
    await until(lambda: len(begun) == MAX_EVENTS + 1)
    assert one_more.done()
