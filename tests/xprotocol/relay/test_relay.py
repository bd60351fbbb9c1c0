"""Events in, OK, events out: over real sockets."""

from __future__ import annotations

import time
from pathlib import Path

import orjson
import pytest

from moot.net.http_client import HttpClient
from moot.xprotocol.event_store import event_store
from moot.xprotocol.events.event_composer import publish
from moot.xprotocol.events.events import DELEGATE, GRANT
from moot.xprotocol.relay import relay_server
from tests.waiting import HANG_SECONDS, move_clock, until
from tests.xprotocol.people import ALICE, BOB, CAROL, EVE
from tests.xprotocol.relay.raw_client import announce, event, raw_client, relay_in

BOBS = {"recipients": [BOB.key.text]}


async def test_an_event_reaches_whoever_proved_the_recipient_s_key_as_the_very_bytes(tmp_path: Path) -> None:
    async with relay_in(tmp_path) as relay, raw_client(relay.url) as alice, raw_client(relay.url) as bob:
        assert (await bob.prove(BOB))[2] is True
        assert await bob.stored("mine", BOBS) == []
        sent = event()
        assert await alice.publish(sent.raw) == ["OK", sent.event.id, True, ""]
        assert await bob.hear_raw() == b'["EVENT","mine",' + sent.raw + b"]"


async def test_what_was_said_before_somebody_came_is_told_in_the_order_of_time(tmp_path: Path) -> None:
    now = int(time.time())
    async with relay_in(tmp_path) as relay, raw_client(relay.url) as alice:
        sent = [event(now=now - age) for age in (10, 30, 20)]
        for one in sent:
            assert (await alice.publish(one.raw))[2] is True
        async with raw_client(relay.url) as bob:
            await bob.prove(BOB)
            oldest_first = [sent[1].raw, sent[2].raw, sent[0].raw]
            assert await bob.stored("all", BOBS) == oldest_first
            assert await bob.stored("newest", BOBS | {"limit": 2}) == oldest_first[1:]
            assert await bob.stored("none", BOBS | {"limit": 0}) == []
            assert await bob.stored("since", BOBS | {"since": now - 20}) == oldest_first[1:]
            assert await bob.stored("until", BOBS | {"until": now - 20}) == oldest_first[:2]
            assert await bob.stored("id", BOBS | {"ids": [sent[1].event.id]}) == [sent[1].raw]
            assert await bob.stored("from", BOBS | {"senders": [EVE.key.text]}) == []
            assert await bob.stored("talk", BOBS | {"correlation_ids": ["c-1"]}) == oldest_first
            both = await bob.stored("both", BOBS, BOBS | {"kinds": [sent[0].event.kind]})
            assert both == oldest_first


async def test_a_subscription_goes_on_with_what_comes_until_it_is_closed(tmp_path: Path) -> None:
    async with relay_in(tmp_path) as relay, raw_client(relay.url) as alice, raw_client(relay.url) as bob:
        await bob.prove(BOB)
        await bob.stored("one", BOBS)
        await bob.stored("one", BOBS | {"kinds": ["com.acme.other"]})
        await alice.publish(event().raw)
        wanted = event(kind="com.acme.other")
        await alice.publish(wanted.raw)
        assert (await bob.hear())[2]["id"] == wanted.event.id
        await bob.say("CLOSE", "one")
        assert await bob.stored("two", BOBS | {"kinds": ["com.acme.third"]}) == []
        await alice.publish(event(kind="com.acme.other").raw)
        last = event(kind="com.acme.third")
        await alice.publish(last.raw)
        assert (await bob.hear())[1:] == ["two", orjson.loads(last.raw)]


async def test_events_that_come_while_the_stored_ones_are_told_are_heard_once(tmp_path: Path) -> None:
    async with relay_in(tmp_path) as relay, raw_client(relay.url) as alice:
        early = [event(payload={"path": "x" * 20_000}) for _ in range(60)]
        for one in early:
            await alice.socket.send(b'["EVENT",' + one.raw + b"]", text=True)
        for _ in early:
            assert (await alice.hear())[2] is True
        async with raw_client(relay.url) as bob:
            await bob.prove(BOB)
            await bob.say("REQ", "mine", BOBS)
            late = [event() for _ in range(40)]
            for one in late:
                await alice.socket.send(b'["EVENT",' + one.raw + b"]", text=True)
            received: list[str] = []
            ends = 0
            while len(received) < 100:
                answer = await bob.hear()
                if answer[0] == "EOSE":
                    ends += 1
                else:
                    received.append(answer[2]["id"])
            assert sorted(received) == sorted(one.event.id for one in early + late)
            assert ends == 1
            # Nothing follows: the next event is the next that is heard.
            final = event()
            await alice.socket.send(b'["EVENT",' + final.raw + b"]", text=True)
            assert (await bob.hear())[2]["id"] == final.event.id


