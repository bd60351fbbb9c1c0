"""Resources that MCP clients follow, each as one subscription at its endpoint (XP 4.5, D-78).

Several clients share one. An endpoint forgets a subscription when its request expires, and all of them when
it is restarted; so each is asked for again when most of its time is over, and after every announce.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from typing import Final, Self

from moot.adapter.outbound.mirrored_offers import ResourceContract, takes_updates_word
from moot.adapter.outbound.outbound_source import OutboundSource
from moot.endpoint.endpoint_caller import FollowedResource
from moot.errors import MootError, OutboxFull, Unreachable
from moot.protocol.operation import Json

log = logging.getLogger(__name__)

MAX_FOLLOWED: Final = 256
# Of its time, when a subscription is asked for anew.
RENEW_AT: Final = 0.8
# How often is looked which ones are due, and the least between two tries of one.
LOOK_SECONDS: Final = 5.0
# Ending one is a courtesy: it expires by itself.
END_SECONDS: Final = 5.0


class _Followed:
    __slots__ = ("clients", "due", "following", "lock", "resources", "source", "uri")

    def __init__(self, source: OutboundSource, resources: ResourceContract, uri: str) -> None:
        self.source = source
        self.resources = resources
        self.uri = uri
        self.clients = 0
        self.following: FollowedResource | None = None
        self.due = 0.0
        self.lock = asyncio.Lock()


class FollowedResources:
    """By the URI that clients know. Within `async with`."""

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
            if each.following is not None:
                each.following.close()
        self._followed.clear()

    async def follow(
        self, shown_uri: str, source: OutboundSource, resources: ResourceContract, uri: str
    ) -> None:
        """One client more; raises what a call raises."""
        each = self._followed.get(shown_uri)
        if each is None:
            if len(self._followed) >= MAX_FOLLOWED:
                raise OutboxFull(f"{MAX_FOLLOWED} resources are followed, and no more can be: end one first")
            each = self._followed[shown_uri] = _Followed(source, resources, uri)
        each.clients += 1
        try:
            async with each.lock:
                if each.following is None:
                    await self._ask(shown_uri, each)
        except BaseException:
            await self._fewer(shown_uri, each)
            raise

    async def unfollow(self, shown_uri: str) -> None:
        """One client less; nothing happens where none was."""
        each = self._followed.get(shown_uri)
        if each is not None:
            await self._fewer(shown_uri, each)

    async def read(self, shown_uri: str) -> Json | None:
        """What a followed resource holds now; None: it is not followed. Raises what a call raises."""
        each = self._followed.get(shown_uri)
        if each is None:
            return None
        # Reading it once would end the subscription, so it is begun anew.
        async with each.lock:
            return await self._ask(shown_uri, each)

    def renew(self, source: str) -> None:
        """Ask for all of a source's again, soon."""
        for each in self._followed.values():
            if each.source.name == source and each.following is not None:
                each.due = 0.0
                self._wake.set()

    def keep(self, sources: Collection[str]) -> None:
        """Forget what belongs to sources that are gone."""
        for shown_uri, each in list(self._followed.items()):
            if each.source.name not in sources:
                del self._followed[shown_uri]
                if each.following is not None:
                    each.following.close()

    async def _ask(self, shown_uri: str, each: _Followed) -> Json:
        remote = each.source.remote
        if remote is None:
            raise Unreachable(str(each.source.fault or f"{each.source.settings.address} is not connected"))
        before = each.following
        following = await remote.follow(
            each.resources.subscribe_kind,
            {"uri": each.uri},
            updated_kind=each.resources.updated_kind,
            on_update=lambda _payload: self._on_update(shown_uri),
            within=each.source.settings.call_timeout_seconds,
        )
        each.following = following
        now = time.time()
        each.due = now + max(1.0, (following.expires_at - now) * RENEW_AT)
        if before is not None:
            before.close()
        if self._followed.get(shown_uri) is not each:
            # Everybody left, or the source went, while it was asked for.
            following.close()
        return following.contents

    async def _fewer(self, shown_uri: str, each: _Followed) -> None:
        each.clients -= 1
        if each.clients > 0 or self._followed.get(shown_uri) is not each:
            return
        del self._followed[shown_uri]
        following, remote = each.following, each.source.remote
        if following is None:
            return
        following.close()
        if remote is None or not takes_updates_word(each.resources.contract):
            return
        try:
            await remote.call(
                each.resources.subscribe_kind, {"uri": each.uri, "updates": False}, within=END_SECONDS
            )
        except MootError as fault:
            log.debug("a subscription was not ended", extra={"source": each.source.name, "why": str(fault)})

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            now = time.time()
            for shown_uri, each in list(self._followed.items()):
                if each.following is None or each.due > now:
                    continue
                try:
                    async with each.lock:
                        await self._ask(shown_uri, each)
                    # What changed while nobody listened is not known.
                    self._on_update(shown_uri)
                except MootError as fault:
                    each.due = now + LOOK_SECONDS
                    log.info(
                        "a subscription is not renewed",
                        extra={"source": each.source.name, "why": str(fault)},
                    )
                except Exception:
                    # A task of the adapter's own: the others go on.
                    log.exception("renewing a subscription failed")
                    each.due = now + LOOK_SECONDS
