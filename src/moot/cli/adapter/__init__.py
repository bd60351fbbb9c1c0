"""The `xprotocol-adapter` command (XP Appendix A): one file per command, and one place for exit codes."""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

from moot import __version__
from moot.cli.process.extras import check_installed
from moot.cli.process.program import Parser, complain, run_program
from moot.errors import MootError, UsageError

_ABOUT = """\
Bridges MCP and XProtocol (XProtocol.ai) in both directions: MCP servers become an XProtocol endpoint with
signed and sealed events, and XProtocol endpoints become MCP tools. One YAML file configures both.

Getting started:
  xprotocol-adapter keygen                                  create the adapter's key
  $EDITOR xprotocol-mcp-adapter.yml                         name MCP servers and a relay
  xprotocol-adapter validate --config xprotocol-mcp-adapter.yml
  xprotocol-adapter start

Exit codes: 0 success, 1 failure (with an explanation), 2 wrong usage.
"""

# Command → module; in the order of the help.
_COMMANDS: Final = {
    "keygen": "keygen",
    "register": "register",
    "start": "start",
    "validate": "validate",
    "schemas": "schemas",
    "test-mcp": "mcp_test",
    "status": "status",
    "reload": "reload",
    "accept": "accept",
    "revoke": "revoke",
    "trust-chain": "trust_chain",
    "dns": "dns",
}


# Commands without a log tell what went wrong, and with which server; Python's own last resort would print the
# bare words of log lines as well.
_NO_LOG: Final = logging.NullHandler()


class Misused(UsageError):
    """Wrong usage of the command: exit code 2."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code: 0 success, 1 failure, 2 wrong usage."""
    logging.getLogger("moot").addHandler(_NO_LOG)
    return run_program("xprotocol-adapter", _parser, arguments, explain=_report_error, check=_check)


def _check() -> None:
    check_installed("xprotocol")


def _parser(words: Sequence[str]) -> Parser:
    parser = Parser(
        prog="xprotocol-adapter", description=_ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    version = f"xprotocol-adapter {__version__} (XProtocol MCP Adapter 0.1 draft, profile xp1)"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for module in _modules(words):
        module.add_command(commands)
    return parser


def _report_error(chosen: argparse.Namespace, fault: MootError) -> int:
    code = 2 if isinstance(fault, Misused) else 1
    if getattr(chosen, "json", False):
        print(json.dumps({"ok": False, "error": str(fault)}))
    for line in str(fault).split("\n"):
        complain(f"xprotocol-adapter: {line}")
    return code


def _modules(words: Sequence[str]) -> list[Any]:
    """The modules to load: only that of the called command, since loading all of them is slow."""
    called = next((word for word in words if not word.startswith("-")), "")
    names = [_COMMANDS[called]] if called in _COMMANDS else list(_COMMANDS.values())
    return [import_module(f"{__name__}.{name}") for name in names]
