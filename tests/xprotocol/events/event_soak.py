"""Spoilt events by the million: whatever was done to one on the way, nobody takes it for its sender's."""

from __future__ import annotations

import random
from typing import Any, Final

import orjson

from moot.errors import UnverifiedEvent
from moot.protocol.operation import Json
from moot.xprotocol.events.event_composer import publish, reply
from moot.xprotocol.events.event_receiver import Accepted, Dropped, PublicReceived
from moot.xprotocol.events.events import check_times, decode, verify_event
from tests.xprotocol.people import ALICE, BOB, CAROL, KIND, NOW, ReceivingEndpoint, call

_ODD: Final[list[Json]] = [
    None,
    True,
    0,
    -1,
    1.5,
    2**53,
    2**70,
    "",
    "A",
    "é",
    "\u2028",
    [],
    {},
    [[]],
    {"a": 1},
]


def run_event_soak(cases: int, seed: int) -> str:
    """`cases` spoilt events; raises AssertionError for the first that is taken for genuine."""
    chance = random.Random(seed)
    genuine = _genuine()
    texts = [value for raw in genuine for value in orjson.loads(raw).values() if isinstance(value, str)]
    endpoint, unread = ReceivingEndpoint(), 0
    for raw in genuine:
        verify_event(decode(raw))
    for _ in range(cases):
        original = chance.choice(genuine)
        spoilt = _spoilt(original, chance, genuine, texts)
        if _same(spoilt, original, genuine):
            continue
        try:
            signed = decode(spoilt)
            check_times(signed.event, NOW)
            verify_event(signed)
        except UnverifiedEvent as refusal:
            unread += refusal.reason == "malformed"
        else:
            raise AssertionError(f"taken for genuine: {spoilt!r}")
        outcome = endpoint.receiver.receive(spoilt, NOW)
        assert isinstance(outcome, Dropped), (outcome, spoilt)
        assert not isinstance(outcome, Accepted | PublicReceived)
    assert endpoint.counted == []
    assert len(endpoint.seen_ids) == 0
    return f"{cases:,} spoilt events dropped, {unread:,} of them for their form"


def _genuine() -> list[bytes]:
    request = call()
    return [
        request.raw,
        call(CAROL, payload={"path": "x" * 200}).raw,
        reply(ALICE, call(BOB, ALICE).event, KIND + ".result", {"content": "é"}, now=NOW).raw,
        publish(ALICE, "xp.endpoint.announce", {"display_name": "é", "n": [1.5, None, {}]}, now=NOW).raw,
        publish(CAROL, "xp.key.revoke", {"revoked_key": CAROL.key.text}, now=NOW).raw,
    ]


def _spoilt(raw: bytes, chance: random.Random, genuine: list[bytes], texts: list[str]) -> bytes:
    way = chance.randrange(8)
    if way == 0:
        place = chance.randrange(len(raw))
        return raw[:place] + bytes([raw[place] ^ 1 << chance.randrange(8)]) + raw[place + 1 :]
    if way == 1:
        start = chance.randrange(len(raw))
        return raw[:start] + raw[start + chance.randrange(1, 9) :]
    if way == 2:
        start = chance.randrange(len(raw))
        piece = chance.choice(genuine)[start : start + chance.randrange(1, 40)]
        return raw[:start] + piece + raw[start:]
    members: dict[str, Any] = orjson.loads(raw)
    name = chance.choice([*members, "in_reply_to", "delegation", "extra"])
    if way == 3:
        members.pop(name, None)
    elif way == 4:
        members[name] = chance.choice(_ODD)
    elif way == 5:
        members[name] = chance.choice(texts)
    elif way == 6:
        other = orjson.loads(chance.choice(genuine))
        members[name] = other.get(name, "")
    elif isinstance(members.get(name), str) and members[name]:
        text = members[name]
        place = chance.randrange(len(text))
        members[name] = text[:place] + chance.choice("Aa0-_+/= \né") + text[place + 1 :]
    else:
        members[name] = (members.get(name) or 0) + 1 if isinstance(members.get(name), int) else 1
    try:
        return orjson.dumps(members)
    except orjson.JSONEncodeError:
        return raw[:-1]


def _same(spoilt: bytes, original: bytes, genuine: list[bytes]) -> bool:
    """Whether nothing that counts was changed: the same members, spelt the same."""
    if spoilt in genuine:
        return True
    try:
        return bool(orjson.dumps(orjson.loads(spoilt)) == original)
    except orjson.JSONDecodeError:
        return False
