"""How fast somebody may go: buckets that fill by themselves, for one connection or for many keys."""

from __future__ import annotations

from collections import OrderedDict


class ClientRate:
    """So many a second on average, so many at once. A rate of 0 holds nobody up."""

    __slots__ = ("_burst", "_left", "_moment", "_per_second")

    def __init__(self, per_second: float, burst: int, now: float) -> None:
        self._per_second = per_second
        self._burst = float(max(1, burst))
        self._left = self._burst
        self._moment = now

    def wait(self, now: float) -> float:
        """Take one; 0.0 when there was one to take, else the seconds until there is."""
        if self._per_second <= 0:
            return 0.0
        # A clock that steps back gives nothing.
        passed = now - self._moment
        self._moment = now
        left = self._left
        if passed > 0:
            left = min(self._burst, left + passed * self._per_second)
        if left >= 1.0:
            self._left = left - 1.0
            return 0.0
        self._left = left
        return (1.0 - left) / self._per_second


class ClientRates:
    """A rate for each key. When too many are known the one that was quiet longest is forgotten."""

    def __init__(self, per_second: float, burst: int, most: int) -> None:
        self._per_second = per_second
        self._burst = burst
        self._most = most
        self._rates: OrderedDict[str, ClientRate] = OrderedDict()

    def wait(self, key: str, now: float) -> float:
        if self._per_second <= 0:
            return 0.0
        rate = self._rates.get(key)
        if rate is None:
            rate = self._rates[key] = ClientRate(self._per_second, self._burst, now)
            if len(self._rates) > self._most:
                self._rates.popitem(last=False)
        else:
            self._rates.move_to_end(key)
        return rate.wait(now)
