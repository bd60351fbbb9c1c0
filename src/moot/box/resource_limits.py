"""Limits on the processes of a box: of each process, and of all together by a cgroup where we may make one.

The kernel does not count the processes of root, so there only the cgroup holds; `BoxGroup.limited` says
whether there is one.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from moot.config.box_config import BoxConfig

_CGROUPS: Final = Path("/sys/fs/cgroup")
# By controller: the file of its limit in version 2, and in version 1.
_FILES: Final = {"pids": ("pids.max", "pids.max"), "memory": ("memory.max", "memory.limit_in_bytes")}
_NAME: Final = "moot-box-"


def limit_process(pid: int, box: BoxConfig) -> None:
    """Limit a process that waits to begin, and what it will start; raises OSError."""
    if sys.platform != "linux":
        raise OSError("processes are limited on Linux only")
    limits = {
        resource.RLIMIT_NPROC: box.max_processes,
        # Not the address space, of which runtimes reserve far more than they use.
        resource.RLIMIT_DATA: box.memory_bytes,
        resource.RLIMIT_CORE: 0,
        # Of one file: a log that grows for ever. How many there are, nothing bounds.
        resource.RLIMIT_FSIZE: box.max_file_bytes,
    }
    if box.cpu_seconds is not None:
        limits[resource.RLIMIT_CPU] = box.cpu_seconds
    for which, wanted in limits.items():
        _, highest = resource.prlimit(pid, which)
        most = wanted if highest == resource.RLIM_INFINITY else min(wanted, highest)
        resource.prlimit(pid, which, (most, most))


class BoxGroup:
    """The cgroup of one box; `limited` says what it limits."""

    def __init__(self, pid: int, box: BoxConfig) -> None:
        self._folders: set[Path] = set()
        self.limited: set[str] = set()
        _sweep()
        for controller, limit in (("pids", box.max_processes), ("memory", box.memory_bytes)):
            for parent, limit_file in _parents(controller):
                if self._add(parent / f"{_NAME}{os.getpid()}-{pid}", limit_file, limit, pid):
                    self.limited.add(controller)
                    break

    def _add(self, folder: Path, limit_file: str, limit: int, pid: int) -> bool:
        try:
            folder.mkdir(exist_ok=True)
            self._folders.add(folder)
            # Not made, if it is not there: then this group has no such controller.
            with (folder / limit_file).open("r+", encoding="ascii") as file:
                file.write(f"{limit}\n")
            (folder / "cgroup.procs").write_text(f"{pid}\n", "ascii")
        except OSError:
            return False
        return True

    def close(self) -> bool:
        """Remove the group, whose processes have been killed; False if one is still there."""
        for folder in list(self._folders):
            with suppress(OSError):
                folder.rmdir()
            if not folder.exists():
                self._folders.discard(folder)
        return not self._folders


def _sweep() -> None:
    """Remove groups of boxes whose bridge ended before it could."""
    for parent in {parent for controller in _FILES for parent, _ in _parents(controller)}:
        for folder in parent.glob(f"{_NAME}*"):
            owner = folder.name.removeprefix(_NAME).partition("-")[0]
            if not Path(f"/proc/{owner}").exists():
                with suppress(OSError):
                    folder.rmdir()


def _parents(controller: str) -> Iterator[tuple[Path, str]]:
    """Where a group with this controller might be made, and what the file of its limit is called there."""
    try:
        lines = Path("/proc/self/cgroup").read_text("ascii", "replace").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        version_2 = not controllers
        if not version_2 and controller not in controllers.split(","):
            continue
        root = _CGROUPS if version_2 else _CGROUPS / controllers
        own = root / path.lstrip("/")
        # In version 2 a group has either processes or further groups.
        for parent in (own, own.parent) if version_2 and own != root else (own,):
            if (parent / "cgroup.procs").exists():
                yield parent, _FILES[controller][0 if version_2 else 1]
