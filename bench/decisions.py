"""CPU per decision, as a multiple of `orjson.loads` of the same bytes, which no gateway gets under."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Cost:
    """Microseconds of CPU for one message, and for `orjson.loads` of the same bytes, measured in turns."""

    step: float
    parse: float
    ratio: float


def beside_parsing(messages: Iterator[bytes], step: Callable[[list[bytes]], None]) -> Cost:
    """What a step takes; each round has messages of its own, as the window of seen ids demands.

    Medians of many rounds, that of the ratio, too: another machine of the host may slow one of them down.
    """
    costs: list[tuple[float, float]] = []
    for _ in range(ROUNDS + 1):
        raws = [next(messages) for _ in range(BATCH)]
        costs.append((_timed(step, raws), _timed(_parse, raws)))
    # The first round warms up.
    steps, parses = zip(*costs[1:], strict=True)
    ratios = [one / beside for one, beside in costs[1:]]
    return Cost(*map(statistics.median, (steps, parses, ratios)))


def _timed(step: Callable[[list[bytes]], None], raws: list[bytes]) -> float:
    gc.collect()
    gc.disable()
    start = time.process_time_ns()
    step(raws)
    spent = time.process_time_ns() - start
    gc.enable()
    return spent / len(raws) / 1_000


def _parse(raws: list[bytes]) -> None:
    for raw in raws:
        orjson.loads(raw)


def _decode(raws: list[bytes]) -> None:
    for raw in raws:
        MEW.decode(raw)


def decision_cost(messages: Iterator[bytes], space: Space) -> Cost:
    """decode + receive."""
    mint, session, now = CountingMint(), SessionId("member-0"), count()
    dialect = DIALECTS[space.state.roster.sessions[session].dialect]

    def decide(raws: list[bytes]) -> None:
        moment = float(next(now))
        for raw in raws:
            effects = space.receive(session, dialect.decode(raw), moment, mint)
            assert effects[0].__class__.__name__ == "Deliver", effects

    return beside_parsing(messages, decide)


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
        ("decode, chat of 500 bytes", beside_parsing(chats(), _decode), ""),
        ("decode + receive, the same chat, 100 members", chat, "at most 5, aim 3"),
        ("decode + receive, mcp/request, 1 nested pattern", one, "aim 6"),
        ("decode + receive, mcp/request, 100 nested patterns", hundred, ""),
        ("decode + receive, mcp/request, 1 pattern on an argument", deep_one, "aim 6"),
        ("decode + receive, mcp/request, 100 of them", deep_hundred, ""),
        ("decode + receive, MCPx, kind_validation: lazy", lazy, "aim 8"),
        ("decode + receive, MCPx, kind_validation: minimal", minimal, "aim 8"),
    ]
    print(f"{'':58} {'µs CPU':>8} {'orjson.loads':>14} {'ratio':>7}")
    for name, cost, bound in rows:
        print(f"{name:58} {cost.step:8.2f} {cost.parse:14.2f} {cost.ratio:7.2f}  {bound}".rstrip())
    for words, many, few in (
        ("100 nested patterns, times 1", hundred, one),
        ("100 patterns on an argument, times 1", deep_hundred, deep_one),
        ("kind_validation: minimal, times lazy", minimal, lazy),
    ):
        print(f"{words:58} {many.ratio / few.ratio:8.2f}  at most 1.5")


if __name__ == "__main__":
    run()
