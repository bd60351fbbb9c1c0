"""The services that `moot hook` starts: where they listen, and how they end."""

from __future__ import annotations

import os
import signal
import socket
import struct
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest


@pytest.fixture
def service_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where hooks find their service, and nowhere else; those that run are ended."""
    # The path of a socket is short.
    with tempfile.TemporaryDirectory(prefix="moot-", dir="/tmp") as state:
        monkeypatch.setenv("XDG_STATE_HOME", state)
        folder = Path(state, "moot", "hook-service")
        folder.mkdir(parents=True, mode=0o700)
        yield folder
        for path in Path(state).rglob("*"):
            if path.is_socket():
                with suppress(OSError):
                    os.kill(service_pid(path), signal.SIGKILL)


def service_pid(path: Path) -> int:
    """The process that listens there."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(path))
        told = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    pid: int = struct.unpack("3i", told)[0]
    return pid
