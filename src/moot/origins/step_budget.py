"""How much work one message or one verdict may cost, counted in steps of about a microsecond, never in time.

Others choose what is read here, so all work is counted before it is done. What is beyond the budget is not
known, and what is not known asks. The same messages give the same counts on every machine.
"""

from __future__ import annotations

from typing import Final

# Reading one message, and looking up the values of one call.
MESSAGE_STEPS: Final = 60_000
VERDICT_STEPS: Final = 25_000


class BudgetSpent(Exception):
    """The rest is not looked at: it is not known."""


class StepBudget:
    __slots__ = ("left",)

    def __init__(self, steps: int) -> None:
        self.left = steps

    def spend(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise BudgetSpent
