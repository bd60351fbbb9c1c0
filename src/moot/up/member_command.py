"""What a member is started with: its argument list and its environment.

A member gets an argument list, never a shell, and the variables that are listed for it and a few harmless
ones (D-87).
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from moot.errors import UsageError
from moot.resilience.child_process import child_environment


def close_inherited_files_to_children() -> None:
    """Let no process that is started from here inherit files that we inherited, but stdin and the like.

    Our own files are closed to children anyway (PEP 446); those that came from whoever started us are not,
    and uvloop leaves them open: a member would hold pipes and sockets of strangers.
    """
    for name in os.listdir("/dev/fd"):
        with suppress(OSError, ValueError):
            if int(name) > 2:
                os.set_inheritable(int(name), False)


def member_environment(listed: Mapping[str, str], inherited: Mapping[str, str]) -> dict[str, str]:
    """The variables of a member. Its PATH begins with this installation: its `python3` and its `moot`."""
    environment = child_environment(listed, inherited)
    if "PATH" not in listed:
        here = str(Path(sys.executable).parent)
        others = [part for part in environment.get("PATH", os.defpath).split(os.pathsep) if part != here]
        environment["PATH"] = os.pathsep.join([here, *others])
    return environment


def argument_list(
    command: str, args: tuple[str, ...], environment: Mapping[str, str], cwd: Path
) -> list[str]:
    """What is run; raises UsageError when there is no such program. `moot` is always this installation."""
    if any("\0" in part for part in (command, *args)):
        raise UsageError("a command and its arguments hold no NUL byte")
    if command == "moot":
        return [sys.executable, "-m", "moot.cli", *args]
    # A path is meant from where the member runs.
    wanted = str(cwd / command) if os.sep in command else command
    program = shutil.which(wanted, path=environment.get("PATH"))
    if program is None:
        raise UsageError(
            f"no such program: {command!r}; install it, or give its full path (PATH is what `moot up` has)"
        )
    return [program, *args]
