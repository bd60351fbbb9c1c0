"""What an agent has spent within a day, and whether it may go on.

The day is the last 24 hours by a clock that never jumps, so that setting the wall clock buys nothing. A
restart of the process begins anew: what must hold beyond that is a limit at the vendor.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final

from moot.agent.agent_settings import AgentLimits, ModelSettings
from moot.agent.model_reply import ModelReply

_DAY_SECONDS: Final = 86_400.0
# What is spent within this time leaves the day together.
_SLOT_SECONDS: Final = 60.0


class Spending:
    """Counts tokens, and money if the prices are known."""

    def __init__(
        self, model: ModelSettings, limits: AgentLimits, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._model = model
        self._limits = limits
        self._now = now
        # Per slot: when it began, tokens, money.
        self._slots: deque[tuple[float, int, float]] = deque()

    def add(self, reply: ModelReply) -> None:
        """Count one answer of the model."""
        tokens = reply.prompt_tokens + reply.completion_tokens
        cost = (
            reply.prompt_tokens * self._model.input_price_per_million
            + reply.completion_tokens * self._model.output_price_per_million
        ) / 1_000_000
        now = self._now()
        if self._slots and now - self._slots[-1][0] < _SLOT_SECONDS:
            start, before, paid = self._slots.pop()
            self._slots.append((start, before + tokens, paid + cost))
        else:
            self._slots.append((now, tokens, cost))

    @property
    def tokens(self) -> int:
        """Tokens of the last 24 hours."""
        return sum(slot[1] for slot in self._recent())

    @property
    def cost(self) -> float:
        """Money of the last 24 hours, in the currency of the prices."""
        return sum(slot[2] for slot in self._recent())

    def _recent(self) -> deque[tuple[float, int, float]]:
        while self._slots and self._now() - self._slots[0][0] >= _DAY_SECONDS:
            self._slots.popleft()
        return self._slots

    def exhausted(self) -> str | None:
        """Why the model is not asked any more, and what to do; None while it may be."""
        limits = self._limits
        if limits.tokens_per_day and self.tokens >= limits.tokens_per_day:
            spent, option = f"{self.tokens} of {limits.tokens_per_day} tokens", "--tokens-per-day"
        elif limits.cost_per_day and self.cost >= limits.cost_per_day:
            spent, option = f"{self.cost:.2f} of {limits.cost_per_day:.2f}", "--cost-per-day"
        else:
            return None
        wait = max(0.0, _DAY_SECONDS - (self._now() - self._slots[0][0]))
        return f"{spent} for one day are used: ask again in {wait / 3600:.1f} hours, or raise {option}"
