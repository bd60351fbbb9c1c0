"""One thread for what would block the event loop, such as removing large files."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue

from moot.errors import UsageError

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
            except (OSError, UsageError) as error:
                fault = error
            # The loop may have been closed by now: nobody is left to be told.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(done, fault)