async def test_everybody_hears_public_events_and_nobody_directed_ones_of_others(tmp_path: Path) -> None:
    async with relay_in(tmp_path) as relay, raw_client(relay.url) as alice, raw_client(relay.url) as eve:
        await alice.publish(event().raw)
        news = announce(capabilities=[])
        await alice.publish(news.raw)
        for number, request in enumerate(({}, {"senders": [ALICE.key.text]}, {"kinds": [news.event.kind]})):
            assert await eve.stored(f"s{number}", request) == [news.raw]
            await eve.say("CLOSE", f"s{number}")
        assert await eve.stored("ids", {"ids": [event().event.id, news.event.id]}) == [news.raw]
        await eve.say("CLOSE", "ids")
        assert await eve.stored("live", {}) == [news.raw]
        await alice.publish(event().raw)
        newer = announce(CAROL)
        await alice.publish(newer.raw)
        assert (await eve.hear())[2]["id"] == newer.event.id


async def test_only_the_newest_announce_of_a_sender_is_kept(tmp_path: Path) -> None:
    now = time.time()
    async with relay_in(tmp_path) as relay, raw_client(relay.url) as client:
        older, newer, other = announce(now=now - 9), announce(now=now - 3), announce(CAROL, now=now - 6)
        assert (await client.publish(older.raw))[2:] == [True, ""]
        assert (await client.publish(other.raw))[2:] == [True, ""]
        assert (await client.publish(newer.raw))[2:] == [True, ""]
        assert (await client.publish(older.raw))[2] is True
        assert await client.stored("now", {}) == [other.raw, newer.raw]


async def test_an_event_that_is_there_already_is_a_duplicate_and_is_told_once(tmp_path: Path) -> None:
    async with relay_in(tmp_path) as relay, raw_client(relay.url) as alice, raw_client(relay.url) as bob:
        await bob.prove(BOB)
        await bob.stored("mine", BOBS)
        sent, after = event(), event()
        await alice.say_raw(f'["EVENT",{sent.raw.decode()}]')
        await alice.say_raw(f'[ "EVENT", {sent.raw.decode()} ]')
        assert [(await alice.hear())[2:] for _ in range(2)] == [
            [True, ""],
            [True, "duplicate: already stored"],
        ]
        assert (await alice.publish(sent.raw))[3].startswith("duplicate:")
        await alice.publish(after.raw)
        assert [(await bob.hear())[2]["id"] for _ in range(2)] == [sent.event.id, after.event.id]


async def test_stored_events_outlive_a_restart_and_go_when_their_time_is_over(tmp_path: Path) -> None:
    now = time.time()
    async with relay_in(tmp_path) as relay, raw_client(relay.url) as alice:
        lasting = publish(ALICE, DELEGATE, {"a": 1}, now=now - 9_000, ttl=60)
        spent = publish(ALICE, GRANT, {"a": 1}, now=now - 9_000, ttl=60)
        dying = event(now=now - 59, ttl=60)
        living = event()
        for one in (lasting, dying, living):
            assert (await alice.publish(one.raw))[2] is True
        assert (await alice.publish(spent.raw))[3].startswith("expired:")
    async with relay_in(tmp_path) as relay, raw_client(relay.url) as bob:
        await bob.prove(BOB)
        assert await bob.stored("mine", BOBS) == [dying.raw, living.raw]
        assert await relay.store.prune(now + 600) == 1
        assert await bob.stored("mine", BOBS) == [living.raw]
        assert await bob.stored("all", {}) == [lasting.raw]


async def test_whoever_runs_a_relay_can_watch_new_events_and_ask_how_it_is(tmp_path: Path) -> None:
    """In one process with others, as the devserver has it."""
    async with relay_in(tmp_path) as relay, raw_client(relay.url) as alice:
        watched: list[bytes] = []
        relay.relay.watchers.append(lambda signed: watched.append(signed.raw))
        sent = event()
        for _ in range(2):
            await alice.publish(sent.raw)
        assert watched == [sent.raw]
        client = HttpClient(timeout_seconds=HANG_SECONDS)
        status, body = await client.get(relay.url.replace("ws", "http") + "/health")
        assert (status, orjson.loads(body)["events"], orjson.loads(body)["connections"]) == (200, 1, 1)
        base = relay.url.replace("ws", "http")
        for probe, answer in (("/livez", "ok"), ("/readyz", "ready")):
            status, body = await client.get(base + probe)
            assert (status, orjson.loads(body)) == (200, {"status": answer})
        relay._is_stopping = True
        status, body = await client.get(base + "/readyz")
        assert (status, orjson.loads(body)["status"]) == (503, "stopping")
        relay._is_stopping = False
        status, _ = await client.get(relay.url.replace("ws", "http") + "/other")
        assert status == 404


async def test_expired_events_are_pruned_while_the_relay_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.xprotocol.relay.relay_server.PRUNE_SECONDS", 0.05)
    async with relay_in(tmp_path) as relay, raw_client(relay.url) as alice:
        dying = event(now=time.time(), ttl=60)
        assert (await alice.publish(dying.raw))[2] is True
        # Its time, and the skew that clocks are allowed.
        move_clock(monkeypatch, 361, relay_server, event_store)
        await until(lambda: not (relay.store.stats().events))
        assert (await alice.publish(dying.raw))[3].startswith("expired:")
