"""The relays that sources are reached by. Sources with the same ones share them; what nobody uses is left."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

from moot.endpoint.checked_relays import CheckedRelays
from moot.endpoint.document_fetch import FetchPolicy
from moot.endpoint.endpoint_caller import EndpointCaller
from moot.endpoint.event_listener import EventListener
from moot.endpoint.relay_client import RelayClient
from moot.endpoint.relay_settings import RelaysSettings
from moot.errors import UsageError
from moot.identity.keys import Identity
from moot.xprotocol.relay_auth import relay_address

# Sets of relays beside our own; each has two connections.
MAX_LINES: Final = 64


@dataclass(slots=True)
class _Line:
    hearing: EventListener
    stack: AsyncExitStack
    users: int


# Addresses, and whether and how far they are checked.
_Place = tuple[tuple[str, ...], bool, bool]


class RelayPool:
    """Within `async with`. `home` are the adapter's own relays, which somebody else opened."""

    def __init__(
        self,
        identity: Identity,
        caller: EndpointCaller,
        home: RelayClient,
        *,
        hears_home: bool = True,
        settings: RelaysSettings | None = None,
    ) -> None:
        self._identity = identity
        self._caller = caller
        self._home = home
        self._settings = settings or RelaysSettings()
        self._home_hearing = EventListener(home, caller, answers=hears_home)
        self._lines: dict[_Place, _Line] = {}

    async def __aenter__(self) -> RelayPool:
        await self._home_hearing.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        for line in list(self._lines.values()):
            await line.stack.aclose()
        self._lines.clear()
        await self._home_hearing.__aexit__()

    async def named(self, relay: str | None) -> EventListener:
        """A relay that the operator named, before our own; without one, our own."""
        home = self._home.urls
        if relay is None or relay_address(relay) == relay_address(home[0]):
            return self._home_hearing
        rest = [url for url in home if relay_address(url) != relay_address(relay)]
        return await self._taken((relay, *rest), None)

    async def found(self, relays: tuple[str, ...], reach: FetchPolicy) -> EventListener:
        """Relays that discovery found: a stranger's words, so every connection is checked."""
        if relay_address(relays[0]) == relay_address(self._home.urls[0]):
            return self._home_hearing
        return await self._taken(relays, reach)

    async def release(self, hearing: EventListener) -> None:
        """Each that was taken is given back once."""
        for place, line in self._lines.items():
            if line.hearing is hearing:
                line.users -= 1
                if line.users == 0:
                    del self._lines[place]
                    await line.stack.aclose()
                return

    async def _taken(self, urls: tuple[str, ...], reach: FetchPolicy | None) -> EventListener:
        place = (urls, reach is not None, reach is not None and reach.allow_private)
        line = self._lines.get(place)
        if line is None:
            if len(self._lines) >= MAX_LINES:
                raise UsageError(f"{MAX_LINES} sets of relays are in use: have some sources share theirs")
            relays = (
                RelayClient(urls, self._identity, self._settings)
                if reach is None
                else CheckedRelays(urls, self._identity, reach, self._settings)
            )
            stack = AsyncExitStack()
            line = self._lines[place] = _Line(EventListener(relays, self._caller), stack, 0)
            await stack.enter_async_context(relays)
            await stack.enter_async_context(line.hearing)
        line.users += 1
        return line.hearing
