"""What came of an operation, printed for a shell: words or JSON, and the exit code."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from moot.cli.process.exit_codes import exit_code_of
from moot.cli.process.program import complain
from moot.cli.process.table_output import print_table
from moot.errors import MootError
from moot.operations.operation import OperationResult, error_code
from moot.operations.text.terminal_escape import printable

if TYPE_CHECKING:
    from moot.participant import JoinedSpace, Proposal


def print_result(result: OperationResult, *, as_json: bool) -> None:
    """Print what came of it, with control characters escaped."""
    if as_json:
        print(json.dumps(result.value, ensure_ascii=True), flush=True)
        return
    if result.table is not None:
        print_table(result.table)
    else:
        for line in result.lines:
            for part in line.split("\n"):
                print(printable(part))
    sys.stdout.flush()


def print_proposed(space: JoinedSpace, proposal: Proposal, gateway: str, seconds: float | None) -> None:
    """Say on stderr that a call waits for a decision, who can decide and how, and what ends it."""
    from moot.operations.text.call_text import (
        console_address,
        describe_deciders,
        proposal_link,
        rule_appliers,
        who_can_approve,
    )

    seen = proposal.seen
    if seen.status != "pending":
        # A rule has decided already.
        return
    names = who_can_approve(space, seen.to[0] if seen.to else "", seen.method, seen.params)
    link = proposal_link(console_address(gateway), space.space, seen.id)
    end = "" if seconds is None else f" So do {seconds:g} s without a decision."
    lines = (
        f"proposed as {seen.id}; waiting for a decision",
        describe_deciders(names, link, seen.id, rule_appliers(space)),
        f"Ctrl-C withdraws it.{end}",
    )
    for line in lines:
        complain(f"moot: {printable(line)}")


def print_error(fault: MootError, *, as_json: bool) -> int:
    """Print why it did not work; the exit code for it."""
    if as_json:
        print(json.dumps({"error": error_code(fault), "message": str(fault)}), flush=True)
    else:
        for line in str(fault).split("\n"):
            complain(f"moot: {printable(line)}")
    return exit_code_of(fault)
