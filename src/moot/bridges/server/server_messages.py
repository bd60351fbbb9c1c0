"""Notifications of an MCP server on their way into a space, limited to a rate that does not disturb.

A server may report progress a thousand times a second; a space is shared. So each call has a token bucket:
while there are tokens, notifications are passed on in order; beyond that only the latest progress counts, and
a limited number of log messages wait, the rest being dropped and counted. Repeated changes become one.
Everything goes out in ticks; the first notification after a silence goes at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from moot.mcp.eras import LIST_CHANGED, JsonObject
from moot.protocol.hidden_text import show_hidden_in
from moot.resilience.rate_limits import TokenBucket

# Ten a second: faster than anyone reads.
TICK_SECONDS: Final = 0.1
# Notifications of one call at once, and then in a second: nobody can follow more.
CALL_BURST: Final = 20.0
CALL_PER_SECOND: Final = 10.0
# Notifications of one call that wait for a token.
MAX_WAITING: Final = 100
# Changed resources reported in one tick; the others wait for the next.
UPDATES_PER_TICK: Final = 20
# Shortest time between two reports that a list changed.
CHANGE_SECONDS: Final = 1.0

_CHANGED: Final = {feature: method for method, feature in LIST_CHANGED.items()}
_UPDATED: Final = "notifications/resources/updated"
_PROGRESS: Final = "notifications/progress"
_MESSAGE: Final = "notifications/message"
# Members of a notification by which the caller finds its call.
_OURS: Final = ("progressToken", "_meta")


class RequestCaller(Protocol):
    """The caller of a request. `notify` returns False when it cannot be reached."""

    async def notify(self, method: str, params: JsonObject) -> bool: ...


# A notification to the members named, or to all: whether it went out.
Announce = Callable[[str, JsonObject | None, tuple[str, ...]], Awaitable[bool]]


class CallMessages:
    """Progress and log messages of one call."""

    def __init__(self, caller: RequestCaller, wake: Callable[[CallMessages], None]) -> None:
        self._caller = caller
        self._wake = wake
        self._waiting: deque[tuple[str, JsonObject]] = deque()
        # Progress beyond the rate: only the latest counts.
        self._latest: JsonObject | None = None
        self._dropped = 0
        self._rate = TokenBucket(CALL_PER_SECOND, CALL_BURST, _now())

    def add(self, method: str, params: JsonObject) -> None:
        """Queue a notification of the server about this call, with nothing hidden in its texts."""
        params = {name: value if name in _OURS else show_hidden_in(value) for name, value in params.items()}
        is_crowded = self._latest is not None or len(self._waiting) >= self._rate.tokens(_now())
        if method == _PROGRESS and is_crowded:
            self._latest = params
        elif len(self._waiting) < MAX_WAITING:
            self._waiting.append((method, params))
        else:
            self._dropped += 1
        self._wake(self)

    async def send(self, *, last: bool = False) -> bool:
        """Notify the caller within the rate, or at last of everything; True if something still waits."""
        now = _now()
        while self._waiting and (last or not self._rate.take(now)):
            await self._caller.notify(*self._waiting.popleft())
        if not self._waiting and self._dropped:
            data = f"{self._dropped} log messages came too quickly and were dropped"
            self._dropped = 0
            await self._caller.notify(_MESSAGE, {"level": "warning", "logger": "moot", "data": data})
        if self._latest is not None and not self._waiting and (last or not self._rate.take(now)):
            latest, self._latest = self._latest, None
            await self._caller.notify(_PROGRESS, latest)
        return bool(self._waiting or self._latest)

    async def finish(self) -> None:
        """Send what is left before the response goes out: afterwards nobody listens."""
        if self._waiting or self._latest is not None:
            await self.send(last=True)


class ServerMessages:
    """All notifications of one server that wait for the next tick. `run` sends them."""

    def __init__(self, announce: Announce) -> None:
        self._announce = announce
        self._relays: dict[CallMessages, None] = {}
        self._changed: dict[str, None] = {}
        self._reported_at: dict[str, float] = {}
        self._updated: dict[str, tuple[JsonObject, tuple[str, ...]]] = {}
        self._wakeup = asyncio.Event()

    def relay(self, caller: RequestCaller) -> CallMessages:
        """The queue of notifications to one caller."""
        return CallMessages(caller, self._wake)

    def add_list_change(self, feature: str) -> None:
        """A list changed: `tools`, `resources` or `prompts`."""
        self._changed[feature] = None
        self._wakeup.set()

    def add_resource_update(self, params: JsonObject, watchers: tuple[str, ...]) -> None:
        """A resource changed; only its watchers are notified."""
        if watchers:
            self._updated[params["uri"]] = (params, watchers)
            self._wakeup.set()

    async def run(self) -> None:
        """Send what waits, tick by tick, until cancelled."""
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            waiting = await self._tick()
            await asyncio.sleep(TICK_SECONDS)
            if waiting:
                self._wakeup.set()

    def _wake(self, relay: CallMessages) -> None:
        self._relays[relay] = None
        self._wakeup.set()

    async def _tick(self) -> bool:
        relays, self._relays = list(self._relays), {}
        for relay in relays:
            if await relay.send():
                self._relays[relay] = None
        now = _now()
        for feature in list(self._changed):
            if now - self._reported_at.get(feature, -CHANGE_SECONDS) >= CHANGE_SECONDS:
                del self._changed[feature]
                self._reported_at[feature] = now
                await self._announce(_CHANGED[feature], None, ())
        for uri in list(self._updated)[:UPDATES_PER_TICK]:
            params, watchers = self._updated.pop(uri)
            await self._announce(_UPDATED, params, watchers)
        return bool(self._relays or self._changed or self._updated)


def _now() -> float:
    return asyncio.get_running_loop().time()
