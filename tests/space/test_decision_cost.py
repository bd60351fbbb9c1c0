"""What a call costs to decode and decide, as a number of function calls: it is the same on every machine."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import orjson

from moot.conformance.pure_driver import CountingMint
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import DialectName
from moot.protocol.operation import Json
from moot.protocol.patterns import read_capabilities
from moot.space.config import ParticipantConfig, SessionId, SpaceConfig
from moot.space.effects import Deliver
from moot.space.members.member import Options
from moot.space.space import Space
from tests.counted_work import function_calls
from tests.rows import for_each_row

ALICE, BOB = SessionId("alice"), SessionId("bob")


def space_speaking(dialect: DialectName) -> Space:
    rights = read_capabilities(["mcp/request:tools/call:write_*", "mcp/proposal:*"])
    participants = {"alice": ParticipantConfig(capabilities=rights), "bob": ParticipantConfig()}
    space = Space(SpaceConfig(name="lab", participants=participants, dialects=frozenset({dialect})))
    for session in (ALICE, BOB):
        space.join(session, session, dialect, Options(), 0.0, CountingMint())
    return space


def messages(dialect: DialectName, kind: str) -> Iterator[bytes]:
    for number in count():
        fields: dict[str, Json] = {
            "protocol": DIALECTS[dialect].protocol,
            "id": f"e{number}",
            # Each in a second of its own, as people are slow.
            "ts": f"2026-01-31T12:{number // 60:02}:{number % 60:02}Z",
            "from": "alice",
            "kind": kind,
            "to": ["bob"],
            "payload": {
                "jsonrpc": "2.0",
                "id": number,
                "method": "tools/call",
                "params": {"name": "write_file", "arguments": {"path": "notes.1.txt", "text": "hello"}},
            },
        }
        yield orjson.dumps(fields)


@for_each_row(
    "dialect, kind, most",
    # 55, 72, 72 and 116 in November 2026, after 113, 143, 147 and 144; a bound and not the number.
    [
        ("mew", "mcp/request", 64),
        ("mcpx", "mcp/request:tools/call:write_file", 82),
        ("m3p", "mcp.request.tools/call:write_file", 82),
        ("mew", "mcp/proposal", 130),
    ],
)
def test_a_call_takes_few_calls_of_functions(dialect: DialectName, kind: str, most: int) -> None:
    space, mint, decode = space_speaking(dialect), CountingMint(), DIALECTS[dialect].decode
    sent = messages(dialect, kind)
    # What is looked up once is known by then.
    for _ in range(3):
        (delivered,) = space.receive(ALICE, decode(next(sent)), 1.0, mint)
        assert isinstance(delivered, Deliver)
    raw = next(sent)
    assert function_calls(lambda: space.receive(ALICE, decode(raw), 1.0, mint)) <= most


def test_coming_and_going_costs_the_same_however_many_hear_only_their_own() -> None:
    """Decision 0243: so thousands may be at one endpoint."""
    rights = read_capabilities([{"kind": "*"}])
    names = [f"person-{number}" for number in range(1_001)]
    participants = {name: ParticipantConfig(capabilities=rights) for name in ["tools", *names]}
    space, mint = Space(SpaceConfig(name="lab", participants=participants)), CountingMint()
    space.join(SessionId("tools"), "tools", "mew", Options(), 0.0, mint)

    def come(name: str) -> None:
        space.join(SessionId(name), name, "mew", Options(hears="mine"), 0.0, mint)

    def come_and_go() -> None:
        come(names[-1])
        space.leave(SessionId(names[-1]), 0.0, mint)

    counted = []
    for before, present in ((0, 10), (10, 1_000)):
        for name in names[before:present]:
            come(name)
        come_and_go()
        counted.append(function_calls(come_and_go))
    assert counted[0] == counted[1]
