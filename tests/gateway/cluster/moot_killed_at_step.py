"""`python -m tests.gateway.cluster.moot_killed_at_step` is the `moot` command, killed at a step of its log.

The file `kill-at` in its folder names the step. With it there, the process ends by SIGKILL when it comes to
that step, as if somebody had cut the power in that very moment: what was written to the log's files and not
synced is gone. With MOOT_TESTS_BLIND set nothing of them is ever synced, so that the check is seen to see it.
"""

from __future__ import annotations

import inspect
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from moot.evidence import log_files
from moot.evidence.log_files import LogWriter
from moot.gateway.cluster.nats.log_exchange import LogExchange
from moot.gateway.evidence import cluster_log, log_keeper, witness_client
from moot.gateway.evidence.witness_client import WitnessClient

KILL_AT = "kill-at"
BLIND = "MOOT_TESTS_BLIND"
STEPS = (
    "before entries are appended",
    "half of the entries are written",
    "entries are written, and not synced",
    "entries are appended",
    "the checkpoint is drafted",
    "the checkpoint is about to be put into NATS",
    "the checkpoint is in NATS",
    "the checkpoint is on the own disk, and its folder not synced",
    "the checkpoint is on the own disk",
    "the witness is about to be asked",
    "the witness has signed",
    "the cosigned checkpoint is on the own disk",
    "the cosigned checkpoint is in NATS",
)


# How large each file was before what is not synced yet.
_unsynced: dict[str, int] = {}


def reach(step: str) -> None:
    assert step in STEPS, step
    try:
        wanted = Path(KILL_AT).read_text()
    except FileNotFoundError:
        return
    if wanted == step:
        for path, size in _unsynced.items():
            os.truncate(path, size)
        os.kill(os.getpid(), signal.SIGKILL)


def watch(
    owner: Any, name: str, before: str = "", after: str = "", only: Callable[..., bool] = lambda *_: True
) -> None:
    """Call `reach` before and after calls of a function; `only` says of which."""
    real = getattr(owner, name)

    def reach_some(step: str, given: tuple[Any, ...]) -> None:
        if step and only(*given):
            reach(step)

    def call(*given: Any, **more: Any) -> Any:
        reach_some(before, given)
        found = real(*given, **more)
        reach_some(after, given)
        return found

    async def call_async(*given: Any, **more: Any) -> Any:
        reach_some(before, given)
        found = await real(*given, **more)
        reach_some(after, given)
        return found

    setattr(owner, name, call_async if inspect.iscoroutinefunction(real) else call)


def watch_all() -> None:
    system: Any = os
    files: Any = log_files
    writers: Any = LogWriter
    write, fsync, append, replace = system.pwrite, system.fsync, writers.append, writers._replace
    sync_folder = files.sync_folder
    # What the one thread that writes logs is about.
    doing = ""

    def write_half(file: int, raw: bytes, offset: int) -> Any:
        _unsynced.setdefault(os.readlink(f"/proc/self/fd/{file}"), os.fstat(file).st_size)
        written = write(file, raw[: len(raw) // 2], offset)
        reach(STEPS[1])
        return written + write(file, raw[written:], offset + written)

    def sync(file: int) -> None:
        if doing == "entries":
            reach(STEPS[2])
        if BLIND not in os.environ:
            fsync(file)
            _unsynced.pop(os.readlink(f"/proc/self/fd/{file}"), None)

    def sync_checkpoint(folder: Path) -> None:
        if doing == log_files.CHECKPOINT_FILE:
            reach(STEPS[7])
        sync_folder(folder)

    def append_entries(writer: LogWriter, entries: bytes) -> None:
        nonlocal doing
        doing = "entries"
        append(writer, entries)
        doing = ""

    def replace_note(writer: LogWriter, name: str, note: Any) -> None:
        nonlocal doing
        doing = name
        replace(writer, name, note)
        doing = ""

    system.pwrite, system.fsync, files.sync_folder = write_half, sync, sync_checkpoint
    writers.append, writers._replace = append_entries, replace_note
    watch(LogWriter, "append", STEPS[0], STEPS[3])
    watch(LogWriter, "draft", after=STEPS[4])
    watch(LogExchange, "replace", STEPS[5], STEPS[6], lambda _own, _log, kind, *_: kind == "checkpoint")
    watch(LogWriter, "adopt", after=STEPS[8])
    watch(WitnessClient, "_ask_for", STEPS[9], STEPS[10])
    watch(LogWriter, "keep_cosigned", after=STEPS[11])
    watch(LogExchange, "replace", after=STEPS[12], only=lambda _own, _log, kind, *_: kind == "cosigned")


if __name__ == "__main__":
    watch_all()
    # Often enough for many rounds; what is tried is the order of steps, not how long they take.
    cluster_log.TAKEOVER_SECONDS = 1.0  # type: ignore[misc]
    cluster_log._COSIGNED_SECONDS = 0.2  # type: ignore[misc]
    log_keeper.ROUND_SECONDS = 0.2  # type: ignore[misc]
    witness_client._RETRY_SECONDS = 0.2  # type: ignore[misc]

    from moot.cli import main

    sys.exit(main())
