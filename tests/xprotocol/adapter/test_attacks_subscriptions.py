"""Followers that ask for too much, and resources that are taken away from under them."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest

from moot.xprotocol.adapter.inbound import resource_subscriptions
from moot.xprotocol.adapter.inbound.resource_subscriptions import UPDATE_SECONDS
from moot.xprotocol.events.access_rights import grant
from tests.waiting import move_clock, until
from tests.xprotocol.adapter.adapter_environment import (
    NAMESPACE,
    READ,
    AdapterEnvironment,
    RemoteCaller,
    notes_server,
    running_adapter,
)
from tests.xprotocol.adapter.test_inbound_refusals import proofs

SUBSCRIBE = f"{NAMESPACE}.resource.subscribe"
ONE = {"uri": "note:///one"}


async def a_reader(environment: AdapterEnvironment) -> RemoteCaller:
    """Bob, whom the configuration lets read and nothing else."""
    bob = await environment.somebody("bob")
    environment.document["access"][bob.key] = [READ]
    await environment.adapter.reload(environment.settings())
    return bob


async def test_followers_of_what_is_no_longer_exposed_hear_nothing_more(tmp_path: Path) -> None:
    """Hot reload: the operator takes the resources away, and with them every stream of them."""
    notes = notes_server(tmp_path)
    async with running_adapter(tmp_path, notes) as adapter:
        assert (await adapter.alice.ask(SUBSCRIBE, ONE)).code is None
        adapter.document["mcp_sources"][0]["expose"] = ["tools"]
        await adapter.adapter.reload(adapter.settings())
        await until(lambda: adapter.adapter.registry.route(SUBSCRIBE) is None)
        received = len(adapter.alice.received)
        notes.note("one", "not for anybody any more")
        # Long after its server would have told of it; on a slow machine it hears even less.
        await asyncio.sleep(0.5)
        assert (await adapter.alice.ask(SUBSCRIBE, ONE)).code == "NOT_FOUND"
        assert len(adapter.alice.received) == received + 1
        assert len(adapter.adapter.subscriptions) == 0


async def test_followers_whose_right_was_taken_or_ran_out_hear_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A right from the configuration, and one that came as a proof with an end."""
    notes = notes_server(tmp_path)
    async with running_adapter(tmp_path, notes) as adapter:
        bob = await a_reader(adapter)
        assert (await bob.ask(SUBSCRIBE, ONE)).code is None
        del adapter.document["access"][bob.key]
        await adapter.adapter.reload(adapter.settings())
        assert len(adapter.adapter.subscriptions) == 0
        # And a right that came as a proof ends when the proof does.
        given = grant(adapter.adapter.identity, bob.key, [READ], ends=int(time.time() + 600), now=time.time())
        assert (await bob.ask(SUBSCRIBE, {**ONE, "proofs": proofs(given)})).code is None
        move_clock(monkeypatch, 601, resource_subscriptions)
        received = len(bob.received)
        notes.note("one", "after the end")
        await until(lambda: len(adapter.adapter.subscriptions) == 0)
        assert len(bob.received) == received


async def test_a_resource_kind_that_asks_for_more_ends_the_streams_of_those_who_have_less(
    tmp_path: Path,
) -> None:
    """The right that counts is the one that the contract asks for now, not the one it asked for then."""
    notes = notes_server(tmp_path)
    async with running_adapter(tmp_path, notes) as adapter:
        bob = await a_reader(adapter)
        for who in (adapter.alice, bob):
            assert (await who.ask(SUBSCRIBE, ONE)).code is None
        route = adapter.adapter.registry.route(SUBSCRIBE)
        assert route is not None
        stricter = replace(route, terms=replace(route.terms, capability=f"{NAMESPACE}.admin"))
        adapter.adapter.subscriptions.on_published("desk", lambda _kind: stricter)
        # Alice has everything there, Bob has not.
        assert len(adapter.adapter.subscriptions) == 1
        adapter.adapter.subscriptions.on_published("desk", lambda _kind: None)
        assert len(adapter.adapter.subscriptions) == 0


async def test_asking_again_and_again_neither_adds_up_nor_slips_past_the_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thirty requests at once for one place, then for many: the bounds hold while they race."""
    notes = notes_server(tmp_path)
    for n in range(12):
        notes.note(f"n{n}", "x")
    monkeypatch.setattr(
        "moot.xprotocol.adapter.inbound.resource_subscriptions.MAX_SUBSCRIPTIONS_PER_SENDER", 5
    )
    monkeypatch.setattr("moot.xprotocol.adapter.inbound.resource_subscriptions.MAX_SUBSCRIPTIONS", 8)
    limits = {"max_calls_per_sender": 200, "max_calls": 300}
    async with running_adapter(tmp_path, notes, limits=limits) as adapter:
        bob = await a_reader(adapter)
        same = await asyncio.gather(*(adapter.alice.ask(SUBSCRIBE, ONE) for _ in range(30)))
        assert all(each.code is None for each in same)
        assert len(adapter.adapter.subscriptions) == 1
        mine, theirs = (
            [await_one.code for await_one in each]
            for each in await asyncio.gather(
                *(
                    asyncio.gather(*(who.ask(SUBSCRIBE, {"uri": f"note:///n{n}"}) for n in range(30)))
                    for who in (adapter.alice, bob)
                )
            )
        )
        # Who is quicker has more of the places that both want.
        assert mine.count(None) <= 4
        assert theirs.count(None) <= 5
        assert mine.count(None) + theirs.count(None) >= 7
        assert {*mine, *theirs} <= {None, "RATE_LIMITED", "ENDPOINT_UNAVAILABLE"}
        assert len(adapter.adapter.subscriptions) <= 8
        # Giving up what one never had gives back nothing.
        for n in range(30):
            await bob.ask(SUBSCRIBE, {"uri": f"note:///n{n}", "updates": False})
        assert len(adapter.adapter.subscriptions) == 1 + mine.count(None)


async def test_a_resource_that_changes_all_the_time_is_told_a_few_times_a_second(tmp_path: Path) -> None:
    notes = notes_server(tmp_path)
    async with running_adapter(tmp_path, notes) as adapter:
        assert (await adapter.alice.ask(SUBSCRIBE, ONE)).code is None
        begun = time.monotonic()
        for count in range(1, 301):
            notes.note("one", f"words {count}")
            await asyncio.sleep(0.005)
        # Ten a second at most, whatever the server says; and the last one is not missed.
        await adapter.alice.until(
            lambda received: next((each for each in received if f"words {count}" in str(each.payload)), None)
        )
        most = 3 + (time.monotonic() - begun) / UPDATE_SECONDS
        assert adapter.adapter.subscriptions.updates <= most
        assert len(adapter.alice.received) <= most
