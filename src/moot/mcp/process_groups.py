"""The process groups that this process has started and not yet ended, to be killed when it exits at once.

Every child of ours leads a group of its own. Whoever starts one ends it; this list is for the case where
there is no time for that: a second Ctrl-C. It may be read from any thread and from a signal handler.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import Final

_running: Final[set[int]] = set()


def add_group(leader: int) -> None:
    """A child was started as the leader of its own group."""
    _running.add(leader)


def discard_group(leader: int) -> None:
    """The group was ended: from now on its number may belong to another process."""
    _running.discard(leader)


def kill_groups() -> None:
    """Kill every group that was started here and is still running, without warning."""
    # `pop` and not a loop: the set may change meanwhile.
    while _running:
        with suppress(KeyError, ProcessLookupError, PermissionError):
            os.killpg(_running.pop(), signal.SIGKILL)
