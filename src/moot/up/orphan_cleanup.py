"""One `moot up` per data folder, its run file, and the cleanup after one that was killed.

The run file lists the processes of members with the time at which each started. After `kill -9` the next
`moot up` finds them there and ends those that are still the same process: a process id alone may have been
reused.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from moot.config.connect_settings import RUN_FILE
from moot.errors import FolderInUse, UsageError
from moot.private_files import open_private, use_folder
from moot.protocol.operation import Json
from moot.resilience.atomic_file import write_atomically
from moot.resilience.child_process import TERMINATE_SECONDS
from moot.resilience.descendants import end_marked, own_mark
from moot.resilience.process_groups import signal_group

log = logging.getLogger(__name__)

_LOCK_FILE: Final = RUN_FILE.with_name("up.lock")
_POLL_SECONDS: Final = 0.05
# A shorter one could be part of another's.
_MARK_CHARS: Final = 16
# Field 22 of /proc/PID/stat, counted after the program's name, which may contain anything.
_START_TIME_FIELD: Final = 19


@contextmanager
def lock_data_folder(data: Path) -> Iterator[None]:
    """Lock the data folder; raises FolderInUse while another `moot up` has it. Released however we end."""
    use_folder(data)
    try:
        (data / _LOCK_FILE).parent.mkdir(mode=0o700, exist_ok=True)
        handle = open_private(data / _LOCK_FILE, os.O_RDWR | os.O_CREAT)
    except OSError as fault:
        raise UsageError(f"cannot use {data}: {fault.strerror}. Name another with --data") from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise FolderInUse(
                f"another `moot up` runs on {data}{_running_one(data)}: use that one (`moot join`), stop it"
                " first, or name another folder with --data"
            ) from None
        yield
    finally:
        os.close(handle)


def _running_one(data: Path) -> str:
    """Pid and URL of the running one, as far as its run file says."""
    try:
        facts = json.loads((data / RUN_FILE).read_text("utf-8"))
        return f" (pid {int(facts['pid'])}, {facts['url']})"
    except (OSError, ValueError, KeyError, TypeError):
        return ""


class RunFile:
    """The file by which others find a running `moot up`. Replaced as a whole, so it is never half written."""

    def __init__(self, data: Path) -> None:
        self._path = data / RUN_FILE
        self._facts: dict[str, Json] = {"pid": os.getpid(), "mark": own_mark()}
        self._last: dict[str, int] | None = None

    def add(self, facts: Mapping[str, Json]) -> None:
        """What others want to know, written with the processes next time."""
        self._facts |= facts
        self._last = None

    def write(self, pids: Mapping[str, int]) -> None:
        """The processes of members, by space and name."""
        if dict(pids) == self._last:
            return
        self._last = dict(pids)
        members = {name: {"pid": pid, "began": start_time_of(pid)} for name, pid in pids.items()}
        try:
            write_atomically(self._path, json.dumps(self._facts | {"members": members}).encode() + b"\n")
        except OSError as fault:
            # Others find us by it, and no more: a full disk is no reason to end what runs.
            log.warning("the run file was not written", extra={"why": fault.strerror})

    def remove(self) -> None:
        with suppress(OSError):
            self._path.unlink()


async def end_orphans(data: Path) -> list[str]:
    """End the members of a `moot up` that was killed; their names. Call it with the folder locked."""
    try:
        facts = json.loads((data / RUN_FILE).read_text("utf-8"))
        members, mark = facts["members"], facts.get("mark")
        groups = {name: (member["pid"], member["began"]) for name, member in members.items()}
    except (OSError, ValueError, KeyError, TypeError):
        return []
    orphans = {name: pid for name, (pid, started) in groups.items() if _is_same(pid, started)}
    for pid in orphans.values():
        signal_group(pid, signal.SIGTERM)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + TERMINATE_SECONDS
    while any(signal_group(pid, 0) for pid in orphans.values()) and loop.time() < deadline:
        await asyncio.sleep(_POLL_SECONDS)
    for pid in orphans.values():
        signal_group(pid, signal.SIGKILL)
    if isinstance(mark, str) and len(mark) >= _MARK_CHARS:
        # Bridged servers, and whatever has left its group.
        end_marked(mark)
    return list(orphans)


def start_time_of(pid: int) -> str | None:
    """When a process started, as a text that no later process with the same id has; None if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        text = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
    except OSError:
        return None
    return f"{text.rpartition(')')[2].split()[_START_TIME_FIELD]} ticks after boot {boot}"


def _is_same(pid: object, started: object) -> bool:
    return isinstance(pid, int) and pid > 1 and started is not None and start_time_of(pid) == started
