"""Attacks by events on a running adapter: changed, re-spelt, re-addressed, forged and heavy ones.

The pure checks have their own tests; here the whole adapter runs with a server behind it, and what counts is
what that server heard, what anybody was told, and that the adapter still works afterwards.
"""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest

from moot.errors import MalformedEvent
from moot.protocol.operation import Json
from moot.xprotocol.events.delegation import DelegationChain, delegate
from moot.xprotocol.events.event_composer import publish
from moot.xprotocol.events.events import GRANT, MAX_EVENT_BYTES, SignedPublic
from moot.xprotocol.events.key_statements import read_delegation
from moot.xprotocol.identity.keys import Identity
from tests.xprotocol.adapter.adapter_environment import (
    NAMESPACE,
    READ,
    AdapterEnvironment,
    NotesServer,
    adapter_environment,
    notes_server,
    running_adapter,
)
from tests.xprotocol.people import CAROL, EVE, person, signed_by

KIND = f"{NAMESPACE}.read_note"
ONE: dict[str, Json] = {"name": "one"}
# What a stranger can do to a member without knowing anything.
JUNK: tuple[Json, ...] = (
    None, "", "x", 0, -1, 1 << 53, 1 << 200, 1.5, True, [], {}, ["x"], {"a": 1}, "\x00", "é", "‮x", "A" * 300,
    "ed25519:" + "A" * 43, "x25519:" + "A" * 43, "0" * 64, "xp.error", "xp.schema.refresh", NAMESPACE,
)  # fmt: skip


def changed(random: Random, raw: bytes) -> bytes:
    """The event with something done to it: a member, a byte, a piece, or all of it twice."""
    members: dict[str, Any] = orjson.loads(raw)
    match random.randrange(8):
        case 0:
            del members[random.choice(list(members))]
        case 1 | 2:
            junk = random.choice(JUNK)
            name = random.choice(list(members))
            try:
                return orjson.dumps(members | {name: junk})
            except TypeError:
                # Larger than this encoder writes.
                return raw.replace(orjson.dumps(members[name]), b"1" * 60, 1)
        case 3:
            members["extra"] = "x"
        case 4:
            one, other = random.sample(list(members), 2)
            members[one], members[other] = members[other], members[one]
        case 5:
            place = random.randrange(len(raw))
            return raw[:place] + bytes([raw[place] ^ (1 << random.randrange(8))]) + raw[place + 1 :]
        case 6:
            start, end = sorted(random.sample(range(len(raw) + 1), 2))
            return raw[:start] + raw[end:]
        case _:
            name = random.choice(list(members))
            return raw[:-1] + b"," + orjson.dumps({name: members[name]})[1:]
    return orjson.dumps(members)


def respelt(raw: bytes) -> list[bytes]:
    """The same event in other bytes: what a relay can do that keeps its signature."""
    members: dict[str, Any] = orjson.loads(raw)
    backwards = dict(reversed(members.items()))
    kind = members["kind"].encode()
    escaped = b"".join(b"\\u%04x" % each for each in kind)
    return [
        orjson.dumps(members, option=orjson.OPT_INDENT_2),
        orjson.dumps(backwards),
        b" \n" + raw + b"\t",
        raw.replace(kind, escaped, 1),
    ]


async def still_works(environment: AdapterEnvironment, notes: NotesServer, calls_before: int) -> None:
    """The next honest call is the next thing that the server hears of."""
    answer = await environment.alice.ask(KIND, ONE)
    assert answer.payload["content"] == "first words"
    assert len(notes.requests()) == calls_before + 1


