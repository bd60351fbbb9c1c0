"""Keeps what this process knows from the processes that it starts, as far as the system lets it.

A child of the same user may read its parent in several ways. Its own environment and its open files are what
it is given, and it is given neither tokens nor our files. On Linux the rest goes through /proc, and
`PR_SET_DUMPABLE` closes that: environment, memory and open files of this process are then root's alone, and
no debugger attaches. Elsewhere `ps` can show the environment in which a process was started, so the values of
secret variables are overwritten there as well.

What stays possible: reading files of the same user, token files included, and, for root with the right to
trace processes, everything. Only another user, a container or a sandbox ends that.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from contextlib import suppress
from typing import Final

_PR_SET_DUMPABLE: Final = 4
_SECRET_NAME: Final = re.compile(rb"token|secret|passw|credential|api_?key|_key$|auth|cookie", re.IGNORECASE)


def hide_from_children() -> None:
    """Hide this process's secrets from children of the same user. Call it before the first is started.

    `os.environ` keeps its values; only the memory that other processes are shown loses them.
    """
    close_inherited_files()
    _overwrite_secret_variables()
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def close_inherited_files() -> None:
    """Let no process that is started from here inherit files that we inherited, but stdin and the like.

    Our own files are closed to children anyway (PEP 446); those that came from whoever started us are not,
    and uvloop leaves them open: a child would hold pipes and sockets of others.
    """
    for name in os.listdir("/dev/fd"):
        with suppress(OSError, ValueError):
            if int(name) > 2:
                os.set_inheritable(int(name), False)


def _overwrite_secret_variables() -> None:
    """Overwrite the values in the block of variables that this process was started with."""
    try:
        library = ctypes.CDLL(None)
        if sys.platform == "darwin":
            library._NSGetEnviron.restype = ctypes.POINTER(ctypes.POINTER(ctypes.c_void_p))
            variables = library._NSGetEnviron()[0]
        else:
            variables = ctypes.POINTER(ctypes.c_void_p).in_dll(library, "environ")
    except (OSError, AttributeError, ValueError):
        return
    place = 0
    while variables and variables[place]:
        text = ctypes.string_at(variables[place])
        name, equals, value = text.partition(b"=")
        if equals and value and _SECRET_NAME.search(name):
            ctypes.memset(variables[place] + len(name) + 1, ord("x"), len(value))
        place += 1
