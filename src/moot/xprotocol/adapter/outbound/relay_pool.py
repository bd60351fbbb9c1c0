"""The relay connections of outbound sources. Sources with the same relays share one; unused ones close."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

from moot.errors import UsageError
from moot.xprotocol.endpoint.document_fetch import FetchPolicy
from moot.xprotocol.endpoint.endpoint_caller import EndpointCaller
from moot.xprotocol.endpoint.event_listener import EventListener
from moot.xprotocol.endpoint.relay_client import RelayClient
from moot.xprotocol.events.relay_auth import relay_address
from moot.xprotocol.identity.keys import Identity

# Sets of relays besides our own; each has two connections.
MAX_RELAY_SETS: Final = 64


@dataclass(slots=True)
class _PooledRelays:
    listener: EventListener
    stack: AsyncExitStack
    users: int


# Addresses, whether they are checked, and whether private ones are allowed.
_PoolKey = tuple[tuple[str, ...], bool, bool]


class RelayPool:
    """Within `async with`. `home` are the adapter's own relays; they are not opened or closed here."""

    def __init__(
        self,
        identity: Identity,
        caller: EndpointCaller,
        home: RelayClient,
        *,
        listens_for_answers: bool = True,
    ) -> None:
        self._identity = identity
        self._caller = caller
        self._home = home
        self._home_listener = EventListener(home, caller, listens_for_answers=listens_for_answers)
        self._pool: dict[_PoolKey, _PooledRelays] = {}

    async def __aenter__(self) -> RelayPool:
        await self._home_listener.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        for entry in list(self._pool.values()):
            await entry.stack.aclose()
        self._pool.clear()
        await self._home_listener.__aexit__()

    async def acquire_configured(self, relay: str | None) -> EventListener:
        """A relay that the operator named, before our own; without one, our own."""
        home = self._home.urls
        if relay is None or relay_address(relay) == relay_address(home[0]):
            return self._home_listener
        rest = [url for url in home if relay_address(url) != relay_address(relay)]
        return await self._acquire((relay, *rest), None)

    async def acquire_discovered(self, relays: tuple[str, ...], fetch_policy: FetchPolicy) -> EventListener:
        """Relays that discovery found: untrusted, so every connection is checked."""
        if relay_address(relays[0]) == relay_address(self._home.urls[0]):
            return self._home_listener
        return await self._acquire(relays, fetch_policy)

    async def release(self, listener: EventListener) -> None:
        """Give a listener back; once for each time that it was acquired."""
        for key, entry in self._pool.items():
            if entry.listener is listener:
                entry.users -= 1
                if entry.users == 0:
                    del self._pool[key]
                    await entry.stack.aclose()
                return

    async def _acquire(self, urls: tuple[str, ...], fetch_policy: FetchPolicy | None) -> EventListener:
        key = (urls, fetch_policy is not None, fetch_policy is not None and fetch_policy.allow_private)
        entry = self._pool.get(key)
        if entry is None:
            if len(self._pool) >= MAX_RELAY_SETS:
                raise UsageError(
                    f"{MAX_RELAY_SETS} sets of relays are in use already: let sources share relays"
                )
            relays = RelayClient(urls, self._identity, fetch_policy=fetch_policy)
            stack = AsyncExitStack()
            entry = self._pool[key] = _PooledRelays(EventListener(relays, self._caller), stack, 0)
            await stack.enter_async_context(relays)
            await stack.enter_async_context(entry.listener)
        entry.users += 1
        return entry.listener
