"""`moot join`: a person in a space, in full screen, in a plain terminal or at the end of a pipe.

The full screen is `moot.tui.app`; what follows is for the others. Lines are chat; a line that begins with a
slash is an operation (`/help` lists them), and one that begins with two is chat that begins with one. On a
terminal operations run beside each other, so that a call that waits for a decision does not keep anybody from
deciding. From a pipe they run one after the other, so that a script is carried out as it stands, and the end
of the input is the end.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import os
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from moot.cli.client.connect_options import add_connect_options, connect_settings_of
from moot.cli.client.screen import Screen, lines_from_stdin
from moot.cli.options.shared_options import add_json, add_latest, add_plain
from moot.cli.process import program
from moot.cli.process.exit_codes import EXIT_NOT_CONNECTED
from moot.cli.process.interruption import run_service
from moot.errors import MootError
from moot.operations.operation import (
    ClientContext,
    OperationResult,
    UserOperation,
    find_command,
    split_words,
)
from moot.operations.text.terminal_escape import printable
from moot.resilience.durations import parse_duration
from moot.resilience.task_set import BackgroundTasks

if TYPE_CHECKING:
    from moot.config.connect_settings import ConnectSettings
    from moot.participant import JoinedSpace, MissedMessages, StreamInfo
    from moot.protocol.envelope import Envelope

_ABOUT = """\
Takes part in a space from a terminal, in full screen: what is said, what waits for your decision, who is
here. What you type is chat; / begins a command, and F1 explains the keys. Needs the extra moot[tui].

With --plain, without that extra, or where the output is no terminal, there are lines of text instead. They
can be scripted: lines from a pipe are carried out one after the other, and the end of the input ends it,
or --linger TIME later. With --json every message is one envelope a line.
"""
_EXAMPLES = """\
  moot join                                       in the folder of a space
  printf '/approve 3f1c22ab\\n' | moot join --json
  moot join --gateway https://moot.example.org --space lab --token-file bob.token
