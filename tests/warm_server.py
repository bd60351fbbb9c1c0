"""Forks a `moot` process for whoever asks: see `warm_start`. Run by its path, with a socket as its stdin.

What it has loaded is what a gateway, `moot up` and the commands of members need. A child is a process of its
own, with descriptors, environment, folder and arguments as asked for, and ends as any other does.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import io
import json
import os
import secrets
import select
import signal
import socket
import struct
import sys
import time
from contextlib import suppress

import uvloop  # noqa: F401  # loaded when a loop is made

import moot.cli.client.operation_commands
import moot.cli.command_table
import moot.cli.interruption
import moot.cli.program
import moot.cli.serve
import moot.gateway.app
import moot.logs
import moot.metrics.process
import moot.net.event_loop
import moot.participant
import moot.resilience.descendants
import moot.up.reload_report
import moot.up.space_runner

_REQUEST_BYTES = 1 << 18


def serve(control: socket.socket) -> list[str]:
    """Start a child for each request, and tell the end of each; returns its arguments in each child."""
    woken, waker = os.pipe()
    for end in (woken, waker):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(waker)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    statuses: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([control.fileno(), woken], [], [])
        if woken in ready:
            with suppress(BlockingIOError):
                os.read(woken, 4096)
            _bury(statuses)
        if control.fileno() in ready:
            request, descriptors, _, _ = socket.recv_fds(control, _REQUEST_BYTES, 4)
            if not request:
                # The tests are over, or were killed.
                for pid in statuses:
                    os.kill(pid, signal.SIGKILL)
                os._exit(0)
            wanted = json.loads(request)
            *streams, status = descriptors
            pid = os.fork()
            if pid == 0:
                # Its number will be that of something else.
                control.detach()
                return _become(wanted, streams)
            for descriptor in streams:
                os.close(descriptor)
            statuses[pid] = status
            os.write(status, struct.pack("i", pid))


def _bury(statuses: dict[int, int]) -> None:
    while statuses:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        told = statuses.pop(pid)
        with suppress(BrokenPipeError):
            os.write(told, struct.pack("i", os.waitstatus_to_exitcode(status)))
        os.close(told)


def _become(wanted: dict[str, object], streams: list[int]) -> list[str]:
    """What a fresh process would be."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir(str(wanted["cwd"]))
    os.environ.clear()
    os.environ.update(wanted["environ"])  # type: ignore[call-overload]
    is_unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    raw = [open(number, "wb", 0, closefd=False) for number in (1, 2)]  # noqa: SIM115
    output = raw[0] if is_unbuffered else io.BufferedWriter(raw[0])
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = io.TextIOWrapper(output, encoding="utf-8", write_through=is_unbuffered)
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(raw[1]), encoding="utf-8", errors="backslashreplace", line_buffering=True
    )
    if "FAULT_SHIM" in os.environ:
        ctypes.CDLL(None).fault_shim_start()
    # What the product draws once in each process.
    moot.resilience.descendants._own_mark = secrets.token_hex(8)  # type: ignore[misc]
    moot.metrics.process.STARTED_AT = time.time()  # type: ignore[misc]
    for path, value in wanted["constants"].items():  # type: ignore[attr-defined]
        module, _, name = path.rpartition(".")
        setattr(importlib.import_module(module), name, value)
    return [str(word) for word in wanted["arguments"]]  # type: ignore[attr-defined]


# Or each child would copy what it looks through for garbage.
gc.freeze()
sys.argv = ["moot", *serve(socket.socket(fileno=os.dup(0)))]
sys.exit(moot.cli.main())
