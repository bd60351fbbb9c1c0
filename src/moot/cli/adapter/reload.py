"""`xprotocol-adapter reload`: have the running adapter read its configuration again."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

from moot.cli.adapter.options import add_config, add_json, command, print_json
from moot.cli.adapter.status import control_of
from moot.cli.interruption import run_errand

# Servers that are new have to start.
_WITHIN_SECONDS: Final = 120.0

_EXAMPLES = """\
  xprotocol-adapter reload                                  the adapter of this folder, or the default one
  xprotocol-adapter reload --config acme.yml --json
"""


def add_command(commands: Any) -> None:
    parser = command(
        commands,
        "reload",
        run,
        help="have the adapter read its configuration again",
        description="Asks the running adapter to read its file again, as SIGHUP does and as it does itself "
        "when the file changes. What did not change goes on undisturbed; a file with a problem "
        "changes nothing and is told. What only a restart can change is named.",
        examples=_EXAMPLES,
    )
    add_config(parser, "the configuration that it was started with")
    parser.add_argument("--control", type=Path, metavar="SOCKET", help="its control socket, in place of that")
    add_json(parser, "what changed, as one JSON object")


def run(chosen: argparse.Namespace) -> int:
    from moot.adapter.operations.control_socket import ask
    from moot.cli.escape_output import printable

    control = chosen.control or control_of(chosen.config)
    changed = run_errand(ask(control, "reload", within=_WITHIN_SECONDS))
    if chosen.json:
        print_json({"ok": True, **changed})
        return 0
    told = [(name, what) for name, what in changed.items() if what]
    for name, what in told:
        words = ", ".join(map(str, what)) if isinstance(what, list) else str(what)
        print(printable(f"{name.replace('_', ' ')}: {words}"))
    if not told:
        print("nothing changed")
    return 0