"""
_OWN_HELP: Final = (
    ("to [NAME…]", "whom your chat is for from now on; nobody in particular without a name"),
    ("help [COMMAND]", "this, or how one of them is used"),
    ("quit", "leave"),
)


def add_command(commands: Any, name: str) -> None:
    parser = program.add_command(
        commands,
        name,
        help="take part in a space from this terminal",
        about=_ABOUT,
        examples=_EXAMPLES,
    )
    add = parser.add_argument
    add_latest(parser, 10)
    add("--all", action="store_true", help="also what only programs care for: progress, acknowledgements, …")
    lingers = "stay this long after the end of the input (0: for ever)"
    add("--linger", type=parse_duration, metavar="TIME", help=lingers)
    add("--timeout", type=parse_duration, metavar="TIME", help="how long to wait for an answer")
    add_json(parser)
    add_plain(parser)
    add("--theme", metavar="NAME", help="full screen: how it looks, such as moot-light or moot-contrast")
    add("--bell", action="store_true", help="full screen: ring when something waits for a decision")
    waits = "full screen: seconds in which a decision can be taken back before it is sent (0, 5 or 10)"
    add("--take-back", type=int, choices=(0, 5, 10), default=0, metavar="SECONDS", help=waits)
    add_connect_options(parser)
    parser.set_defaults(run=run_join)


@program.tells_errors
def run_join(options: argparse.Namespace) -> int:
    # Ctrl-C is how one leaves.
    return run_service(_join(options))


async def _join(options: argparse.Namespace) -> int:
    from moot.participant import connect

    where = connect_settings_of(options)
    is_full = _wants_full_screen(options)
    async with connect(where.url, where.space, where.token.reveal(), name=where.name) as space:
        # Before anything is waited for: from here on nothing is missed.
        coming = space.envelopes(own=True)
        if is_full:
            return await _full_screen(space, where, coming, options)
        with Screen(as_json=options.json, verbose=options.all) as screen:
            return await Person(space, where, screen, options).stay(coming)


def _wants_full_screen(options: argparse.Namespace) -> bool:
    """Where both ends are a terminal, unless told otherwise; a hint where that was perhaps expected."""
    if options.plain or options.json or not sys.stdin.isatty():
        return False
    if not sys.stdout.isatty():
        _hint("lines of text, since the output is no terminal; --plain says so without this hint")
        return False
    if find_spec("textual") is None:
        _hint(
            "lines of text: the full screen needs the extra 'tui' (pip install '.[tui]' in the clone of Moot)"
        )
        return False
    if os.environ.get("TERM", "dumb") == "dumb":
        _hint("lines of text, since TERM says that this terminal can do no more")
        return False
    return True


def _hint(words: str) -> None:
    print(f"moot: {words}", file=sys.stderr, flush=True)


async def _full_screen(
    space: JoinedSpace,
    where: ConnectSettings,
    coming: AsyncIterator[Envelope | MissedMessages],
    options: argparse.Namespace,
) -> int:
    from moot.tui.run_terminal import run_terminal
    from moot.tui.theme import DEFAULT_THEME, TerminalOptions

    context = ClientContext(
        space,
        default_to=where.default_to,
        timeout_seconds=options.timeout,
        is_interactive=True,
        console_url=where.url,
    )
    terminal = TerminalOptions(
        space_label=where.space or "the space",
        verbose=options.all,
        theme=options.theme or DEFAULT_THEME,
        bell=options.bell,
        take_back_seconds=options.take_back,
    )
    code = await run_terminal(space, coming, context, terminal)
    if space.close_reason is not None:
        words = f"the connection ended: {space.close_reason.code} {space.close_reason.reason}".rstrip()
        print(f"moot: {printable(words)}", file=sys.stderr, flush=True)
    return code


class Person:
    """Somebody at a terminal: one task receives, one reads what is typed."""

    def __init__(
        self, space: JoinedSpace, where: ConnectSettings, screen: Screen, options: argparse.Namespace
    ) -> None:
        from moot.operations.operation_table import OPERATIONS

        self.context = ClientContext(
            space,
            default_to=where.default_to,
            timeout_seconds=options.timeout,
            is_interactive=True,
            console_url=where.url,
        )
        self._where = where
        self._screen = screen
        self._options = options
        self._operations = {operation.name: operation for operation in OPERATIONS}
        self._leaving = asyncio.Event()
        self._failed = False

    async def stay(self, coming: AsyncIterator[Envelope | MissedMessages]) -> int:
        """Until the input ends, /quit, or the gateway's own end; the exit code. Cancelling leaves."""
        space = self.context.space
        await self._begin()
        async with asyncio.TaskGroup() as group:
            self._background = BackgroundTasks(group)
            receiving = self._background.start(self._show_messages(coming))
            leaving = self._background.start(self._leaving.wait())
            self._background.start(self._type())
            space.streams.on_open(self._stream_opened)
            for info in space.streams:
                self._stream_opened(info)
            await asyncio.wait([receiving, leaving], return_when=asyncio.FIRST_COMPLETED)
            ended = space.close_reason
            self._background.cancel()
        if ended is not None:
            self._screen.fault(f"the connection ended: {ended.code} {ended.reason}".rstrip())
            return EXIT_NOT_CONNECTED
        return 1 if self._failed and not self._screen.is_terminal else 0

    async def _begin(self) -> None:
        """Show earlier messages, who is here, and pending proposals."""
        from moot.operations.proposal_operations import described

        space, screen = self.context.space, self._screen
        before = await space.recall()
        if screen.as_json:
            return
        for envelope in before[-self._options.n :] if self._options.n > 0 else []:
            screen.envelope(envelope)
        others = ", ".join(space.roster) or "nobody"
        where = self._where.space or "the space"
        screen.lines([f"joined {where} as {space.me}; also here: {others}. /help for help"])
        known = {envelope.id for envelope in before}
        for seen in space.proposals.open():
            if seen.id in known:
                screen.lines([*described(self.context, seen), *self._hint(seen.id)])

    # Receiving

    async def _show_messages(self, coming: AsyncIterator[Envelope | MissedMessages]) -> None:
        from moot.participant import MissedMessages

        async for item in coming:
            if isinstance(item, MissedMessages):
                self._screen.gap(item)
            else:
                self._show(item)

    def _show(self, envelope: Envelope) -> None:
        from moot.operations.proposal_operations import described

        seen = None
        if envelope.kind == "mcp/proposal" and not self._screen.as_json:
            seen = self.context.space.proposals.get(envelope.id)
        if seen is None:
            own_chat = envelope.kind == "chat" and envelope.sender == self.context.space.me
            if not (own_chat and self._screen.is_terminal):
                self._screen.envelope(envelope)
            return
        mine = seen.proposer == self.context.space.me
        self._screen.lines([*described(self.context, seen), *([] if mine else self._hint(seen.id))])

    def _hint(self, id: str) -> list[str]:
        number = self.context.number(id)
        return [f"    /approve {number} approves it, /reject {number} rejects it"]

    def _stream_opened(self, info: StreamInfo) -> None:
        self._background.start(self._read(info))

    async def _read(self, info: StreamInfo) -> None:
        """Print the frames of a stream as far as we get them."""
        from moot.participant import MissedMessages

        with suppress(MootError):
            async for chunk in self.context.space.streams.read(info.id):
                if isinstance(chunk, MissedMessages):
                    self._screen.gap(chunk)
                elif self._screen.as_json:
                    body = {"text": chunk.text} if not chunk.binary else {"base64": _base64(chunk.data)}
                    self._screen.value({"stream": info.id, "owner": info.owner} | body)
                else:
                    words = f"[{len(chunk.data)} bytes]" if chunk.binary else chunk.text
                    self._screen.lines([f"stream {info.id} of {info.owner}: {words}"])

    # Typing

    async def _type(self) -> None:
        is_terminal = self._screen.is_terminal
        async for line in lines_from_stdin(self._screen):
            if not is_terminal:
                await self._carry_out(line)
            elif line.strip():
                self._background.start(self._carry_out(line))
            if self._leaving.is_set():
                return
        if is_terminal or self._options.linger is None:
            self._leaving.set()
        elif self._options.linger > 0:
            await asyncio.sleep(self._options.linger)
            self._leaving.set()

    async def _carry_out(self, line: str) -> None:
        """One line: chat or an operation. An error is shown and ends nothing."""
        try:
            if not line.strip():
                return
            if line.startswith("/") and not line.startswith("//"):
                await self._operate(line[1:])
            else:
                text = line[1:] if line.startswith("//") else line
                await self.context.space.chat(text, to=self.context.default_to)
        except MootError as fault:
            self._failed = True
            self._screen.fault(fault)

    async def _operate(self, line: str) -> None:
        name, *rest = split_words(line) or ["help"]
        match name:
            case "quit" | "exit":
                self._leaving.set()
            case "help":
                self._screen.show_result("help", self._help(rest))
            case "to":
                self.context.default_to = tuple(rest)
                whom = ", ".join(rest) or "nobody in particular"
                self._screen.show_result("to", OperationResult({"to": rest}, [f"your chat is for {whom}"]))
            case _:
                operation = find_command(name, self._operations)
                options = operation.slash_parser().parse_args(rest)
                self._screen.show_result(name, await operation.run(self.context, options))

    def _help(self, names: list[str]) -> OperationResult:
        if names:
            text = find_command(names[0], self._operations).slash_parser().format_help()
            return OperationResult(text, text.rstrip().split("\n"))
        return _overview(self._operations)


def _overview(operations: dict[str, UserOperation]) -> OperationResult:
    rows = [(f"/{name}", operation.help) for name, operation in operations.items()]
    rows += [(f"/{usage}", words) for usage, words in _OWN_HELP]
    width = max(len(usage) for usage, _ in rows)
    return OperationResult(dict(rows), [f"{usage.ljust(width)}  {words}" for usage, words in rows])


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
