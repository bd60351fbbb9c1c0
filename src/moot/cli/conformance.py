"""`moot conformance`: run the vectors and report by requirement id."""

from __future__ import annotations

import argparse
import json
from typing import Any

from moot.conformance.manifest import load_manifest
from moot.conformance.pure import PureDriver
from moot.conformance.runner import Failed, run_vector
from moot.conformance.vectors import load_vectors


def add_commands(commands: Any) -> None:
    parser = commands.add_parser(
        "conformance",
        help="run the conformance vectors and report by requirement id",
        description="Runs every conformance vector against the space state machine of this installation "
        "(no socket involved) and reports which requirement rows they show.",
    )
    parser.add_argument(
        "--only", metavar="ID", help="only vectors that show this row, or rows that start with it"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a vector, one a line")
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    manifest = load_manifest()
    shown: set[str] = set()
    failed = passed = 0
    for source, vector in load_vectors():
        if chosen.only and not any(row == chosen.only or row.startswith(chosen.only) for row in vector.rows):
            continue
        fault = None
        try:
            run_vector(vector, PureDriver(vector.space))
        except Failed as difference:
            fault = str(difference)
            failed += 1
        else:
            passed += 1
            shown.update(vector.rows)
        if chosen.json:
            row = {
                "vector": vector.name,
                "file": source,
                "rows": vector.rows,
                "passed": fault is None,
                "fault": fault,
            }
            print(json.dumps(row))
        elif fault:
            print(f"FAILED {source}: {fault}")
    if not chosen.json:
        for level in ("MUST", "SHOULD", "MAY", "implied"):
            rows = [id for id in shown if id in manifest and manifest[id].level == level]
            print(f"{level:8} {len(rows):4} rows shown")
        print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0
