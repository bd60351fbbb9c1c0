"""The fast path, case by case: whatever could change a verdict sends the next message the slow path.

Every test first shows that the fast path is open, so that what follows is decided in spite of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from moot.protocol import envelope
from moot.protocol._scan_envelope import MAX_NAME_BYTES, MAX_NAMES
from moot.protocol.operation import Json
from moot.protocol.patterns import read_capabilities
from moot.store.journal_reader import read_records, verify
from tests.gateway.disk import no_room_on_disk
from tests.gateway.running_gateway import CALL, gateway_settings, participants, space_settings, write_config
from tests.gateway.served import served
from tests.gateway.socketless_gateway import (
    SocketlessGateway,
    SocketlessSession,
    chat,
    encode,
    members,
    socketless_gateway,
)
from tests.waiting import until

PEOPLE: Final[dict[str, Any]] = {
    "alice": ["*"],
    "bob": {
        "capabilities": [{"kind": "chat"}, {"kind": "reasoning/*"}, {"kind": "mcp/*"}, {"kind": "x/*"}],
        "tokens": ["t-bob", {"token": "t-less", "capabilities": [{"kind": "reasoning/*"}]}],
    },
    "carol": ["mcp/proposal"],
}


def settings(
    limits: Json = None, people: dict[str, Any] | None = None, rules: Json = None, **gateway: Json
) -> dict[str, Json]:
    space = space_settings(participants(**(PEOPLE | (people or {}))), limits=limits or {}, **(rules or {}))
    return gateway_settings({"lab": space}, **gateway)


def takes_the_fast_path(one: SocketlessGateway, session: SocketlessSession, answer: bytes) -> bool:
    """Say this, and tell whether it took the fast path."""
    before = one.host.fast_paths.accepted
    session.say(answer)
    return one.host.fast_paths.accepted > before


def open_fast_path(one: SocketlessGateway, session: SocketlessSession, kind: str = "chat") -> None:
    """The first one goes the slow path, the second does not."""
    number = one.host.received
    assert not takes_the_fast_path(one, session, chat(session.name, f"open-{number}", kind=kind))
    assert takes_the_fast_path(one, session, chat(session.name, f"opened-{number}", kind=kind))


@asynccontextmanager
async def talking(
    folder: Path, *args: Any, **more: Any
) -> AsyncIterator[tuple[SocketlessGateway, SocketlessSession, SocketlessSession]]:
    """A gateway with alice and bob; bob's fast path is open."""
    async with socketless_gateway(folder, settings(*args, **more)) as one:
        alice, bob = one.join("alice"), one.join("bob")
        await one.rest()
        open_fast_path(one, bob)
        yield one, alice, bob


async def refusal_of(one: SocketlessGateway, session: SocketlessSession, answer: bytes) -> dict[str, Any]:
    """What this is answered with; nobody hears it, and it does not take the fast path."""
    others = [other for other in one.sessions if other is not session and other.here]
    assert not takes_the_fast_path(one, session, answer)
    await one.rest()
    assert all("c-next" not in other.ids() for other in others)
    return session.last_refusal()


# Something happens, and the very next message is another matter.


async def _pause(one: SocketlessGateway, alice: SocketlessSession) -> str:
    alice.say(encode(members("alice", "p-1", "participant/pause", {}, to=["bob"])))
    return "participant_paused"


async def _shutdown(one: SocketlessGateway, alice: SocketlessSession) -> str:
    alice.say(encode(members("alice", "s-1", "participant/shutdown", {}, to=["bob"])))
    return "participant_shutdown"


async def _reload_rights(one: SocketlessGateway, alice: SocketlessSession) -> str:
    one.reload(settings(people={"bob": ["mcp/*"]}))
    return "capability_violation"


async def _reload_size(one: SocketlessGateway, alice: SocketlessSession) -> str:
    one.reload(settings(limits={"max_bytes": 100}))
    return "invalid_envelope"


async def _reload_rate(one: SocketlessGateway, alice: SocketlessSession) -> str:
    # Less than one in the second that may come at once: nothing passes.
    one.reload(settings(limits={"messages_per_second": 0.9}))
    return "rate_limited"


