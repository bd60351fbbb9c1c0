"""The event store: what is asked for comes back as it came, nothing alive is forgotten."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any

import pytest

from moot.errors import EndpointUnavailable, UsageError
from moot.store.worker_thread import WorkerThread
from moot.xprotocol.event_store.event_query import EventQuery, EventReader
from moot.xprotocol.event_store.event_store import MAX_EVENTS, EventStore
from moot.xprotocol.event_store.event_tables import connect_reading, connect_writing, transaction
from moot.xprotocol.event_store.event_writer import EventRow, WriteOutcome, insert
from moot.xprotocol.events.event_composer import publish
from moot.xprotocol.events.events import ANNOUNCE, DELEGATE, GRANT, REVOKE, Signed, decode
from moot.xprotocol.relay.subscription_filters import EventFilter
from tests.waiting import bounded
from tests.xprotocol.people import ALICE, BOB, CAROL, NOW, call, signed_by


@asynccontextmanager
async def store_in(folder: Path, max_events: int = MAX_EVENTS) -> AsyncIterator[EventStore]:
    store = EventStore.open(folder, max_events, now=NOW)
    try:
        yield store
    finally:
        await store.close()


async def found(store: EventStore, **query: Any) -> list[bytes]:
    return [event.raw async for event in store.find(EventQuery(**query))]


async def test_events_come_back_as_the_very_bytes_by_every_question(tmp_path: Path) -> None:
    first = call(now=NOW - 5, correlation_id="c-1")
    # White space and another order of members: the same event in other bytes.
    odd = decode(
        b" " + call(CAROL, ALICE, now=NOW - 3, kind="com.acme.mail.send").raw.replace(b",", b" , ", 1)
    )
    public = publish(ALICE, GRANT, {"text": "ö ☃"}, now=NOW)
    async with store_in(tmp_path / "data") as store:
        for one in (public, odd, first):
            assert await store.put(one, now=NOW) == "stored"
        everything = [first.raw, odd.raw, public.raw]
        assert await found(store) == everything
        assert await store.get(odd.event.id) == odd.raw
        assert await store.get("0" * 64) is None
        for question, wanted in (
            ({"ids": (first.event.id, public.event.id)}, [first.raw, public.raw]),
            ({"kinds": ("com.acme.mail.send",)}, [odd.raw]),
            ({"senders": (ALICE.key.text,)}, [first.raw, public.raw]),
            ({"recipients": (ALICE.key.text, BOB.key.text)}, [first.raw, odd.raw]),
            ({"correlation_ids": ("c-1",)}, [first.raw, odd.raw]),
            ({"since": NOW - 3}, [odd.raw, public.raw]),
            ({"until": NOW - 3}, [first.raw, odd.raw]),
            ({"since": NOW - 4, "until": NOW - 2}, [odd.raw]),
            ({"limit": 2}, [odd.raw, public.raw]),
            ({"limit": 0}, []),
            ({"public_only": True}, [public.raw]),
            ({"senders": (BOB.key.text,)}, []),
            ({"recipients": (BOB.key.text,), "kinds": ("com.acme.mail.send",)}, []),
            ({"alive_at": NOW + 10**9}, []),
        ):
            assert await found(store, **question) == wanted, question
    assert stat.S_IMODE((tmp_path / "data" / "events.sqlite").stat().st_mode) == 0o600

    async with store_in(tmp_path / "data") as store:
        assert await found(store) == [first.raw, odd.raw, public.raw]
        assert await store.put(first, now=NOW) == "duplicate"
        assert store.stats().events == 3


async def test_a_large_answer_comes_in_pages_and_ends_where_it_began(tmp_path: Path) -> None:
    async with store_in(tmp_path) as store:
        sent = [call(now=NOW - number % 7, payload={"n": number}) for number in range(600)]
        assert await asyncio.gather(*(store.put(one, now=NOW) for one in sent)) == ["stored"] * 600
        reading = EventReader(EventQuery(recipients=(BOB.key.text,)))
        pages = [await store.page(reading)]
        # Too late for this answer, though its time is in the middle.
        await store.put(call(now=NOW - 3), now=NOW)
        while page := await store.page(reading):
            pages.append(page)
        assert len(pages) > 2
        rows = [event for page in pages for event in page]
        assert [(row.timestamp, row.seq) for row in rows] == sorted((row.timestamp, row.seq) for row in rows)
        assert sorted(row.raw for row in rows) == sorted(one.raw for one in sent)
        assert await store.page(reading) == []
        newest = await found(store, recipients=(BOB.key.text,), limit=500)
        assert len(newest) == 500
        assert newest == (await found(store, recipients=(BOB.key.text,)))[-500:]


async def test_what_has_expired_goes_and_delegations_and_revocations_stay_for_good(tmp_path: Path) -> None:
    async with store_in(tmp_path) as store:
        lasting = [publish(ALICE, kind, {"a": 1}, now=NOW, ttl=60) for kind in (DELEGATE, REVOKE)]
        passing: list[Signed] = [
            call(now=NOW, ttl=60),
            publish(ALICE, GRANT, {}, now=NOW, ttl=60),
            publish(ALICE, ANNOUNCE, {}, now=NOW, ttl=60),
        ]
        long = call(now=NOW, ttl=3_600)
        every: list[Signed] = [*lasting, *passing, long]
        for one in every:
            assert await store.put(one, now=NOW) == "stored"
        # As long as it could still be accepted somewhere, it is there.
        assert await store.prune(NOW + 60 + 299) == 0
        assert await store.prune(NOW + 60 + 300) == 3
        assert set(await found(store)) == {lasting[0].raw, lasting[1].raw, long.raw}
        assert await store.prune(NOW + 10**9) == 1
        assert store.stats().events == 2
        assert store.stats().senders == 1


async def test_of_announces_the_newest_of_each_sender_is_kept(tmp_path: Path) -> None:
    async with store_in(tmp_path) as store:
        older, newer = (publish(ALICE, ANNOUNCE, {"n": n}, now=NOW + n) for n in (1, 2))
        other = publish(CAROL, ANNOUNCE, {}, now=NOW)
        same = sorted(
            (publish(ALICE, ANNOUNCE, {"n": n}, now=NOW + 3) for n in range(3)), key=lambda one: one.event.id
        )
        assert await store.put(older, now=NOW) == "stored"
        assert await store.put(other, now=NOW) == "stored"
        # Together, in one commit: the older one is still there when it begins.
        assert await asyncio.gather(*(store.put(one, now=NOW) for one in (newer, older))) == [
            "stored",
            "duplicate",
        ]
        assert await store.put(older, now=NOW) == "superseded"
        assert await found(store) == [other.raw, newer.raw]
        assert await asyncio.gather(*(store.put(same[place], now=NOW) for place in (1, 0, 2))) == [
            "stored",
            "stored",
            "superseded",
        ]
        assert await found(store) == [other.raw, same[0].raw]
        assert store.stats().events == 2


async def test_a_full_store_refuses_and_takes_again_when_something_has_expired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.xprotocol.event_store.event_store.MAX_EVENTS_PER_SENDER", 2)
    async with store_in(tmp_path, 3) as store:
        first, second, third = call(now=NOW, ttl=60), call(), call()
        assert await store.put(first, now=NOW) == "stored"
        assert await store.put(first, now=NOW) == "duplicate"
        both = await asyncio.gather(*(store.put(one, now=NOW) for one in (second, third)))
        assert both == ["stored", "full"]
        assert await store.put(call(CAROL, BOB), now=NOW) == "stored"
        assert await store.put(call(BOB, ALICE), now=NOW) == "full"
        await store.prune(NOW + 400)
        assert await store.put(third, now=NOW) == "stored"


async def test_a_second_process_is_told_who_is_in_the_way_and_readers_are_not(tmp_path: Path) -> None:
    async with store_in(tmp_path) as store:
        with pytest.raises(UsageError, match="another process writes the events"):
            EventStore.open(tmp_path)
        event = call()
        await store.put(event, now=NOW)
        reading = connect_reading(tmp_path / "events.sqlite")
        try:
            assert reading.execute("SELECT raw FROM events").fetchall() == [(event.raw,)]
            with pytest.raises(sqlite3.OperationalError):
                reading.execute("DELETE FROM events")
        finally:
            reading.close()
    async with store_in(tmp_path):
        pass


async def test_a_file_that_is_none_and_one_of_another_version_are_refused_with_words(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no events in"):
        connect_reading(tmp_path / "events.sqlite")
    (tmp_path / "events.sqlite").write_bytes(b"no database at all, but long enough to look like one" * 100)
    with pytest.raises(UsageError, match="move it away"):
        EventStore.open(tmp_path, now=NOW)
    other = tmp_path / "other"
    async with store_in(other):
        pass
    connection = sqlite3.connect(other / "events.sqlite")
    connection.execute("PRAGMA user_version = 7")
    connection.close()
    with pytest.raises(UsageError, match="version 7"):
        EventStore.open(other, now=NOW)


async def test_a_disk_that_is_full_refuses_and_the_store_recovers(tmp_path: Path) -> None:
    async with store_in(tmp_path) as store:
        event = call()
        # SQLite's own bound stands for a full disk: the same error, at the same place.
        await store._run_on_writer(
            lambda connection: connection.execute("PRAGMA max_page_count = 1").fetchone()
        )
        large = [call(payload={"text": "x" * 100_000}) for _ in range(3)]
        assert await asyncio.gather(*(store.put(one, now=NOW) for one in large)) == ["failed"] * 3
        store.seen_ids.remember("ab" * 32, NOW + 100, NOW)
        await store._run_on_writer(
            lambda connection: connection.execute("PRAGMA max_page_count = 100000").fetchone()
        )
        assert await store.put(event, now=NOW) == "stored"
        assert await found(store) == [event.raw]
        assert store.stats().events == 1
        await store.seen_ids.wait_committed()


async def test_seen_ids_outlive_a_restart_until_they_expire(tmp_path: Path) -> None:
    ids = [f"{number:064x}" for number in range(5)]

    async with store_in(tmp_path) as store:
        for number, id in enumerate(ids):
            assert not store.seen_ids.seen(id, NOW + 1_000)
            store.seen_ids.remember(id, NOW + 1_000 + number, NOW)
            assert store.seen_ids.seen(id, NOW + 1_000)
        await store.seen_ids.wait_committed()
        # On disk now, not at the end.
        with_reading = connect_reading(tmp_path / "events.sqlite")
        assert with_reading.execute("SELECT count(*) FROM seen").fetchone() == (5,)
        with_reading.close()
    async with store_in(tmp_path) as store:
        assert all(store.seen_ids.seen(id, NOW + 1_000) for id in ids)
        assert not store.seen_ids.seen("f" * 64, NOW + 1_000)
        # Later: what has expired goes from the table, and stays seen even when the clock is set back.
        store.seen_ids.remember("e" * 64, NOW + 5_000, NOW + 2_000)
        await store.seen_ids.wait_committed()
    async with store_in(tmp_path) as store:
        assert store.seen_ids.seen(ids[0], NOW + 1_000)
        assert store.seen_ids.seen("e" * 64, NOW + 5_000)
        assert not store.seen_ids.seen("d" * 64, NOW + 5_000)


async def test_when_the_memory_of_ids_is_full_new_ones_are_refused_and_none_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """xp1, Replay: when the table is full, refuse; never forget a live id."""
    monkeypatch.setattr("moot.xprotocol.event_store.event_store.MAX_SEEN_IDS", 3)
    async with store_in(tmp_path) as store:
        for number in range(3):
            store.seen_ids.remember(f"{number:064x}", NOW + 100, NOW)
        with pytest.raises(EndpointUnavailable) as refusal:
            store.seen_ids.remember("f" * 64, NOW + 100, NOW)
        assert refusal.value.retry_after is not None
        assert all(store.seen_ids.seen(f"{number:064x}", NOW + 100) for number in range(3))
        store.seen_ids.remember("f" * 64, NOW + 900, NOW + 200)


async def test_whatever_an_event_says_it_is_stored_as_text_and_nothing_else(tmp_path: Path) -> None:
    covered = call().covered | {"correlation_id": "'; DROP TABLE events; --", "kind": "a'b\"c%_"}
    event: Signed = decode(signed_by(ALICE, covered))
    async with store_in(tmp_path) as store:
        assert await store.put(event, now=NOW) == "stored"
        assert await found(store, correlation_ids=("'; DROP TABLE events; --",)) == [event.raw]
        assert await found(store, kinds=("a'b\"c%_",)) == [event.raw]


async def test_a_fault_that_nobody_expected_is_told_and_the_writer_goes_on(tmp_path: Path) -> None:
    async with store_in(tmp_path / "data") as store, bounded():
        with pytest.raises(sqlite3.InternalError, match="no whole number"):
            await store._run_on_writer(lambda _: _fail())
        assert await store.put(call(now=NOW), now=NOW) == "stored"


async def test_the_worker_tells_of_a_fault_that_nobody_expected_and_goes_on() -> None:
    told: asyncio.Queue[OSError | UsageError | None] = asyncio.Queue()
    worker = WorkerThread(asyncio.get_running_loop(), "tested")
    worker.submit(_fail, told.put_nowait)
    worker.submit(lambda: None, told.put_nowait)
    async with bounded():
        assert "no whole number" in str(await told.get())
        assert await told.get() is None
    worker.stop()


def _fail() -> None:
    raise ValueError("no whole number")


async def test_an_event_alone_writes_few_pages(tmp_path: Path) -> None:
    """Each index that an event is in costs a page of every commit."""
    # Before the log is written anew, after some 1,000 pages.
    events = [call(now=NOW + number, correlation_id=f"c-{number}") for number in range(100)]
    async with store_in(tmp_path) as store:
        log = tmp_path / "events.sqlite-wal"
        before = log.stat().st_size
        for event in events:
            assert await store.put(event, now=NOW) == "stored"
        assert (log.stat().st_size - before) / len(events) / 4_096 < 7


async def test_no_question_of_a_client_looks_at_every_event(tmp_path: Path) -> None:
    chosen: dict[str, Any] = {
        "ids": ("a" * 64, "b" * 64),
        "kinds": ("xp.key.revoke", "com.acme.mail.send"),
        "senders": (ALICE.key.text,),
        "recipients": (BOB.key.text,),
        "correlation_ids": ("c-1",),
        "since": NOW - 5,
        "until": NOW,
        "limit": 3,
    }
    plans: list[str] = []
    async with store_in(tmp_path) as store:
        reading = store._reading
        reading.set_trace_callback(plans.append)
        for names in (set(some) for size in range(9) for some in combinations(chosen, size)):
            one = EventFilter(**{name: chosen[name] for name in names})
            assert await store.page(EventReader(one.to_query(NOW))) == []
        reading.set_trace_callback(None)
        for statement in plans:
            if "FROM events " in statement and "max(seq)" not in statement:
                for *_, plan in reading.execute(f"EXPLAIN QUERY PLAN {statement}"):
                    assert "SCAN" not in plan or "CONSTANT" in plan, (statement, plan)


@pytest.mark.parametrize("seed", range(40))
def test_a_commit_of_many_becomes_what_each_alone_would_have_become(tmp_path: Path, seed: int) -> None:
    """Groups of any size, with events that come again and announces that give way to each other."""
    random = Random(seed)
    senders = ("alice", "bob")
    kinds = (ANNOUNCE, "a.b", "a.b", "a.b", "a.b")
    many = [
        EventRow(0, bytes([number]) * 32, random.choice(kinds), random.choice(senders), None, None,
                 random.randrange(4), 9, 9, 9, b"%d" % number)
        for number in range(120)
    ]  # fmt: skip
    together = connect_writing(tmp_path / "together" / "events.sqlite")
    kept: dict[bytes, EventRow] = {}
    seq = 0
    for _ in range(6):
        rows = []
        for row in random.choices(many, k=random.choice((1, 2, 6, 30, 130))):
            rows.append(row._replace(seq=seq))
            seq += 1
        with transaction(together):
            outcomes = insert(together, rows)
        assert outcomes == _one_by_one(kept, rows)
    table = "SELECT seq, id FROM events ORDER BY seq"
    assert together.execute(table).fetchall() == sorted((row.seq, row.id) for row in kept.values())
    together.close()


def _one_by_one(kept: dict[bytes, EventRow], rows: list[EventRow]) -> list[WriteOutcome]:
    before = set(kept)
    outcomes = []
    for row in rows:
        others = [one for one in kept.values() if one.kind == ANNOUNCE and one.sender == row.sender]
        if row.id in before:
            outcomes.append(WriteOutcome("duplicate"))
            continue
        before.add(row.id)
        if row.kind != ANNOUNCE:
            kept[row.id] = row
            outcomes.append(WriteOutcome("stored"))
        elif any((one.timestamp, row.id) > (row.timestamp, one.id) for one in others):
            outcomes.append(WriteOutcome("superseded"))
        else:
            for one in others:
                del kept[one.id]
            kept[row.id] = row
            outcomes.append(WriteOutcome("stored", len(others)))
    return outcomes


async def test_a_file_of_version_1_keeps_its_events_and_its_ids(tmp_path: Path) -> None:
    event = call()
    async with store_in(tmp_path) as store:
        await store.put(event, now=NOW)
    with closing(sqlite3.connect(tmp_path / "events.sqlite", isolation_level=None)) as file:
        file.executescript(
            """
            DROP INDEX events_kind; DROP INDEX events_end; DROP TABLE seen;
            CREATE INDEX events_sender ON events (sender, timestamp);
            CREATE INDEX events_kind ON events (kind, timestamp);
            CREATE INDEX events_correlation ON events (correlation_id, timestamp)
              WHERE correlation_id IS NOT NULL;
            CREATE INDEX events_end ON events (keep_until) WHERE keep_until IS NOT NULL;
            CREATE TABLE seen (id BLOB NOT NULL PRIMARY KEY, until INTEGER NOT NULL) WITHOUT ROWID;
            CREATE INDEX seen_end ON seen (until);
            PRAGMA user_version = 1;
            """
        )
        file.execute("INSERT INTO seen VALUES (?, ?)", (b"\xab" * 32, NOW + 100))
    async with store_in(tmp_path) as store:
        assert await found(store, recipients=(BOB.key.text,)) == [event.raw]
        assert store.seen_ids.seen("ab" * 32, NOW + 100)
        assert not store.seen_ids.seen("cd" * 32, NOW + 100)
    async with store_in(tmp_path) as old, store_in(tmp_path / "fresh") as new:
        made = "SELECT name, sql FROM sqlite_master ORDER BY name"
        assert old._reading.execute(made).fetchall() == new._reading.execute(made).fetchall()
