"""The process groups that this process has started and not yet ended, so that they can be killed at the end.

Every child of ours leads a group of its own. Whoever starts one ends it; this list is for the case that
there is no time for that: a second Ctrl-C. It may be used from any thread and from a signal handler.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import Final

from moot.resilience.descendants import end_marked, own_mark

_running: Final[set[int]] = set()


def add_group(leader: int) -> None:
    """A child was started as the leader of its own group."""
    _running.add(leader)


def discard_group(leader: int) -> None:
    """The group has ended: from now on its number may belong to another process."""
    _running.discard(leader)


def signal_group(leader: int, number: int) -> bool:
    """Signal a whole group (0 only asks); False when nobody is left in it."""
    try:
        os.killpg(leader, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def kill_groups() -> None:
    """Kill everything that was started here and still runs."""
    # `pop` and not a loop: the set may change while we go through it.
    while _running:
        with suppress(KeyError):
            signal_group(_running.pop(), signal.SIGKILL)
    end_marked(own_mark())
