"""The `moot` command: one file per command group, and one place that turns faults into exit codes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from moot import __version__
from moot.cli import agent, bridge, conformance, demo, init, journal, mcp, serve, talking, up
from moot.errors import MootError

_ABOUT = """\
A shared workspace where people, agents and MCP tools meet. Everyone in a space sees every message;
nobody does what their capabilities don't allow; whoever may not act may propose, and someone trusted decides.

Speaks the Multi-Entity Workspace Protocol (mew/v0.4), MCPx (mcpx/v0.1) and the dotted m3p kinds.
All three are experimental: nothing is promised to stay compatible before their v1.0, so pin a version.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 is success, 1 a failure that was explained, 2 a mistake in the call."""
    parser = argparse.ArgumentParser(
        prog="moot", description=_ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"moot {__version__} (mew/v0.4, mcpx/v0.1)")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for group in (serve, demo, conformance, journal, bridge, init, up, talking, agent, mcp):
        group.add_commands(commands)
    chosen = parser.parse_args(arguments)
    try:
        code: int = chosen.run(chosen)
    except MootError as fault:
        print(f"moot: {fault}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader (head, less) has had enough.
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        return 130
    return code
