"""Resources that MCP clients follow, each as one subscription at its endpoint (XP 4.5, D-78).

Several clients share one. An endpoint forgets a subscription when its request expires, and all of them when
it is restarted; so each is renewed when most of its time is over, and after every announce.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from typing import Final, Self

from moot.errors import MootError, OutboxFull, Unreachable
from moot.protocol.operation import Json
from moot.xprotocol.adapter.outbound.mirrored_offers import ResourceContract, accepts_updates_flag
from moot.xprotocol.adapter.outbound.outbound_source import OutboundSource
from moot.xprotocol.endpoint.endpoint_caller import FollowedResource

log = logging.getLogger(__name__)

MAX_FOLLOWED: Final = 256
# The share of its lifetime after which a subscription is renewed.
RENEW_AT: Final = 0.8
# Between two checks for due renewals, and between two tries of one.
CHECK_SECONDS: Final = 5.0
# Unsubscribing is a courtesy: a subscription expires by itself.
UNSUBSCRIBE_SECONDS: Final = 5.0


class _Followed:
    __slots__ = ("clients", "due", "lock", "resources", "source", "subscription", "uri")

    def __init__(self, source: OutboundSource, resources: ResourceContract, uri: str) -> None:
        self.source = source
        self.resources = resources
        self.uri = uri
        self.clients = 0
        self.subscription: FollowedResource | None = None
        self.due = 0.0
        self.lock = asyncio.Lock()


class FollowedResources:
    """Subscriptions by the URI that clients know. Within `async with`."""

    def __init__(self, on_update: Callable[[str], None]) -> None:
        self._on_update = on_update
        self._followed: dict[str, _Followed] = {}
        self._wake = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._running = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        for each in self._followed.values():
            if each.subscription is not None:
                each.subscription.close()
        self._followed.clear()

    async def follow(
        self, listed_uri: str, source: OutboundSource, resources: ResourceContract, uri: str
    ) -> None:
        """Add a client; raises what a call raises."""
        each = self._followed.get(listed_uri)
        if each is None:
            if len(self._followed) >= MAX_FOLLOWED:
                raise OutboxFull(f"{MAX_FOLLOWED} resources are followed already: end one first")
            each = self._followed[listed_uri] = _Followed(source, resources, uri)
        each.clients += 1
        try:
            async with each.lock:
                if each.subscription is None:
                    await self._subscribe(listed_uri, each)
        except BaseException:
            await self._remove_client(listed_uri, each)
            raise

    async def unfollow(self, listed_uri: str) -> None:
        """Remove a client; does nothing where there is none."""
        each = self._followed.get(listed_uri)
        if each is not None:
            await self._remove_client(listed_uri, each)

    async def read(self, listed_uri: str) -> Json | None:
        """The contents of a followed resource; None: it is not followed. Raises what a call raises."""
        each = self._followed.get(listed_uri)
        if each is None:
            return None
        # A single read would end the subscription, so subscribe again.
        async with each.lock:
            return await self._subscribe(listed_uri, each)

    def renew(self, source: str) -> None:
        """Renew all of a source's subscriptions soon."""
        for each in self._followed.values():
            if each.source.name == source and each.subscription is not None:
                each.due = 0.0
                self._wake.set()

    def keep_only(self, sources: Collection[str]) -> None:
        """Drop the subscriptions of sources that are gone."""
        for listed_uri, each in list(self._followed.items()):
            if each.source.name not in sources:
                del self._followed[listed_uri]
                if each.subscription is not None:
                    each.subscription.close()

    async def _subscribe(self, listed_uri: str, each: _Followed) -> Json:
        remote = each.source.remote
        if remote is None:
            raise Unreachable(str(each.source.fault or f"{each.source.settings.address} is not connected"))
        before = each.subscription
        subscription = await remote.follow(
            each.resources.subscribe_kind,
            {"uri": each.uri},
            updated_kind=each.resources.updated_kind,
            on_update=lambda _payload: self._on_update(listed_uri),
            timeout_seconds=each.source.settings.call_timeout_seconds,
        )
        each.subscription = subscription
        each.due = time.monotonic() + max(1.0, (subscription.expires_at - time.time()) * RENEW_AT)
        if before is not None:
            before.close()
        if self._followed.get(listed_uri) is not each:
            # All clients left, or the source was removed, meanwhile.
            subscription.close()
        return subscription.contents

    async def _remove_client(self, listed_uri: str, each: _Followed) -> None:
        each.clients -= 1
        if each.clients > 0 or self._followed.get(listed_uri) is not each:
            return
        del self._followed[listed_uri]
        subscription, remote = each.subscription, each.source.remote
        if subscription is None:
            return
        subscription.close()
        if remote is None or not accepts_updates_flag(each.resources.contract):
            return
        try:
            await remote.call(
                each.resources.subscribe_kind,
                {"uri": each.uri, "updates": False},
                timeout_seconds=UNSUBSCRIBE_SECONDS,
            )
        except MootError as fault:
            log.debug(
                "a subscription was not ended", extra={"source": each.source.name, "reason": str(fault)}
            )

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(CHECK_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            now = time.monotonic()
            for listed_uri, each in list(self._followed.items()):
                if each.subscription is None or each.due > now:
                    continue
                try:
                    async with each.lock:
                        await self._subscribe(listed_uri, each)
                    # It may have changed meanwhile.
                    self._on_update(listed_uri)
                except MootError as fault:
                    each.due = now + CHECK_SECONDS
                    log.info(
                        "a subscription is not renewed",
                        extra={"source": each.source.name, "reason": str(fault)},
                    )
                except Exception:
                    # A task of the adapter's own: the others go on.
                    log.exception("renewing a subscription failed")
                    each.due = now + CHECK_SECONDS
