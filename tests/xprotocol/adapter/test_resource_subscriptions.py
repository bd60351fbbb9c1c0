"""Resources as streams of events (XP 4.5, D-78)."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pytest

from moot.xprotocol.adapter.inbound import resource_subscriptions
from moot.xprotocol.events.revocation import revoke
from tests.waiting import move_clock, until
from tests.xprotocol.adapter.adapter_environment import NAMESPACE, READ, Answer, notes_server, running_adapter

SUBSCRIBE, UPDATED = f"{NAMESPACE}.resource.subscribe", f"{NAMESPACE}.resource.updated"
ONE = {"uri": "note:///one"}


def words(text: str) -> list[dict[str, str]]:
    return [{"uri": "note:///one", "mimeType": "text/plain", "text": text}]


def saying(received: list[Answer], text: str) -> Answer | None:
    return next((each for each in received if each.payload.get("contents") == words(text)), None)


@pytest.mark.requirement("XP-4.5-1")
async def test_a_subscriber_gets_the_contents_now_and_whenever_they_change(tmp_path: Path) -> None:
    notes = notes_server(tmp_path)
    async with running_adapter(tmp_path, notes) as adapter:
        request = adapter.alice.event(SUBSCRIBE, ONE, correlation_id="follow")
        await adapter.alice.send(request)
        first = await adapter.alice.answer(request)
        assert first.kind == f"{SUBSCRIBE}.result"
        assert first.payload == {"uri": "note:///one", "contents": words("first words")}
        for place, text in enumerate(("second words", "third words"), start=1):
            notes.note("one", text)
            update = await adapter.alice.until(partial(saying, text=text))
            assert update.kind == UPDATED
            assert update.event.in_reply_to == request.event.id
            assert update.event.correlation_id == "follow"
            assert place <= len(adapter.alice.received)
        # What fits a template of the list can be followed without being listed.
        notes.note("two", "another")
        other = await adapter.alice.ask(SUBSCRIBE, {"uri": "note:///two"})
        assert other.payload["contents"][0]["text"] == "another"
        assert len(adapter.adapter.subscriptions) == 2


async def test_a_server_that_tells_of_no_changes_is_looked_at_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.xprotocol.adapter.inbound.resource_subscriptions.RESOURCE_POLL_SECONDS", 0.1)
    notes = notes_server(tmp_path, flags=["--no-subscribe", "--quiet"])
    async with running_adapter(tmp_path, notes) as adapter:
        request = adapter.alice.event(SUBSCRIBE, ONE)
        await adapter.alice.send(request)
        await adapter.alice.answer(request)
        notes.note("one", "second words")
        update = await adapter.alice.answer(request, place=1)
        assert (update.kind, update.payload["contents"]) == (UPDATED, words("second words"))
        reads = len(notes.requests("resources/read"))
        await until(lambda: len(notes.requests("resources/read")) >= reads + 3)
        # Nothing changed, so nothing was said.
        assert len(adapter.alice.received) == 2


async def test_what_is_not_offered_cannot_be_read_whatever_its_name(tmp_path: Path) -> None:
    notes = notes_server(tmp_path)
    (notes.folder / "secret").write_text("not for you")
    async with running_adapter(tmp_path, notes) as adapter:
        for uri in ("file:///etc/passwd", "note:///../secret", "note:///%2e%2e/secret", "note:///a/b"):
            answer = await adapter.alice.ask(SUBSCRIBE, {"uri": uri})
            assert answer.code == "NOT_FOUND"
        assert notes.requests("resources/read") == []
        carol = await adapter.somebody("carol")
        assert (await carol.ask(SUBSCRIBE, ONE)).code == "AUTHORIZATION_INSUFFICIENT"
        assert notes.requests("resources/read") == []
        missing = await adapter.alice.ask(SUBSCRIBE, {"uri": "note:///none"})
        assert missing.code == "UPSTREAM_ERROR"
        assert len(adapter.adapter.subscriptions) == 0


async def test_subscriptions_end_when_they_are_given_up_expire_or_lose_their_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = notes_server(tmp_path)
    async with running_adapter(tmp_path, notes) as adapter:
        count = adapter.adapter.subscriptions
        bob, carol = await adapter.somebody("bob"), await adapter.somebody("carol")
        adapter.document["access"] |= {bob.key: [READ], carol.key: [READ]}
        await adapter.adapter.reload(adapter.settings())
        for somebody in (adapter.alice, bob, carol):
            assert (await somebody.ask(SUBSCRIBE, ONE)).code is None
        # Again: replaced, not doubled.
        await adapter.alice.ask(SUBSCRIBE, ONE)
        assert len(count) == 3
        given_up = await adapter.alice.ask(SUBSCRIBE, {**ONE, "updates": False})
        assert given_up.payload["contents"] == words("first words")
        assert len(count) == 2
        await carol.send(revoke(carol.identity, carol.key, now=time.time()))
        await until(lambda: len(count) == 1)
        del adapter.document["access"][bob.key]
        await adapter.adapter.reload(adapter.settings())
        assert len(count) == 0
        # The server is told that nobody follows any more.
        await until(lambda: len(notes.requests("resources/unsubscribe")) == 1)
        await adapter.alice.ask(SUBSCRIBE, ONE, ttl=600)
        assert len(count) == 1
        move_clock(monkeypatch, 601, resource_subscriptions)
        count.check_rights()
        assert len(count) == 0


async def test_subscriptions_are_bounded_for_each_sender_and_in_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = notes_server(tmp_path)
    for number in range(4):
        notes.note(f"n{number}", "x")
    monkeypatch.setattr(resource_subscriptions, "MAX_SUBSCRIPTIONS_PER_SENDER", 2)
    monkeypatch.setattr(resource_subscriptions, "MAX_SUBSCRIPTIONS", 3)
    async with running_adapter(tmp_path, notes) as adapter:
        bob = await adapter.somebody("bob")
        adapter.document["access"][bob.key] = [READ]
        await adapter.adapter.reload(adapter.settings())
        mine = [await adapter.alice.ask(SUBSCRIBE, {"uri": f"note:///n{n}"}) for n in range(3)]
        assert [each.code for each in mine] == [None, None, "RATE_LIMITED"]
        theirs = [await bob.ask(SUBSCRIBE, {"uri": f"note:///n{n}"}) for n in range(2)]
        assert [each.code for each in theirs] == [None, "ENDPOINT_UNAVAILABLE"]
        assert "3 subscriptions are followed here" in theirs[1].payload["message"]


async def test_after_a_servers_restart_its_followers_hear_what_changed_meanwhile(tmp_path: Path) -> None:
    notes = notes_server(tmp_path)
    async with running_adapter(tmp_path, notes) as adapter:
        request = adapter.alice.event(SUBSCRIBE, ONE)
        await adapter.alice.send(request)
        await adapter.alice.answer(request)
        await adapter.alice.ask(f"{NAMESPACE}.run_die", {})
        notes.note("one", "second words")
        update = await adapter.alice.answer(request, place=1)
        assert update.payload["contents"] == words("second words")
        await until(lambda: len(notes.requests("resources/subscribe")) == 2)
        notes.note("one", "third words")
        await adapter.alice.until(
            lambda received: next(
                (e for e in received if e.payload.get("contents") == words("third words")), None
            )
        )
