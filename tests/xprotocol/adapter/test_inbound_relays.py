"""Relays that break or do as they like: no call runs twice, none is lost that was acknowledged."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from random import Random

from moot.xprotocol.adapter.operations.control_socket import send_control_request
from tests.waiting import until
from tests.xprotocol.adapter.adapter_environment import (
    NAMESPACE,
    adapter_environment,
    environment_on_relay,
    notes_server,
    running_adapter,
)
from tests.xprotocol.endpoint.relay_proxy import proxied_relay
from tests.xprotocol.relay.raw_client import relay_in

KIND = f"{NAMESPACE}.read_note"
ONE = {"name": "one"}
ADAPTER = """
import asyncio, os, sys
from pathlib import Path
from moot.xprotocol.adapter.config.config_loader import load_settings
from moot.xprotocol.adapter.adapter import run_adapter
asyncio.run(run_adapter(load_settings(Path(sys.argv[1]), environ=os.environ)))
"""


async def test_what_a_relay_took_while_the_adapter_was_away_is_answered_when_it_is_back(
    tmp_path: Path,
) -> None:
    notes = notes_server(tmp_path)
    async with adapter_environment(tmp_path, notes) as environment:
        async with environment.running():
            await environment.adapter.announcer.wait_announced()
            waiting = [environment.alice.event(KIND, ONE) for _ in range(5)]
        for each in waiting:
            await environment.alice.send(each)
        assert notes.requests() == []
        async with environment.running():
            for each in waiting:
                assert (await environment.alice.answer(each)).payload["content"] == "first words"
        assert len(notes.requests()) == 5


async def test_an_answer_waits_for_a_relay_that_is_away(tmp_path: Path) -> None:
    notes = notes_server(tmp_path)
    async with relay_in(tmp_path / "relay") as relay:
        port = relay.port
    async with (
        relay_in(tmp_path / "relay", port=port) as relay,
        environment_on_relay(tmp_path, relay, relay.url, notes) as environment,
        environment.running(),
    ):
        await environment.adapter.announcer.wait_announced()
        slow = environment.alice.event(f"{NAMESPACE}.run_slow", {"until": "it is away"})
        await environment.alice.send(slow)
        await until(lambda: environment.adapter.requests.in_progress == 1)
        await relay.stop()
        await until(lambda: environment.adapter.relays.url is None)
        notes.let_go("it is away")
        await relay.store.close()
        async with relay_in(tmp_path / "relay", port=port):
            answer = await environment.alice.answer(slow)
            assert answer.payload["content"] == "done"


async def test_a_relay_that_repeats_reorders_and_forges_makes_no_call_run_twice(tmp_path: Path) -> None:
    notes = notes_server(tmp_path)
    random = Random(7)
    held: list[bytes] = []

    def mangled(from_relay: bool, message: bytes) -> list[bytes]:
        if not from_relay or not message.startswith(b'["EVENT"'):
            return [message]
        forged = message.replace(b'"kind":"com.acme', b'"kind":"com.acne', 1)
        out = [forged, message, message] if random.random() < 0.5 else [message]
        if random.random() < 0.3:
            # Kept back until others have passed it.
            held.append(out.pop())
            return out
        out += held
        held.clear()
        return out

    async with (
        proxied_relay(tmp_path / "relay") as (relay, proxy),
        environment_on_relay(tmp_path, relay, proxy.url, notes) as environment,
        environment.running(),
    ):
        await environment.adapter.announcer.wait_announced()
        proxy.mangle = mangled
        sent = [environment.alice.event(KIND, ONE) for _ in range(30)]
        for each in sent:
            await environment.alice.send(each)
        # A forgery or a double was among those that came through.
        await until(lambda: environment.adapter.metrics.events["dropped"])
        # From here on it is honest again: whatever it kept back comes, late.
        proxy.mangle = lambda _from_relay, message: [message]
        await proxy.cut()
        for each in sent:
            assert (await environment.alice.answer(each)).code is None
        assert len(notes.requests()) == 30
        assert environment.adapter.metrics.events["dropped"] > 0


async def test_a_relay_that_withholds_is_noticed_by_nobody_but_harms_nobody(tmp_path: Path) -> None:
    notes = notes_server(tmp_path)
    async with (
        proxied_relay(tmp_path / "relay") as (relay, proxy),
        environment_on_relay(tmp_path, relay, proxy.url, notes) as environment,
        environment.running(),
    ):
        await environment.adapter.announcer.wait_announced()
        withheld: list[bytes] = []

        def withhold(from_relay: bool, message: bytes) -> list[bytes]:
            if not from_relay or not message.startswith(b'["EVENT"'):
                return [message]
            withheld.append(message)
            return []

        proxy.mangle = withhold
        lost = environment.alice.event(KIND, ONE)
        await environment.alice.send(lost)
        await until(lambda: withheld)
        assert notes.requests() == []
        proxy.mangle = lambda _from_relay, message: [message]
        await proxy.cut()
        # After the break both ask again, from before the break on.
        assert (await environment.alice.answer(lost)).payload["content"] == "first words"


async def test_a_process_killed_in_the_middle_of_a_call_does_not_run_it_again(tmp_path: Path) -> None:
    """The id is on disk before the server is asked: at most once, whatever happens."""
    notes = notes_server(tmp_path)
    async with adapter_environment(tmp_path, notes) as environment:
        async with environment.running():
            slow = environment.alice.event(f"{NAMESPACE}.run_slow", {"until": "never"})
            quick = environment.alice.event(KIND, ONE)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", ADAPTER, str(environment.write()), start_new_session=True
        )
        try:
            await environment.alice.send(slow)
            await until(lambda: len(notes.requests()) == 1)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        async with environment.running():
            await environment.alice.send(quick)
            assert (await environment.alice.answer(quick)).code is None
            status = await send_control_request(environment.adapter.settings.control, "status")
            assert status["events"].get("dropped") == 1
        assert [each["name"] for each in notes.requests()] == ["run_slow", "read_note"]


async def test_a_listener_that_floods_leaves_others_their_turn(tmp_path: Path) -> None:
    notes = notes_server(tmp_path)
    async with running_adapter(tmp_path, notes) as adapter:
        carol = await adapter.somebody("carol")
        flood = [carol.event(KIND, ONE) for _ in range(300)]
        sending = asyncio.gather(*(carol.send(each) for each in flood))
        answer = await adapter.alice.ask(KIND, ONE)
        assert answer.payload["content"] == "first words"
        await sending
        assert len(notes.requests()) == 1
