"""The operations of `moot.operations` as commands: the daily ones by themselves, the others in groups."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from moot.cli.client.connect_options import CONNECT_HELP, add_connect_options, connect_settings_of
from moot.cli.options.shared_options import add_json
from moot.cli.process import program
from moot.errors import UsageError
from moot.operations.operation_table import operation_named
from moot.resilience.durations import parse_duration

if TYPE_CHECKING:
    from moot.operations.operation import SignInLink, UserOperation

# Group → its operations, in the order of the help. `moot proposal` has commands of other kinds, too.
GROUPS: Final = {
    "member": (
        "invite", "grant", "revoke", "pause", "resume", "kick", "status", "request", "control",
    ),
    "message": ("ack", "cancel", "stop", "content"),
    "proposal": ("vote", "withdraw", "settle"),
}  # fmt: skip

_MEMBER_EXAMPLES: Final = """\
  moot member invite ana chat mcp/request mcp/reject --link    a link for a colleague's browser
  moot member invite bob chat mcp/proposal --token-out bob.token
  moot member grant agent mcp/request:tools/call:read_file
  moot member pause agent --for 300
  moot member token --for 1h --only chat     a short-lived token for a program
  moot members                               lists who is here
"""
_MESSAGE_EXAMPLES: Final = """\
  moot tail -n 50 --json --kind chat         shows chats with their ids
  moot message ack 3f1c22ab
  moot message stop 77aa01bc --reason "found it"
  moot message content 3f1c22ab90de report.csv
"""

# Which editor somebody has, as git and others look for it.
_EDITOR_VARIABLES: Final = ("VISUAL", "EDITOR")
# A gateway that was started by the line before is there in a second or two.
_ARRIVE_SECONDS: Final = 2.0


def add_command(commands: Any, name: str) -> None:
    """Add one of the daily commands, or the group `member` or `message`."""
    match name:
        case "member":
            from moot.cli.client.member_access import add_access_commands
            from moot.cli.client.member_token import add_token_command

            group = program.add_group(
                commands,
                name,
                help="invite members, change what they may do, pause and remove them",
                examples=_MEMBER_EXAMPLES,
            )
            add_operations(group, name)
            add_token_command(group)
            add_access_commands(group)
        case "message":
            group = program.add_group(
                commands,
                name,
                help="acknowledge or cancel a chat, stop reasoning, fetch a large value",
                examples=_MESSAGE_EXAMPLES,
            )
            add_operations(group, name)
        case _:
            _add_operation(commands, name)


def add_operations(group: Any, name: str) -> None:
    """Add the operations of a group to it."""
    for operation in GROUPS[name]:
        _add_operation(group, operation)


def _add_operation(commands: Any, name: str) -> None:
    operation = operation_named(name)
    parser = program.add_command(
        commands,
        name,
        help=operation.help,
        about=operation.description,
        examples=f"{operation.examples}\n{CONNECT_HELP}",
    )
    operation.arguments(parser)
    add_connect_options(parser)
    if operation.waits:
        parser.add_argument(
            "--timeout", type=parse_duration, metavar="TIME", help="how long to wait for an answer"
        )
    add_json(parser)
    parser.set_defaults(run=run_operation, operation=operation, timeout=None)


@program.tells_errors
def run_operation(options: argparse.Namespace) -> int:
    """Join, do one thing, leave."""
    from moot.cli.process.interruption import run_errand

    return run_errand(_perform(options))


async def _perform(options: argparse.Namespace) -> int:
    from moot.cli.client.operation_output import print_proposed, print_result
    from moot.operations.operation import ClientContext
    from moot.participant import ParticipantLimits, connect

    operation: UserOperation = options.operation
    settings = connect_settings_of(options)
    token = settings.token.reveal()
    limits = ParticipantLimits(connect_seconds=_ARRIVE_SECONDS)
    # Passive: this participant may be connected already, and that connection answers requests.
    async with connect(
        settings.url,
        settings.space,
        token,
        name=settings.name,
        passive=True,
        reconnect=False,
        limits=limits,
    ) as space:
        context = ClientContext(
            space,
            default_to=settings.default_to,
            timeout_seconds=options.timeout,
            on_proposed=lambda proposal: print_proposed(space, proposal, settings.url, options.timeout),
            make_link=partial(_make_link, settings.url),
            console_url=settings.url,
            on_waiting=lambda text: print(text, file=sys.stderr, flush=True),
            edit_text=_edit_text,
        )
        if operation.needs_history:
            context.history = await space.recall()
        result = await operation.run(context, options)
    if space.counts.not_on_disk and isinstance(result.value, dict):
        # As HTTP has it; what it means is a line of the SDK on stderr.
        result = structs.replace(result, value={**result.value, "on_disk": False})
    print_result(result, as_json=options.json)
    return result.code


async def _make_link(gateway: str, token: str) -> tuple[SignInLink, str]:
    from moot.cli.client.open_console import ask_for_link, qr_text

    link = await asyncio.to_thread(ask_for_link, gateway, token, elsewhere=True)
    return link, qr_text(link.address)


async def _edit_text(text: str) -> str:
    """Open an editor and wait until it is closed; raises UsageError if it cannot be used."""
    import shlex
    import tempfile

    editor = next((os.environ[name] for name in _EDITOR_VARIABLES if os.environ.get(name)), "vi")
    # The folder is this user's alone.
    with tempfile.TemporaryDirectory(prefix="moot-") as folder:
        file = Path(folder) / "arguments.json"
        file.write_text(text)
        try:
            process = await asyncio.create_subprocess_exec(*shlex.split(editor), str(file))
        except (OSError, ValueError) as fault:
            raise UsageError(f"the editor {editor!r} cannot be started ({fault}): set EDITOR") from None
        if await process.wait() != 0:
            raise UsageError(f"the editor {editor!r} ended with an error: nothing was done")
        return file.read_text()
