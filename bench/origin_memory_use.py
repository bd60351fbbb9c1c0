"""How much memory the origins of 100,000 messages take: `python -m bench.origin_memory_use`.

One process that keeps and reads all of them, as an approver does in a space where every few messages are
followed by a call that has a value of nobody: chats of a person and of an agent, and results of 600 bytes.
Prints the resident memory of the process, and draws it as `docs/origins-rss.svg`.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import orjson

from moot.origins.origin_call import OriginCall
from moot.origins.origin_memory import OriginMemory
from moot.origins.origin_verdict import verdict_on
from moot.origins.tool_traits import ToolTraits
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json

MESSAGES: Final = 100_000
STEP: Final = 5_000
# A call behind so many messages.
EVERY: Final = 50
PICTURE: Final = Path(__file__).resolve().parent.parent / "docs" / "origins-rss.svg"
_WIDTH, _HEIGHT, _LEFT, _TOP = 520, 220, 56, 20
_TRAITS: Final = ToolTraits(effect="writes", outside=True)


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def measure(count: int = MESSAGES, step: int = STEP) -> list[tuple[int, float]]:
    """Messages, and the resident memory behind them in MB."""
    draws = random.Random(36)
    memory = OriginMemory(own="approver")
    found = [(0, resident_mb())]
    for number in range(1, count + 1):
        sender = ("ana", "agent", "mail")[number % 3]
        memory.see(_message(number, sender, draws), person=sender == "ana", at=1.8e9 + number)
        if number % EVERY == 0:
            call = OriginCall("agent", "send", {"to": f"{draws.randrange(10**9)}@example.org"}, _TRAITS)
            verdict_on(memory, call, 1.8e9 + number)
        if number % step == 0:
            found.append((number, resident_mb()))
            print(f"{number:>8,} messages {found[-1][1]:>8.1f} MB", flush=True)
    return found


def _message(number: int, sender: str, draws: random.Random) -> Envelope:
    words = " ".join(
        "".join(draws.choices("abcdefghijklmnopqrstuvwxyz", k=draws.randrange(2, 9))) for _ in range(30)
    )
    text = f"{words} {draws.randrange(10**6)}@example.org {draws.randrange(10**8)}"
    payload: dict[str, Json] = {"text": text, "format": "plain"}
    if sender == "mail":
        payload = {"result": {"content": [{"type": "text", "text": f"{text} {words} {words}"}]}}
    fields: dict[str, Json] = {
        "protocol": "mew/v0.4",
        "id": f"m{number}",
        "ts": "2026-11-18T12:00:00Z",
        "from": sender,
        "kind": "mcp/response" if sender == "mail" else "chat",
        "to": ["agent"],
        "correlation_id": [f"r{number}"],
        "payload": payload,
    }
    return DIALECTS["mew"].decode(orjson.dumps(fields))


def svg(found: Sequence[tuple[int, float]]) -> str:
    """The curve, with a line each 50 MB."""
    most = 50 * (int(max(mb for _, mb in found)) // 50 + 1)
    last = found[-1][0]

    def x(count: float) -> float:
        return _LEFT + _WIDTH * count / last

    def y(mb: float) -> float:
        return _TOP + _HEIGHT * (1 - mb / most)

    parts = [
        f'<line x1="{_LEFT}" y1="{y(mb):.0f}" x2="{_LEFT + _WIDTH}" y2="{y(mb):.0f}" stroke="#ddd"/>'
        f'<text x="{_LEFT - 6}" y="{y(mb) + 4:.0f}" text-anchor="end">{mb} MB</text>'
        for mb in range(0, most + 1, 50)
    ]
    parts += [
        f'<text x="{x(count):.0f}" y="{_TOP + _HEIGHT + 16}" text-anchor="middle">{count:,}</text>'
        for count in range(0, last + 1, last // 5)
    ]
    points = " ".join(f"{x(count):.1f},{y(mb):.1f}" for count, mb in found)
    parts.append(f'<polyline points="{points}" fill="none" stroke="#2f6fab" stroke-width="2"/>')
    width, height = _LEFT + _WIDTH + 24, _TOP + _HEIGHT + 28
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="12">{"".join(parts)}</svg>\n'
    )


def main() -> None:
    began = time.process_time()
    found = measure()
    print(f"{time.process_time() - began:.0f} s of CPU")
    PICTURE.write_text(svg(found))


if __name__ == "__main__":
    main()
