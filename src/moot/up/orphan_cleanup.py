"""One `moot up` for a data folder, the file that says where it is, and what one that was killed left behind.

The file lists the processes of members with the moment at which each began. After `kill -9` the next
`moot up` finds them there and ends those that are still the same process: a number alone may be somebody
else's by now.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from moot.config.connect_settings import RUN_FILE
from moot.errors import UsageError
from moot.protocol.operation import Json
from moot.resilience.child_process import TERMINATE_SECONDS
from moot.resilience.process_groups import signal_group

_LOCK_FILE: Final = RUN_FILE.with_name("up.lock")
_POLL_SECONDS: Final = 0.05
# Field 22 of /proc/PID/stat, counted behind the name of the program, which may hold anything.
_BEGAN_FIELD: Final = 19


@contextmanager
def only_one(data: Path) -> Iterator[None]:
    """Hold the data folder; raises UsageError while another `moot up` does. Released however we end."""
    folder = (data / _LOCK_FILE).parent
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(data / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as fault:
        raise UsageError(f"cannot use {data}: {fault.strerror}. Name another with --data") from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(
                f"another `moot up` runs on {data}{_described(data)}: use that one (`moot join`), stop it"
                " first, or name another folder with --data"
            ) from None
        yield
    finally:
        os.close(handle)


def _described(data: Path) -> str:
    """Which one that is, as far as it has said so."""
    try:
        told = json.loads((data / RUN_FILE).read_text("utf-8"))
        return f" (pid {int(told['pid'])}, {told['url']})"
    except (OSError, ValueError, KeyError, TypeError):
        return ""


class RunFile:
    """What others find while `moot up` runs. Written whole, so that nobody reads half of it."""

    def __init__(self, data: Path, facts: Mapping[str, Json]) -> None:
        self._path = data / RUN_FILE
        self._facts = dict(facts) | {"pid": os.getpid()}
        self._last: dict[str, int] | None = None

    def write(self, pids: Mapping[str, int]) -> None:
        """The processes of members, by space and name."""
        if dict(pids) == self._last:
            return
        self._last = dict(pids)
        members = {name: {"pid": pid, "began": began(pid)} for name, pid in pids.items()}
        beside = self._path.with_suffix(".new")
        beside.write_text(json.dumps(self._facts | {"members": members}) + "\n", "utf-8")
        beside.replace(self._path)

    def remove(self) -> None:
        with suppress(OSError):
            self._path.unlink()


async def end_leftovers(data: Path) -> list[str]:
    """End members of a `moot up` that was killed; their names. Call it while holding the folder."""
    try:
        members = json.loads((data / RUN_FILE).read_text("utf-8"))["members"]
        groups = {name: (one["pid"], one["began"]) for name, one in members.items()}
    except (OSError, ValueError, KeyError, TypeError):
        return []
    left = {name: pid for name, (pid, moment) in groups.items() if _is_same(pid, moment)}
    for pid in left.values():
        signal_group(pid, signal.SIGTERM)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + TERMINATE_SECONDS
    while any(signal_group(pid, 0) for pid in left.values()) and loop.time() < deadline:
        await asyncio.sleep(_POLL_SECONDS)
    for pid in left.values():
        signal_group(pid, signal.SIGKILL)
    return list(left)


def began(pid: int) -> str | None:
    """When a process began, in words that no later process of the same number has; None if not known."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        text = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
    except OSError:
        return None
    return f"{text.rpartition(')')[2].split()[_BEGAN_FIELD]} ticks after boot {boot}"


def _is_same(pid: object, moment: object) -> bool:
    return isinstance(pid, int) and pid > 1 and moment is not None and began(pid) == moment
