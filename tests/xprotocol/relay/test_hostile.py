"""What a relay does with clients that break every rule."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from moot.errors import UsageError
from moot.net import outbox
from moot.xprotocol.events.event_composer import publish
from moot.xprotocol.events.events import DELEGATE, MAX_EVENT_BYTES
from moot.xprotocol.events.relay_auth import prove
from moot.xprotocol.relay import relay_settings
from moot.xprotocol.relay.relay_server import RelaySocket
from moot.xprotocol.relay.relay_settings import RelaySettings
from tests.waiting import HANG_SECONDS, bounded, until
from tests.xprotocol.people import ALICE, BOB, CAROL, EVE, signed_by
from tests.xprotocol.relay.raw_client import RawRelayClient, announce, event, raw_client, relay_in

BOBS = {"recipients": [BOB.key.text]}
# A second: nothing comes back while a test runs, however slow the machine.
SLOW = 0.001


def changed(raw: bytes, **members: Any) -> bytes:
    return orjson.dumps(orjson.loads(raw) | members)


async def test_an_event_that_does_not_verify_is_refused_and_neither_stored_nor_told(tmp_path: Path) -> None:
    good, other = event(), event(correlation_id="c-2")
    unsigned = orjson.loads(good.raw)
    del unsigned["signature"]
    bad = {
        "id is not the hash": changed(good.raw, kind="com.acme.other"),
        "re-addressed": changed(good.raw, recipient=CAROL.key.text),
        "another sender": changed(good.raw, sender=EVE.key.text),
        "signature of another event": changed(good.raw, signature=other.event.signature),
        "no signature": orjson.dumps(unsigned),
        "an empty signature": changed(good.raw, signature="ed25519:"),
        "a member too many": changed(good.raw, extra=1),
        "twice the same member": good.raw[:-1] + b',"kind":"com.acme.other"}',
        "two events": good.raw + b"," + other.raw,
        "no object": b"[]",
        "nothing": b"",
        "unbalanced": good.raw[:-1],
        "a public kind with a recipient": signed_by(ALICE, good.covered | {"kind": DELEGATE}),
        "no recipient": signed_by(ALICE, {k: v for k, v in good.covered.items() if k != "recipient"}),
        "plaintext for somebody": signed_by(ALICE, good.covered | {"payload": {"a": 1}}),
    }
    async with relay_in(tmp_path) as relay, raw_client(relay.url) as eve, raw_client(relay.url) as bob:
        await bob.prove(BOB)
        await bob.stored("mine", BOBS)
        for name, raw in bad.items():
            word, _id, taken, words = await eve.publish(raw)
            assert (word, taken) == ("OK", False), name
            assert words.startswith("invalid:"), name
        assert relay.store.stats().events == 0
        await eve.publish(good.raw)
        assert (await bob.hear_raw()).endswith(good.raw + b"]")


async def test_times_that_are_over_or_make_no_sense_are_refused(tmp_path: Path) -> None:
    now = int(time.time())
    async with relay_in(tmp_path) as relay, raw_client(relay.url) as eve:
        over = event(now=now - 400, ttl=60)
        assert (await eve.publish(over.raw))[2:] == [False, f"expired: the event expired at {now - 340}"]
        covered = event().covered
        for name, times in {
            "future": {"timestamp": now + 900, "expires_at": now + 1_000},
            "too long": {"timestamp": now, "expires_at": now + 86_401},
            "backwards": {"timestamp": now, "expires_at": now},
        }.items():
            answer = await eve.publish(signed_by(ALICE, covered | times))
            assert answer[2] is False, name
            assert answer[3].startswith("invalid:"), name
        assert relay.store.stats().events == 0


async def test_events_for_a_key_go_to_nobody_who_has_not_proven_it(tmp_path: Path) -> None:
    async with relay_in(tmp_path) as relay, raw_client(relay.url) as eve:
        await eve.publish(event().raw)
        await eve.say("REQ", "a", BOBS)
        assert (await eve.hear())[:2] == ["CLOSED", "a"]
        await eve.prove(EVE)
        for request in (BOBS, {"recipients": [EVE.key.text, BOB.key.text]}):
            await eve.say("REQ", "b", request)
            assert (await eve.hear()) == [
                "CLOSED",
                "b",
                "restricted: this connection has not authenticated with this recipient's key",
            ]
        # One filter that is allowed does not carry another that is not.
        await eve.say("REQ", "c", {}, BOBS)
        assert (await eve.hear())[:2] == ["CLOSED", "c"]


async def test_a_proof_counts_for_its_key_relay_and_connection_only(tmp_path: Path) -> None:
    """NIP-42's reason: a hostile relay hands on the challenge of another one."""
    async with relay_in(tmp_path) as relay, raw_client(relay.url) as eve, raw_client(relay.url) as bob:
        now = time.time()
        stolen = orjson.loads(prove(BOB, relay.url, eve.challenge, now=now))
        for name, proof in {
            "for another relay": prove(BOB, "wss://evil.example", eve.challenge, now=now),
            "of another connection": prove(BOB, relay.url, bob.challenge, now=now),
            "old": prove(BOB, relay.url, eve.challenge, now=now - 301),
            "early": prove(BOB, relay.url, eve.challenge, now=now + 310),
            "another key": orjson.dumps(stolen | {"sender": EVE.key.text}),
            "changed": orjson.dumps(stolen | {"timestamp": stolen["timestamp"] - 1}),
            "no signature": orjson.dumps(stolen | {"signature": ""}),
            "an event": event().raw,
            "long": orjson.dumps(stolen | {"relay": "w" * 5_000}),
            "nothing": b"null",
        }.items():
            await eve.say_raw(f'["AUTH",{proof.decode()}]')
            answer = await eve.hear()
            assert answer[:3] == ["OK", "auth", False], name
        await eve.say("REQ", "b", BOBS)
        assert (await eve.hear())[2].startswith("auth-required:")
        # The same proof is good where it belongs; also by another name of this relay.
        assert (await bob.prove(BOB, relay=f"ws://localhost:{relay.port}/"))[2] is True
        assert (await eve.prove(BOB))[2] is True


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "{}",
        "[]",
        "null",
        "[1]",
        '["EVENT"]',
        '["EVENT",{},{}]',
        '["REQ"]',
        '["REQ","a"]',
        '["REQ",1,{}]',
        '["REQ","",{}]',
        '["REQ","' + "a" * 65 + '",{}]',
        '["REQ","a\\u0007",{}]',
        '["CLOSE"]',
        '["CLOSE",{}]',
        '["AUTH"]',
        '["JUMP","a"]',
        "[" * 100_000,
        '["REQ","a",' + "[" * 50_000,
    ],
)
async def test_what_is_no_message_gets_words_and_the_connection_goes_on(tmp_path: Path, text: str) -> None:
    async with relay_in(tmp_path) as relay, raw_client(relay.url) as eve:
        await eve.say_raw(text)
        answer = await eve.hear()
        assert answer[0] in ("NOTICE", "OK")
        assert "invalid:" in answer[-1]
        assert await eve.stored("fine", {}) == []


