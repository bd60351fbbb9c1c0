"""What an MCP server says unasked, on its way into a space: what matters of it, at a pace that nobody minds.

A server may report progress a thousand times a second; a space is shared. So each call has a token bucket:
while there are tokens, messages are handed on in order; beyond that only the latest progress counts, and log
messages wait up to a number, the rest being counted. Of changes it counts that one happened. Everything goes
out in ticks; the first thing after a silence goes at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from moot.mcp.eras import LIST_CHANGED, JsonObject
from moot.resilience.token_bucket import TokenBucket

# Ten a second: quicker than anyone reads, slower than anyone minds.
TICK_SECONDS: Final = 0.1
# What one call may say at once, and then in a second: a reader follows neither more nor quicker.
CALL_BURST: Final = 20.0
CALL_PER_SECOND: Final = 10.0
# Messages of one call that wait for their turn.
CALL_WAITING: Final = 100
# Changed resources told in one tick; the others wait for the next.
UPDATES_PER_TICK: Final = 20
# At most so often is it told that a list changed.
CHANGE_SECONDS: Final = 1.0

_CHANGED: Final = {feature: method for method, feature in LIST_CHANGED.items()}
_UPDATED: Final = "notifications/resources/updated"
_PROGRESS: Final = "notifications/progress"
_MESSAGE: Final = "notifications/message"


class RequestCaller(Protocol):
    """Whoever can be told something about their request; False when they cannot."""

    async def notify(self, method: str, params: JsonObject) -> bool: ...


# A notification to the members named, or to all: whether it went out.
Announce = Callable[[str, JsonObject | None, tuple[str, ...]], Awaitable[bool]]


class CallMessages:
    """Progress and log messages of one call."""

    def __init__(self, caller: RequestCaller, wake: Callable[[CallMessages], None]) -> None:
        self._caller = caller
        self._wake = wake
        self._waiting: deque[tuple[str, JsonObject]] = deque()
        # Progress beyond the rate: the latest says it all.
        self._latest: JsonObject | None = None
        self._left_out = 0
        self._rate = TokenBucket(CALL_PER_SECOND, CALL_BURST, _now())

    def heard(self, method: str, params: JsonObject) -> None:
        """What the server said about this call."""
        is_crowded = self._latest is not None or len(self._waiting) >= self._rate.tokens(_now())
        if method == _PROGRESS and is_crowded:
            self._latest = params
        elif len(self._waiting) < CALL_WAITING:
            self._waiting.append((method, params))
        else:
            self._left_out += 1
        self._wake(self)

    async def tell(self, *, last: bool = False) -> bool:
        """Tell the caller what it has tokens for, or at last everything; True if something still waits."""
        now = _now()
        while self._waiting and (last or not self._rate.take(now)):
            await self._caller.notify(*self._waiting.popleft())
        if not self._waiting and self._left_out:
            data = f"{self._left_out} log messages came too quickly and were left out"
            self._left_out = 0
            await self._caller.notify(_MESSAGE, {"level": "warning", "logger": "moot", "data": data})
        if self._latest is not None and not self._waiting and (last or not self._rate.take(now)):
            latest, self._latest = self._latest, None
            await self._caller.notify(_PROGRESS, latest)
        return bool(self._waiting or self._latest)

    async def finish(self) -> None:
        """Tell what is left before the answer goes out: afterwards nobody listens."""
        if self._waiting or self._latest is not None:
            await self.tell(last=True)


class ServerMessages:
    """Everything of one server that waits for its tick. `run` sends it."""

    def __init__(self, announce: Announce) -> None:
        self._announce = announce
        self._relays: dict[CallMessages, None] = {}
        self._changed: dict[str, None] = {}
        self._told: dict[str, float] = {}
        self._updated: dict[str, tuple[JsonObject, tuple[str, ...]]] = {}
        self._news = asyncio.Event()

    def relay(self, caller: RequestCaller) -> CallMessages:
        """The way back to one caller."""
        return CallMessages(caller, self._wake)

    def changed(self, feature: str) -> None:
        """A list changed: `tools`, `resources` or `prompts`."""
        self._changed[feature] = None
        self._news.set()

    def updated(self, params: JsonObject, watchers: tuple[str, ...]) -> None:
        """A resource changed; only who watches it is told."""
        if watchers:
            self._updated[params["uri"]] = (params, watchers)
            self._news.set()

    async def run(self) -> None:
        """Send what waits, tick by tick, until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            waiting = await self._tick()
            await asyncio.sleep(TICK_SECONDS)
            if waiting:
                self._news.set()

    def _wake(self, relay: CallMessages) -> None:
        self._relays[relay] = None
        self._news.set()

    async def _tick(self) -> bool:
        relays, self._relays = list(self._relays), {}
        for relay in relays:
            if await relay.tell():
                self._relays[relay] = None
        now = _now()
        for feature in list(self._changed):
            if now - self._told.get(feature, -CHANGE_SECONDS) >= CHANGE_SECONDS:
                del self._changed[feature]
                self._told[feature] = now
                await self._announce(_CHANGED[feature], None, ())
        for uri in list(self._updated)[:UPDATES_PER_TICK]:
            params, watchers = self._updated.pop(uri)
            await self._announce(_UPDATED, params, watchers)
        return bool(self._relays or self._changed or self._updated)


def _now() -> float:
    return asyncio.get_running_loop().time()
