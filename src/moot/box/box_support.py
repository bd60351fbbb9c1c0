"""Whether boxes can be made on this machine, and in words why not."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from functools import cache
from typing import Final

from moot.box.syscall_filter import supports
from moot.errors import UsageError

# Bubblewrap takes some 10 ms; a machine that swaps takes longer.
START_SECONDS: Final = 60.0
_INSTALL: Final = (
    "install bubblewrap (Debian, Ubuntu: `apt install bubblewrap`; Fedora: `dnf install bubblewrap`)"
)


def why_not_confined() -> str | None:
    """Why no box can be made on this machine; None if one can. Tries it, the first time."""
    return missing_parts() or _trial()


def missing_parts() -> str | None:
    """What this machine lacks, as far as a look at it tells."""
    if sys.platform != "linux":
        return "boxes need Linux (namespaces, seccomp)"
    if not supports(platform.machine()):
        return f"there is no filter of system calls for {platform.machine()}"
    if shutil.which("bwrap") is None:
        return f"bubblewrap is missing: {_INSTALL}"
    return None


@cache
def _trial() -> str | None:
    argv = [
        "bwrap",
        "--unshare-all",
        "--unshare-user",
        "--ro-bind",
        "/",
        "/",
        "--proc",
        "/proc",
        "--",
        "/bin/true",
    ]
    try:
        done = subprocess.run(  # noqa: S603  # no word of it comes from outside
            argv, capture_output=True, timeout=START_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as fault:
        return f"bubblewrap does not run: {fault}"
    if done.returncode == 0:
        return None
    return describe_failure(done.stderr.decode("utf-8", "replace"))


def describe_failure(said: str) -> str:
    """Why bubblewrap made no box, by its own words."""
    text = " ".join(said.split())[:300] or "no reason given"
    return f"bubblewrap cannot make a box ({text}); users may have to be allowed to make namespaces"


class NotConfined(UsageError):
    """A server that is to run in a box, and cannot here: it is not started."""

    def __init__(self, why: str) -> None:
        super().__init__(f"not confined here: {why}. To start it all the same, unconfined: `box: off`")