@pytest.mark.parametrize(
    "wish",
    [
        [],
        "x",
        {"kindz": ["x"]},
        {"kinds": []},
        {"kinds": "x"},
        {"kinds": [1]},
        {"kinds": ["x" * 257]},
        {"ids": ["x"]},
        {"ids": ["A" * 64]},
        {"senders": ["ed25519:x"]},
        {"recipients": ["x"]},
        {"recipients": []},
        {"correlation_ids": [""]},
        {"since": -1},
        {"since": 1.5},
        {"since": "1"},
        {"until": 2**60},
        {"limit": -1},
        {"limit": True},
        {"ids": ["a" * 64] * 257},
    ],
)
async def test_a_filter_that_cannot_be_read_closes_its_subscription(tmp_path: Path, wish: object) -> None:
    async with relay_in(tmp_path) as relay, raw_client(relay.url) as eve:
        await eve.say("REQ", "a", wish)
        word, name, words = await eve.hear()
        assert (word, name) == ("CLOSED", "a")
        assert words.startswith("invalid:")


async def test_too_many_subscriptions_filters_and_keys_are_refused_by_the_name_of_the_limit(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("moot.xprotocol.relay.relay.MAX_KEYS", 1)
    monkeypatch.setattr("moot.xprotocol.relay.wire_messages.MAX_FILTERS", 2)
    monkeypatch.setattr("moot.xprotocol.relay.relay.MAX_SUBSCRIPTIONS", 2)
    async with relay_in(tmp_path) as relay, raw_client(relay.url) as eve:
        await eve.stored("a", {})
        await eve.stored("b", {})
        await eve.say("REQ", "c", {})
        assert "at most 2 subscriptions" in (await eve.hear())[2]
        assert await eve.stored("b", {}, {}) == []
        await eve.say("REQ", "b", {}, {}, {})
        assert "at most 2" in (await eve.hear())[2]
        assert (await eve.prove(EVE))[2] is True
        assert "max_keys is 1" in (await eve.prove(BOB))[3]


async def test_whoever_only_makes_faults_is_sent_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.xprotocol.relay.relay.MAX_BURST_FAULTS", 10)
    monkeypatch.setattr("moot.xprotocol.relay.relay.FAULTS_PER_SECOND", SLOW)
    forged = changed(event().raw, correlation_id="c-9")
    async with relay_in(tmp_path) as relay, raw_client(relay.url) as eve:
        for _ in range(12):
            await eve.say_raw(f'["EVENT",{forged.decode()}]')
        code, reason = await drained(eve)
        assert (code, reason) == (1008, f"too many faults: more than {SLOW:g} a second")


async def drained(client: RawRelayClient) -> tuple[int, str]:
    """Read on until the other side has closed."""
    try:
        while True:
            await client.hear()
    except ConnectionClosed:
        return await client.closed()


async def test_floods_are_slowed_by_connection_and_by_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.xprotocol.relay.relay.MAX_BURST_EVENTS", 3)
    monkeypatch.setattr("moot.xprotocol.relay.relay.EVENTS_PER_SECOND", SLOW)
    async with relay_in(tmp_path / "a") as relay, raw_client(relay.url) as eve:
        answer = [await eve.publish(event(EVE).raw) for _ in range(5)]
        assert [one[2] for one in answer] == [True, True, True, False, False]
        assert answer[4][3].startswith(f"rate-limited: events_per_second is {SLOW:g}")
    monkeypatch.setattr("moot.xprotocol.relay.relay.MAX_BURST_EVENTS", 2_000)
    monkeypatch.setattr("moot.xprotocol.relay.relay.MAX_SENDER_BURST_EVENTS", 3)
    monkeypatch.setattr("moot.xprotocol.relay.relay.EVENTS_PER_SECOND", 500.0)
    monkeypatch.setattr("moot.xprotocol.relay.relay.SENDER_EVENTS_PER_SECOND", SLOW)
    async with relay_in(tmp_path / "b") as relay:  # noqa: SIM117
        async with raw_client(relay.url) as one, raw_client(relay.url) as two:
            answer = [await talk.publish(event(EVE).raw) for talk in (one, two, one, two)]
            assert [each[2] for each in answer] == [True, True, True, False]
            assert answer[3][3].startswith(f"rate-limited: sender_events_per_second is {SLOW:g}")
            # A forger uses up nobody else's rate.
            for _ in range(5):
                await one.publish(changed(event(ALICE).raw, kind="com.acme.forged"))
            assert (await two.publish(event(ALICE).raw))[2] is True


async def test_a_store_that_is_full_refuses_and_forgets_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.xprotocol.event_store.event_store.MAX_EVENTS_PER_SENDER", 3)
    async with relay_in(tmp_path, max_events=4) as relay:  # noqa: SIM117
        async with raw_client(relay.url) as client:
            mine = [event(EVE) for _ in range(4)]
            assert [(await client.publish(one.raw))[2] for one in mine] == [True, True, True, False]
            assert (await client.publish(event(ALICE).raw))[2] is True
            assert (await client.publish(event(CAROL).raw))[3].startswith("full:")
            # A duplicate and a newer announce take no room of their own.
            await client.prove(BOB)
            assert len(await client.stored("all", BOBS)) == 4
            assert relay.store.stats().events == 4


async def test_a_message_beyond_the_limit_ends_the_connection(tmp_path: Path) -> None:
    async with relay_in(tmp_path) as relay, raw_client(relay.url) as eve, raw_client(relay.url) as other:
        large = b'["EVENT","' + b"x" * (MAX_EVENT_BYTES + 2_000) + b'"]'
        with suppress(ConnectionClosed):
            await eve.socket.send(large, text=True)
        assert (await drained(eve))[0] in (1009, 1006)
        # The largest event is still taken, and a public one has a limit of its own.
        almost = publish(ALICE, DELEGATE, {"text": "x" * 130_000}, now=time.time())
        assert (await other.publish(almost.raw))[2] is True
        more = signed_by(ALICE, almost.covered | {"payload": {"text": "x" * 140_000}})
        assert "131072 is the most" in (await other.publish(more))[3]
        await other.socket.send(b"\x00\x01")
        assert (await drained(other))[0] == 1003


async def test_a_reader_that_takes_nothing_is_closed_and_nobody_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_settings, "OUTBOX_BYTES", 1 << 20)
    monkeypatch.setattr(outbox, "MAX_SECONDS", 0.5)
    async with (
        relay_in(tmp_path) as relay,
        raw_client(relay.url) as alice,
        raw_client(relay.url) as quick,
        raw_client(relay.url, max_queue=1) as stuck,
    ):
        for bob in (quick, stuck):
            await bob.prove(BOB)
            await bob.stored("mine", BOBS)
        sent = 0
        async with bounded():
            while not any(is_closing(one) for one in relay.sockets):
                one = event(payload={"text": "x" * 100_000})
                assert (await alice.publish(one.raw))[2] is True
                sent += 1
                assert (await quick.hear())[2]["id"] == one.event.id
        # The system's own buffers take some megabytes; ours one and a bit.
        assert sent < 200
        code, reason = await drained(stuck)
        assert code == 1013
        assert reason.startswith("reading too slowly: ")


