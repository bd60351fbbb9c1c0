"""`xprotocol-adapter validate`: what is wrong with a configuration, all of it (XP Appendix A)."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

from moot.cli.adapter.options import add_config, add_json, command, config_file, counted, print_json
from moot.cli.interruption import run_errand

_EXAMPLES = """\
  xprotocol-adapter validate --config xprotocol-mcp-adapter.yml
  xprotocol-adapter validate --config acme.yml --connect    every MCP server has to answer
  xprotocol-adapter validate --config acme.yml --offline    only the file: nothing is started
  xprotocol-adapter validate --config acme.yml --json
"""


def add_command(commands: Any) -> None:
    parser = command(
        commands,
        "validate",
        run,
        help="check a configuration",
        description="Reads a configuration and names everything that would keep the adapter from "
        "starting, each with the path of its key: unknown and mistyped keys, values that "
        "cannot be, files that are missing, variables that are not set. Exit code 0 only for a "
        "file without a problem.\n\n"
        "If the file is sound, the MCP servers on this machine are asked as well, for ten seconds. "
        "Then it says which tools find no capability in an explicit list (a problem), which "
        "contradict what they say of themselves, and which are described too poorly to be found, "
        "with what to do about it. A server that does not answer is only noted, unless --connect "
        "asks for all of them.",
        examples=_EXAMPLES,
    )
    add_config(parser, "the file to check")
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--connect",
        action="store_const",
        const="all",
        default="near",
        dest="asked",
        help="ask remote MCP servers, too, and take as long as a start may; each has to answer",
    )
    how.add_argument(
        "--offline", action="store_const", const="none", dest="asked", help="start and ask no MCP server"
    )
    add_json(parser, "problems and notes as one JSON object")


def run(chosen: argparse.Namespace) -> int:
    from moot.adapter.config.config_validation import check
    from moot.cli.escape_output import printable

    path = config_file(chosen.config)
    report = run_errand(check(path, environ=os.environ, now=time.time(), asked=chosen.asked))
    if chosen.json:
        print_json({"file": str(path), **report.as_json()})
        return 0 if report.sound else 1
    for problem in report.problems:
        print(f"{path}: {printable(str(problem))}", file=sys.stderr)
    for note in report.notes:
        print(f"note: {printable(note)}")
    if report.sound and report.settings is not None:
        settings = report.settings
        print(
            f"{path}: sound: {counted(len(settings.mcp_sources), 'MCP source')}, "
            f"{counted(len(settings.xprotocol_sources), 'XProtocol source')}"
        )
        print(printable(f"tools are searched for: {report.search}"))
    return 0 if report.sound else 1
