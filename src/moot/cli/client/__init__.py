"""Taking part from a shell: a command for each operation, `moot join` to stay, `moot tail` to watch."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from moot.cli.program import RefuseToken
from moot.tui.operations import OPERATIONS
from moot.tui.operations.operation import UserOperation

if TYPE_CHECKING:
    from moot.config.connect_settings import ConnectSettings

__all__ = ["COMMANDS", "OPERATIONS", "add_commands", "add_where", "run", "where_of"]

# What is typed behind `moot`.
COMMANDS: Final = frozenset(
    {"join", "tail", *(operation.name for operation in OPERATIONS if not operation.only_joined)}
)

# A gateway that was started by the line before is there in a second or two.
_ARRIVE_SECONDS: Final = 2.0

_WHERE = """\
In the folder of a moot.yaml or space.yaml nothing else is needed: the space is the one there, and you are
its default_participant (or --as NAME). Elsewhere say --gateway and --token-file, or set MOOT_URL and
MOOT_TOKEN_FILE.

exit codes: 0 done; 1 it failed; 2 a mistake in the call; 3 somebody said no (refused, rejected);
4 nobody answered in time; 5 no way into the space
"""


def add_commands(commands: Any) -> None:
    from moot.cli.client import join, tail

    join.add_command(commands)
    tail.add_command(commands)
    for operation in OPERATIONS:
        if not operation.only_joined:
            _add(commands, operation)


def _add(commands: Any, operation: UserOperation) -> None:
    examples = f"examples:\n{operation.examples}\n" if operation.examples else ""
    parser = commands.add_parser(
        operation.name,
        help=operation.help,
        description=operation.about or f"{operation.help[:1].upper()}{operation.help[1:]}.",
        epilog=f"{examples}{_WHERE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    operation.arguments(parser)
    add_where(parser)
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="how long to wait for an answer")
    parser.add_argument("--json", action="store_true", help="one JSON value instead of words")
    parser.set_defaults(run=run, operation=operation)


def add_where(parser: argparse.ArgumentParser) -> None:
    """The options that say where the space is, and as whom to come in."""
    where = parser.add_argument_group("where")
    where.add_argument("--gateway", metavar="URL", help="such as http://localhost:8080")
    where.add_argument("--space", metavar="NAME", help="which space, if there are several")
    where.add_argument("--token-file", type=Path, metavar="FILE", help="holds your token")
    where.add_argument("--token", action=RefuseToken)
    where.add_argument("--as", dest="whom", metavar="NAME", help="a participant of the space in this folder")
    where.add_argument("--config", type=Path, metavar="FILE", help="a moot.yaml or space.yaml elsewhere")


def where_of(chosen: argparse.Namespace) -> ConnectSettings:
    from moot.config.connect_settings import CliOverrides, connect_settings

    asked = CliOverrides(
        gateway=chosen.gateway,
        space=chosen.space,
        token_file=chosen.token_file,
        name=chosen.whom,
        config=chosen.config,
    )
    return connect_settings(asked, environ=os.environ, folder=Path())


def run(chosen: argparse.Namespace) -> int:
    """Come in, do one thing, leave."""
    from moot.cli.client.operation_output import show_fault
    from moot.cli.interruption import run_errand
    from moot.errors import MootError

    try:
        return run_errand(_perform(chosen))
    except MootError as fault:
        return show_fault(fault, as_json=chosen.json)


async def _perform(chosen: argparse.Namespace) -> int:
    from moot.cli.client.operation_output import show
    from moot.participant import ParticipantLimits, connect
    from moot.tui.operations.operation import ClientContext

    operation: UserOperation = chosen.operation
    where = where_of(chosen)
    token = where.token.reveal()
    limits = ParticipantLimits(arrive_seconds=_ARRIVE_SECONDS)
    # Beside the connection that speaks for this participant, if there is one: it answers nothing by itself.
    async with connect(where.url, where.space, token, passive=True, reconnect=False, limits=limits) as space:
        seat = ClientContext(space, default_to=where.default_to, timeout=chosen.timeout)
        if operation.recalls:
            seat.recalled = await space.recall()
        answer = await operation.run(seat, chosen)
    show(answer, as_json=chosen.json)
    return answer.code
