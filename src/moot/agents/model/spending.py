"""What an agent has spent within a day, and whether it may go on.

The day is the last 24 hours by a clock that never jumps, so that setting the wall clock buys nothing. With a
file (`spending_file`) a restart of the process does not begin anew.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from moot.agents.model.agent_settings import AgentLimits, ModelSettings
from moot.agents.model.model_reply import ModelReply
from moot.agents.model.spending_file import SpendingFile, SpendingSlot
from moot.errors import UsageError

log = logging.getLogger(__name__)

_DAY_SECONDS: Final = 86_400.0
# What is spent within this time leaves the day together.
_SLOT_SECONDS: Final = 60.0


class Spending:
    """Counts tokens, and money if the prices are known."""

    def __init__(
        self,
        model: ModelSettings,
        limits: AgentLimits,
        *,
        now: Callable[[], float] = time.monotonic,
        file: SpendingFile | None = None,
    ) -> None:
        self._model = model
        self._limits = limits
        self._now = now
        self._file = file
        # Why the file does not have what was spent: then nothing more is.
        self._fault: str | None = None
        self._slots: list[SpendingSlot] = [] if file is None else file.open()

    def add(self, reply: ModelReply) -> None:
        """Count one answer of the model."""
        tokens = reply.prompt_tokens + reply.completion_tokens
        asked, answered = self._model.prices_per_million
        cost = (reply.prompt_tokens * asked + reply.completion_tokens * answered) / 1_000_000
        self._update(lambda slots: _added(slots, SpendingSlot(self._now(), tokens, cost)))

    def _update(self, change: Callable[[list[SpendingSlot]], list[SpendingSlot]]) -> None:
        """Change what was spent, in the file too; other processes may have spent meanwhile."""

        def step(slots: list[SpendingSlot]) -> list[SpendingSlot]:
            now = self._now()
            # Nothing, though we know better: the file is gone, and that is no new day.
            return [slot for slot in change(slots or self._slots) if now - slot.start < _DAY_SECONDS]

        if self._file is not None and self._fault is None:
            try:
                self._slots = self._file.update(step)
                return
            except (OSError, UsageError) as fault:
                self._fault = str(fault)
                log.error("what was spent is not kept", extra={"why": self._fault})
        self._slots = step(self._slots)

    @property
    def tokens(self) -> int:
        """Tokens of the last 24 hours."""
        return sum(slot.tokens for slot in self._recent())

    @property
    def cost(self) -> float:
        """Money of the last 24 hours, in the currency of the prices."""
        return sum(slot.cost for slot in self._recent())

    def _recent(self) -> list[SpendingSlot]:
        now = self._now()
        return [slot for slot in self._slots if now - slot.start < _DAY_SECONDS]

    def exhausted(self) -> str | None:
        """Why the model is not asked any more, and what to do; None while it may be."""
        limits = self._limits
        self._update(lambda slots: slots)
        if self._fault is not None:
            return f"what I spend for one day cannot be kept: {self._fault}. Mend that and start me again"
        if limits.tokens_per_day and self.tokens >= limits.tokens_per_day:
            spent, option = f"{self.tokens} of {limits.tokens_per_day} tokens", "--tokens-per-day"
        elif limits.cost_per_day and self.cost >= limits.cost_per_day:
            spent, option = f"{self.cost:.2f} of {limits.cost_per_day:.2f}", "--cost-per-day"
        else:
            return None
        wait = max(0.0, _DAY_SECONDS - (self._now() - self._recent()[0].start))
        return f"{spent} for one day are used: ask again in {wait / 3600:.1f} hours, or raise {option}"


def _added(slots: list[SpendingSlot], fresh: SpendingSlot) -> list[SpendingSlot]:
    if slots and fresh.start - slots[-1].start < _SLOT_SECONDS:
        start, tokens, cost = slots[-1]
        return [*slots[:-1], SpendingSlot(start, tokens + fresh.tokens, cost + fresh.cost)]
    return [*slots, fresh]
