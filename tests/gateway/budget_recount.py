"""What was used of a budget, recomputed from the lines of a journal alone. Shares no code with Moot."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any


def read(folder: Path) -> Iterator[Any]:
    texts = (file.read_text("utf-8") for file in sorted(folder.glob("*.jsonl")))
    for line in (line for text in texts for line in text.split("\n")):
        if line.endswith("}"):
            yield json.loads(line, parse_float=Decimal, parse_int=Decimal)


def recount(folder: Path, tool: str, argument: str) -> dict[tuple[int, str], Decimal]:
    """The sum of an argument by day and member; a call that was proposed is its proposer's."""
    used: dict[tuple[int, str], Decimal] = defaultdict(Decimal)
    proposers: dict[str, str] = {}
    fulfilled: set[str] = set()
    for record in read(folder):
        if record["in"] not in ("receive", "post") or record["out"] != "accepted":
            continue
        sent, who = record["raw"], record["who"]
        if sent["kind"] == "mcp/proposal":
            proposers[record["id"]] = who
        for call in [sent, *record.get("made", [])]:
            params = call.get("payload", {}).get("params", {})
            if call["kind"] != "mcp/request" or params.get("name") != tool:
                continue
            about = set(call.get("correlation_id", ())) & proposers.keys()
            if about and about <= fulfilled:
                continue  # the input that an approved call waited for
            fulfilled |= about
            amount = params["arguments"][argument] * len(set(call["to"]))
            for name in {proposers[id] for id in about} or {who}:
                used[int(record["t"] // 86_400), name] += amount
    return used


if __name__ == "__main__":
    for (day, name), total in recount(Path(sys.argv[1]), *sys.argv[2:4]).items():
        print(day, name, total)