async def _administer(one: SocketlessGateway, alice: SocketlessSession) -> str:
    await one.host.rights.change_capabilities("bob", (), read_capabilities([{"kind": "chat"}]), "root")
    return "capability_violation"


@pytest.mark.parametrize(
    "happens", [_pause, _shutdown, _reload_rights, _reload_size, _reload_rate, _administer]
)
async def test_the_very_next_message_is_decided_anew(
    tmp_path: Path, happens: Callable[[SocketlessGateway, SocketlessSession], Awaitable[str]]
) -> None:
    async with talking(tmp_path, people={"bob": ["chat", "mcp/*"]}) as (one, alice, bob):
        code = await happens(one, alice)
        assert (await refusal_of(one, bob, chat("bob", "c-next")))["error"] == code


async def test_whoever_was_resumed_talks_as_before(tmp_path: Path) -> None:
    async with talking(tmp_path) as (one, alice, bob):
        await _pause(one, alice)
        assert (await refusal_of(one, bob, chat("bob", "c-next")))["error"] == "participant_paused"
        alice.say(encode(members("alice", "p-2", "participant/resume", {}, to=["bob"])))
        await one.rest()
        open_fast_path(one, bob)


async def test_a_right_that_was_lent_is_gone_with_its_revocation(tmp_path: Path) -> None:
    async with talking(tmp_path) as (one, alice, _bob):
        carol = one.join("carol")
        lent: Json = {"recipient": "carol", "capabilities": [{"kind": "chat"}]}
        alice.say(encode(members("alice", "g-1", "capability/grant", lent)))
        await one.rest()
        open_fast_path(one, carol)
        alice.say(
            encode(members("alice", "g-2", "capability/revoke", {"recipient": "carol", "grant_id": "g-1"}))
        )
        assert (await refusal_of(one, carol, chat("carol", "c-next")))["error"] == "capability_violation"


async def test_nobody_hears_from_whoever_was_kicked(tmp_path: Path) -> None:
    """Also while the close that says so still waits for the disk."""
    async with talking(tmp_path) as (one, alice, bob):
        alice.say(encode(members("alice", "k-1", "space/kick", {"participant_id": "bob"})))
        assert bob.here
        assert not takes_the_fast_path(one, bob, chat("bob", "c-next"))
        await one.rest()
        assert not bob.here
        assert "c-next" not in alice.ids()
        assert "c-next" not in [record.id for record in read_records(one.journal)]


async def test_a_token_with_fewer_rights_has_a_fast_path_of_its_own(tmp_path: Path) -> None:
    async with talking(tmp_path) as (one, _alice, bob):
        less = one.join("bob", token="t-less")
        await one.rest()
        open_fast_path(one, bob)
        open_fast_path(one, less, "reasoning/thought")
        assert (await refusal_of(one, less, chat("bob", "c-next")))["error"] == "capability_violation"


# The fast path stays open, and the slow path refuses the rest with an explanation.


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (chat("bob", "c-2"), "duplicate_id"),
        (chat("bob", "v-1"), "duplicate_id"),
        (chat("bob", "asked"), "duplicate_id"),
        (chat("bob", "proposed"), "duplicate_id"),
        (chat("alice", "c-next"), "auth_violation"),
        (chat("bob", "c-next", kind=""), "invalid_envelope"),
        (chat("bob", "c-next", payload={"text": "x" * 2_000}), "invalid_envelope"),
        (chat("bob", "c-next")[:-1], "invalid_json"),
    ],
)
async def test_an_open_fast_path_refuses_nothing_and_lets_nothing_odd_through(
    tmp_path: Path, said: bytes, code: str
) -> None:
    async with socketless_gateway(tmp_path, settings({"max_recent_ids": 4, "max_bytes": 1_000})) as one:
        alice, bob = one.join("alice"), one.join("bob")
        await one.rest()
        # Open ones: their ids stay taken although many others came since.
        alice.say(encode(members("alice", "asked", "mcp/request", CALL, to=["bob"])))
        alice.say(encode(members("alice", "proposed", "mcp/proposal", CALL)))
        open_fast_path(one, bob)
        for number in range(4):
            assert takes_the_fast_path(one, bob, chat("bob", f"c-{number}"))
        # Known to the fast path as a kind that always takes the slow path.
        assert not takes_the_fast_path(one, bob, chat("bob", "v-1", kind="x/vendor"))
        assert (await refusal_of(one, bob, said))["error"] == code
        assert verify(one.journal).ok


