"""Whoever joins a new name makes a space also where gateways divide their work: once, at who serves it."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from moot.gateway import space_factory
from moot.gateway.cluster.nats import served_exchange
from moot.protocol.close_codes import POLICY, REMOVED
from moot.protocol.operation import Json
from tests.gateway.cluster.conftest import PEOPLE, StartGateway, set_bounds
from tests.gateway.cluster.test_shards import LAB, SHARDS, get, node, report
from tests.gateway.cluster.test_start_together import die
from tests.gateway.running_gateway import LocalGateway, fields, participants, space_settings
from tests.waiting import HANG_SECONDS, bounded, until

# `lab` is in the last of five shards, and `other` in the common one.
SPACES: dict[str, Json] = {
    "lab": space_settings(PEOPLE),
    "other": space_settings(participants(zoe=["*"])),
}
START: dict[str, Any] = {"cluster": SHARDS, "spaces": SPACES, "auto_create_spaces": "lab"}
# The shard of the spaces that are made here.
NEW = 2
NAMES = [name for n in range(60) if zlib.crc32((name := f"new{n}").encode()) % 5 == NEW]


@pytest.fixture(autouse=True)
def _what_is_told_is_known_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine."""
    monkeypatch.setattr(served_exchange, "FRESH_SECONDS", HANG_SECONDS)


@asynccontextmanager
async def divided(start: StartGateway) -> AsyncIterator[tuple[LocalGateway, LocalGateway]]:
    """`a` serves the new spaces, and `b` the one after which they are made."""
    async with bounded(), start("a", **START) as a, start("b", **START) as b:
        await node(a).leave(LAB)
        await node(b).leave(NEW)
        await until(lambda: node(a).relay_addresses(LAB) and node(b).relay_addresses(NEW))
        yield a, b


def made(gateway: LocalGateway) -> set[str]:
    return gateway.gateway.directory.hosts.keys() - SPACES.keys()


def wrong_tokens(gateway: LocalGateway) -> int:
    handler = gateway.gateway._upgrade_handler
    assert handler is not None
    return handler.access_limiter.wrong_tokens


async def test_a_new_name_is_made_once_wherever_members_join_it(start: StartGateway) -> None:
    async with divided(start) as (a, b):
        alice, bob, carol = await asyncio.gather(
            a.join("alice", space=NAMES[0]), b.join("bob", space=NAMES[0]), b.join("carol", space=NAMES[0])
        )
        await bob.say("chat", {"text": "here too"})
        for each in (alice, carol):
            assert (await each.hear("chat"))["payload"]["text"] == "here too"
        assert (made(a), made(b)) == ({NAMES[0]}, set())
        # Over HTTP, and by a join frame.
        said = fields("chat", {"text": "first"})
        assert (await b.post("alice", said, space=NAMES[1])).status_code == 200
        late = await b.open(f"/ws?space={NAMES[2]}")
        await late.send(fields("system/join", {"space": NAMES[2], "token": "t-alice"}))
        assert (await late.hear("system/welcome"))["payload"]["you"]["id"] == "alice"
        assert made(a) == set(NAMES[:3])
        for gateway in (a, b):
            listed = (await get(gateway, "/spaces")).json()["spaces"]
            assert {one["name"] for one in listed} == {"lab", *NAMES[:3]}
            assert (await report(gateway))["problems"] == []


async def test_strangers_make_nothing(start: StartGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    async with divided(start) as (a, b):
        alice = await b.join("alice")
        await alice.ask("space/kick", {"participant_id": "carol"}, id="kick")
        for each in (a, b):
            # Of nobody, of another space, and of somebody who was removed a moment ago.
            for token in ("t-nobody", "t-zoe", "t-carol"):
                counted = wrong_tokens(a)
                assert await each.status(f"/ws?space={NAMES[0]}", token=token) == 403
                answer = await get(each, f"/spaces/{NAMES[0]}/history", token)
                assert answer.status_code == 403, answer.text
                assert wrong_tokens(a) == counted + 2
            late = await each.open(f"/ws?space={NAMES[0]}")
            await late.send(fields("system/join", {"space": NAMES[0], "token": "t-nobody"}))
            assert (await late.closed())[0] == POLICY
        assert made(a) == made(b) == set()
        # Who was removed from the model is not in what is made after it.
        await b.join("bob", space=NAMES[0])
        assert await a.status(f"/ws?space={NAMES[0]}", token="t-carol") in (401, 403)
        # Whoever guesses makes nobody ask.
        asked = 0
        ask = a.gateway.directory.others.ask

        async def count(*given: Any, **more: Any) -> Any:
            nonlocal asked
            asked += 1
            return await ask(*given, **more)

        monkeypatch.setattr(a.gateway.directory.others, "ask", count)
        monkeypatch.setattr(a.gateway.directory, "has_guessed", lambda _address: True)
        assert await a.status(f"/ws?space={NAMES[1]}", token="t-nobody") >= 400
        assert (asked, made(a)) == (0, {NAMES[0]})


async def test_what_is_not_known_makes_nothing_and_is_said(
    start: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with divided(start) as (a, b):
        others = b.gateway.directory.others

        async def never(*_: object) -> Json:
            await asyncio.Event().wait()

        answering, others.find = others.find, never  # type: ignore[method-assign,assignment]
        set_bounds(a, unavailable_seconds=0.5)
        assert await a.status(f"/ws?space={NAMES[0]}", token="t-alice") == 503
        assert (await get(a, f"/spaces/{NAMES[0]}/history")).status_code == 503
        others.find = answering  # type: ignore[method-assign]
        set_bounds(a, unavailable_seconds=HANG_SECONDS)
        monkeypatch.setattr(space_factory, "MAX_AUTO_SPACES", 2)
        for name in NAMES[:2]:
            await a.join("alice", space=name)
        assert await b.status(f"/ws?space={NAMES[2]}", token="t-alice") == 503
        assert made(a) == set(NAMES[:2])


@pytest.mark.parametrize("how", ["archived", "deleted"])
async def test_such_a_space_moves_and_ends_like_others(start: StartGateway, how: str) -> None:
    async with divided(start) as (a, b):
        bob = await b.join("bob", space=NAMES[0])
        await bob.ask("chat", {"text": "said"})
        await bob.leave()
        die(a)
        await node(b).serve(NEW)
        await node(b).serve(LAB)
        bob = await b.join("bob", space=NAMES[0])
        history = await get(b, f"/spaces/{NAMES[0]}/history", "t-bob")
        assert "said" in history.text
        method, where = ("DELETE", "") if how == "deleted" else ("POST", "/archive")
        ended = await b.admin(method, f"spaces/{NAMES[0]}{where}")
        assert ended.status_code == 200, ended.text
        assert (await bob.closed())[0] == REMOVED
        # A name is used once, also by who joins it.
        assert await b.status(f"/ws?space={NAMES[0]}", token="t-bob") == 404
        assert made(b) == set()
