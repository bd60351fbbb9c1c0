"""How `moot reload` finds the gateway of a data folder, and what came of the reload that it asked for.

The gateway holds a lock on DATA/run/gateway.json, so a process id in it is never that of somebody else. What
each reload did is in DATA/run/reload.json.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from moot.config.connect_settings import GATEWAY_FILE
from moot.private_files import open_private
from moot.resilience.atomic_file import write_atomically

log = logging.getLogger(__name__)

_REPORT: Final = Path("run/reload.json")


class ReloadReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one reload did. `number` counts those of the process."""

    pid: int
    number: int
    reloaded: bool
    lines: tuple[str, ...]


class ReloadReporter:
    """Writes down what reloads of this process did."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._number = 0

    def write(self, lines: list[str], *, reloaded: bool) -> None:
        """Never raises: a disk that is full is no reason to end."""
        self._number += 1
        facts = {"pid": os.getpid(), "number": self._number, "reloaded": reloaded, "lines": lines}
        try:
            write_atomically(self._data / _REPORT, json.dumps(facts).encode())
            if reloaded:
                os.utime(self._data / GATEWAY_FILE)
        except OSError as fault:
            log.warning("the outcome of a reload was not written", extra={"why": fault.strerror})


@contextmanager
def findable_gateway(data: Path, url: str | None = None) -> Iterator[None]:
    """While this gateway runs, `moot reload` finds it, and other commands its address if it is named.

    SIGHUP has to be handled by now.
    """
    file = data / GATEWAY_FILE
    handle: int | None = None
    try:
        file.parent.mkdir(mode=0o700, exist_ok=True)
        handle = open_private(file, os.O_RDWR | os.O_CREAT)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(handle, 0)
        os.write(handle, json.dumps({"pid": os.getpid()} | ({} if url is None else {"url": url})).encode())
    except OSError as fault:
        # It serves all the same; only commands in its folder may not find it.
        log.warning("moot reload will not find this gateway", extra={"why": fault.strerror})
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


def find_gateway(data: Path) -> int | None:
    """The process of the gateway that runs on this data folder; None if none does."""
    try:
        with (data / GATEWAY_FILE).open("rb") as opened:
            with suppress(BlockingIOError):
                fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return None
            pid = json.loads(opened.read())["pid"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return pid if isinstance(pid, int) and pid > 0 else None


def read_report(data: Path) -> ReloadReport | None:
    try:
        facts = json.loads((data / _REPORT).read_text("utf-8"))
        return ReloadReport(
            pid=facts["pid"],
            number=facts["number"],
            reloaded=facts["reloaded"],
            lines=tuple(map(str, facts["lines"])),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
