"""Forks the programs for whoever asks: see `warm_start`. Loads them when it is first asked.

With `sdk` as its word: the MCP servers of tests that are made with the official SDK, which alone takes a
second of CPU to load.
"""

from __future__ import annotations

import atexit
import importlib
import os
import select
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NoReturn

from tests.cli.programs import MODULES

SDK_SERVERS: Final = {
    "fixtures": "tests.mcp.servers.fixtures",
    "two_eras": "tests.mcp.servers.two_eras",
    "workshop": "tests.mcp.servers.workshop",
}
# Loaded, it loads what a gateway, `moot up`, the commands of members, bridges, agents and the adapter need.
_MODULES = (
    "uvloop",
    "moot.cli.client.operation_commands",
    "moot.cli.command_table",
    "moot.cli.process.interruption",
    "moot.cli.process.program",
    "moot.cli.gateway.serve",
    "moot.gateway.app",
    "moot.logs",
    "moot.net.event_loop",
    "moot.participant",
    "moot.up.reload_report",
    "moot.up.space_runner",
)


def _run(program: Callable[[], str | int | None]) -> NoReturn:
    """As Python runs and ends it, but what was loaded before is not taken apart.

    For that each page of it would be copied: six times what a short command costs otherwise.
    """
    try:
        code = program()
    except SystemExit as end:
        code = end.code
    if code is None or isinstance(code, int):
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        # If they cannot be written to, Python says so.
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit((code or 0) & 0xFF)
    sys.exit(code)


def main() -> None:
    listener = socket.socket(fileno=int(sys.argv[1]))
    programs = SDK_SERVERS if "sdk" in sys.argv else MODULES
    select.select([0, listener.fileno()], [], [])
    for name in (*(_MODULES if programs is MODULES else ()), *programs.values()):
        importlib.import_module(name)
    from tests.forking import serve

    wanted = serve(listener)
    for path, value in wanted.get("constants", {}).items():
        module, _, name = path.rpartition(".")
        setattr(importlib.import_module(module), name, value)
    _run(importlib.import_module(programs[sys.argv[0]]).main)


if __name__ == "__main__":
    main()
