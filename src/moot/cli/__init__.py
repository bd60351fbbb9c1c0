"""The `moot` command: one file per command or group, and one place that turns faults into exit codes."""

from __future__ import annotations

from collections.abc import Sequence

from moot.cli.command_table import parser_for
from moot.cli.program import run_program


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code, as `exit_codes` lists them. Without a command: the short help."""
    return run_program("moot", parser_for, arguments)
