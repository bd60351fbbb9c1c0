"""Effects that ran twice unasked, found in the lines of a journal alone. Shares no code with Moot."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def read(folder: Path) -> Iterator[Any]:
    for file in sorted(folder.glob("*.jsonl")):
        for line in file.read_text("utf-8").split("\n"):
            if line.endswith("}"):
                yield json.loads(line)


def plain(value: Any) -> str:
    """Case, spaces, width, accents and kinds of dashes make no difference."""
    text = unicodedata.normalize("NFKD", str(value)).casefold()
    kept = [each for each in text if unicodedata.category(each)[0] not in "MCZ"]
    return "".join("-" if unicodedata.category(each) == "Pd" else each for each in kept)


def find_doubled(folder: Path, tool: str, *arguments: str) -> tuple[int, list[str]]:
    """How many calls ran, and those that ran a second time though nobody else named the first."""
    last: dict[tuple[str, ...], str] = {}
    of: dict[str, tuple[str, ...]] = {}
    proposers: dict[str, str] = {}
    ran = 0
    doubled: list[str] = []
    for record in read(folder):
        if record["in"] not in ("receive", "post") or record["out"] != "accepted":
            continue
        sent, who = record["raw"], record["who"]
        if sent["kind"] == "mcp/proposal":
            proposers[record["id"]] = who
        for call in [sent, *record.get("made", [])]:
            payload, about = call.get("payload", {}), call.get("correlation_id", [])
            error = payload.get("error")
            if call["kind"] == "mcp/response" and (error or payload["result"].get("isError")):
                is_known = (error or {}).get("data", {}).get("moot/outcome") != "unknown"
                for request in about if is_known else ():
                    if last.get(of.get(request, ())) == request:
                        del last[of[request]]
            params = payload.get("params", {})
            if call["kind"] != "mcp/request" or params.get("name") != tool:
                continue
            key = tuple(plain(params["arguments"][each]) for each in arguments)
            asked = any(proposers.get(each, who) != who for each in about) and last.get(key) in about
            id = call.get("id", record["id"])
            ran += 1
            doubled += [id] if key in last and not asked else []
            last[key], of[id] = id, key
    return ran, doubled


if __name__ == "__main__":
    print(find_doubled(Path(sys.argv[1]), *sys.argv[2:]))
