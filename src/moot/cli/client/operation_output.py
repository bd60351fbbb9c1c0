"""What came of an operation, printed for a shell: words or JSON, and the exit code."""

from __future__ import annotations

import json
import sys
from typing import Final

from moot.cli.escape_output import printable
from moot.cli.program import complain
from moot.errors import MootError, Refused
from moot.tui.operations.operation import OperationResult, word_of

# Exit codes besides 0 (done), 1 (failed) and 2 (a mistake in the call).
EXIT_NO: Final = 3
EXIT_LATE: Final = 4
EXIT_OUTSIDE: Final = 5


def show(answer: OperationResult, *, as_json: bool) -> None:
    """Print what came of it, harmlessly."""
    if as_json:
        print(json.dumps(answer.value, ensure_ascii=True), flush=True)
        return
    for line in answer.lines:
        for part in line.split("\n"):
            print(printable(part))
    sys.stdout.flush()


def show_fault(fault: MootError, *, as_json: bool) -> int:
    """Print why it did not work; the exit code for it."""
    if as_json:
        print(json.dumps({"error": word_of(fault), "message": str(fault)}), flush=True)
    else:
        for line in str(fault).split("\n"):
            complain(f"moot: {printable(line)}")
    return exit_code(fault)


def exit_code(fault: MootError) -> int:
    """3: somebody said no. 4: nobody answered in time. 5: no way in. 1: anything else."""
    from moot.errors import ConnectionClosed, Expired, NotAllowed, Rejected, TimedOut, Unreachable, Withdrawn

    if isinstance(fault, Refused | NotAllowed | Rejected | Withdrawn):
        return EXIT_NO
    if isinstance(fault, TimedOut | Expired):
        return EXIT_LATE
    if isinstance(fault, Unreachable | ConnectionClosed):
        return EXIT_OUTSIDE
    return 1
