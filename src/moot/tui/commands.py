"""The slash commands: every operation of a space, and those of the terminal itself, in one table.

Operations are defined in `moot.operations`; here are those that only the full screen has: filters,
themes, panes, the reason for a refusal. Approving is one: it shows the proposal in full and asks first.
"""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from moot.operations.content_operation import CONTENT
from moot.operations.operation import ClientContext, OperationResult, Run, UserOperation, no_arguments
from moot.operations.operation_table import OPERATIONS
from moot.operations.text.terminal_escape import printable
from moot.participant import SeenProposal
from moot.protocol.operation import Json
from moot.tui.decision_flow import DecisionFlow
from moot.tui.detail_dialogs import DetailDialogs
from moot.tui.panes import PANES
from moot.tui.take_back import CHOICES


class Terminal(Protocol):
    """What commands need of the terminal itself."""

    def leave(self) -> None: ...
    def filter_by(self, text: str) -> None: ...
    def use_theme(self, name: str) -> None: ...
    def action_pane(self, name: str) -> None: ...
    def show_help(self, command: str | None) -> None: ...
    def take_decision_back(self, seconds: int | None) -> str: ...


def command_table(
    terminal: Terminal,
    decisions: DecisionFlow,
    details: DetailDialogs,
    extra: Iterable[UserOperation] = (),
) -> dict[str, UserOperation]:
    """All commands by name, in the order of the help."""
    own = _terminal_commands(terminal, decisions, details)
    # A command of the terminal replaces an operation with the same name.
    commands = {operation.name: operation for operation in OPERATIONS}
    return commands | {operation.name: operation for operation in (*extra, *own)}


def _terminal_commands(
    terminal: Terminal, decisions: DecisionFlow, details: DetailDialogs
) -> tuple[UserOperation, ...]:
    def to(parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "members", nargs="*", metavar="NAME", help="who; without one, no one in particular"
        )

    async def set_to(context: ClientContext, args: argparse.Namespace) -> OperationResult:
        context.default_to = tuple(args.members)
        whom = ", ".join(args.members) or "no one in particular"
        return OperationResult({"to": args.members}, [f"your messages are now addressed to {whom}"])

    def approve(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("proposal", metavar="ID", help="its number, its id, or the start of its id")
        parser.add_argument("--to", metavar="NAME", help="who should run it, if the proposal names no one")

    rows: tuple[tuple[str, str, Callable[[argparse.ArgumentParser], None], Run], ...] = (
        (
            "approve",
            "show a proposal in full and approve it",
            approve,
            _runs(lambda args: decisions.approve_named(args.proposal, args.to)),
        ),
        ("to", "set whom your messages are addressed to", to, set_to),
        (
            "filter",
            "filter the timeline: from:NAME kind:KIND TEXT; a leading - excludes",
            _rest("conditions", "CONDITION", "without one, everything is shown"),
            _runs(lambda args: terminal.filter_by(shlex.join(args.conditions))),
        ),
        (
            "look",
            "show a message in full",
            _one("envelope", "ID", "its id, or the start of it"),
            _runs(lambda args: details.show_named_envelope(args.envelope)),
        ),
        ("content", CONTENT.help, CONTENT.arguments, details.show_content),
        (
            "why",
            "explain why a message was refused and what to do about it",
            _optional("envelope", "ID", "the refused message or its refusal (default: the latest)"),
            _prints(lambda args: details.explain_refusal(args.envelope)),
        ),
        (
            "tail",
            "follow a stream",
            _one("stream", "ID", "its id, or the start of it"),
            _runs(lambda args: details.show_stream(args.stream)),
        ),
        (
            "pane",
            f"go to a pane: {', '.join(PANES)}",
            _choice("pane", PANES),
            _runs(lambda args: terminal.action_pane(args.pane)),
        ),
        (
            "take-back",
            "take the latest decision back before it is sent, or set the seconds for that",
            _seconds,
            _prints(lambda args: [terminal.take_decision_back(args.seconds)]),
        ),
        (
            "theme",
            "set the colour theme; Tab lists the names",
            _one("theme", "NAME", "such as moot-light or moot-contrast"),
            _runs(lambda args: terminal.use_theme(args.theme)),
        ),
        (
            "help",
            "list keys and commands, or explain one command",
            _optional("command", "COMMAND", "the command to explain"),
            _runs(lambda args: terminal.show_help(args.command)),
        ),
        ("quit", "leave the space", no_arguments, _runs(lambda _: terminal.leave())),
        ("exit", "leave the space", no_arguments, _runs(lambda _: terminal.leave())),
    )
    return tuple(
        UserOperation(name=name, help=help, arguments=arguments, run=run, interactive_only=True)
        for name, help, arguments, run in rows
    )


def _seconds(parser: argparse.ArgumentParser) -> None:
    choices = ", ".join(map(str, CHOICES))
    parser.add_argument(
        "--seconds", type=int, metavar="SECONDS", help=f"how long decisions wait: {choices}; 0 is off"
    )


def _runs(act: Callable[[argparse.Namespace], None]) -> Run:
    async def run(_: ClientContext, args: argparse.Namespace) -> OperationResult:
        act(args)
        return OperationResult(None)

    return run


def _prints(ask: Callable[[argparse.Namespace], Sequence[str]]) -> Run:
    async def run(_: ClientContext, args: argparse.Namespace) -> OperationResult:
        return OperationResult(None, ask(args))

    return run


def _one(dest: str, metavar: str, help: str) -> Callable[[argparse.ArgumentParser], None]:
    return lambda parser: _add(parser, dest, metavar=metavar, help=help)


def _optional(dest: str, metavar: str, help: str) -> Callable[[argparse.ArgumentParser], None]:
    return lambda parser: _add(parser, dest, nargs="?", metavar=metavar, help=help)


def _rest(dest: str, metavar: str, help: str) -> Callable[[argparse.ArgumentParser], None]:
    def arguments(parser: argparse.ArgumentParser) -> None:
        # A condition may begin with a minus, which is no option here.
        parser.prefix_chars = "\0"
        _add(parser, dest, nargs="*", metavar=metavar, help=help)

    return arguments


def _choice(dest: str, choices: Sequence[str]) -> Callable[[argparse.ArgumentParser], None]:
    return lambda parser: _add(parser, dest, choices=choices, help=", ".join(choices))


def _add(parser: argparse.ArgumentParser, dest: str, **options: object) -> None:
    parser.add_argument(dest, **options)  # type: ignore[arg-type]


def call_command(seen: SeenProposal) -> str | None:
    """`/call files write_file path=a.md text:="…"`; None for what is no call of a tool on one host."""
    name, arguments = seen.params.get("name"), seen.params.get("arguments", {})
    if seen.method != "tools/call" or len(seen.to) != 1 or not isinstance(name, str):
        return None
    if not isinstance(arguments, dict) or any(sign in key for key in arguments for sign in "=:"):
        return None
    words = ["/call", seen.to[0], name, *(_word(key, value) for key, value in arguments.items())]
    text = " ".join(shlex.quote(word) for word in words)
    return text if printable(text) == text else None


def _word(name: str, value: Json) -> str:
    if isinstance(value, str) and printable(value) == value and "\n" not in value:
        return f"{name}={value}"
    text = json.dumps(value, ensure_ascii=False)
    return f"{name}:={text if printable(text) == text else json.dumps(value)}"
