"""What every task of a process waits for: of this one, or of a gateway that is sent SIGUSR1 (stderr)."""

from __future__ import annotations

import asyncio
import io
import signal
import sys


def describe_tasks() -> str:
    """The stacks of all tasks of the running loop."""
    text = io.StringIO()
    for task in sorted(asyncio.all_tasks(), key=lambda each: each.get_name()):
        task.print_stack(file=text)
    return text.getvalue()


def dump_tasks_on_signal() -> None:
    """From now on this process writes them to its stderr when it is asked."""

    def dump(_number: int, _frame: object) -> None:
        sys.stderr.write(describe_tasks())
        sys.stderr.flush()

    signal.signal(signal.SIGUSR1, dump)
