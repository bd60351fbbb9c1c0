"""`xprotocol-adapter accept`: accepts changed tools or contracts that are withheld."""

from __future__ import annotations

import argparse
from typing import Any

from moot.cli.adapter.options import add_control, command, report
from moot.cli.adapter.status import control_of
from moot.cli.options.shared_options import add_json
from moot.cli.process.interruption import run_errand

_EXAMPLES = """\
  xprotocol-adapter status                                  shows what is withheld
  xprotocol-adapter accept filesystem                       all changes of this source
  xprotocol-adapter accept weather weather.current.get      only this contract
"""


def add_command(commands: Any) -> None:
    parser = command(
        commands,
        "accept",
        run_accept,
        help="accept changed definitions",
        description="A changed tool of an MCP source with `pin: true`, and a contract of an endpoint "
        "that changed under the same version, are withheld until you accept them. Review them with "
        "`status` first.",
        examples=_EXAMPLES,
    )
    parser.add_argument("source", metavar="SOURCE", help="name of the source in the configuration")
    parser.add_argument("names", nargs="*", metavar="NAME", help="tools or kinds (default: all that changed)")
    add_control(parser)
    add_json(parser)


def run_accept(chosen: argparse.Namespace) -> int:
    from moot.xprotocol.adapter.operations.control_socket import send_control_request

    control = chosen.control or control_of(chosen.config)
    answer = run_errand(
        send_control_request(control, "accept", {"source": chosen.source, "names": chosen.names})
    )
    lines = [f"accepted {name}" for name in answer.get("accepted") or []]
    return report(chosen, {"ok": True, **answer}, lines or ["no changes to accept"])
