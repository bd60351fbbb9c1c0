"""`python -m bench` runs all benchmarks and prints their tables; `--write-docs` writes the page, too."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path

from bench import decisions, fanout, idle, report


async def _served() -> report.Results:
    idle.raise_file_limit()
    with tempfile.TemporaryDirectory(prefix="moot-bench-") as name:
        folder = Path(name)
        measured = await fanout.run(folder)
        return report.Results(measured, await idle.idle(folder), await idle.joins(folder))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--decisions", action="store_true", help="only decisions, without any server")
    parser.add_argument("--write-docs", action="store_true", help="write docs/performance.md")
    chosen = parser.parse_args()
    print("Decisions (absolute times mean little on a shared machine; read the ratios)\n")
    decisions.run()
    if chosen.decisions:
        return
    print("\nServers (some minutes)\n", flush=True)
    results = asyncio.run(_served())
    report.print_all(results)
    if chosen.write_docs:
        report.write_docs(results)


if __name__ == "__main__":
    main()
