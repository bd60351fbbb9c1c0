"""`moot xp`: what XProtocol needs beside `xprotocol-adapter`, a relay and a look into event stores."""

from __future__ import annotations

from typing import Any

from moot.cli import program
from moot.cli.xp import relay, store

_EXAMPLES = """\
  moot xp relay                              a relay on 127.0.0.1:8764, events in .moot/relay
  moot xp store list .moot/relay             the newest events that it keeps
"""


def add_command(commands: Any, name: str) -> None:
    group = program.add_group(
        commands,
        name,
        help="XProtocol: run an event relay, look into its store",
        about="An event relay for XProtocol endpoints, and the store of its events. `xprotocol-adapter` is "
        "the endpoint itself. Needs the extra moot[xprotocol].",
        examples=_EXAMPLES,
    )
    relay.add_command(group, "relay")
    store.add_command(group, "store")
