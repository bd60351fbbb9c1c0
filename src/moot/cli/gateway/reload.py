"""`moot reload`: makes the running gateway of a folder read its file again, and says what changed."""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from moot.cli.options.shared_options import add_configured_data, add_json
from moot.cli.process import program
from moot.errors import MootError, TimedOut, UsageError

if TYPE_CHECKING:
    from moot.up.reload_report import ReloadReport

# Members that are removed get time to end.
_WAIT_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.05

_ABOUT = """\
Makes the `moot up` or `moot serve` that runs on this folder read its moot.yaml again, as SIGHUP does, and
prints what changed. Nobody is disconnected but those who are no longer named. A file with an error changes
nothing, and the error is printed. What needs a restart is listed.
"""
_EXAMPLES = """\
  moot reload                        in the folder of a space
  moot reload lab                    of another folder
  moot serve moot.yaml --check       only look whether the file can be read
"""


def add_command(commands: Any, name: str) -> None:
    parser = program.add_command(
        commands, name, help="apply a changed moot.yaml to what runs", about=_ABOUT, examples=_EXAMPLES
    )
    add = parser.add_argument
    add("place", nargs="?", type=Path, default=Path(), metavar="DIR", help="a folder or a configuration file")
    add_configured_data(parser)
    add_json(parser)
    parser.set_defaults(run=run_reload)


@program.tells_errors
def run_reload(options: argparse.Namespace) -> int:
    from moot.operations.text.terminal_escape import printable

    report, notes = _reload(options)
    if options.json:
        print(json.dumps({"reloaded": report.reloaded, "lines": report.lines, "notes": notes}))
    else:
        noted = (f"note: {note}" for note in notes)
        for line in ("reloaded" if report.reloaded else "not reloaded", *report.lines, *noted):
            print(printable(line))
    return 0 if report.reloaded else 1


def _reload(options: argparse.Namespace) -> tuple[ReloadReport, Sequence[str]]:
    """What the gateway did, and what is odd in the file."""
    from moot.cli.up.up import config_in
    from moot.config import load
    from moot.up.reload_report import find_gateway, read_report

    path = config_in(options.place)
    # Here first: of a file that cannot be read the running one need not hear.
    configuration = load(path, environ=os.environ, data=options.data, dry=True, unset={})
    data = configuration.gateway.data
    pid = find_gateway(data)
    if pid is None:
        raise UsageError(f"no gateway runs on {data}: `moot up` starts it with the file as it is now")
    last = read_report(data)
    seen = last.number if last is not None and last.pid == pid else 0
    try:
        os.kill(pid, signal.SIGHUP)
    except OSError as fault:
        raise UsageError(f"the gateway (process {pid}) cannot be told: {fault.strerror}") from None
    end = time.monotonic() + _WAIT_SECONDS
    while time.monotonic() < end:
        report = read_report(data)
        if report is not None and report.pid == pid and report.number > seen:
            return report, configuration.notes
        if find_gateway(data) != pid:
            raise MootError("the gateway has ended: `moot up` starts it again")
        time.sleep(_POLL_SECONDS)
    raise TimedOut(f"the gateway (process {pid}) has not answered within {_WAIT_SECONDS:g} s; see its output")
