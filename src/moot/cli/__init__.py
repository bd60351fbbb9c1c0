"""The `moot` command: one file per command or group, and one place that turns faults into exit codes."""

from __future__ import annotations

import signal
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code, as `exit_codes` lists them. Without a command: the short help."""
    if arguments is None and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Ctrl-C while modules are loaded ends us in silence; `run_program` takes it over.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from moot.cli.command_table import parser_for
    from moot.cli.program import run_program

    return run_program("moot", parser_for, arguments)
