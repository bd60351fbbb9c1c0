"""What never reaches a server: whoever may not, asks too often, forges, repeats or comes too late (D-76)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import orjson
import pytest

from moot.protocol.operation import Json
from moot.xprotocol.events.access_rights import grant
from moot.xprotocol.events.delegation import delegate
from moot.xprotocol.events.event_composer import compose, publish
from moot.xprotocol.events.events import SKEW_SECONDS, Signed, SignedDirected, SignedPublic, decode
from moot.xprotocol.events.revocation import revoke
from moot.xprotocol.identity.keys import Identity
from tests.waiting import until, until_told
from tests.xprotocol.adapter.adapter_environment import (
    NAMESPACE,
    READ,
    WRITE,
    AdapterEnvironment,
    notes_server,
    running_adapter,
)
from tests.xprotocol.people import BOB, CAROL, EVE, signed_by

KIND = f"{NAMESPACE}.read_note"
ONE: dict[str, Json] = {"name": "one"}


async def straight(environment: AdapterEnvironment, raw: bytes) -> None:
    """To the adapter past the relay, which would not carry what does not verify."""
    environment.adapter.requests.receive(raw)


async def nothing_came_of_it(environment: AdapterEnvironment, notes: Any) -> None:
    """Whatever was dropped before, the next honest call is the first thing that the server hears of."""
    answer = await environment.alice.ask(KIND, ONE)
    assert answer.payload["content"] == "first words"
    assert len(notes.requests()) == 1


def later(hours: float = 1) -> int:
    return int(time.time() + hours * 3_600)


@pytest.mark.requirement("XP-5.1-4", "XP-8.3-1", "XP-11.1-7", "XP-11.3-6")
async def test_without_the_capability_there_is_an_error_and_the_server_hears_nothing(tmp_path: Path) -> None:
    notes = notes_server(tmp_path)
    async with running_adapter(tmp_path, notes) as adapter:
        carol = await adapter.somebody("carol")
        refused = await carol.ask(KIND, ONE, correlation_id="mine")
        assert refused.code == "AUTHORIZATION_INSUFFICIENT"
        assert refused.payload["in_reply_to"] == refused.event.in_reply_to
        assert refused.event.correlation_id == "mine"
        # Refused before its payload is looked at: who may not call learns nothing about the schema.
        unfit = await carol.ask(KIND, {"wrong": 1})
        assert unfit.code == "AUTHORIZATION_INSUFFICIENT"
        assert notes.requests() == []
        assert notes.requests("resources/read") == []


async def test_a_capability_counts_whole_and_by_segments_never_by_a_mere_prefix(tmp_path: Path) -> None:
    """D-60."""
    notes = notes_server(tmp_path)
    held = {
        READ: None,
        f"{NAMESPACE}.*": None,
        "com.acme.*": None,
        "desk.read": None,
        "com.acme.de.*": "AUTHORIZATION_INSUFFICIENT",
        "com.acme.deskread": "AUTHORIZATION_INSUFFICIENT",
        f"{READ}.more": "AUTHORIZATION_INSUFFICIENT",
        f"{READ}.*": "AUTHORIZATION_INSUFFICIENT",
        "com.other.desk.read": "AUTHORIZATION_INSUFFICIENT",
        WRITE: "AUTHORIZATION_INSUFFICIENT",
    }
    async with running_adapter(tmp_path, notes) as adapter:
        carol = await adapter.somebody("carol")
        for capability, code in held.items():
            given = grant(adapter.adapter.identity, carol.key, [capability], ends=later(), now=time.time())
            answer = await carol.ask(KIND, ONE | {"proofs": proofs(given)})
            assert (capability, answer.code) == (capability, code)
        assert len(notes.requests()) == 4


async def test_a_payload_that_does_not_fit_is_refused_before_the_server_sees_it(tmp_path: Path) -> None:
    notes = notes_server(tmp_path)
    async with running_adapter(tmp_path, notes) as adapter:
        for payload in ({}, {"name": 1}, ["one"], "one"):
            answer = await adapter.alice.ask(KIND, payload)
            assert answer.code == "SCHEMA_VIOLATION"
        unknown = await adapter.alice.ask(f"{NAMESPACE}.no_such_tool", {})
        assert unknown.code == "NOT_FOUND"
        await nothing_came_of_it(adapter, notes)


@pytest.mark.requirement("XP-3.1-29", "XP-8.4-1", "XP-8.4-2")
async def test_the_call_beyond_requests_per_minute_is_refused_for_that_sender_alone(tmp_path: Path) -> None:
    slow = notes_server(tmp_path, "slow", "com.acme.slow", rate_limit={"requests_per_minute": 3})
    free = notes_server(tmp_path, "free", "com.acme.free")
    async with running_adapter(tmp_path, slow, free) as adapter:
        bob = await adapter.somebody("bob")
        adapter.document["access"][bob.key] = ["com.acme.slow.*"]
        await adapter.adapter.reload(adapter.settings())
        answers = [await adapter.alice.ask("com.acme.slow.read_note", ONE) for _ in range(5)]
        assert [each.code for each in answers] == [None] * 3 + ["RATE_LIMITED"] * 2
        assert 0 < answers[3].payload["retry_after"] <= 60
        assert len(slow.requests()) == 3
        # Neither another sender nor another source of the same sender pays for it.
        assert (await bob.ask("com.acme.slow.read_note", ONE)).code is None
        assert (await adapter.alice.ask("com.acme.free.read_note", ONE)).code is None


async def test_one_key_may_ask_so_often_in_all_and_a_flood_is_not_answered_for_ever(tmp_path: Path) -> None:
    notes = notes_server(tmp_path)
    async with running_adapter(tmp_path, notes, limits={"requests_per_minute": 4}) as adapter:
        # What waited at the relay while the adapter came is not counted: once it answers, it is there.
        bob = await adapter.somebody("bob")
        assert (await bob.ask(KIND, ONE)).code == "AUTHORIZATION_INSUFFICIENT"
        sent = [adapter.alice.event(KIND, ONE) for _ in range(20)]
        for each in sent:
            await adapter.alice.send(each)
        await until(lambda: adapter.adapter.metrics.events["RATE_LIMITED"] == 16)
        await until(lambda: len(adapter.alice.received) == 8)
        assert (
            sorted(str(each.code) for each in adapter.alice.received) == ["None"] * 4 + ["RATE_LIMITED"] * 4
        )
        assert len(notes.requests()) == 4
        assert (await bob.ask(KIND, ONE)).code == "AUTHORIZATION_INSUFFICIENT"


async def test_what_does_not_verify_is_dropped_in_silence(tmp_path: Path) -> None:
    """Bad, stripped, swapped, re-addressed, malformed: no answer, and no call."""
    notes = notes_server(tmp_path)
    async with running_adapter(tmp_path, notes) as adapter:
        honest = adapter.alice.event(KIND, ONE)
        other = adapter.alice.event(KIND, {"name": "two"})
        members: dict[str, Any] = orjson.loads(honest.raw)
        swapped = members | {"payload": other.event.payload, "content_hash": other.event.content_hash}
        stripped = {name: value for name, value in members.items() if name != "signature"}
        elsewhere = compose(
            adapter.alice.identity,
            KIND,
            ONE,
            recipient=BOB.key.text,
            enc_key=adapter.adapter.identity.enc_key.text,
            now=time.time(),
        )
        forged = [
            members | {"signature": other.event.signature},
            stripped,
            swapped,
            members | {"sender": EVE.key.text},
            members | {"kind": f"{NAMESPACE}.write_note"},
            members | {"expires_at": members["expires_at"] + 60},
            orjson.loads(elsewhere.raw),
            members | {"recipient": BOB.key.text},
        ]
        for each in forged:
            await straight(adapter, orjson.dumps(each))
        for raw in (b"", b"{", b"[]", b"null", honest.raw[:-2], honest.raw + b"x", b"x" * 2_000_000):
            await straight(adapter, raw)
        twice = honest.raw.replace(b'"kind":', b'"kind":"x","kind":', 1)
        await straight(adapter, twice)
        await nothing_came_of_it(adapter, notes)
        assert len(adapter.alice.received) == 1
        assert adapter.adapter.metrics.events["dropped"] == 16


async def test_a_resealed_payload_is_refused_though_its_signature_holds(tmp_path: Path) -> None:
    """What one caller sealed cannot be signed by another and sent on: sender and kind are bound to it."""
    notes = notes_server(tmp_path)
    async with running_adapter(tmp_path, notes) as adapter:
        honest = adapter.alice.event(KIND, ONE)
        stolen = adapter.alice.event(KIND, {"name": "two"})
        covered = stolen.covered | {
            "payload": honest.event.payload,
            "content_hash": honest.event.content_hash,
        }
        raw = signed_by(adapter.alice.identity, covered)
        await straight(adapter, raw)
        answer = await adapter.alice.until(lambda received: received[0] if received else None)
        assert answer.code == "SCHEMA_VIOLATION"
        await nothing_came_of_it(adapter, notes)


async def test_an_event_runs_once_however_often_it_comes(tmp_path: Path) -> None:
    notes = notes_server(tmp_path)
    async with running_adapter(tmp_path, notes) as adapter:
        once = adapter.alice.event(KIND, ONE)
        await adapter.alice.send(once)
        await adapter.alice.answer(once)
        for _ in range(5):
            await straight(adapter, once.raw)
        again = compose(
            adapter.alice.identity,
            KIND,
            ONE,
            recipient=adapter.adapter.key,
            enc_key=adapter.adapter.identity.enc_key.text,
            now=time.time(),
        )
        await adapter.alice.send(again)
        await adapter.alice.answer(again)
        assert len(notes.requests()) == 2
        assert len(adapter.alice.received) == 2


async def test_a_replay_after_a_restart_runs_nothing(tmp_path: Path) -> None:
    async def nothing_more(adapter: AdapterEnvironment, once: SignedDirected) -> None:
        answer = await adapter.alice.ask(KIND, ONE)
        assert answer.code is None
        assert len([each for each in adapter.alice.received if each.event.in_reply_to == once.event.id]) == 1

    notes = notes_server(tmp_path)
    async with running_adapter(tmp_path, notes) as adapter:
        once = adapter.alice.event(f"{NAMESPACE}.write_note", {"name": "two", "text": "x"})
        await adapter.alice.send(once)
        await adapter.alice.answer(once)
        before = adapter.adapter
        await before.__aexit__()
        async with adapter.running():
            # The relay still has it and tells of it again.
            await nothing_more(adapter, once)
            assert len([each for each in notes.requests() if each["name"] == "write_note"]) == 1


async def test_an_event_of_the_past_is_told_so_and_one_of_long_ago_is_not_answered(tmp_path: Path) -> None:
    notes = notes_server(tmp_path)
    async with running_adapter(tmp_path, notes) as adapter:
        now = time.time()
        late = adapter.alice.event(KIND, ONE, now=now - SKEW_SECONDS - 100, ttl=60)
        await straight(adapter, late.raw)
        answer = await adapter.alice.answer(late)
        assert answer.code == "EXPIRED"
        for early in (-3_600, 3_600):
            await straight(adapter, adapter.alice.event(KIND, ONE, now=now + early, ttl=60).raw)
        await nothing_came_of_it(adapter, notes)
        assert len(adapter.alice.received) == 2


def proofs(*events: SignedPublic) -> list[Json]:
    return [orjson.loads(each.raw) for each in events]


async def test_a_grant_of_the_adapters_own_key_opens_what_it_names_and_no_strangers_does(
    tmp_path: Path,
) -> None:
    """D-59: `xp.capability.grant` among the proofs; the tool never sees them."""
    notes = notes_server(tmp_path)
    async with running_adapter(tmp_path, notes) as adapter:
        carol = await adapter.somebody("carol")
        own: Identity = adapter.adapter.identity
        given = grant(own, carol.key, [READ], ends=later(), now=time.time())
        answer = await carol.ask(KIND, ONE | {"proofs": proofs(given)})
        assert answer.payload["content"] == "first words"
        assert notes.requests()[-1]["arguments"] == ONE
        write = {"name": "two", "text": "x", "proofs": proofs(given)}
        assert (await carol.ask(f"{NAMESPACE}.write_note", write)).code == "AUTHORIZATION_INSUFFICIENT"
        forged = grant(carol.identity, carol.key, [READ], ends=later(), now=time.time())
        by_herself = await carol.ask(KIND, ONE | {"proofs": proofs(forged)})
        assert by_herself.code == "AUTHORIZATION_INSUFFICIENT"
        eve = await adapter.somebody("eve")
        stolen = await eve.ask(KIND, ONE | {"proofs": proofs(given)})
        assert stolen.code == "AUTHORIZATION_INSUFFICIENT"
        # describe takes the same proofs.
        described = await carol.ask("xp.schema.describe", {"intent": "read a note", "proofs": proofs(given)})
        assert described.payload["matches"][0]["callable"] is True


async def test_a_delegation_acts_for_its_root_and_a_revoked_link_breaks_it(tmp_path: Path) -> None:
    """XP 6.4: the action is booked on the user."""
    notes = notes_server(tmp_path)
    async with running_adapter(tmp_path, notes, trust=[CAROL.key.text]) as adapter:
        adapter.document["access"][CAROL.key.text] = [READ]
        await adapter.adapter.reload(adapter.settings())
        bob = await adapter.somebody("bob")
        now = time.time()
        link = delegate(CAROL, bob.key, [READ], ends=later(), now=now)
        carried: dict[str, Any] = {"delegation": link.event.id}
        payload = ONE | {"proofs": proofs(link)}
        assert (await bob.ask(KIND, payload, **carried)).payload["content"] == "first words"
        await adapter.adapter.audit.flush()
        assert adapter.adapter.settings.audit_file is not None
        booked = orjson.loads(adapter.adapter.settings.audit_file.read_bytes().splitlines()[-1])
        assert booked["principal"] == CAROL.key.text
        assert booked["sender"] == bob.key
        assert (await bob.ask(KIND, payload)).code == "AUTHORIZATION_INSUFFICIENT"
        void: Signed = revoke(CAROL, bob.key, now=now)
        await adapter.alice.send(void)
        await until(lambda: adapter.adapter.access.revocations.mentions(bob.key))
        assert (await bob.ask(KIND, payload, **carried)).code == "REVOKED"
        assert len(notes.requests()) == 1


async def test_a_key_that_revokes_itself_is_refused_even_after_a_restart_without_the_relays_word(
    tmp_path: Path,
) -> None:
    notes = notes_server(tmp_path)
    async with running_adapter(tmp_path, notes) as running:
        stranger = revoke(EVE, running.alice.key, now=time.time())
        await running.alice.send(stranger)
        assert (await running.alice.ask(KIND, ONE)).code is None
        own = revoke(running.alice.identity, running.alice.key, now=time.time())
        await running.alice.send(own)
        await until(lambda: running.adapter.access.is_revoked(running.alice.key, time.time()))
        assert (await running.alice.ask(KIND, ONE)).code == "REVOKED"
        # Refused at once, and on disk soon after.
        assert await until_told(lambda: running.adapter.store.get(own.event.id)) == own.raw
        await running.adapter.__aexit__()
        # A relay that cannot be asked does not bring the key back to life.
        running.document["relay"]["urls"] = ["ws://127.0.0.1:1"]
        async with running.running() as adapter:
            assert adapter.access.is_revoked(running.alice.key, time.time())
        assert len(notes.requests()) == 1


async def test_a_key_that_nothing_can_be_sealed_for_is_not_worth_a_call_that_stays_unanswered(
    tmp_path: Path,
) -> None:
    """An X25519 point of small order passes for a key by its shape."""
    notes = notes_server(tmp_path)
    async with running_adapter(tmp_path, notes) as adapter:
        honest = adapter.alice.event(KIND, ONE)
        zero = "x25519:" + "A" * 43
        raw = signed_by(adapter.alice.identity, honest.covered | {"sender_enc_key": zero})
        await straight(adapter, raw)
        await nothing_came_of_it(adapter, notes)


async def test_public_events_of_any_kind_and_answers_that_nobody_waits_for_do_no_harm(tmp_path: Path) -> None:
    notes = notes_server(tmp_path)
    async with running_adapter(tmp_path, notes) as adapter:
        announce = publish(EVE, "xp.endpoint.announce", {"display_name": "x"}, now=time.time())
        await straight(adapter, announce.raw)
        unasked = adapter.alice.event(f"{KIND}.result", {"content": "x"}, in_reply_to="0" * 64)
        error = adapter.alice.event("xp.error", {"code": "INTERNAL", "message": "x"})
        for each in (unasked, error):
            assert decode(each.raw)
            await adapter.alice.send(each)
        await nothing_came_of_it(adapter, notes)
        assert len(adapter.alice.received) == 1