@pytest.mark.parametrize(
    ("limits", "limit"),
    [
        ({"messages_per_second": 2}, "messages_per_second"),
        ({"bytes_per_second": 150}, "bytes_per_second"),
    ],
)
async def test_too_fast_is_told_when_to_try_again(tmp_path: Path, limits: Json, limit: str) -> None:
    """One that the slow path takes, one that the fast path takes; the third owes half a second and more."""
    async with talking(tmp_path, limits) as (one, alice, bob):
        number = 0
        # One more each time that the machine let enough time pass.
        while takes_the_fast_path(one, bob, chat("bob", f"c-{number}")):
            number += 1
        await one.rest()
        assert f"c-{number}" not in alice.ids()
        refusal = bob.last_refusal()
        assert (refusal["error"], refusal["limit"]) == ("rate_limited", limit)
        assert 0 < refusal["retry_after"] <= 1


async def test_the_fast_path_forgets_repeated_ids_as_the_slow_path_does(tmp_path: Path) -> None:
    """The turn of an older envelope passes without effect, so that nobody else takes the id too early."""
    rules = settings({"max_recent_ids": 6}, rules={"reference_compat": True})
    async with socketless_gateway(tmp_path, rules) as one:
        alice, window = one.join("alice"), one.host.space.state.window
        for _ in range(3):
            bob = one.join("bob")
            await one.rest()
            bob.say(chat("bob", "again"))
            bob.leave()
            await one.rest()
        assert (list(window.order), window.superseded) == (["again"] * 3, {"again": 2})
        open_fast_path(one, alice)
        known = []
        for number in range(6):
            assert takes_the_fast_path(one, alice, chat("alice", f"c-{number}"))
            known.append("again" in window)
        # Room for one more, then two turns that pass without effect, then the newest one's own.
        assert known == [True, True, True, False, False, False]
        assert window.superseded == {}
        assert set(window.recent) == set(window.order)
        assert len(window.order) == 6


# Where nothing takes the fast path.


async def _never_takes_the_fast_path(one: SocketlessGateway, session: SocketlessSession) -> None:
    await one.rest()
    ids = [f"n-{one.host.received}-{number}" for number in range(4)]
    for id in ids:
        assert not takes_the_fast_path(
            one, session, chat(session.name, id, to=["alice"], correlation_id=["m-1"])
        )
    await one.rest()
    assert one.sessions[0].ids()[-4:] == ids


def test_a_fast_path_takes_no_longer_names_and_lists_than_others() -> None:
    assert min(envelope.MAX_RECIPIENTS, envelope.MAX_CORRELATIONS) >= MAX_NAMES
    assert MAX_NAME_BYTES <= envelope.MAX_ID_CHARS


@pytest.mark.parametrize(
    "more",
    [
        {"journal": "strict"},
        {"people": {"bob": [{"kind": "chat", "to": ["alice"]}]}},
    ],
)
async def test_some_gateways_open_no_fast_path(tmp_path: Path, more: Any) -> None:
    """What waits for the disk, and rights that look at each message."""
    async with socketless_gateway(tmp_path, settings(**more)) as one:
        one.join("alice")
        await _never_takes_the_fast_path(one, one.join("bob"))


async def test_while_somebody_reads_another_spelling_there_is_no_fast_path(tmp_path: Path) -> None:
    async with talking(tmp_path) as (one, _alice, bob):
        visitor = one.join("alice", "&dialect=mcpx")
        await _never_takes_the_fast_path(one, bob)
        visitor.leave()
        await one.rest()
        open_fast_path(one, bob)


# The journal, the history, the metrics.


