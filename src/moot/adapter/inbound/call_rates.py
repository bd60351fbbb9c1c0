"""How often one key may ask in a minute (XP 8.4): exactly so many in any sixty seconds, not on average."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final

WINDOW_SECONDS: Final = 60.0


class MinuteRates:
    """Counts by key. When too many keys are known, the one that was quiet longest is forgotten."""

    def __init__(self, per_minute: int, most_keys: int) -> None:
        """`per_minute` 0 holds nobody up."""
        self.per_minute = per_minute
        self._most_keys = most_keys
        self._moments: OrderedDict[str, deque[float]] = OrderedDict()

    def wait(self, key: str, now: float) -> float | None:
        """Count one; None when it was within the rate, else the seconds until the next one is."""
        if self.per_minute <= 0:
            return None
        moments = self._moments.get(key)
        if moments is None:
            moments = self._moments[key] = deque()
            if len(self._moments) > self._most_keys:
                self._moments.popitem(last=False)
        else:
            self._moments.move_to_end(key)
        # A clock that was set back leaves moments in the future: they count as now, and go in a minute.
        while moments and (now - moments[0] >= WINDOW_SECONDS or moments[0] > now + WINDOW_SECONDS):
            moments.popleft()
        if len(moments) >= self.per_minute:
            # Not counted: whoever keeps asking is let in as soon as there is room.
            return max(0.001, moments[0] + WINDOW_SECONDS - now)
        moments.append(now)
        return None


class LatestKeys:
    """So many keys, the latest; the one that was not seen for longest is forgotten first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._keys: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def add(self, key: str) -> None:
        self._keys[key] = None
        self._keys.move_to_end(key)
        if len(self._keys) > self._most:
            self._keys.popitem(last=False)
