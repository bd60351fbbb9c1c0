"""The fast path where a log orders messages: with it and without, gateways come to the same."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from moot.space.state_hash import hash_state
from moot.store.journal_reader import read_records
from moot.store.record_chain import logged_text, shared_number
from tests.gateway.cluster.conftest import StartGateway
from tests.gateway.running_gateway import Client, LocalGateway, fields, participants
from tests.waiting import until

PEOPLE = participants(alice=["*"], bob=["*"], carol=["chat", "reasoning/*"])
MESSAGES = 400


def host_of(gateway: LocalGateway) -> Any:
    return gateway.gateway.directory.hosts["lab"]


def take_no_fast_path(gateway: LocalGateway) -> None:
    """As where nothing is compiled."""
    paths = host_of(gateway).fast_paths
    paths._space = None
    paths._sessions.clear()


def whole(sender: str, kind: str, number: int, **more: Any) -> dict[str, Any]:
    """An envelope that says all of it itself: others take the slow path."""
    return fields(kind, {"text": f"{number} from {sender}"}, **more) | {
        "protocol": "mew/v0.4",
        "ts": f"2026-11-19T00:00:{number // 50 % 60:02}.000Z",
        "from": sender,
    }


async def tell_a_story(members: dict[str, Client], seed: int) -> None:
    """Chats at random, among them what a fast path must not take, and what ends its verdicts."""
    chance = random.Random(seed)
    last = whole("alice", "chat", 0)
    for number in range(MESSAGES):
        name = chance.choice(list(members))
        message = whole(name, "chat", number)
        match chance.randrange(40):
            case 0:
                # An id that is known.
                message = last
            case 1:
                message["from"] = "somebody"
            case 2:
                message["kind"] = "mcp/request"
            case 3:
                del message["ts"]
            case 4:
                await members[name].send(b'{"protocol": "mew/v0.4", "kind": ')
                continue
            case 5:
                rights = {"recipient": "carol", "capabilities": [{"kind": "mcp/proposal"}]}
                message = fields("capability/grant", rights)
            case 6:
                message = fields("participant/pause", {"timeout_seconds": 1}, to=["carol"])
            case 7:
                message = fields("participant/resume", {}, to=["carol"])
        last = message
        await members[name].send(message)
    for member in members.values():
        await member.fence()


def past(host: Any) -> list[tuple[float, bytes]]:
    """What can be polled of it, but for what a gateway says itself."""
    return [(each.at, each.message) for each in host.delivery.history.entries if type(each.message) is bytes]


def records(folder: Path) -> list[bytes]:
    """What the journal says of what all gateways have, to the byte; numbers and seals are each one's own.

    But for who left at the end: one gateway ends before the other.
    """
    shared = (each for each in read_records(folder) if shared_number(each.line))
    return [logged_text(each.line) for each in shared if each.kind != "leave"]


@pytest.mark.parametrize("seed", range(3))
async def test_gateways_with_and_without_a_fast_path_come_to_the_same(start: StartGateway, seed: int) -> None:
    async with start("a", PEOPLE) as a, start("b", PEOPLE) as b:
        take_no_fast_path(b)
        members = {"alice": await a.join("alice"), "bob": await b.join("bob"), "carol": await a.join("carol")}
        await tell_a_story(members, seed)
        first, second = host_of(a), host_of(b)
        await until(lambda: hash_state(first.space.save()) == hash_state(second.space.save()))
        assert first.fast_paths.accepted > MESSAGES / 4
        assert second.fast_paths.accepted == 0
        assert past(first) == past(second)
        heard = [[m["id"] for m in each.received if m["kind"] == "chat"] for each in members.values()]
        assert heard[0] == heard[1] == heard[2]
        assert first.received == second.received
        folders = [each.journaled.folder for each in (first, second)]
    taken, looked_at = map(records, folders)
    assert len(looked_at) > MESSAGES / 2
    # The second gateway ends first: a pause may be over after that.
    assert taken[: len(looked_at)] == looked_at


async def test_what_the_fast_path_took_is_restored_from_the_journal_and_the_log(start: StartGateway) -> None:
    async with start("b", PEOPLE) as b:
        async with start("a", PEOPLE) as a:
            alice = await a.join("alice")
            for number in range(60):
                await alice.send(whole("alice", "chat", number))
            await alice.fence()
            assert host_of(a).fast_paths.accepted > 30
        bob = await b.join("bob")
        async with start("a", PEOPLE) as a:
            alice = await a.join("alice")
            await alice.send(whole("alice", "chat", 61))
            await alice.fence()
            await bob.fence()
            first, second = host_of(a), host_of(b)
            await until(lambda: hash_state(first.space.save()) == hash_state(second.space.save()))
