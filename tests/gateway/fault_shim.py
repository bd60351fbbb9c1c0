"""A process whose disk fails, forgets or hangs, and whose wall clock jumps: `fault_shim.c` under LD_PRELOAD.

    shim = FaultShim(tmp_path)
    gateway = await started(file, environ=shim.environ)
    shim.set(sync_fault=errno.EIO)

The process maps the same file, so that a change holds from its next system call on.
"""

from __future__ import annotations

import atexit
import mmap
import shutil
import struct
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

_FIELDS: Final = (
    "sync_fault",
    "sync_passes",
    "write_room",
    "write_fault",
    "forgets",
    "database",
    "clock_shift",
    "syncs_failed",
    "syncs_hanging",
    "writes_failed",
    "sync_delay",
)
_TARGET_BYTES: Final = 64
_SIZE: Final = 8 * len(_FIELDS) + _TARGET_BYTES
HANGS: Final = -1
_SOURCE: Final = Path(__file__).with_suffix(".c")


@cache
def _library() -> Path:
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("faults of the kernel are made by a library that needs Linux and a C compiler")
    kept = TemporaryDirectory(prefix="moot-shim-")
    atexit.register(kept.cleanup)
    library = Path(kept.name) / "fault_shim.so"
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(_SOURCE), "-ldl"]
    subprocess.run(command, check=True, capture_output=True)  # noqa: S603
    return library


class FaultShim:
    """What the kernel does to the processes that were started with `environ`."""

    def __init__(self, folder: Path) -> None:
        control = folder / "fault_shim.control"
        control.write_bytes(bytes(_SIZE))
        with control.open("r+b") as file:
            self._control = mmap.mmap(file.fileno(), _SIZE)
        self.environ = {"LD_PRELOAD": str(_library()), "FAULT_SHIM": str(control)}
        self.set(write_room=-1)

    def set(self, **values: int) -> None:
        for name, value in values.items():
            struct.pack_into("=q", self._control, 8 * _FIELDS.index(name), value)

    def aim(self, target: str) -> None:
        """The faults are those of files with this text in their path, and of no others."""
        raw = target.encode("ascii")
        assert len(raw) < _TARGET_BYTES
        self._control[8 * len(_FIELDS) : _SIZE] = raw.ljust(_TARGET_BYTES, b"\0")

    def get(self, name: str) -> int:
        (value,) = struct.unpack_from("=q", self._control, 8 * _FIELDS.index(name))
        return int(value)

    def heal(self) -> None:
        self.set(sync_fault=0, sync_passes=0, write_room=-1, write_fault=0, sync_delay=0)


def cut_power(folder: Path) -> None:
    """Let the journal have what was on disk only, as after a power cut; the process must be gone.

    Needs `forgets`: only then it is written down what each fsync covered.
    """
    for path in folder.glob("*.jsonl"):
        note = path.with_name(f"{path.name}.synced")
        covered = int(note.read_text("ascii")) if note.exists() else 0
        if path.stat().st_size > covered:
            with path.open("r+b") as file:
                file.truncate(covered)
