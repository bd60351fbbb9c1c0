"""`xprotocol-adapter validate`: reports all problems of a configuration (XP Appendix A)."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

from moot.cli.adapter.options import add_config, command, config_file, format_count, report
from moot.cli.options.shared_options import add_json
from moot.cli.process.interruption import run_errand

_EXAMPLES = """\
  xprotocol-adapter validate --config xprotocol-mcp-adapter.yml
  xprotocol-adapter validate --config acme.yml --connect    all MCP servers have to answer
  xprotocol-adapter validate --config acme.yml --offline    only the file: no server is started
  xprotocol-adapter validate --config acme.yml --json
"""


def add_command(commands: Any) -> None:
    parser = command(
        commands,
        "validate",
        run_validate,
        help="check a configuration",
        description="Reads a configuration and reports everything that would keep the adapter from starting, "
        "each with the path of its key: unknown and mistyped keys, invalid values, missing files, "
        "environment variables that are not set. Exit code 0 only for a file without problems.\n\n"
        "If the file is valid, the MCP servers on this machine are contacted as well, for ten seconds. "
        "The report then lists tools without a capability in an explicit list (a problem), tools that "
        "contradict their own annotations, and tools with too poor a description to be found, each "
        "with advice. A server that does not answer is only noted, unless --connect is given.",
        examples=_EXAMPLES,
    )
    add_config(parser)
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--connect",
        action="store_const",
        const="all",
        default="local",
        dest="contact",
        help="contact remote MCP servers, too, for as long as a start may take; each has to answer",
    )
    how.add_argument(
        "--offline", action="store_const", const="none", dest="contact", help="contact no MCP server"
    )
    add_json(parser)


def run_validate(chosen: argparse.Namespace) -> int:
    from moot.operations.text.terminal_escape import printable
    from moot.xprotocol.adapter.operations.config_validation import validate_config

    path = config_file(chosen.config)
    found = run_errand(validate_config(path, environ=os.environ, now=time.time(), contact=chosen.contact))
    for problem in () if chosen.json else found.problems:
        print(f"{path}: {printable(str(problem))}", file=sys.stderr)
    lines = [f"note: {note}" for note in found.notes]
    if found.is_valid and found.settings is not None:
        settings = found.settings
        lines.append(
            f"{path}: valid: {format_count(len(settings.mcp_sources), 'MCP source')}, "
            f"{format_count(len(settings.xprotocol_sources), 'XProtocol source')}"
        )
    return report(chosen, {"file": str(path), **found.as_json()}, lines, code=0 if found.is_valid else 1)
