"""`moot proposal`: what people do with proposals besides approving and rejecting them."""

from __future__ import annotations

from typing import Any

from moot.cli.client.operation_commands import add_operations
from moot.cli.process import program
from moot.cli.proposal import explain, history

_EXAMPLES = """\
  moot proposals                             lists those that wait; approve and reject decide
  moot proposal vote 3f1c22ab                where the space asks for several votes
  moot proposal explain 3f1c22ab
  moot proposal history --how rejected --since 7d
"""


def add_command(commands: Any, name: str) -> None:
    group = program.add_group(
        commands,
        name,
        help="vote on proposals, withdraw, explain and list decided ones",
        about="What there is besides `moot proposals`, `moot approve` and `moot reject`. `vote` and "
        "`withdraw` send a message; `explain` and `history` read the journal of a gateway on this machine.",
        examples=_EXAMPLES,
    )
    add_operations(group, "proposal")
    explain.add_command(group, "explain")
    history.add_command(group, "history")
