"""Whoever polls is told the same wherever a space has moved: nothing is lost, doubled or another's."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from moot.cli import main
from moot.gateway import space_factory
from moot.gateway.cluster.nats import served_exchange
from moot.gateway.hosting import saved_history
from moot.participant import connect
from tests.gateway.cluster.conftest import StartGateway
from tests.gateway.cluster.test_kept_log import say
from tests.gateway.cluster.test_shards import LAB, SHARDS, get, node
from tests.gateway.cluster.test_start_together import die
from tests.gateway.running_gateway import CALL, LocalGateway, fields, participants
from tests.waiting import HANG_SECONDS, bounded, until

START: dict[str, Any] = {
    "people": participants(alice=["*"], bob=["*"], carol=["chat"]),
    "cluster": SHARDS | {"snapshot_inputs": 20, "gone_seconds": 10 * HANG_SECONDS},
    # So some messages are for one member alone.
    "rules": {"ack_delivery": "author"},
}
TOKENS = {"alice": "t-alice", "bob": "t-bob", "carol": "t-carol"}


@pytest.fixture(autouse=True)
def _what_is_told_is_known_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine."""
    monkeypatch.setattr(served_exchange, "FRESH_SECONDS", HANG_SECONDS)


@asynccontextmanager
async def moving(start: StartGateway, how: str) -> AsyncIterator[tuple[LocalGateway, Any]]:
    """A gateway that alone serves `lab`, and what moves it to the one that is returned."""
    async with bounded(), AsyncExitStack() as stack:
        own = await stack.enter_async_context(AsyncExitStack())
        a = await own.enter_async_context(start("a", **START))
        b = a
        if how != "restarted":
            b = await stack.enter_async_context(start("b", **START))
            await node(b).leave(LAB)

        async def move() -> LocalGateway:
            if how == "restarted":
                await own.aclose()
                return await stack.enter_async_context(start("a", **START))
            if how == "killed":
                die(a)
                await own.aclose()
            await node(b).serve(LAB)
            if how == "left":
                await node(a).leave(LAB)
            return b

        yield a, move


async def next_snapshot(gateway: LocalGateway) -> None:
    """One is taken, and stored, that has all that was said until now."""
    shard = node(gateway).shards[LAB]
    before = shard.log.position
    while shard.hashed_at <= before:
        posted = await gateway.post("alice", fields("chat", {"text": "more"}), space="lab")
        assert posted.status_code == 200, posted.text
    await until(lambda: shard.stored.position >= shard.hashed_at)


async def poll(gateway: LocalGateway, name: str, **params: str) -> tuple[int, Any]:
    answer = await get(gateway, f"/participants/{name}/messages", TOKENS[name], space="lab", **params)
    return answer.status_code, answer.json()


async def everything(gateway: LocalGateway, cursors: list[str]) -> dict[Any, Any]:
    """What each member is told from each place on, in two dialects."""
    return {
        (name, since, dialect): await poll(gateway, name, since=since, dialect=dialect)
        for name, since, dialect in itertools.product(TOKENS, cursors, ("mew", "mcpx"))
    }


def texts(answer: tuple[int, Any]) -> list[str]:
    assert answer[0] == 200, answer
    return [each["payload"]["text"] for each in answer[1]["messages"] if each["kind"] == "chat"]