def is_closing(one: RelaySocket) -> bool:
    return one._connection is not None and one._connection.is_closing


async def test_a_reader_of_much_that_is_stored_gets_all_of_it_at_its_own_pace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than the outbox holds: pages wait for the reader, so it is not taken for a slow one."""
    monkeypatch.setattr(relay_settings, "OUTBOX_BYTES", 600_000)
    monkeypatch.setattr(relay_settings, "OUTBOX_MESSAGES", 200)
    monkeypatch.setattr(outbox, "MAX_SECONDS", HANG_SECONDS)
    async with relay_in(tmp_path) as relay, raw_client(relay.url) as alice:
        sent = [event(payload={"text": "x" * 200_000}) for _ in range(30)]
        for one in sent:
            assert (await alice.publish(one.raw))[2] is True
        async with raw_client(relay.url) as bob:
            await bob.prove(BOB)
            await bob.say("REQ", "mine", BOBS)
            # Nothing is read meanwhile: more waits than the outbox holds, and the seconds do not run out.
            await asyncio.sleep(0.3)
            ids = [(await bob.hear())[2]["id"] for _ in sent]
            assert sorted(ids) == sorted(one.event.id for one in sent)
            assert await bob.hear() == ["EOSE", "mine"]


async def test_more_connections_from_one_address_than_allowed_are_not_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_settings, "CONNECTIONS_PER_ADDRESS", 2)
    async with relay_in(tmp_path) as relay:
        async with raw_client(relay.url), raw_client(relay.url) as two:
            with pytest.raises((OSError, InvalidHandshake, ConnectionClosed, EOFError)):
                async with bounded(), raw_client(relay.url):
                    pass
            assert await two.stored("still", {}) == []
        await until(lambda: not (relay.connection_limiter.connections))
        async with raw_client(relay.url) as again:
            assert (await again.publish(announce().raw))[2] is True


def test_a_relay_for_everybody_must_know_its_name(tmp_path: Path) -> None:
    settings = RelaySettings(data=tmp_path, host="0.0.0.0")  # noqa: S104
    with pytest.raises(UsageError, match="--url"):
        settings.addresses(8765)
    named = RelaySettings(data=tmp_path, host="0.0.0.0", urls=("wss://Relay.example/xp/",))  # noqa: S104
    assert named.addresses(8765) == ("wss://relay.example:443/xp",)
    with pytest.raises(UsageError, match="one looks like wss:"):
        RelaySettings(data=tmp_path, urls=("https://relay.example",)).addresses(1)
    assert RelaySettings(data=tmp_path, host="192.0.2.7").addresses(80) == ("ws://192.0.2.7:80",)