async def test_a_full_disk_closes_the_fast_path_and_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    async with talking(tmp_path) as (one, alice, bob):
        await one.durable()
        with no_room_on_disk(one.journal):
            assert takes_the_fast_path(one, bob, chat("bob", "d-0"))
            await until(lambda: not one.host.journal.writable)
            for number in range(1, 4):
                assert not takes_the_fast_path(one, bob, chat("bob", f"d-{number}"))
            await one.rest()
        await until(lambda: one.host.journal.writable and one.host.space.state.journal_writable)
        open_fast_path(one, bob)
        await one.rest()
        answer = [id for id in alice.ids() if id.startswith("d-")]
        assert answer == ["d-0", "d-1", "d-2", "d-3"]
        received, journal = alice.ids(), one.journal
    assert verify(journal).ok
    assert [record.id for record in read_records(journal) if record.kind == "chat"] == received


async def test_snapshots_come_in_between_and_a_restart_knows_every_id(tmp_path: Path) -> None:
    async with talking(tmp_path, snapshot_records=6) as (one, _alice, bob):
        ids = [f"c-{number}" for number in range(40)]
        fast = sum(takes_the_fast_path(one, bob, chat("bob", id)) for id in ids)
        # One in six calls for a snapshot, and the next opens the fast path again.
        assert 20 <= fast < 35
        await one.close()
        await one.open()
        bob = one.join("bob")
        for id in ids:
            bob.say(chat("bob", id))
        await one.rest()
        assert one.host.refusals.counts == {"duplicate_id": 40}


async def test_the_history_keeps_to_its_bounds(tmp_path: Path) -> None:
    """However many the fast path takes in one tick, and whoever else speaks in it."""
    async with talking(tmp_path, poll_messages=5, poll_bytes=2_000) as (one, alice, bob):
        history = one.host.delivery.history
        for tick in range(20):
            alice.say(chat("alice", f"a-{tick}", context="goes the slow path"))
            for number in range(8):
                bob.say(chat("bob", f"b-{tick}-{number}", payload={"text": "x" * 300}))
            await one.rest()
            assert len(history.entries) <= 5
            assert sum(received.size for received in history.entries) <= 2_000
            assert history.bytes == sum(received.size for received in history.entries)
        assert one.host.fast_paths.accepted > 100


async def test_metrics_count_both_paths(tmp_path: Path) -> None:
    async with talking(tmp_path) as (one, _alice, bob):
        for number in range(10):
            assert takes_the_fast_path(one, bob, chat("bob", f"c-{number}"))
        shown = one.gateway.metrics()
        assert 'moot_envelopes_received_total{space="lab"} 12\n' in shown
        assert 'moot_envelopes_fast_path_total{space="lab"} 11\n' in shown
        # Both hear every chat; alice her own presence, and both of them bob's.
        assert 'moot_messages_delivered_total{space="lab"} 27\n' in shown


@pytest.mark.parametrize(("environ", "fast"), [({}, 3), ({"MOOT_PURE_PYTHON": "1"}, 0)])
async def test_pure_python_can_be_had_by_a_variable(
    tmp_path: Path, environ: dict[str, str], fast: int
) -> None:
    async with served(write_config(tmp_path, settings()), environ=environ) as gateway:
        bob = await gateway.join("bob")
        for number in range(4):
            await bob.send(chat("bob", f"c-{number}").decode())
        await bob.fence()
        assert [each["id"] for each in bob.received if each["kind"] == "chat"] == [f"c-{n}" for n in range(4)]
        shown = (await gateway.http.get("/metrics")).text
        assert f'moot_envelopes_fast_path_total{{space="lab"}} {fast}\n' in shown


async def test_the_log_says_at_the_start_whether_the_fast_path_is_compiled(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for with_fast_path in (True, False):
        caplog.clear()
        with caplog.at_level("INFO", "moot.gateway.app"):
            async with socketless_gateway(tmp_path, settings(), with_fast_path=with_fast_path):
                pass
        (line,) = [record for record in caplog.records if record.getMessage() == "fast path"]
        assert line.__dict__["compiled"] is with_fast_path
