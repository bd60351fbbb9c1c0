"""The `moot` command: one file per command group, and one place that turns faults into exit codes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

from moot import __version__
from moot.cli.program import Parser, run_program

_ABOUT = """\
A shared workspace where people, agents and MCP tools meet. Everyone in a space sees every message;
nobody does what their capabilities don't allow; whoever may not act may propose, and someone trusted decides.

Speaks the Multi-Entity Workspace Protocol (mew/v0.4), MCPx (mcpx/v0.1) and the dotted m3p kinds.
All three are experimental: nothing is promised to stay compatible before their v1.0, so pin a version.
"""

# One module each, in the order of the help. All but `client` are called as their one command.
_GROUPS: Final = (
    "serve", "demo", "conformance", "journal", "bridge", "init", "up",
    "client", "agent", "mcp", "approver", "trust", "decisions", "explain", "relay", "store",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 is success, 1 a failure that was explained, 2 a mistake in the call."""
    return run_program("moot", _parser, arguments)


def _parser(words: Sequence[str]) -> Parser:
    parser = Parser(prog="moot", description=_ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"moot {__version__} (mew/v0.4, mcpx/v0.1)")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for group in _groups(words):
        group.add_commands(commands)
    return parser


def _groups(words: Sequence[str]) -> list[Any]:
    """The groups to load: the one that is called; loading them all takes longer than most commands do."""
    called = next((word for word in words if not word.startswith("-")), "")
    if called in _GROUPS:
        return [_loaded(called)]
    client = _loaded("client")
    return [client] if called in client.COMMANDS else [_loaded(name) for name in _GROUPS]


def _loaded(name: str) -> Any:
    return import_module(f"{__name__}.{name}")
