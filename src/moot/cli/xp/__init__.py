"""`moot xp`: what XProtocol needs beside `xprotocol-adapter`, a relay."""

from __future__ import annotations

from typing import Any

from moot.cli.process import program
from moot.cli.xp import relay

_EXAMPLES = """\
  moot xp relay                              a relay on 127.0.0.1:8764, events in .moot/relay
"""


def add_command(commands: Any, name: str) -> None:
    group = program.add_group(
        commands,
        name,
        help="XProtocol: run an event relay",
        about="An event relay for XProtocol endpoints. `xprotocol-adapter` is the endpoint itself. "
        "Needs the extra moot[xprotocol].",
        examples=_EXAMPLES,
    )
    relay.add_command(group, "relay")
