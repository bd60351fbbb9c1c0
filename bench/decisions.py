"""CPU per decision, as a multiple of `orjson.loads` of the same bytes, which no gateway gets under."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Final, Literal

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
_LIMITS = SpaceLimits(
    messages_per_second=0,
    bytes_per_second=0,
    max_open_requests=10**9,
    max_open_proposals=10**9,
)
# Envelopes of who asks, of who answers, and of who approves.
_MANY_IDS: Final = 10**6


def chats() -> Iterator[bytes]:
    """500-byte chats, each with an id of its own."""
    for number in count():
        yield _envelope(number, lambda text: {"kind": "chat", "payload": {"text": text, "format": "plain"}})


def calls(kind: str = "mcp/request", protocol: str = "mew/v0.4") -> Iterator[bytes]:
    """500-byte tool calls."""
    for number in count():
        yield _call(number, kind, protocol)


def _call(number: int, kind: str, protocol: str = "mew/v0.4", *, fulfils: str | None = None) -> bytes:
    def body(text: str) -> dict[str, Json]:
        params = {"name": "write_file", "arguments": {"path": f"/srv/data/{number % 100}.txt", "text": text}}
        payload: dict[str, Json] = {"method": "tools/call", "params": params}
        if kind != "mcp/proposal":
            payload = {"jsonrpc": "2.0", "id": number, **payload}
        head: dict[str, Json] = {"kind": kind, "to": ["member-1"], "payload": payload}
        return head if fulfils is None else head | {"correlation_id": [fulfils]}

    return _envelope(number, body, protocol=protocol)


def proposals(space: Space) -> Iterator[bytes]:
    """500-byte proposals of member-0; those of earlier batches are withdrawn: what is open has a bound."""
    for number in count():
        if number >= 2 * BATCH:
            _accepted(space, "member-0", _withdrawal(number - 2 * BATCH))
        yield _call(number, "mcp/proposal")


def _withdrawal(number: int) -> bytes:
    def body(_: str) -> dict[str, Json]:
        payload = {"reason": "no_longer_needed"}
        return {"kind": "mcp/withdraw", "payload": payload, "correlation_id": [_id_of(number)]}

    return _envelope(number + _MANY_IDS, body)


def answers(space: Space) -> Iterator[bytes]:
    """500-byte results of member-1 to calls that member-0 has just made."""
    for number in count():
        _accepted(space, "member-0", _call(number, "mcp/request"))
        yield _answer(number)


def _answer(number: int) -> bytes:
    def body(text: str) -> dict[str, Json]:
        result = {"content": [{"type": "text", "text": text}], "isError": False}
        payload = {"jsonrpc": "2.0", "id": number, "result": result}
        asked = [_id_of(number)]
        return {"kind": "mcp/response", "to": ["member-0"], "correlation_id": asked, "payload": payload}

    return _envelope(number + 2 * _MANY_IDS, body, sender="member-1")


def approvals(space: Space) -> Iterator[bytes]:
    """500-byte calls with which member-0 fulfils what member-2 proposed; those before are answered."""
    for number in count():
        if number >= 2 * BATCH:
            _accepted(space, "member-1", _answer(number - 2 * BATCH))
        approval = _call(number, "mcp/request", fulfils=_id_of(number + _MANY_IDS))
        proposal = orjson.loads(approval)
        del proposal["correlation_id"], proposal["payload"]["jsonrpc"], proposal["payload"]["id"]
        ours = {"kind": "mcp/proposal", "from": "member-2", "id": _id_of(number + _MANY_IDS)}
        _accepted(space, "member-2", orjson.dumps(proposal | ours))
        yield approval


def _accepted(space: Space, sender: str, raw: bytes) -> None:
    effects = space.receive(SessionId(sender), MEW.decode(raw), 0.0, CountingMint())
    assert effects[0].__class__.__name__ == "Deliver", effects


def _id_of(number: int) -> str:
    return f"2f6b6e70-7b36-4b8b-9ad8-{number:012d}"


def _envelope(
    number: int,
    body: Callable[[str], dict[str, Json]],
    *,
    protocol: str = "mew/v0.4",
    sender: str = "member-0",
) -> bytes:
    """An envelope whose text is as long as it takes to come to 500 bytes."""
    head: dict[str, Json] = {
        "protocol": protocol,
        "id": _id_of(number),
        "ts": "2026-08-26T14:00:00.000Z",
        "from": sender,
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
    others = ParticipantConfig(capabilities=read_capabilities([{"kind": ["mcp/response", "mcp/proposal"]}]))
    participants = {f"member-{n}": others for n in range(1, members)}
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


def decision_cost(messages: Iterator[bytes], space: Space, sender: str = "member-0") -> Cost:
    """decode + receive."""
    mint, session, now = CountingMint(), SessionId(sender), count()
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
    space = space_of(100, patterns(1))
    answer = decision_cost(answers(space), space, "member-1")
    space = space_of(100, [{"kind": ["mcp/proposal", "mcp/withdraw"]}])
    proposal = decision_cost(proposals(space), space)
    space = space_of(100, patterns(1))
    approval = decision_cost(approvals(space), space)
    # M3P-50, M3P-59: what it costs to hold a kind against its payload.
    right: Json = ["mcp/request:*"]
    mcpx = "mcp/request:tools/call:write_file"
    space = space_of(100, right, dialect="mcpx", kind_validation="lazy")
    lazy = decision_cost(calls(mcpx, "mcpx/v0.1"), space)
    minimal = decision_cost(calls(mcpx, "mcpx/v0.1"), space_of(100, right, dialect="mcpx"))
    dotted = "mcp.request.tools/call:write_file"
    m3p = decision_cost(calls(dotted, "mcpx/v0.1"), space_of(100, right, dialect="m3p"))
    rows = [
        ("decode, chat of 500 bytes", beside_parsing(chats(), _decode), ""),
        ("decode + receive, the same chat, 100 members", chat, "at most 5, aim 3"),
        ("decode + receive, mcp/request, 1 nested pattern", one, "aim 6"),
        ("decode + receive, mcp/request, 100 nested patterns", hundred, ""),
        ("decode + receive, mcp/request, 1 pattern on an argument", deep_one, "aim 6"),
        ("decode + receive, mcp/request, 100 of them", deep_hundred, ""),
        ("decode + receive, mcp/response", answer, "aim 6"),
        ("decode + receive, mcp/proposal", proposal, "aim 6"),
        ("decode + receive, mcp/request that approves a proposal", approval, "aim 6"),
        ("decode + receive, MCPx, kind_validation: lazy", lazy, "aim 8"),
        ("decode + receive, MCPx, kind_validation: minimal", minimal, "aim 8"),
        ("decode + receive, m3p", m3p, "aim 8"),
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
