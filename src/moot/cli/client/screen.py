"""A plain terminal, or a pipe: lines out that obey nothing, lines in that wait for nobody."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from moot.errors import MootError
from moot.operations.operation import OperationResult, error_code
from moot.operations.text.envelope_view import lines_of
from moot.operations.text.terminal_escape import printable, printable_json
from moot.protocol.operation import Json

if TYPE_CHECKING:
    from moot.participant import MissedMessages
    from moot.protocol.envelope import Envelope

_PROMPT: Final = "> "
# An envelope has at most 1 MiB; nobody types more, and a pipe without newlines must not fill the memory.
_LINE_BYTES: Final = 1 << 20
# Lines that were read and not carried out yet: a pipe waits, a person never gets there.
_LINES_AHEAD: Final = 64


class Screen:
    """Prints for people or machines. On a terminal the line that is being typed is kept below."""

    def __init__(self, *, as_json: bool, verbose: bool) -> None:
        self.as_json = as_json
        self.verbose = verbose
        self.is_terminal = sys.stdin.isatty() and sys.stdout.isatty() and not as_json
        # Whether somebody is being asked for a line, whose beginning has to stay in sight.
        self.is_asking = False
        self._settings: list[Any] | None = None

    def __enter__(self) -> Self:
        if self.is_terminal:
            import termios

            handle = sys.stdin.fileno()
            self._settings = termios.tcgetattr(handle)
            # Between two lines readline puts back what it found. In the terminal's own line mode a Ctrl-D
            # that comes just then would be taken for the end of a line that nobody reads, and be lost.
            between = termios.tcgetattr(handle)
            between[3] &= ~termios.ICANON
            between[6][termios.VMIN], between[6][termios.VTIME] = 1, 0
            termios.tcsetattr(handle, termios.TCSADRAIN, between)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._settings is not None:
            import termios

            # Whoever was typing when we left had the terminal in another mode.
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, self._settings)
            sys.stdout.write("\r\x1b[K")
            sys.stdout.flush()

    # Out

    def envelope(self, envelope: Envelope) -> bool:
        """Print an envelope; whether there was anything to print."""
        if self.as_json:
            self._write(printable_json(envelope.raw))
            return True
        lines = lines_of(envelope, verbose=self.verbose)
        self.lines(lines)
        return bool(lines)

    def lines(self, lines: Sequence[str]) -> None:
        """Words for a person; in JSON there are none."""
        if not self.as_json:
            for line in lines:
                for part in line.split("\n"):
                    self._write(printable(part))

    def value(self, value: Json) -> None:
        if self.as_json:
            self._write(json.dumps(value))

    def show_result(self, name: str, answer: OperationResult) -> None:
        """What came of an operation."""
        self.value({"operation": name, "result": answer.value})
        self.lines(answer.lines)

    def fault(self, fault: MootError | str) -> None:
        word = error_code(fault) if isinstance(fault, MootError) else "ended"
        self.value({"error": word, "message": str(fault)})
        self.lines([f"! {fault}"])

    def gap(self, gap: MissedMessages) -> None:
        self.value({"missed_messages": gap.missed, "reason": gap.why})
        missed = "some messages" if gap.missed is None else f"{gap.missed} messages"
        self.lines([f"… {missed} were missed: {gap.why}"])

    def _write(self, line: str) -> None:
        if self.is_asking:
            sys.stdout.write(f"\r\x1b[K{line}\n{_PROMPT}{_typed_so_far()}")
        else:
            sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def _typed_so_far() -> str:
    readline = sys.modules.get("readline")
    return readline.get_line_buffer() if readline is not None else ""


async def lines_from_stdin(screen: Screen) -> AsyncIterator[str]:
    """Lines of the standard input, whatever it is: a terminal, a pipe, a file. A thread reads them."""
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[str | None] = asyncio.Queue()
    # How many more lines the thread may read ahead of what was carried out.
    ahead = threading.Semaphore(_LINES_AHEAD)

    def read() -> None:
        source = typed_lines(screen) if screen.is_terminal else _piped_lines(sys.stdin.fileno())
        # The loop may be gone by now: then nobody carries anything out any more.
        with suppress(RuntimeError):
            for line in chain(source, [None]):
                ahead.acquire()
                loop.call_soon_threadsafe(lines.put_nowait, line)

    # A daemon: nothing can wake a thread that waits for somebody to type.
    threading.Thread(target=read, name="standard input", daemon=True).start()
    while (line := await lines.get()) is not None:
        ahead.release()
        yield line


def typed_lines(screen: Screen) -> Iterator[str]:
    """Lines that a person types at a terminal, until Ctrl-D."""
    # Loading it is what makes input() edit lines and remember them.
    import readline  # noqa: F401

    screen.is_asking = True
    while True:
        try:
            yield input(_PROMPT)
        except (EOFError, OSError, ValueError):
            screen.is_asking = False
            return


def _piped_lines(handle: int) -> Iterator[str]:
    # Not sys.stdin: its lock, held by a thread that waits, is fatal to an interpreter that ends.
    held = b""
    while True:
        try:
            data = os.read(handle, 1 << 16)
        except OSError:
            data = b""
        *lines, held = (held + data).split(b"\n")
        for line in lines:
            yield line.decode("utf-8", "replace").rstrip("\r")
        if len(held) > _LINE_BYTES or (held and not data):
            yield held.decode("utf-8", "replace")
            held = b""
        if not data:
            return
