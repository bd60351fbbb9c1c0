"""CPU per decision, as a multiple of `orjson.loads` of the same bytes, which no gateway gets under."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Literal

import orjson

from moot.conformance.pure_driver import CountingMint
from moot.protocol.dialects import DIALECTS, MEW
from moot.protocol.envelope import DialectName
from moot.protocol.operation import Json
from moot.protocol.patterns import read_capabilities
from moot.space.config import ParticipantConfig, SessionId, SpaceConfig, SpaceLimits
from moot.space.members.member import Options
from moot.space.space import Space

ROUNDS = 25
BATCH = 2_000
# Rates off: the bench is a flood, and what is measured is the decision.
_LIMITS = SpaceLimits(messages_per_second=0, bytes_per_second=0, max_open_requests=10**9)


def measure(batch: Callable[[], None]) -> float:
    """Microseconds of CPU for one of BATCH steps; the median of many batches, garbage collected between."""
    batch()
    times = []
    for _ in range(ROUNDS):
        gc.collect()
        gc.disable()
        start = time.process_time_ns()
        batch()
        times.append((time.process_time_ns() - start) / BATCH / 1_000)
        gc.enable()
    return statistics.median(times)


def chats() -> Iterator[bytes]:
    """500-byte chats, each with an id of its own."""
    for number in count():
        yield _envelope(number, lambda text: {"kind": "chat", "payload": {"text": text, "format": "plain"}})


def calls() -> Iterator[bytes]:
    """500-byte tool calls."""
    for number in count():

        def call(text: str, number: int = number) -> dict[str, Json]:
            params = {
                "name": "write_file",
                "arguments": {"path": f"/srv/data/{number % 100}.txt", "text": text},
            }
            payload = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
            return {"kind": "mcp/request", "to": ["member-1"], "payload": payload}

        yield _envelope(number, call)


def mcpx_calls() -> Iterator[bytes]:
    """The same tool calls as MCPx spells them: method and tool stand in the kind, too."""
    for number in count():

        def call(text: str, number: int = number) -> dict[str, Json]:
            params = {
                "name": "write_file",
                "arguments": {"path": f"/srv/data/{number % 100}.txt", "text": text},
            }
            payload = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
            return {"kind": "mcp/request:tools/call:write_file", "to": ["member-1"], "payload": payload}

        yield _envelope(number, call, protocol="mcpx/v0.1")


def _envelope(number: int, body: Callable[[str], dict[str, Json]], *, protocol: str = "mew/v0.4") -> bytes:
    """An envelope whose text is as long as it takes to come to 500 bytes."""
    head: dict[str, Json] = {
        "protocol": protocol,
        "id": f"2f6b6e70-7b36-4b8b-9ad8-{number:012d}",
        "ts": "2026-08-26T14:00:00.000Z",
        "from": "member-0",
    }
    missing = 500 - len(orjson.dumps(head | body("")))
    return orjson.dumps(head | body(("lorem ipsum dolor " * 30)[:missing]))


def space_of(
    members: int,
    capabilities: Json,
    *,
    dialect: DialectName = "mew",
    kind_validation: Literal["minimal", "lazy"] = "minimal",
) -> Space:
    participants = {f"member-{n}": ParticipantConfig() for n in range(1, members)}
    speaker = ParticipantConfig(capabilities=read_capabilities(capabilities))
    config = SpaceConfig(
        name="bench",
        participants={"member-0": speaker} | participants,
        limits=_LIMITS,
        dialects=frozenset({dialect}),
        kind_validation=kind_validation,
    )
    space = Space(config)
    mint = CountingMint()
    for name in ["member-0", *participants]:
        space.join(SessionId(name), name, dialect, Options(), 0.0, mint)
    return space


def parse_cost(messages: Iterator[bytes]) -> float:
    def batch() -> None:
        for raw in prepared:
            orjson.loads(raw)

    prepared = [next(messages) for _ in range(BATCH)]
    return measure(batch)


def decode_cost(messages: Iterator[bytes]) -> float:
    def batch() -> None:
        for raw in prepared:
            MEW.decode(raw)

    prepared = [next(messages) for _ in range(BATCH)]
    return measure(batch)


def decision_cost(messages: Iterator[bytes], space: Space) -> float:
    """decode + receive; every message is new, as the window of seen ids demands."""
    mint, session, now = CountingMint(), SessionId("member-0"), count()
    dialect = DIALECTS[space.state.roster.sessions[session].dialect]
    batches = iter([[next(messages) for _ in range(BATCH)] for _ in range(ROUNDS + 1)])

    def batch() -> None:
        moment = float(next(now))
        for raw in next(batches):
            effects = space.receive(session, dialect.decode(raw), moment, mint)
            assert effects[0].__class__.__name__ == "Deliver", effects

    return measure(batch)


def patterns(number: int) -> Json:
    """`number` nested patterns on as many tools; the one that matters comes last."""
    tools = [f"tool_{n}" for n in range(number - 1)] + ["write_*"]
    return [
        {"kind": "mcp/request", "payload": {"method": "tools/call", "params": {"name": tool}}}
        for tool in tools
    ]


def deep_patterns(number: int) -> Json:
    """The same tool each time, told apart by an argument."""
    paths = [f"/srv/{n}/*" for n in range(number - 1)] + ["/srv/data/*"]
    return [
        {
            "kind": "mcp/request",
            "payload": {
                "method": "tools/call",
                "params": {"name": "write_file", "arguments": {"path": path}},
            },
        }
        for path in paths
    ]


def run() -> None:
    parse_chat, parse_call = parse_cost(chats()), parse_cost(calls())
    chat = decision_cost(chats(), space_of(100, [{"kind": "chat"}]))
    one, hundred = (decision_cost(calls(), space_of(100, patterns(n))) for n in (1, 100))
    deep_one, deep_hundred = (decision_cost(calls(), space_of(100, deep_patterns(n))) for n in (1, 100))
    # M3P-50, M3P-59: what it costs to hold a kind against its payload.
    lazy, minimal = (
        decision_cost(
            mcpx_calls(), space_of(100, ["mcp/request:*"], dialect="mcpx", kind_validation=validation)
        )
        for validation in ("lazy", "minimal")
    )
    rows = [
        ("orjson.loads, chat of 500 bytes", parse_chat, None, ""),
        ("decode, the same chat", decode_cost(chats()), parse_chat, ""),
        ("decode + receive, the same chat, 100 members", chat, parse_chat, "at most 5, aim 3"),
        ("orjson.loads, mcp/request of 500 bytes", parse_call, None, ""),
        ("decode + receive, mcp/request, 1 nested pattern", one, parse_call, ""),
        ("decode + receive, mcp/request, 100 nested patterns", hundred, parse_call, ""),
        ("  the same, as a multiple of 1 pattern", hundred, one, "at most 1.5"),
        ("decode + receive, mcp/request, 1 pattern on an argument", deep_one, parse_call, ""),
        ("  100 patterns on that argument, as a multiple of 1", deep_hundred, deep_one, ""),
        ("decode + receive, MCPx, kind_validation: lazy", lazy, parse_call, ""),
        ("decode + receive, MCPx, kind_validation: minimal", minimal, parse_call, ""),
        (f"  minimal, as a multiple of lazy ({minimal - lazy:+.2f} µs)", minimal, lazy, "at most 50 µs more"),
    ]
    print(f"{'':58} {'µs CPU':>8} {'ratio':>7}")
    for name, cost, beside, bound in rows:
        ratio = f"{cost / beside:7.2f}" if beside else " " * 7
        print(f"{name:58} {cost:8.2f} {ratio}  {bound}")