@pytest.mark.parametrize("how", ["left", "killed", "restarted"])
async def test_a_poll_goes_on_where_the_space_has_moved(
    start: StartGateway, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    async with moving(start, how) as (a, move):
        alice, bob = await a.join("alice"), await a.join("bob")
        await say(alice, 0, 5)
        about = await alice.say("chat", {"text": "who has read it?"})
        # Of interest to its author alone, and to himself as an echo.
        await bob.say("chat/acknowledge", {"status": "read"}, about=[about])
        # Dialects tell an answer by what was asked.
        call = {"jsonrpc": "2.0", "id": 1}
        assert await alice.refused("mcp/request", call | CALL, to=["bob"], id="r1") is None
        assert await bob.refused("mcp/response", call | {"result": {}}, to=["alice"], about=["r1"]) is None
        cursors = ["", (await poll(a, "bob"))[1]["next"]]
        # What was said before she came is not for her; nor for who has a new token.
        asked = await alice.ask("space/invite", {"participant_id": "ida"})
        monkeypatch.setitem(TOKENS, "ida", asked["payload"]["token"])
        rotated = await a.admin("POST", "participants/carol/token", {}, space="lab")
        monkeypatch.setitem(TOKENS, "carol", rotated.json()["token"])
        # He alone is told that this is refused.
        await bob.fence()
        await say(alice, 5, 9)
        # Who comes and goes from now on would be told, too.
        await a.clear()
        await next_snapshot(a)
        cursors.append((await poll(a, "bob"))[1]["next"])
        # And what comes behind the snapshot.
        assert (await a.post("bob", fields("chat", {"text": "last"}), space="lab")).status_code == 200
        before = await everything(a, cursors)
        b = await move()
        after = await everything(b, cursors)
        assert after == before
        assert texts(after["ida", "", "mew"])[:1] == texts(after["carol", "", "mew"])[:1] == ["5"]
        assert texts(after["bob", cursors[2], "mew"]) == ["last"]
        heard = {name: after[name, "", "mew"][1]["messages"] for name in TOKENS}
        read = [name for name, told in heard.items() if "chat/acknowledge" in {each["kind"] for each in told}]
        assert read == ["alice", "bob"]
        refused = {
            name: [each["to"] for each in told if each["kind"] == "system/error"]
            for name, told in heard.items()
        }
        assert refused["bob"]
        assert all(to == [name] for name, each in refused.items() for to in each)
        kicked = fields("space/kick", {"participant_id": "bob"})
        assert (await b.post("alice", kicked, space="lab")).status_code == 200
        assert (await poll(b, "bob"))[0] == 403


@pytest.mark.parametrize("polled", [False, True])
async def test_what_no_gateway_has_any_more_is_told_and_never_passed_over(
    start: StartGateway, monkeypatch: pytest.MonkeyPatch, polled: bool
) -> None:
    """Nobody polled that space before, or more was said than there is room for."""
    monkeypatch.setattr(saved_history, "MAX_BYTES", 1_500)
    monkeypatch.setattr(space_factory, "POLL_MESSAGES", 60)
    async with moving(start, "killed") as (a, move):
        alice = await a.join("alice")
        await say(alice, 0, 10)
        since = ""
        if polled:
            since = (await poll(a, "bob"))[1]["next"]
        shard = node(a).shards[LAB]
        await say(alice, 10, 30)
        await a.clear()
        await until(lambda: shard.snapshots >= 1 and shard.stored.position >= shard.hashed_at)
        b = await move()
        status, gone = await poll(b, "bob", since=since or "1")
        assert (status, gone["error"]) == (410, "gone")
        rest = await poll(b, "bob", since=gone["next"])
        assert "gap" not in rest[1]
        found = texts(rest)
        assert found == [str(number) for number in range(30 - len(found), 30)]
        assert len(found) < 25
        # Who has no place yet is told the latest, and that this is not all.
        status, latest = await poll(b, "bob")
        assert (status, latest["gap"], latest["messages"]) == (200, True, rest[1]["messages"])
        assert (await poll(b, "bob", id="e-none"))[1]["gap"]
        async with connect(b.url, "lab", "t-bob") as bob:
            told = [each for each in await bob.history(1.0) if each.kind == "chat"]
            assert [each.payload["text"] for each in told] == found
            # As many as are kept came since: nothing older would be told without the move.
            for number in range(60):
                await bob.chat(str(number))
        status, latest = await poll(b, "bob", since=since or "1")
        assert (status, "gap" in latest) == (200, False)


async def test_what_was_erased_comes_back_from_no_snapshot(
    start: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bounded():
        async with start("a", **START) as a:
            for text in ("first", "secret", "last"):
                said = fields("chat", {"text": text}, id=f"c-{text}")
                assert (await a.post("alice", said, space="lab")).status_code == 200
            await next_snapshot(a)
            data = a.gateway.config.data
        erase = ["journal", "erase", "c-secret", "--data", str(data), "--why", "asked", "--yes"]
        assert await asyncio.to_thread(main, erase) == 0
        async with start("a", **START) as a:
            assert texts(await poll(a, "bob"))[:2] == ["first", "last"]
            assert (await poll(a, "bob", id="c-secret"))[1]["messages"] == []
            await next_snapshot(a)
        # What would take too long to look for is not shown, and that is told.
        monkeypatch.setattr(saved_history, "MAX_CHECKED_BYTES", 1_000)
        async with start("a", **START) as a:
            status, found = await poll(a, "bob")
            assert (status, found["gap"]) == (200, True)
            assert not {"first", "last"} & set(texts((status, found)))
            assert (await poll(a, "bob", since="1"))[0] == 410


async def test_who_polls_and_posts_while_the_space_moves_hears_each_message_once(start: StartGateway) -> None:
    async with bounded(), start("a", **START) as a, start("b", **START) as b:
        await until(lambda: all(node(each).relay_addresses(LAB) for each in (a, b)))
        heard: list[str] = []
        since = ""
        for number in range(120):
            if number % 15 == 0:
                ends, begins = (a, b) if number % 30 else (b, a)
                await node(begins).serve(LAB)
                await node(ends).leave(LAB)
            # Each time at another one, which relays it or not.
            posts, polls = ((a, b), (b, a), (a, a), (b, b))[number % 4]
            said = await posts.post("alice", fields("chat", {"text": str(number)}), space="lab")
            assert said.status_code == 200, said.text
            if number % 7 == 0:
                answer = await poll(polls, "bob", **({"since": since} if since else {}))
                heard += texts(answer)
                since = answer[1]["next"]
        heard += texts(await poll(a, "bob", since=since))
        assert heard == [str(number) for number in range(120)]
