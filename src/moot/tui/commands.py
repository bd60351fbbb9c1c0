"""The slash commands: every operation of a space, and those of the terminal itself, in one table.

An operation is defined once, in `moot.tui.operations`; here come those that only a screen has: filters,
themes, panes, the reason of a refusal. Approving is one of them: it asks first, with everything in sight.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from moot.errors import UsageError
from moot.tui.operations import OPERATIONS
from moot.tui.operations.operation import ClientContext, OperationResult, Run, UserOperation

PANES: Final = ("timeline", "approvals", "people", "reasoning", "streams", "chats", "rules")


class Terminal(Protocol):
    """What commands of the terminal itself need of it."""

    def leave(self) -> None: ...
    def filter_by(self, text: str) -> None: ...
    def use_theme(self, name: str) -> None: ...
    def open_pane(self, name: str) -> None: ...
    def ask_to_approve(self, named: str, to: str | None) -> None: ...
    def look_at(self, named: str) -> None: ...
    def look_at_stream(self, named: str) -> None: ...
    def why(self, named: str | None) -> Sequence[str]: ...
    def show_help(self, command: str | None) -> None: ...


def table(terminal: Terminal, more: Iterable[UserOperation] = ()) -> dict[str, UserOperation]:
    """All commands by name, in the order of the help."""
    own = _own(terminal)
    # Where a screen has a command of its own, it is that one.
    commands = {operation.name: operation for operation in OPERATIONS}
    return commands | {operation.name: operation for operation in (*more, *own)}


def parse(line: str, commands: dict[str, UserOperation]) -> tuple[UserOperation, argparse.Namespace]:
    """The operation that a line behind its slash means, and its arguments; raises UsageError."""
    try:
        words = shlex.split(line)
    except ValueError as fault:
        raise UsageError(f"{fault}: put quotes around text with spaces, and close them") from None
    name, *rest = words or ["help"]
    operation = commands.get(name)
    if operation is None:
        # Abbreviations are for Tab: /k is not to remove anybody.
        like = ", ".join(f"/{each}" for each in commands if each.startswith(name[:2]))
        raise UsageError(
            f"unknown command /{name}: {f'did you mean {like}?' if like else '/help lists the commands'}"
        )
    return operation, operation.slash_parser().parse_args(rest)


def _own(terminal: Terminal) -> tuple[UserOperation, ...]:
    def to(parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "members", nargs="*", metavar="NAME", help="who; without one, no one in particular"
        )

    async def set_to(seat: ClientContext, chosen: argparse.Namespace) -> OperationResult:
        seat.default_to = tuple(chosen.members)
        whom = ", ".join(chosen.members) or "no one in particular"
        return OperationResult({"to": chosen.members}, [f"your messages are now addressed to {whom}"])

    def approve(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("proposal", metavar="ID", help="its number, its id, or the start of its id")
        parser.add_argument("--to", metavar="NAME", help="who should run it, if the proposal names no one")

    rows: tuple[tuple[str, str, Callable[[argparse.ArgumentParser], None], Run], ...] = (
        (
            "approve",
            "show a proposal in full and approve it",
            approve,
            _does(lambda chosen: terminal.ask_to_approve(chosen.proposal, chosen.to)),
        ),
        ("to", "set whom your messages are addressed to", to, set_to),
        (
            "filter",
            "filter the timeline: from:NAME kind:KIND TEXT; a leading - excludes",
            _words("conditions", "CONDITION", "without one, everything is shown"),
            _does(lambda chosen: terminal.filter_by(shlex.join(chosen.conditions))),
        ),
        (
            "look",
            "show a message in full",
            _one("envelope", "ID", "its id, or the start of it"),
            _does(lambda chosen: terminal.look_at(chosen.envelope)),
        ),
        (
            "why",
            "explain why a message was refused and what to do about it",
            _perhaps("envelope", "ID", "the refused message or its refusal (default: the latest)"),
            _tells(lambda chosen: terminal.why(chosen.envelope)),
        ),
        (
            "tail",
            "follow a stream",
            _one("stream", "ID", "its id, or the start of it"),
            _does(lambda chosen: terminal.look_at_stream(chosen.stream)),
        ),
        (
            "pane",
            f"go to a pane: {', '.join(PANES)}",
            _choice("pane", PANES),
            _does(lambda chosen: terminal.open_pane(chosen.pane)),
        ),
        (
            "theme",
            "set the colour theme; Tab lists the names",
            _one("theme", "NAME", "such as moot-light or moot-contrast"),
            _does(lambda chosen: terminal.use_theme(chosen.theme)),
        ),
        (
            "help",
            "list keys and commands, or explain one command",
            _perhaps("command", "COMMAND", "the command to explain"),
            _does(lambda chosen: terminal.show_help(chosen.command)),
        ),
        ("quit", "leave the space", _nothing, _does(lambda _: terminal.leave())),
        ("exit", "leave the space", _nothing, _does(lambda _: terminal.leave())),
    )
    return tuple(
        UserOperation(name=name, help=help, arguments=arguments, run=run, only_joined=True)
        for name, help, arguments, run in rows
    )


def _does(act: Callable[[argparse.Namespace], None]) -> Run:
    async def run(_: ClientContext, chosen: argparse.Namespace) -> OperationResult:
        act(chosen)
        return OperationResult(None)

    return run


def _tells(ask: Callable[[argparse.Namespace], Sequence[str]]) -> Run:
    async def run(_: ClientContext, chosen: argparse.Namespace) -> OperationResult:
        return OperationResult(None, ask(chosen))

    return run


def _nothing(parser: argparse.ArgumentParser) -> None:
    del parser


def _one(dest: str, metavar: str, help: str) -> Callable[[argparse.ArgumentParser], None]:
    return lambda parser: _add(parser, dest, metavar=metavar, help=help)


def _perhaps(dest: str, metavar: str, help: str) -> Callable[[argparse.ArgumentParser], None]:
    return lambda parser: _add(parser, dest, nargs="?", metavar=metavar, help=help)


def _words(dest: str, metavar: str, help: str) -> Callable[[argparse.ArgumentParser], None]:
    # A condition may begin with a minus, which argparse would take for an option.
    return lambda parser: _add(parser, dest, nargs=argparse.REMAINDER, metavar=metavar, help=help)


def _choice(dest: str, choices: Sequence[str]) -> Callable[[argparse.ArgumentParser], None]:
    return lambda parser: _add(parser, dest, choices=choices, help=", ".join(choices))


def _add(parser: argparse.ArgumentParser, dest: str, **options: object) -> None:
    parser.add_argument(dest, **options)  # type: ignore[arg-type]
