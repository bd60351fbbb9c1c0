"""A terminal of one's own: a process that believes a person sits in front of it."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from tests.waiting import HANG_SECONDS

MOOT = [sys.executable, "-m", "moot.cli"]


def environment() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "TERM": "xterm", "PYTHONUNBUFFERED": "1", "TZ": "UTC"}


class Terminal:
    """A process on a terminal of its own, and what it has shown so far."""

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self.shown = ""

    def type(self, text: str) -> None:
        os.write(self.handle, text.encode())

    def until(self, holds: Callable[[str], bool]) -> str:
        while not holds(self.shown) and self._read():
            pass
        assert holds(self.shown), self.shown
        return self.shown

    def until_end(self) -> str:
        """All that is shown until nobody is left to write: unread, a full terminal would stop them."""
        while self._read():
            pass
        return self.shown

    def _read(self) -> bool:
        readable, _, _ = select.select([self.handle], [], [], HANG_SECONDS)
        assert readable, self.shown
        try:
            self.shown += os.read(self.handle, 1 << 16).decode("utf-8", "replace")
        except OSError:
            return False
        return True


def terminal(
    folder: Path, *words: str, **variables: str
) -> AbstractContextManager[tuple[Terminal, subprocess.Popen[bytes]]]:
    """A command of Moot on a terminal of its own."""
    return program_on_terminal(folder, *MOOT, *words, **variables)


@contextmanager
def program_on_terminal(
    folder: Path, *command: str, **variables: str
) -> Iterator[tuple[Terminal, subprocess.Popen[bytes]]]:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(  # noqa: S603
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=folder,
        env=environment() | variables,
        start_new_session=True,
        # As a terminal starts programs, also where the tests run under `nohup`.
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    )
    os.close(theirs)
    try:
        yield Terminal(ours), process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(HANG_SECONDS)
        os.close(ours)
