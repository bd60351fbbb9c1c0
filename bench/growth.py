"""CPU per message over 10 to 10,000 of what a space may have many of, and a message should not care for.

`decode + receive` in one process, without sockets and journal: what is decided, not what is sent. One column
that grows is a rule that looks at each of something.
"""

from __future__ import annotations

import gc
import re
import statistics
import sys
import time
from collections.abc import Callable, Collection, Iterator
from decimal import Decimal
from typing import Final

import msgspec
import orjson

from bench.decisions import calls, chats
from moot.conformance.pure_driver import CountingMint
from moot.protocol.dialects import MEW
from moot.protocol.operation import Json
from moot.protocol.patterns import read_capabilities, read_capability
from moot.space.config import (
    ParticipantConfig,
    Quorum,
    SessionId,
    SpaceBudget,
    SpaceConfig,
    SpaceEffect,
    SpaceLimits,
)
from moot.space.members.member import Options
from moot.space.space import Space

TITLE: Final = "CPU per message over how many there are of something"
NUMBERS: Final = (10, 100, 1_000, 10_000)
# Members 2 to 9: nobody may have more than so many of something open.
_OWNERS: Final = 8
_BATCH: Final = 400
_ROUNDS: Final = 9
_LIMITS: Final = SpaceLimits(
    messages_per_second=0,
    bytes_per_second=0,
    max_open_requests=10**9,
    max_open_proposals=10**9,
    max_streams_per_member=10**9,
)
_SPEAKER: Final = read_capabilities([{"kind": "*"}])


def space_with(*, members: int = 10, absent: int = 0, **rules: object) -> Space:
    names = [f"member-{number}" for number in range(members)]
    everybody = {name: ParticipantConfig(capabilities=_SPEAKER) for name in names}
    everybody |= {f"absent-{number}": ParticipantConfig() for number in range(absent)}
    config = SpaceConfig(name="bench", participants=everybody, limits=_LIMITS)
    space = Space(msgspec.structs.replace(config, **rules))
    mint = CountingMint()
    for name in names:
        space.join(SessionId(name), name, "mew", Options(), 0.0, mint)
    return space


def said(space: Space, number: int, kind: str, payload: Json, to: tuple[str, ...] = ()) -> None:
    """One envelope of one of the members 2 to 9; it has to be accepted."""
    sender = f"member-{2 + number % _OWNERS}"
    fields: dict[str, Json] = {"protocol": "mew/v0.4", "id": f"before-{kind}-{number}", "kind": kind}
    fields |= {"ts": "2026-08-26T14:00:00.000Z", "from": sender, "payload": payload}
    if to:
        fields["to"] = list(to)
    effects = space.receive(SessionId(sender), MEW.decode(orjson.dumps(fields)), 0.0, CountingMint())
    if not effects or effects[0].__class__.__name__ == "Reply":
        raise RuntimeError(f"refused: {effects[:1]}")


