"""Ctrl-C, SIGTERM and a terminal that is closed, the same for every command.

The first one cancels the command: it leaves its space, ends its children and returns. Every wait in it has a
bound, and `grace_seconds` bounds the whole; what is still there then is killed. The second one kills children
at once and gives the rest half a second; a third does not even give that. A signal within a quarter of a
second of the last counts as the same: a terminal and a program around this one may both pass it on.

A thread that waits for a name server can be neither cancelled nor joined in time, and the interpreter would
wait for it. So once a signal has come, the process ends soon after its command, whatever threads still do.

Exit codes. A service (`moot bridge`, `moot serve`, …) that was asked to stop and did: 0. A command that was
interrupted before it was done (`moot tail`, `moot call`): 128 and the number of the signal.
"""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, Final, TypeVar

T = TypeVar("T")

# SIGHUP: the terminal was closed. `moot up` and `moot serve` take it for a reload as soon as they run.
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# Closing a connection to a gateway that does not answer (2 s), ending children that do not react (1.5 s),
# one after the other, and half a second for a busy machine.
GRACE_SECONDS: Final = 4.0
# After the second signal; and after the command has ended, for threads that have not.
_LAST_SECONDS: Final = 0.5
# Nobody presses a key twice within this time.
_SAME_SECONDS: Final = 0.25
# After this long a person at a terminal is told that it is still stopping.
_REPORT_SECONDS: Final = 1.0


def run_service(
    command: Coroutine[Any, Any, T],
    *,
    grace_seconds: float | None = GRACE_SECONDS,
    stop: Callable[[], None] | None = None,
) -> T:
    """Run a command that runs until it is stopped; returns what it returns. Raises SystemExit after a signal.

    Without `grace_seconds` the first signal lets it take its time: for whoever writes a journal. `stop` is
    called in place of cancelling, and reports itself that it stops.
    """
    return _run(command, Interruption(0, grace_seconds, stop))


def run_errand(command: Coroutine[Any, Any, T]) -> T:
    """Run a command that is to do one thing; what it returns. Raises SystemExit after a signal."""
    return _run(command, Interruption(None, GRACE_SECONDS, None))


def _run(command: Coroutine[Any, Any, T], interruption: Interruption) -> T:
    interruption.install()
    # From here on a signal is noted and nothing is raised in the middle of an import.
    from moot.net import event_loop
    from moot.resilience.task_set import end_other_tasks

    try:
        with asyncio.Runner(loop_factory=event_loop.new_event_loop) as runner:
            try:
                return runner.run(interruption.run(command))
            finally:
                runner.run(end_other_tasks())
    except SignalReceived:
        raise SystemExit(interruption.exit_code) from None
    finally:
        interruption.remove()


class SignalReceived(Exception):
    """The command was cancelled because of a signal."""


class Interruption:
    """What signals do to one command."""

    def __init__(
        self,
        stopped: int | None,
        grace_seconds: float | None,
        stop: Callable[[], None] | None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stopped = stopped
        self._grace_seconds = grace_seconds
        self._stop = stop
        self._clock = clock
        # Signals that counted, and when.
        self._received: list[tuple[int, float]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._watchdog = Watchdog()
        self._before: dict[int, Any] = {}

    def install(self) -> None:
        """Take the signals over. Only the main thread gets any."""
        if threading.current_thread() is not threading.main_thread():
            return
        # Not `loop.add_signal_handler`: a busy loop would not run the handler of the second one either.
        for number in SIGNALS:
            # Under `nohup` it stays ignored.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, self.handle_signal)

    def remove(self) -> None:
        # After a signal ours stay: the process is about to end with its exit code, and one more, from a
        # wrapper that passes on what a terminal has sent already, must not change that.
        if not self._received:
            for number, handler in self._before.items():
                signal.signal(number, handler)
        # Whoever called us decides what is next: a test goes on in this process.
        self._watchdog.dismiss()

    async def run(self, command: Coroutine[Any, Any, T]) -> T:
        if self._received:
            command.close()
            raise SignalReceived
        self._loop = asyncio.get_running_loop()
        task = self._loop.create_task(command)
        self._task = task
        try:
            return await task
        except asyncio.CancelledError:
            if not self._received:
                raise
            raise SignalReceived from None
        finally:
            if self._received:
                self._watchdog.end_within(_LAST_SECONDS, self.exit_code)

    @property
    def exit_code(self) -> int:
        """After a signal."""
        return 128 + self._received[0][0] if self._stopped is None else self._stopped

    def handle_signal(self, number: int, _frame: FrameType | None = None) -> None:
        """A signal came; the handler of all of them."""
        now = self._clock()
        if self._received and now - self._received[-1][1] < _SAME_SECONDS:
            return
        self._received.append((number, now))
        match len(self._received):
            case 1:
                if self._grace_seconds is not None:
                    self._watchdog.end_within(self._grace_seconds, self.exit_code)
                if self._loop is not None and not self._loop.is_closed():
                    self._loop.call_soon_threadsafe(self._stop_command)
            case 2:
                _kill_children()
                self._watchdog.end_within(_LAST_SECONDS, 128 + number)
            case _:
                end_now(128 + number)

    def _stop_command(self) -> None:
        if self._loop is None or self._task is None or self._task.done():
            return
        if self._stop is None:
            if sys.stderr is not None and sys.stderr.isatty():
                self._loop.call_later(_REPORT_SECONDS, self._report)
            self._task.cancel()
        else:
            self._stop()

    def _report(self) -> None:
        if self._task is not None and not self._task.done():
            print("stopping; Ctrl-C once more ends it at once", file=sys.stderr, flush=True)


class Watchdog:
    """A thread that ends this process when its time is up. It starts no earlier than it is needed."""

    def __init__(self) -> None:
        # Its `put` may be called from a signal handler.
        self._orders: queue.SimpleQueue[tuple[float, int] | None] = queue.SimpleQueue()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def end_within(self, seconds: float, code: int) -> None:
        """The process is gone by then, with this exit code; a later moment than one already set is not."""
        self._orders.put((time.monotonic() + seconds, code))

    def dismiss(self) -> None:
        """End nothing any more."""
        self._orders.put(None)

    def _watch(self) -> None:
        deadline: float | None = None
        code = 1
        while True:
            try:
                within = None if deadline is None else max(0.0, deadline - time.monotonic())
                order = self._orders.get(timeout=within)
            except queue.Empty:
                end_now(code)
            if order is None:
                return
            if deadline is None or order[0] < deadline:
                deadline, code = order


def end_now(code: int) -> None:
    """End this process and everything that it started, without waiting for anything."""
    _kill_children()
    # What was printed should be seen, but a reader that takes nothing must not hold us.
    flushing = threading.Thread(target=_flush, daemon=True)
    flushing.start()
    flushing.join(0.2)
    os._exit(code)


def _kill_children() -> None:
    # Whoever has started none has not loaded it; this is no moment to import anything.
    groups = sys.modules.get("moot.resilience.process_groups")
    if groups is not None:
        groups.kill_groups()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()
