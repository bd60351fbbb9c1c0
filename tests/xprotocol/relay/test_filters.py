"""Filters: what matches an event that comes is what the store would have told of it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from moot.xprotocol.event_store.event_store import EventStore
from moot.xprotocol.events.event_composer import publish
from moot.xprotocol.events.events import ANNOUNCE, DELEGATE, GRANT, REVOKE, Signed
from moot.xprotocol.relay.subscription_filters import EventFilter, FilterIndex
from moot.xprotocol.relay.wire_messages import (
    MAX_FILTER_VALUES,
    AuthMessage,
    InvalidClientMessage,
    PublishMessage,
    SubscribeMessage,
    UnsubscribeMessage,
    read_message,
)
from tests.xprotocol.people import ALICE, BOB, CAROL, NOW, call


def population(draw: Random) -> list[Signed]:
    people = [ALICE, BOB, CAROL]
    made: list[Signed] = []
    for number in range(60):
        sender = draw.choice(people)
        moment = NOW + draw.randrange(20)
        if number % 3 == 0:
            made.append(publish(sender, draw.choice([DELEGATE, GRANT, REVOKE]), {"n": number}, now=moment))
        else:
            kind = draw.choice(["com.acme.a", "com.acme.b"])
            talk = draw.choice(["c-1", "c-2", None])
            made.append(call(sender, draw.choice(people), now=moment, kind=kind, correlation_id=talk))
    return made


def some_filter(draw: Random, events: list[Signed]) -> EventFilter:
    people = [ALICE.key.text, BOB.key.text, CAROL.key.text]
    request: dict[str, Any] = {}
    if draw.random() < 0.5:
        request["recipients"] = draw.sample(people, draw.randint(1, 3))
    if draw.random() < 0.4:
        request["senders"] = draw.sample(people, draw.randint(1, 2))
    if draw.random() < 0.4:
        request["kinds"] = draw.sample(
            ["com.acme.a", "com.acme.b", DELEGATE, GRANT, ANNOUNCE], draw.randint(1, 3)
        )
    if draw.random() < 0.2:
        request["ids"] = [one.event.id for one in draw.sample(events, 5)]
    if draw.random() < 0.2:
        request["correlation_ids"] = ["c-1"]
    if draw.random() < 0.3:
        request["since"] = NOW + draw.randrange(20)
    if draw.random() < 0.3:
        request["until"] = NOW + draw.randrange(20)
    found = msgspec.convert(request, EventFilter)
    assert found.find_problem(MAX_FILTER_VALUES) is None
    return found


async def test_store_match_and_index_agree_on_every_filter(tmp_path: Path) -> None:
    draw = Random(5)
    events = population(draw)
    store = EventStore.open(tmp_path, now=NOW)
    for one in events:
        assert await store.put(one, now=NOW) == "stored"
    index: FilterIndex[int] = FilterIndex()
    filters = [some_filter(draw, events) for _ in range(300)]
    for number, request in enumerate(filters):
        index.add(number, [request])
    answers = 0
    for number, request in enumerate(filters):
        answer = {event.raw async for event in store.find(request.to_query(NOW))}
        assert answer == {one.raw for one in events if request.matches(one.event)}, request
        for one in events:
            if request.matches(one.event):
                answers += 1
                assert number in index.candidates(one.event)
    assert answers > 500
    for number, request in enumerate(filters):
        index.remove(number, [request])
    assert not any(list(index.candidates(one.event)) for one in events)
    await store.close()


def test_a_filter_without_recipients_matches_no_event_that_has_one() -> None:
    assert not EventFilter().matches(call().event)
    assert not EventFilter(ids=(call().event.id,)).matches(call().event)
    assert EventFilter().matches(publish(ALICE, GRANT, {}, now=NOW).event)
    assert not EventFilter(recipients=(BOB.key.text,)).matches(publish(ALICE, GRANT, {}, now=NOW).event)


def test_messages_are_read_as_they_are_written() -> None:
    raw = call().raw
    for text in (b'["EVENT",%b]', b' [ "EVENT" , %b ] ', b'["EV\\u0045NT",%b]'):
        message = read_message(text % raw)
        assert isinstance(message, PublishMessage)
        assert message.raw.strip() == raw
    assert read_message(b'["AUTH",{"a": 1}]') == AuthMessage(b'{"a": 1}')
    assert read_message(b'["CLOSE","x"]') == UnsubscribeMessage("x")
    assert read_message(b'["REQ","x",{"limit":3},{}]') == SubscribeMessage(
        "x", (EventFilter(limit=3), EventFilter())
    )


@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: f'["REQ",{text}]'.encode()))
def test_whatever_comes_is_a_message_or_none(data: bytes) -> None:
    with suppress(InvalidClientMessage):
        assert read_message(data)
