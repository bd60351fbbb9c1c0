"""A server that has loaded what many processes need, and forks one of them for whoever asks.

A child is a process of its own, with descriptors, environment, folder and arguments as asked for, and ends as
any other does. Who asks connects to the server, sends three descriptors, and perhaps a fourth where the
number of the process and its end are told, and stays: when it is gone, the child is killed. The server ends,
and whatever it has started, when its stdin is closed.
"""

from __future__ import annotations

import ctypes
import gc
import io
import marshal
import os
import secrets
import select
import signal
import socket
import struct
import sys
import time
from contextlib import suppress
from typing import Any

import moot.metrics.process
import moot.resilience.descendants

_REQUEST_BYTES = 1 << 18


class _Children:
    """Those that live: where the end of each is told, and who asked for it."""

    def __init__(self) -> None:
        self._told: dict[int, tuple[int, socket.socket]] = {}

    def add(self, pid: int, told: int, asked: socket.socket) -> None:
        self._told[pid] = told, asked
        os.write(told, struct.pack("i", pid))

    def callers(self) -> dict[int, int]:
        return {asked.fileno(): pid for pid, (_, asked) in self._told.items()}

    def sockets(self) -> list[socket.socket]:
        return [asked for _, asked in self._told.values()]

    def bury(self) -> None:
        while self._told:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            told, asked = self._told.pop(pid)
            with suppress(BrokenPipeError, ConnectionResetError):
                os.write(told, struct.pack("i", os.waitstatus_to_exitcode(status)))
            if told != asked.fileno():
                os.close(told)
            asked.close()

    def kill(self) -> None:
        for pid in self._told:
            os.kill(pid, signal.SIGKILL)


def serve(listener: socket.socket) -> dict[str, Any]:
    """Start a child for each request, and tell the end of each; returns in each child, with its request."""
    # Or each child would copy what it looks through for garbage.
    gc.freeze()
    woken, waker = os.pipe()
    for end in (woken, waker):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(waker)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    # Ctrl-C is for those who asked.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    children = _Children()
    while True:
        callers = children.callers()
        ready, _, _ = select.select([0, listener.fileno(), woken, *callers], [], [])
        if 0 in ready:
            # The tests are over, or were killed.
            children.kill()
            os._exit(0)
        for number in callers.keys() & ready:
            # Nobody says more than once what is wanted: it is gone.
            with suppress(ProcessLookupError):
                os.kill(callers[number], signal.SIGKILL)
        if woken in ready:
            with suppress(BlockingIOError):
                os.read(woken, 4096)
            children.bury()
        if listener.fileno() in ready:
            asked = listener.accept()[0]
            request, descriptors, _, _ = socket.recv_fds(asked, _REQUEST_BYTES, 4)
            if not request:
                asked.close()
                continue
            wanted: dict[str, Any] = marshal.loads(request)  # noqa: S302  # of our own
            streams = descriptors[:3]
            pid = os.fork()
            if pid == 0:
                # Their numbers will be those of something else.
                for each in (asked, listener, *children.sockets()):
                    each.detach()
                _become(wanted, streams)
                return wanted
            for descriptor in streams:
                os.close(descriptor)
            children.add(pid, descriptors[3] if descriptors[3:] else asked.fileno(), asked)


def _become(wanted: dict[str, Any], streams: list[int]) -> None:
    """What a fresh process would be."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir(wanted["cwd"])
    if "umask" in wanted:
        os.umask(wanted["umask"])
    os.environ.clear()
    os.environ.update(wanted["environ"])
    is_unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    raw = [open(number, "wb", 0, closefd=False) for number in (1, 2)]  # noqa: SIM115
    output = raw[0] if is_unbuffered else io.BufferedWriter(raw[0])
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = io.TextIOWrapper(
        output, encoding="utf-8", write_through=is_unbuffered, line_buffering=os.isatty(1)
    )
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(raw[1]), encoding="utf-8", errors="backslashreplace", line_buffering=True
    )
    if "FAULT_SHIM" in os.environ:
        ctypes.CDLL(None).fault_shim_start()
    # What the product draws once in each process.
    moot.resilience.descendants._own_mark = secrets.token_hex(8)  # type: ignore[misc]
    moot.metrics.process.STARTED_AT = time.time()  # type: ignore[misc]
    sys.argv = wanted["arguments"]
