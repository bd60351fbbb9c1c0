"""Figures of the process itself, by the names that every Prometheus client gives them.

Memory and open files are only known where there is `/proc`, which is Linux.
"""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path
from typing import Final

from moot.metrics import MetricTable, Registry

STARTED_AT: Final = time.time()
_PROC: Final = Path("/proc/self")

_TABLE: Final = MetricTable()
START_TIME: Final = _TABLE.gauge("process_start_time_seconds", "Start of the process, in seconds since 1970.")
CPU: Final = _TABLE.counter("process_cpu_seconds_total", "CPU time used, user and system.")
MEMORY: Final = _TABLE.gauge("process_resident_memory_bytes", "Resident memory (Linux).")
OPEN_FILES: Final = _TABLE.gauge("process_open_fds", "Open file descriptors (Linux).")
MAX_FILES: Final = _TABLE.gauge("process_max_fds", "Most file descriptors that may be open.")

PROCESS_METRICS: Final = tuple(_TABLE.descriptions)


def measure_process(registry: Registry) -> None:
    """Have these figures read whenever somebody asks for them."""
    START_TIME.of(registry).value = STARTED_AT
    CPU.of(registry).read = time.process_time
    MAX_FILES.of(registry).read = _max_files
    if (_PROC / "statm").exists():
        MEMORY.of(registry).read = _resident_bytes
        OPEN_FILES.of(registry).read = _open_files


def _resident_bytes() -> float:
    return int((_PROC / "statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGESIZE")


def _open_files() -> float:
    # One of them is the listing's own.
    return len(os.listdir(_PROC / "fd")) - 1


def _max_files() -> float:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return float("inf") if most == resource.RLIM_INFINITY else most
