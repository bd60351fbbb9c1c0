"""The `moot` command: one file per command or group, and one place that turns faults into exit codes."""

from __future__ import annotations

import sys

# As `typing` has it: `moot hook` has to start at once.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code, as `exit_codes` lists them. Without a command: the short help."""
    if arguments is None and sys.argv[1:2] == ["hook"]:
        # Before anything is loaded: agents run it before and after each of their calls.
        from moot.cli.agents.hook_client import ask_service

        status = ask_service(sys.argv[2:])
        if status is not None:
            return status
    import signal

    if arguments is None and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Ctrl-C while modules are loaded ends us in silence; `run_program` takes it over.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from moot.cli.command_table import parser_for
    from moot.cli.process.program import run_program

    return run_program("moot", parser_for, arguments)
