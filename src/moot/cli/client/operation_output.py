"""What came of an operation, printed for a shell: words or JSON, and the exit code."""

from __future__ import annotations

import json
import sys

from moot.cli.exit_codes import exit_code_of
from moot.cli.program import complain
from moot.cli.table_output import print_table
from moot.errors import MootError
from moot.tui.operations.operation import OperationResult, error_code
from moot.tui.terminal_escape import printable


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


def print_error(fault: MootError, *, as_json: bool) -> int:
    """Print why it did not work; the exit code for it."""
    if as_json:
        print(json.dumps({"error": error_code(fault), "message": str(fault)}), flush=True)
    else:
        for line in str(fault).split("\n"):
            complain(f"moot: {printable(line)}")
    return exit_code_of(fault)
