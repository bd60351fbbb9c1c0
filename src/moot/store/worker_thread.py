"""One thread for what would block the event loop, such as removing large files or committing a state."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from queue import SimpleQueue
from typing import ParamSpec, TypeVar

from moot.errors import UsageError

P = ParamSpec("P")
T = TypeVar("T")

Work = Callable[[], None]
Done = Callable[[OSError | UsageError | None], None]


class WorkerThread:
    """Does one thing after the other. `done` is called on the loop, with the fault if there was one.

    An executor would do too, but costs the loop some 30 µs a call; this costs 5.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self._loop = loop
        self._name = name
        self._jobs: SimpleQueue[tuple[Work, Done] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, work: Work, done: Done) -> None:
        if self._thread is None:
            # Daemon: a disk that hangs must not keep the process from ending.
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._jobs.put((work, done))

    def stop(self) -> None:
        """End the thread once it has done what it was given."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            work, done = job
            fault: OSError | UsageError | None = None
            try:
                work()
            except Exception as error:  # noqa: BLE001  # whatever it was: somebody waits to be told
                fault = error if isinstance(error, OSError | UsageError) else OSError(repr(error))
            # The loop may have been closed by now: nobody is left to be told.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(done, fault)


class DaemonExecutor(Executor):
    """One thread that carries out one call after the other, for `run_in_executor`.

    A ThreadPoolExecutor would do, but for one thing: the interpreter waits for its threads when it ends,
    forever if the disk does not answer.
    """

    def __init__(self, name: str) -> None:
        # How many calls were carried out: whether the disk answers at all.
        self.finished = 0
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()

        def carry_out() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as fault:  # noqa: BLE001
                # Whoever waits for the future is told, as by every executor.
                future.set_exception(fault)

        self._jobs.put(carry_out)
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:  # noqa: ARG002
        """End the thread once it has done what it was given; nobody waits for that."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            self.finished += 1
