"""Decisions that are held back for some seconds, so that a person can take them back, if they chose that.

Nothing of a decision is sent before its time is over. Whoever leaves the terminal meanwhile has decided
nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final

from moot.errors import UsageError

# Off, and what a person can choose.
CHOICES: Final = (0, 5, 10)

Work = Callable[[], Coroutine[Any, Any, Sequence[str]]]


@dataclass(eq=False, slots=True)
class _HeldDecision:
    text: str
    due: float
    timer: asyncio.TimerHandle | None = None


class TakeBack:
    """The decisions that are held, and how long the person wants them to be."""

    def __init__(
        self, perform: Callable[[Coroutine[Any, Any, Sequence[str]]], None], seconds: int = 0
    ) -> None:
        self._perform = perform
        self._held: list[_HeldDecision] = []
        self.seconds = seconds

    def choose(self, seconds: int) -> None:
        """Raises UsageError for a time that is not offered."""
        if seconds not in CHOICES:
            raise UsageError(f"choose one of {', '.join(map(str, CHOICES))} seconds; 0 sends at once")
        self.seconds = seconds

    def decide(self, text: str, work: Work) -> None:
        """Do this now, or when its time is over: "approving write_file"."""
        if not self.seconds:
            self._perform(work())
            return
        loop = asyncio.get_running_loop()
        held = _HeldDecision(text, loop.time() + self.seconds)

        def send() -> None:
            self._held.remove(held)
            self._perform(work())

        held.timer = loop.call_later(self.seconds, send)
        self._held.append(held)

    def take_back(self) -> str:
        """Take the latest decision back; returns what is told about it."""
        if not self._held:
            return "nothing can be taken back: it was sent, or nothing was decided"
        held = self._held.pop()
        if held.timer is not None:
            held.timer.cancel()
        return f"taken back, nothing was sent: {held.text}"

    def drop_all(self) -> list[str]:
        """The person leaves: whatever is held is not sent. Returns what that was."""
        dropped = [held.text for held in self._held]
        for held in self._held:
            if held.timer is not None:
                held.timer.cancel()
        self._held.clear()
        return dropped

    def status(self) -> str:
        """For the status line; empty if nothing is held."""
        if not self._held:
            return ""
        latest = self._held[-1]
        left = max(1, round(latest.due - asyncio.get_running_loop().time()))
        more = f" (and {len(self._held) - 1} more)" if len(self._held) > 1 else ""
        return f"⏸ {latest.text} in {left} s{more}: z takes it back; not sent if you quit"