async def test_no_change_to_an_event_makes_a_call_and_no_spelling_makes_a_second_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Three thousand changed events, then the true one in five spellings: one call in all."""
    with caplog.at_level(logging.WARNING):
        random = Random(20_261)
        notes = notes_server(tmp_path)
        async with running_adapter(tmp_path, notes) as adapter:
            honest = adapter.alice.event(KIND, ONE)
            receive = adapter.adapter.requests.receive
            for count in range(3_000):
                made = changed(random, honest.raw)
                try:
                    same = orjson.loads(made) == orjson.loads(honest.raw)
                except orjson.JSONDecodeError:
                    same = False
                if not same:
                    receive(made)
                if count % 64 == 0:
                    await asyncio.sleep(0)
            assert notes.requests() == []
            assert adapter.alice.received == []
            for each in (*respelt(honest.raw), honest.raw):
                receive(each)
            await adapter.alice.send(honest)
            assert (await adapter.alice.answer(honest)).payload["content"] == "first words"
            await still_works(adapter, notes, 1)
            assert len(adapter.alice.received) == 2
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR] == []


async def test_whatever_a_stranger_signs_is_answered_at_most_once_and_calls_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Every member is Eve's to choose, and the signature is good."""
    with caplog.at_level(logging.WARNING):
        random = Random(20_262)
        notes = notes_server(tmp_path)
        async with running_adapter(tmp_path, notes, limits={"requests_per_minute": 0}) as adapter:
            eve = await adapter.somebody("eve")
            honest = eve.event(KIND, ONE)
            sent: set[str] = set()
            for count in range(600):
                covered = dict(honest.covered) | {"nonce": eve.event(KIND, ONE).event.nonce}
                name = random.choice(list(covered))
                junk = random.choice(JUNK)
                if name == "sender":
                    junk = adapter.alice.key
                try:
                    raw = signed_by(eve.identity, covered | {name: junk})
                except MalformedEvent:
                    # No canonical form, so no event.
                    continue
                sent.add(orjson.loads(raw)["id"])
                adapter.adapter.requests.receive(raw)
                if count % 32 == 0:
                    await asyncio.sleep(0)
            await still_works(adapter, notes, 0)
            refused = await eve.ask(KIND, ONE)
            assert refused.code == "AUTHORIZATION_INSUFFICIENT"
            answered = [each.event.in_reply_to for each in eve.received]
            assert len(answered) == len(set(answered))
            assert {each for each in answered if each != refused.event.in_reply_to} <= sent
            assert all(each.code is not None for each in eve.received)
            # Alice, whose key Eve wrote into some of them, was told nothing.
            assert len(adapter.alice.received) == 1
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR] == []


