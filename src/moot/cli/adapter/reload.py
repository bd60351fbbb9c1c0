"""`xprotocol-adapter reload`: makes the running adapter read its configuration again."""

from __future__ import annotations

import argparse
from typing import Any, Final

from moot.cli.adapter.options import add_control, command, report
from moot.cli.adapter.status import control_of
from moot.cli.options.shared_options import add_json
from moot.cli.process.interruption import run_errand

# New servers have to start.
_TIMEOUT_SECONDS: Final = 120.0

_EXAMPLES = """\
  xprotocol-adapter reload                                  the adapter of this folder, or the default one
  xprotocol-adapter reload --config acme.yml --json
"""


def add_command(commands: Any) -> None:
    parser = command(
        commands,
        "reload",
        run_reload,
        help="reload the configuration of the running adapter",
        description="Makes the running adapter read its file again, like SIGHUP; the adapter also does so "
        "by itself when the file changes. Sources that did not change are not interrupted. A file with a "
        "problem changes nothing; the problem is printed. Settings that need a restart are listed.",
        examples=_EXAMPLES,
    )
    add_control(parser)
    add_json(parser)


def run_reload(chosen: argparse.Namespace) -> int:
    from moot.xprotocol.adapter.operations.control_socket import send_control_request

    control = chosen.control or control_of(chosen.config)
    changed = run_errand(send_control_request(control, "reload", timeout_seconds=_TIMEOUT_SECONDS))
    lines = [
        f"{name.replace('_', ' ')}: {', '.join(map(str, value)) if isinstance(value, list) else value}"
        for name, value in changed.items()
        if value
    ]
    return report(chosen, {"ok": True, **changed}, lines or ["nothing changed"])
