"""Strangers without any right, and as many of them as they like: what they cost is bounded."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path

import orjson
import pytest

from moot.errors import AuthorizationInsufficient
from moot.protocol.operation import Json
from moot.xprotocol.adapter.inbound.operation_runner import MAX_PROOF_BYTES, CachedAccess
from moot.xprotocol.events.access_rights import Access, grant
from moot.xprotocol.events.delegation import delegate
from moot.xprotocol.events.event_composer import compose, publish
from moot.xprotocol.events.events import GRANT, SignedDirected
from moot.xprotocol.identity.keys import Identity
from tests.counted_work import lines_run
from tests.waiting import until
from tests.xprotocol.adapter.adapter_environment import (
    NAMESPACE,
    READ,
    AdapterEnvironment,
    notes_server,
    running_adapter,
)
from tests.xprotocol.people import CAROL, EVE, person

KIND = f"{NAMESPACE}.read_note"
ONE: dict[str, Json] = {"name": "one"}
DESCRIBE, LIST = "xp.schema.describe", "xp.schema.list"


def heavy(signer: Identity, grantee: str, count: int, values: int) -> list[Json]:
    """Grants that verify, give nothing, and take long to write canonically."""
    now = time.time()
    payload: dict[str, Json] = {
        "grantee": grantee,
        "capabilities": [f"{NAMESPACE}.*"],
        "expires_at": int(now + 3_600),
        "filling": [1.1e-7] * values,
    }
    return [orjson.loads(publish(signer, GRANT, payload, now=now + n).raw) for n in range(count)]


async def test_proofs_that_take_long_to_read_are_refused_unread(tmp_path: Path) -> None:
    notes = notes_server(tmp_path)
    async with running_adapter(tmp_path, notes) as adapter:
        eve = await adapter.somebody("eve")
        much = heavy(eve.identity, eve.key, 16, 5_000)
        for kind, payload in ((KIND, ONE), (DESCRIBE, {"intent": "read a note", "limit": 100})):
            event = eve.event(kind, {**payload, "proofs": much})
            # 242,000 in November 2026, nearly all of them for the event itself; 3,200,000 with its proofs.
            assert lines_run(partial(adapter.adapter.requests.receive, event.raw)) < 400_000
            assert (await eve.answer(event)).code == "AUTHORIZATION_INSUFFICIENT"
        refused = eve.received[0].payload["message"]
        assert str(MAX_PROOF_BYTES) in refused
        # A whole chain and as many grants, with dozens of capabilities each, fit in.
        own, now = adapter.adapter.identity, time.time()
        names = [READ, *(f"com.acme.department-{n}.read" for n in range(30))]
        enough: list[Json] = [
            orjson.loads(grant(own, eve.key, names, ends=int(now + 60), now=now + n).raw) for n in range(8)
        ]
        enough += [
            orjson.loads(delegate(CAROL, eve.key, names, ends=int(now + 60), now=now + n).raw)
            for n in range(8)
        ]
        assert (await eve.ask(KIND, {**ONE, "proofs": enough})).payload["content"] == "first words"
        assert len(notes.requests()) == 1


async def test_a_describe_says_what_proofs_open_and_reads_them_once(tmp_path: Path) -> None:
    """Anybody may describe, and an adapter has hundreds of rights: they cost no more than one."""
    notes = notes_server(tmp_path)
    async with running_adapter(tmp_path, notes) as adapter:
        eve = await adapter.somebody("eve")
        own, now = adapter.adapter.identity, time.time()
        given = grant(own, eve.key, [READ], ends=int(now + 60), now=now)
        proofs = [orjson.loads(given.raw), *heavy(EVE, eve.key, 15, 100)]
        answer = await eve.ask(DESCRIBE, {"intent": "note at the desk", "limit": 100, "proofs": proofs})
        reply = {each["kind"]: each["callable"] for each in answer.payload["matches"]}
        assert reply[KIND] is True
        assert reply[f"{NAMESPACE}.write_note"] is False
    access = CachedAccess.of(Access(own_key=CAROL.key.text))
    proofs = heavy(EVE, EVE.key.text, 15, 200)
    spent: list[float] = []
    for n in range(100):
        begun = time.process_time()
        with pytest.raises(AuthorizationInsufficient):
            access.authorize(EVE.key.text, f"com.acme.right{n}", proofs=proofs, now=time.time())
        spent.append(time.process_time() - begun)
    assert sum(spent[1:]) < 10 * spent[0]


async def test_strangers_by_the_hundred_leave_nothing_behind_but_their_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every event by another key: rates, refusals and tasks stay within their bounds, and Alice is served."""
    notes = notes_server(tmp_path)
    monkeypatch.setattr("moot.xprotocol.adapter.inbound.request_handler.MAX_SENDERS", 50)
    async with running_adapter(tmp_path, notes) as adapter:
        key, enc_key = adapter.adapter.key, adapter.adapter.identity.enc_key.text
        inbound = adapter.adapter.requests
        for n in range(600):
            stranger = person(f"stranger {n}")
            event = compose(stranger, KIND, ONE, recipient=key, enc_key=enc_key, now=time.time())
            inbound.receive(event.raw)
            if n % 16 == 0:
                await asyncio.sleep(0)
        assert adapter.adapter.metrics.events["AUTHORIZATION_INSUFFICIENT"] == 600
        assert len(inbound._rates) <= 50
        assert len(inbound._refusal_rates) <= 50
        assert len(inbound._by_sender) == len(inbound._proofs) == 0
        assert (await adapter.alice.ask(KIND, ONE)).code is None
        await until(lambda: len(inbound._refusals) == 0)
        assert len(notes.requests()) == 1


