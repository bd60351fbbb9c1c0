"""Confidence bounds: how often a rule may be wrong after n decisions without a contradiction.

No rejection among n decisions does not mean that none will come. The rejection rate that would still produce
such a history with a chance of 5 % is about 3/n ("rule of three"); the Clopper-Pearson interval is its exact
form, and also covers histories with some rejections.
"""

from __future__ import annotations

import math
from typing import Final

# The chance that the true rate is above the bound: one minus the confidence.
DOUBT: Final = 0.05


def upper_bound(bad: int, total: int, *, doubt: float = DOUBT) -> float:
    """The share of bad ones that is exceeded only with the chance `doubt`, after `bad` of `total`.

    One-sided Clopper-Pearson; 1.0 when nothing was seen.
    """
    if total <= 0 or bad >= total:
        return 1.0
    if bad == 0:
        return float(1.0 - doubt ** (1.0 / total))
    low, high = bad / total, 1.0
    # 60 halvings are more than a double has digits.
    for _ in range(60):
        middle = (low + high) / 2
        if _chance_of_at_most(bad, total, middle) > doubt:
            low = middle
        else:
            high = middle
    return high


def _chance_of_at_most(bad: int, total: int, share: float) -> float:
    """The chance of at most `bad` among `total`, each bad with this share."""
    if share >= 1.0:
        return 0.0
    logs = (
        math.lgamma(total + 1)
        - math.lgamma(i + 1)
        - math.lgamma(total - i + 1)
        + i * math.log(share)
        + (total - i) * math.log1p(-share)
        for i in range(bad + 1)
    )
    return math.fsum(math.exp(value) for value in logs)


def percent(share: float) -> str:
    """A bound as text, never rounded down: 0.2589 is "26 %", 0.0001 is "0.1 %"."""
    if share >= 0.095:
        return f"{min(100, math.ceil(share * 100))} %"
    return f"{math.ceil(share * 1000) / 10:g} %"
