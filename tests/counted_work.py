"""How much something does, as counts that no busy machine changes."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def function_calls(run: Callable[[], object], *, events: tuple[str, ...] = ("call", "c_call")) -> int:
    made = 0

    def note(_frame: FrameType, event: str, _what: object) -> None:
        nonlocal made
        made += event in events

    # What other tests have asked to be told of collections is not what is counted here.
    gc.disable()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
        gc.enable()
    return made


def lines_run(run: Callable[[], object]) -> int:
    """Lines of Python, each as often as it is reached."""
    reached = 0

    def note(_frame: FrameType, event: str, _what: object) -> Any:
        nonlocal reached
        reached += event == "line"
        return note

    before = sys.gettrace()
    gc.disable()
    sys.settrace(note)
    try:
        run()
    finally:
        sys.settrace(before)
        gc.enable()
    return reached
