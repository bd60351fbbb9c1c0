"""Everything that a child has started, wherever it went: found by a mark, adopted, and ended with it.

A process group ends what stays in it. A daemon leaves: it forks twice, starts a session of its own and
belongs to process 1. Two things find it again, both on Linux only and both without root:

- Every child gets a mark in its environment, `MOOT_STARTED_BY`, which its descendants inherit. Processes
  with that mark are found in /proc.
- This process adopts orphans (`adopt_orphans`), so that one that has removed the mark is a child of ours.
  What is left when this process ends is ended with it (`end_descendants`).

When this process is killed and can do neither, `start_cleaner` has left a process behind that ends whatever
has the mark. A process of another user, or one that both removed the mark and outlived us, is not found.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

MARK: Final = "MOOT_STARTED_BY"
# What starts processes faster than we end them is given up after this.
_END_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 0.01
# An adopted process that has ended keeps its number for at most twice this.
_REAP_SECONDS: Final = 5.0

_PROC: Final = Path("/proc")
_PR_SET_CHILD_SUBREAPER: Final = 36
# One for this process, and a number for each child.
_own_mark: Final = secrets.token_hex(8)
_count = 0
# The process of `start_cleaner`.
_cleaner: int | None = None
# Children that somebody here waits for.
awaited: Final[set[int]] = set()


def new_mark() -> str:
    """The mark of a new child. Those of whoever started us stay in it."""
    global _count
    _count += 1
    return "/".join(filter(None, (os.environ.get(MARK), f"{_own_mark}.{_count}.")))


def own_mark() -> str:
    """What the marks of all children of this process contain."""
    return f"{_own_mark}."


def signal_marked(mark: str, number: int) -> bool:
    """Signal every process with this mark, but this one; whether there was any."""
    wanted, found = mark.encode(), False
    for pid in _pids():
        if pid in (os.getpid(), _cleaner):
            continue
        try:
            environment = (_PROC / str(pid) / "environ").read_bytes()
        except OSError:
            # It has ended, or belongs to somebody else.
            continue
        if any(
            wanted in variable for variable in environment.split(b"\0") if variable.startswith(MARK.encode())
        ):
            with suppress(OSError):
                os.kill(pid, number)
                found = True
    return found


def end_marked(mark: str) -> None:
    """Kill every process with this mark, and what those start meanwhile."""
    deadline = time.monotonic() + _END_SECONDS
    while signal_marked(mark, signal.SIGKILL) and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)


def adopt_orphans() -> None:
    """Become the parent of descendants whose parents end; does nothing where there is no such thing."""
    if sys.platform == "linux":
        import ctypes

        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_descendants() -> None:
    """Kill everything that descends from this process, with or without a mark; at its end."""
    deadline = time.monotonic() + _END_SECONDS
    while time.monotonic() < deadline:
        found = list(_descendants())
        if not found:
            return
        for pid in found:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
            # An adopted one is ours to bury.
            with suppress(OSError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(_PAUSE_SECONDS)


@contextmanager
def contain_children() -> Iterator[None]:
    """Whatever is started while the block runs ends with it, also when this process is killed.

    For the main thread of a program, before any other thread is started; elsewhere it does nothing, since
    the processes of others would be taken for ours.
    """
    if sys.platform != "linux" or threading.active_count() > 1:
        yield
        return
    adopt_orphans()
    start_cleaner()
    threading.Thread(target=_reap_adopted, name="reaper", daemon=True).start()
    try:
        yield
    finally:
        end_descendants()


def start_cleaner() -> None:
    """Leave a process behind that ends our children if we are killed.

    It waits for the end of a pipe that nobody but us holds open, and keeps nothing else of us open.
    """
    global _cleaner
    # The write end stays open, and closed to children, until this process ends.
    reading, writing = os.pipe()
    os.set_inheritable(writing, False)
    pid = os.fork()
    if pid:
        os.close(reading)
        _cleaner = pid
        return
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(nothing, descriptor)
        # Everything else of ours: pipes of whoever waits for our end, and our end of this one.
        os.closerange(3, reading)
        os.closerange(reading + 1, max(4_096, os.sysconf("SC_OPEN_MAX")))
        os.chdir("/")
        os.read(reading, 1)
        end_marked(own_mark())
    finally:
        os._exit(0)


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir(_PROC) if name.isdigit()]
    except OSError:
        return []


def _reap_adopted() -> None:
    """Bury adopted processes that have ended, so that their numbers become free."""
    before: set[int] = set()
    while True:
        time.sleep(_REAP_SECONDS)
        before = bury_adopted(before)


def bury_adopted(before: set[int]) -> set[int]:
    """Bury those that had ended `before`, too; returns those that have ended by now.

    A child that we started is waited for by whoever started it: on a busy machine that can take long, and
    if it were buried here its exit code would be lost.
    """
    own = os.getpid()
    ended = {pid for pid, (state, parent) in _processes() if state == "Z" and parent == own} - awaited
    for pid in ended & before:
        with suppress(OSError):
            os.waitpid(pid, os.WNOHANG)
    return ended


def _processes() -> Iterator[tuple[int, tuple[str, int]]]:
    """The state and the parent of every process."""
    for pid in _pids():
        with suppress(OSError, ValueError):
            text = (_PROC / str(pid) / "stat").read_text("ascii", "replace")
            state, parent = text.rpartition(")")[2].split()[:2]
            yield pid, (state, int(parent))


def _descendants() -> Iterator[int]:
    """All of them that run, but the cleaner."""
    parents = {pid: parent for pid, (state, parent) in _processes() if state != "Z"}
    own = os.getpid()
    for pid in parents:
        ancestor: int | None = pid
        while ancestor is not None and ancestor != own:
            ancestor = parents.get(ancestor)
        if ancestor == own and pid not in (own, _cleaner):
            yield pid
