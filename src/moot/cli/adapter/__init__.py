"""The `xprotocol-adapter` command (XP Appendix A): one file per command, and one place for exit codes."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

from moot import __version__
from moot.cli.extras import check_installed
from moot.cli.program import Parser, complain, run_program
from moot.errors import MootError, UsageError

_ABOUT = """\
Bridges MCP and XProtocol (XProtocol.ai), both ways at once: MCP servers become a signed, sealed XProtocol
endpoint, and XProtocol endpoints become MCP tools. One YAML file says what; neither side has to change.

The first day:
  xprotocol-adapter keygen                                  who the adapter is
  $EDITOR xprotocol-mcp-adapter.yml                         which servers, which relay
  xprotocol-adapter validate --config xprotocol-mcp-adapter.yml
  xprotocol-adapter start

Exit codes: 0 it worked, 1 it did not (and what to do was said), 2 the command was called wrongly.
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


class Misused(UsageError):
    """The command was called in a way that says too little or too much: exit code 2."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 is success, 1 a failure that was explained, 2 a mistake in the call."""
    return run_program("xprotocol-adapter", _parser, arguments, explain=_told, check=_check)


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


def _told(chosen: argparse.Namespace, fault: MootError) -> int:
    code = 2 if isinstance(fault, Misused) else 1
    if getattr(chosen, "json", False):
        print(json.dumps({"ok": False, "error": str(fault)}))
    for line in str(fault).split("\n"):
        complain(f"xprotocol-adapter: {line}")
    return code


def _modules(words: Sequence[str]) -> list[Any]:
    """The modules to load: the one that is called; loading them all takes longer than most commands do."""
    called = next((word for word in words if not word.startswith("-")), "")
    names = [_COMMANDS[called]] if called in _COMMANDS else list(_COMMANDS.values())
    return [import_module(f"{__name__}.{name}") for name in names]
