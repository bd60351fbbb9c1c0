"""Forks the programs for whoever asks: see `warm_start`. Loads them when it is first asked."""

from __future__ import annotations

import importlib
import select
import socket
import sys

from tests.cli.programs import MODULES

# Loaded, it loads what a gateway, `moot up`, the commands of members, bridges, agents and the adapter need.
_MODULES = (
    "uvloop",
    "moot.cli.client.operation_commands",
    "moot.cli.command_table",
    "moot.cli.interruption",
    "moot.cli.program",
    "moot.cli.serve",
    "moot.gateway.app",
    "moot.logs",
    "moot.net.event_loop",
    "moot.participant",
    "moot.up.reload_report",
    "moot.up.space_runner",
)


def main() -> None:
    listener = socket.socket(fileno=int(sys.argv[1]))
    select.select([0, listener.fileno()], [], [])
    for name in (*_MODULES, *MODULES.values()):
        importlib.import_module(name)
    from tests.forking import serve

    wanted = serve(listener)
    for path, value in wanted.get("constants", {}).items():
        module, _, name = path.rpartition(".")
        setattr(importlib.import_module(module), name, value)
    sys.exit(importlib.import_module(MODULES[sys.argv[0]]).main())


if __name__ == "__main__":
    main()
