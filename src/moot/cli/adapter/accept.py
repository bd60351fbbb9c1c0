"""`xprotocol-adapter accept`: consent to tools or contracts that changed and are held back."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from moot.cli.adapter.options import add_config, add_json, command, print_json
from moot.cli.adapter.status import control_of
from moot.cli.interruption import run_errand

_EXAMPLES = """\
  xprotocol-adapter status                                  shows what is withheld
  xprotocol-adapter accept filesystem                       all changes of this source
  xprotocol-adapter accept weather weather.current.get      this contract alone
"""


def add_command(commands: Any) -> None:
    parser = command(
        commands,
        "accept",
        run,
        help="consent to definitions that changed",
        description="A tool of an MCP source with `pin: true`, and a contract of an endpoint that changed "
        "under the same version, are held back until somebody has looked at them. This tells the running "
        "adapter that you have.",
        examples=_EXAMPLES,
    )
    parser.add_argument("source", metavar="SOURCE", help="its name in the configuration")
    parser.add_argument("names", nargs="*", metavar="NAME", help="tools or kinds (default: all that changed)")
    add_config(parser, "the configuration that it was started with")
    parser.add_argument("--control", type=Path, metavar="SOCKET", help="its control socket, in place of that")
    add_json(parser, "what was accepted, as one JSON object")


def run(chosen: argparse.Namespace) -> int:
    from moot.adapter.operations.control_socket import ask
    from moot.cli.escape_output import printable

    control = chosen.control or control_of(chosen.config)
    answer = run_errand(ask(control, "accept", {"source": chosen.source, "names": chosen.names}))
    if chosen.json:
        print_json({"ok": True, **answer})
        return 0
    accepted = answer.get("accepted") or []
    for name in accepted:
        print(printable(f"accepted {name}"))
    if not accepted:
        print("nothing had changed")
    return 0