def with_grants(number: int) -> Space:
    """To those who are away: nobody may hold more than 256."""
    space = space_with(absent=number // 200 + 1)
    for each in range(number):
        rights: Json = [{"kind": "mcp/request", "payload": {"params": {"name": f"tool-{each}"}}}]
        said(space, each, "capability/grant", {"recipient": f"absent-{each // 200}", "capabilities": rights})
    return space


def with_proposals(number: int) -> Space:
    space = space_with()
    for each in range(number):
        said(space, each, "mcp/proposal", _call(f"tool_{each}", {"n": each}), ("member-1",))
    return space


def with_streams(number: int) -> Space:
    space = space_with()
    for each in range(number):
        said(space, each, "stream/request", {"direction": "upload"})
    return space


def with_past(number: int) -> Space:
    space = space_with()
    for each in range(number):
        said(space, each, "chat", {"text": "before", "format": "plain"})
    return space


def with_tools(number: int) -> Space:
    """A right for each of so many tools, of whoever speaks."""
    rights = [_tool_right(f"tool_{each}") for each in range(number - 1)] + [_tool_right("write_*")]
    speaker = ParticipantConfig(capabilities=read_capabilities([{"kind": "chat"}, *rights]))
    space = space_with()
    config = space.state.config
    participants = {**config.participants, "member-0": speaker}
    space = Space(msgspec.structs.replace(config, participants=participants))
    mint = CountingMint()
    for name in participants:
        space.join(SessionId(name), name, "mew", Options(), 0.0, mint)
    return space


def with_quorums(number: int) -> Space:
    rules = (read_capability(_tool_right(f"tool_{each}")) for each in range(number))
    return space_with(quorum=tuple(Quorum(pattern=each, approvals_needed=2) for each in rules))


def with_budgets(number: int) -> Space:
    return space_with(
        budgets=tuple(
            SpaceBudget(
                name=f"b{each}", calls=read_capability(_tool_right(f"tool_{each}")), at_most=Decimal(1_000)
            )
            for each in range(number)
        )
    )


def with_effects(number: int) -> Space:
    return space_with(
        effects=tuple(
            SpaceEffect(name=f"e{each}", calls=read_capability(_tool_right(f"tool_{each}")), key="{path}")
            for each in range(number)
        )
    )


def _tool_right(tool: str) -> dict[str, Json]:
    return {"kind": "mcp/request", "payload": {"method": "tools/call", "params": {"name": tool}}}


def _call(tool: str, arguments: Json) -> Json:
    return {"method": "tools/call", "params": {"name": tool, "arguments": arguments}}


# What there is many of → the spaces that a message may be for.
GROWING: Final[dict[str, Callable[[int], list[Space]]]] = {
    "members, present": lambda number: [space_with(members=number)],
    "members, absent": lambda number: [space_with(absent=number)],
    "grants": lambda number: [with_grants(number)],
    "open proposals": lambda number: [with_proposals(number)],
    "open streams": lambda number: [with_streams(number)],
    "rights by tool of the sender": lambda number: [with_tools(number)],
    "messages before": lambda number: [with_past(number)],
    "quorums": lambda number: [with_quorums(number)],
    "budgets": lambda number: [with_budgets(number)],
    "effects": lambda number: [with_effects(number)],
    "spaces": lambda number: [space_with(members=3) for _ in range(number)],
}


def cost(messages: Iterator[bytes], spaces: list[Space]) -> float:
    """Microseconds of CPU for a message; the median of some batches."""
    mint, session, times, at = CountingMint(), SessionId("member-0"), list[float](), 0
    for _ in range(_ROUNDS + 1):
        batch = [next(messages) for _ in range(_BATCH)]
        gc.collect()
        gc.disable()
        start = time.process_time_ns()
        for raw in batch:
            at += 1
            effects = spaces[at % len(spaces)].receive(session, MEW.decode(raw), 1.0, mint)
            if effects[0].__class__.__name__ != "Deliver":
                raise RuntimeError(f"refused: {effects[:1]}")
        times.append((time.process_time_ns() - start) / _BATCH / 1_000)
        gc.enable()
    # The first one warms up.
    return statistics.median(times[1:])


# Each that joins is told of all others: ten thousand take minutes.
_MOST: Final = {"members, present": 1_000}


_NOTES: Final = """
Chat and call, decode + receive in one process. One row is not flat: with thousands of spaces that speak in
turn, their state is no longer in the processor's cache. Rules of quorum, budgets and effects that name tools
in plain words are found by name. One with a wildcard or without a tool is asked of each call, since what
cannot be judged counts as a match: 1.5 µs each."""


def run(only: Collection[str] = GROWING) -> None:
    width = 30
    print(f"{'µs of CPU for a chat | call':{width}}", *(f"{number:>15,}" for number in NUMBERS))
    for what in only:
        row = []
        for number in (each for each in NUMBERS if each <= _MOST.get(what, each)):
            spaces = GROWING[what](number)
            gc.freeze()
            # Ids of their own.
            asked = (raw.replace(b"-9ad8-", b"-9ad9-") for raw in calls())
            row.append(f"{cost(chats(), spaces):6.1f} | {cost(asked, spaces):6.1f}")
            gc.unfreeze()
        print(f"{what:{width}}", *row, flush=True)
    print(_NOTES)


# The table as a picture: one panel for chats, one for calls.

_ROW: Final = re.compile(r"^(\S.*?) {2,}((?:[\d.]+ \| +[\d.]+ *)+)$", re.MULTILINE)
_HEIGHT, _WIDTH, _TOP = 190, 190, 34
_COLOURS: Final = (
    *("#2f6fab", "#d08a3c", "#5a9e5a", "#b5534f", "#8467a8", "#7d6650"),
    *("#cf85b5", "#6f6f6f", "#a9a93c", "#45a5b0", "#1f3f5f"),
)


def svg(table: str) -> str:
    """What `run` printed, as lines over the number of each."""
    rows = {
        name: [float(each) for each in re.findall(r"[\d.]+", cells)] for name, cells in _ROW.findall(table)
    }
    parts = []
    for panel, words in enumerate(("a chat", "a call")):
        left = 40 + panel * (_WIDTH + 40)
        most = max(max(values[panel::2]) for values in rows.values())
        parts.append(f'<text x="{left}" y="20">µs of CPU for {words}</text>')
        for part in range(5):
            y, value = _TOP + _HEIGHT * (1 - part / 4), most * part / 4
            parts.append(f'<path d="M{left} {y:.0f}h{_WIDTH}" stroke="#ddd"/>')
            parts.append(f'<text x="{left - 6}" y="{y + 4:.0f}" text-anchor="end">{value:.0f}</text>')
        for step, number in enumerate(NUMBERS):
            x = left + _WIDTH * step / (len(NUMBERS) - 1)
            parts.append(
                f'<text x="{x:.0f}" y="{_TOP + _HEIGHT + 16}" text-anchor="middle">{number:,}</text>'
            )
        for values, colour in zip(rows.values(), _COLOURS, strict=False):
            points = " ".join(
                f"{left + _WIDTH * step / (len(NUMBERS) - 1):.0f},{_TOP + _HEIGHT * (1 - value / most):.0f}"
                for step, value in enumerate(values[panel::2])
            )
            parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
    left = 40 + 2 * (_WIDTH + 40) - 14
    for at, (name, colour) in enumerate(zip(rows, _COLOURS, strict=False)):
        y = _TOP + 6 + 17 * at
        parts.append(f'<rect x="{left}" y="{y - 9}" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{left + 18}" y="{y + 1}">{name}</text>')
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 680 250" width="680" height="250" '
        'font-family="sans-serif" font-size="11" fill="#333"><rect width="100%" height="100%" fill="#fff"/>'
        f"<title>CPU per message over how many there are of something</title>{''.join(parts)}</svg>\n"
    )


if __name__ == "__main__":
    run(sys.argv[1:] or GROWING)