async def test_what_is_sealed_inside_may_be_anything_and_ends_in_an_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Alice may call: her payload is the only thing that is wrong."""
    with caplog.at_level(logging.WARNING):
        deep: Json = "x"
        for _ in range(400):
            deep = [deep]
        payloads: list[Json] = [
            None, 1, "x", [], [ONE], deep, {"name": deep}, {"name": "one", "proofs": deep},
            {"name": 1 << 52}, {"name": None}, {"name": {"$ref": "#"}}, {"name": ["one"]},
            {"name": "x" * 500_000}, {"name": "../../etc/passwd\x00"}, {"__proto__": {"name": "one"}},
            {"name": "one", "proofs": [{"v": "xp1", "kind": GRANT}] * 17},
        ]  # fmt: skip
        notes = notes_server(tmp_path)
        async with running_adapter(tmp_path, notes) as adapter:
            for payload in payloads:
                answer = await adapter.alice.ask(KIND, payload)
                assert answer.code in ("SCHEMA_VIOLATION", "UPSTREAM_ERROR", None), payload
                reply = answer.payload["message"] if answer.code else ""
                assert len(reply) < 1_000
            await still_works(adapter, notes, len(notes.requests()))
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR] == []


async def test_an_event_for_one_adapter_is_nothing_to_another(tmp_path: Path) -> None:
    """Re-addressed as it is, re-signed by who may call both, and sealed for the wrong one of two."""
    first, second = tmp_path / "first", tmp_path / "second"
    notes, other = notes_server(first), notes_server(second)
    async with running_adapter(first, notes) as adapter, adapter_environment(second, other) as there:
        async with there.running():
            event = adapter.alice.event(KIND, ONE)
            there.adapter.requests.receive(event.raw)
            moved = event.covered | {"recipient": there.adapter.key}
            there.adapter.requests.receive(signed_by(EVE, moved | {"sender": EVE.key.text}))
            there.adapter.requests.receive(signed_by(adapter.alice.identity, moved))
            sealed_for = there.adapter.identity.enc_key.text
            there.adapter.requests.receive(
                signed_by(adapter.alice.identity, moved | {"enc_key": sealed_for, "nonce": "A" * 22})
            )
            await still_works(there, other, 0)
            codes = [each.code for each in there.alice.received]
            assert codes.count("SCHEMA_VIOLATION") == 2
        assert notes.requests() == []


def link(signer: Identity, to: str, capabilities: list[str], by: DelegationChain | None) -> SignedPublic:
    now = time.time()
    return delegate(signer, to, capabilities, ends=int(now + 3_600), now=now, by=by)


async def test_chains_that_are_too_long_circular_grown_or_cut_open_nothing(tmp_path: Path) -> None:
    notes = notes_server(tmp_path)
    async with running_adapter(tmp_path, notes, trust=[CAROL.key.text]) as adapter:
        adapter.document["access"][CAROL.key.text] = [READ]
        await adapter.adapter.reload(adapter.settings())
        bob = await adapter.somebody("bob")
        chain: DelegationChain | None = None
        signer = CAROL
        links: list[SignedPublic] = []
        for place in range(8):
            last = place == 7
            after = bob.identity if last else person(f"deputy {place}")
            links.append(link(signer, after.key.text, [READ], chain))
            chain = DelegationChain(tuple(read_delegation(each) for each in links))
            signer = after
        proofs: list[Json] = [orjson.loads(each.raw) for each in links]
        whole: dict[str, Any] = {"delegation": links[-1].event.id}
        assert (await bob.ask(KIND, ONE | {"proofs": proofs}, **whole)).code is None
        # One more than eight: our own `delegate` would not make it, so it is made by hand.
        nine = by_hand(signer, EVE.key.text, [READ], links[-1])
        eve = await adapter.somebody("eve")
        too_long: list[Json] = [*proofs, orjson.loads(nine.raw)]
        grown = by_hand(signer, EVE.key.text, [f"{NAMESPACE}.*"], links[6])
        circle = by_hand(signer, bob.key, [READ], links[-1])
        attempts: list[tuple[Any, list[Json], str]] = [
            (eve, too_long, nine.event.id),
            (eve, [*proofs, orjson.loads(grown.raw)], grown.event.id),
            (bob, [*proofs, orjson.loads(circle.raw)], circle.event.id),
            # A link is missing; the middle of a chain; somebody else's chain.
            (bob, proofs[1:], links[-1].event.id),
            (bob, proofs, links[3].event.id),
            (eve, proofs, links[-1].event.id),
        ]
        for who, sent, named in attempts:
            refused = await who.ask(KIND, ONE | {"proofs": sent}, delegation=named)
            assert refused.code == "AUTHORIZATION_INSUFFICIENT"
        assert len(notes.requests()) == 1


def by_hand(signer: Identity, to: str, capabilities: list[str], above: SignedPublic) -> SignedPublic:
    """A delegation that nobody honest would sign."""
    now = time.time()
    payload: dict[str, Json] = {
        "delegated_key": to,
        "capabilities": capabilities,
        "on_behalf_of": CAROL.key.text,
        "expires_at": int(now + 3_600),
    }
    return publish(signer, "xp.key.delegate", payload, now=now, delegation=above.event.id)


async def test_an_event_larger_than_the_limit_is_dropped_and_one_at_it_is_not(tmp_path: Path) -> None:
    notes = notes_server(tmp_path)
    async with running_adapter(tmp_path, notes) as adapter:
        event = adapter.alice.event(f"{NAMESPACE}.write_note", {"name": "big", "text": "x" * 700_000})
        assert len(event.raw) < MAX_EVENT_BYTES
        await adapter.alice.send(event)
        assert (await adapter.alice.answer(event)).code is None
        padded = adapter.alice.event(KIND, ONE)
        room = MAX_EVENT_BYTES - len(padded.raw)
        adapter.adapter.requests.receive(padded.raw + b" " * (room + 1))
        assert adapter.adapter.metrics.events["dropped"] == 1
        adapter.adapter.requests.receive(padded.raw + b" " * room)
        assert (await adapter.alice.answer(padded)).payload["content"] == "first words"


async def test_clocks_that_differ_by_minutes_work_and_a_replay_in_that_window_does_not(
    tmp_path: Path,
) -> None:
    """xp1: 300 s either way; the id is remembered for longer than any clock lets the event live."""
    notes = notes_server(tmp_path)
    async with running_adapter(tmp_path, notes) as adapter:
        now = time.time()
        ahead = adapter.alice.event(KIND, ONE, now=now + 280, ttl=60)
        behind = adapter.alice.event(KIND, ONE, now=now - 340, ttl=60)
        for each in (ahead, behind):
            adapter.adapter.requests.receive(each.raw)
            assert (await adapter.alice.answer(each)).payload["content"] == "first words"
        until = behind.event.expires_at + 600
        assert adapter.adapter.store.seen_ids.seen(behind.event.id, until)
        for each in (ahead, behind):
            adapter.adapter.requests.receive(each.raw)
        await still_works(adapter, notes, 2)
        assert len(adapter.alice.received) == 3