async def test_strangers_fill_their_part_of_the_room_for_ids_and_not_that_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """xp1, Replay: never forget a live id. So those without rights get half, and callers the rest."""
    notes = notes_server(tmp_path)
    monkeypatch.setattr("moot.xprotocol.event_store.event_store.MAX_SEEN_IDS", 40)
    async with running_adapter(tmp_path, notes) as adapter:
        eve, carol = await adapter.somebody("eve"), await adapter.somebody("carol")
        given = grant(
            adapter.adapter.identity, carol.key, [READ], ends=int(time.time() + 60), now=time.time()
        )
        proven = {**ONE, "proofs": [orjson.loads(given.raw)]}
        assert (await carol.ask(KIND, proven)).code is None
        for _ in range(30):
            await eve.send(eve.event(KIND, ONE))
        await until(lambda: adapter.adapter.metrics.events["ENDPOINT_UNAVAILABLE"] > 0)
        assert len(adapter.adapter.store.seen_ids) == 20
        assert (await eve.ask(KIND, ONE)).payload["retry_after"] == 60
        assert (await carol.ask(KIND, proven)).code is None
        codes = [(await adapter.alice.ask(KIND, ONE)).code for _ in range(22)]
        # When all of it is full, everybody is refused with words, and nothing runs that could run twice.
        assert codes == [None] * 19 + ["ENDPOINT_UNAVAILABLE"] * 3
        assert len(notes.requests()) == 21


async def test_the_catalogue_is_asked_for_by_strangers_within_their_rate(tmp_path: Path) -> None:
    """Anybody may describe and list (D-77): any question ends in an answer, and a flood in a refusal."""
    notes = notes_server(tmp_path)
    async with running_adapter(tmp_path, notes, limits={"requests_per_minute": 40}) as adapter:
        eve = await adapter.somebody("eve")
        odd: list[tuple[str, Json]] = [
            (DESCRIBE, {}),
            (DESCRIBE, {"intent": "x" * 200_000}),
            (DESCRIBE, {"intent": "read " * 30_000}),
            (DESCRIBE, {"intent": "read", "limit": 1 << 40}),
            (DESCRIBE, {"intent": "read", "limit": -1}),
            (DESCRIBE, {"intent": "read", "limit": 0}),
            (DESCRIBE, {"intent": 7}),
            (DESCRIBE, {"intent_verbs": ["read"] * 5_000, "data_subjects": ["x" * 1_000] * 500}),
            (DESCRIBE, {"intent": "\x00\u202e\ud7ff*(\\"}),
            (LIST, {"after": "zzzz"}),
            (LIST, {"after": 7}),
            (LIST, {"kinds": ["x"] * 20_000}),
            (LIST, {"kinds": "x"}),
            (LIST, {"limit": 1 << 40}),
        ]
        for kind, payload in odd:
            event = eve.event(kind, payload)
            begun = time.process_time()
            await eve.send(event)
            answer = await eve.answer(event)
            assert answer.code in (None, "SCHEMA_VIOLATION"), payload
            assert time.process_time() - begun < 0.5, payload
        flood: list[SignedDirected] = [eve.event(DESCRIBE, {"intent": "read"}) for _ in range(40)]
        for each in flood:
            await eve.send(each)
        await until(lambda: adapter.adapter.metrics.events["RATE_LIMITED"] >= 10)
        await calls_go_on(adapter)


async def calls_go_on(environment: AdapterEnvironment) -> None:
    assert (await environment.alice.ask(KIND, ONE)).payload["content"] == "first words"
