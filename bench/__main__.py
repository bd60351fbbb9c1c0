"""`python -m bench` runs all benchmarks and prints their tables; `--write-docs` writes the page, too."""

from __future__ import annotations

import argparse
import asyncio
import io
import tempfile
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Final

from bench import (
    calls,
    cluster,
    console,
    decisions,
    endpoint_calls,
    events,
    fanout,
    floods,
    grammar,
    growth,
    idle,
    people,
    relay_events,
    report,
    restart,
    search,
    start,
    trust,
)

# What is printed as it is; the gateway has tables and a picture of its own.
SECTIONS: Final[dict[str, tuple[str, Callable[[], object]]]] = {
    "decisions": ("Decisions: CPU beside orjson.loads of the same bytes", decisions.run),
    "start": ("What people wait for at the start", start.main),
    "restart": ("A restart with 1,000,000 records", restart.main),
    "growth": (growth.TITLE, growth.run),
    "calls": ("Tool calls through a space, beside a proxy written with the SDK", calls.main),
    "people": ("Many people at one MCP endpoint, beside a process for each", people.main),
    "cluster": ("Several gateways, one space: one, two and three beside one that is alone", cluster.run),
    "search": ("Finding tools, beside plain BM25", search.run),
    "grammar": ("Grammars out of JSON Schema, judged by llama.cpp and llguidance", grammar.run),
    "events": ("XProtocol events, beside their bare cryptography", events.run),
    "trust": ("Progressive automation: what rules take over, and how often they are wrong", trust.run),
    "relay": ("The XProtocol relay, beside the verification alone", relay_events.main),
    "floods": ("Floods: what somebody else notices of them", floods.run),
    "console": ("The web console in Chromium: a click under load", console.main),
    "endpoint": ("Tool calls as XProtocol events, beside their bare cryptography", endpoint_calls.main),
}
GATEWAY: Final = "gateway"


async def _served() -> report.Results:
    idle.raise_file_limit()
    with tempfile.TemporaryDirectory(prefix="moot-bench-") as name:
        folder = Path(name)
        measured = await fanout.run(folder)
        return report.Results(measured, await idle.idle(folder), await idle.joins(folder))


def _printed(run: Callable[[], object]) -> str:
    """What a benchmark prints, shown when it is done."""
    answer = io.StringIO()
    with redirect_stdout(answer):
        run()
    text = answer.getvalue().strip("\n")
    print(text, flush=True)
    return text


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    names = [GATEWAY, *SECTIONS]
    parser.add_argument("--only", choices=names, action="append", help="one of them; may be given again")
    parser.add_argument(
        "--write-docs", action="store_true", help="write docs/performance.md; with --only, those parts of it"
    )
    chosen = parser.parse_args()
    wanted = chosen.only or names
    print("Absolute times mean little on a shared machine; read the ratios.")
    for name, (title, run) in SECTIONS.items():
        if name in wanted:
            print(f"\n{title}\n", flush=True)
            text = _printed(run)
            # At once: whoever stops a run of half an hour keeps what it measured.
            if chosen.write_docs:
                report.update_docs({title: text})
    if GATEWAY not in wanted:
        return
    print("\nThe gateway, beside a bare relay and nats-server (some minutes)\n", flush=True)
    results = asyncio.run(_served())
    report.print_all(results)
    if chosen.write_docs:
        report.write_docs(results)


if __name__ == "__main__":
    main()
