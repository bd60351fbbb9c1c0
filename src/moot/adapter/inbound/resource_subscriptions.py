"""Resources that callers follow (XP 4.5, D-78): contents now, and again whenever they change.

A subscription belongs to one sender, source and URI; subscribing again replaces it. It lasts until the
request that made it expires, and its right is looked at anew with every update: who lost it, or whose key was
revoked, hears nothing more. An update is a reply to that request, so the subscriber knows whom and what it is
about.

A server that tells of changes is listened to; one that cannot is read every `resource_poll_seconds`. Many
changes while an update is on its way become one more update.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final, Literal

from moot.adapter.config.adapter_settings import AdapterLimits
from moot.adapter.inbound.contract_registry import KindRoute
from moot.adapter.inbound.mcp_source import McpServerSource, SourceFault
from moot.adapter.inbound.operation_runner import SubscribeRequest
from moot.adapter.inbound.reply_publisher import ReplyPublisher
from moot.adapter.operations.audit_log import AuditLog
from moot.adapter.task_set import TaskSet
from moot.errors import AuthorizationInsufficient
from moot.protocol.operation import Json
from moot.protocol.strict_json import encode
from moot.xprotocol.access_rights import Access
from moot.xprotocol.contracts import ContractRefused
from moot.xprotocol.events import DirectedEvent
from moot.xprotocol.faults import fault
from moot.xprotocol.resources import contents_payload, updated_kind

log = logging.getLogger(__name__)

# Updates that are signed and sealed in a row: some 3 ms before others have their turn.
AT_ONCE: Final = 16
# Between two updates of one resource: a file that is being written changes a thousand times a second.
UPDATE_SECONDS: Final = 0.1

# `tell`: the server says that it changed; `look`: nobody knows, so it is told only if it did.
Wanted = Literal["nothing", "look", "tell"]


@dataclass(frozen=True, slots=True)
class ResourceFollower:
    """Who follows a resource, and by what right."""

    request: DirectedEvent
    capability: str
    proofs: Sequence[Json]


class WatchedResource:
    """One resource that somebody follows."""

    __slots__ = ("asked", "digest", "followers", "is_told", "kind", "source", "task", "uri", "wanted")

    def __init__(self, source: McpServerSource, route: KindRoute, uri: str) -> None:
        self.source = source
        self.uri = uri
        self.asked = route.contract.kind
        self.kind = (
            route.contract.subscription.updated_kind
            if route.contract.subscription is not None
            else updated_kind(source.settings.namespace)
        )
        self.followers: dict[str, ResourceFollower] = {}
        # Whether the server tells of changes; else it is asked.
        self.is_told = True
        self.digest = b""
        # An update is being made; and what is wanted after it.
        self.task: asyncio.Task[None] | None = None
        self.wanted: Wanted = "nothing"


class ResourceSubscriptions:
    """All subscriptions of an adapter."""

    def __init__(
        self,
        limits: AdapterLimits,
        *,
        access: Callable[[], Access],
        answering: ReplyPublisher,
        audit: AuditLog,
    ) -> None:
        self.limits = limits
        self._access = access
        self._answering = answering
        self._audit = audit
        self._followed: dict[tuple[str, str], WatchedResource] = {}
        self._by_sender: dict[str, int] = {}
        self._tasks = TaskSet("update")
        self.updates = 0

    def __len__(self) -> int:
        return sum(self._by_sender.values())

    # For callers

    async def subscribe(self, wish: SubscribeRequest) -> dict[str, Json]:
        """Follow a resource; its contents now. Raises SourceFault."""
        self._sweep(time.time())
        event, terms = wish.accepted.event, wish.route.terms
        place = (wish.route.source, wish.uri)
        known = self._followed.get(place)
        if known is None or event.sender not in known.followers:
            self._check_room(event.sender)
        followed = known or WatchedResource(wish.source, wish.route, wish.uri)
        self._followed[place] = followed
        if event.sender not in followed.followers:
            self._by_sender[event.sender] = self._by_sender.get(event.sender, 0) + 1
        followed.followers[event.sender] = ResourceFollower(event, terms.capability or "", wish.proofs)
        try:
            # Before reading: a change in between is told rather than missed.
            followed.is_told = await wish.source.watch(wish.uri)
            payload = await self._read(followed)
        except BaseException:
            self._unfollow(place, event.sender, event.id)
            raise
        followed.digest = _digest(payload)
        return payload

    async def unsubscribe(self, sender: str, source: str, uri: str) -> None:
        """Nothing happens to whoever did not subscribe."""
        self._unfollow((source, uri), sender)

    # For the adapter

    def updated(self, source: str, uri: str) -> None:
        """A server says that a resource changed."""
        for (name, watched), followed in list(self._followed.items()):
            # MCP: the URI may be that of a part of what was subscribed to.
            if name == source and (
                uri == watched or uri.startswith((f"{watched.rstrip('/')}/", f"{watched}#", f"{watched}?"))
            ):
                self._update(followed, "tell")

    def came_up(self, source: str) -> None:
        """A server is there again; what changed meanwhile is unknown."""
        for (name, _), followed in list(self._followed.items()):
            if name == source and followed.digest:
                self._update(followed, "look")

    def drop_source(self, source: str) -> None:
        for place in [place for place in self._followed if place[0] == source]:
            for sender in list(self._followed[place].followers):
                self._unfollow(place, sender)

    def published(self, source: str, route_of: Callable[[str], KindRoute | None]) -> None:
        """A source publishes something else: what it no longer offers ends, and another right counts now."""
        for place, followed in list(self._followed.items()):
            if place[0] != source:
                continue
            route = route_of(followed.asked)
            if route is None or route.source != source or not _offers(route, followed.uri):
                for sender in list(followed.followers):
                    self._unfollow(place, sender)
                continue
            capability = route.terms.capability or ""
            others = [each for each in followed.followers.items() if each[1].capability != capability]
            for sender, follower in others:
                followed.followers[sender] = replace(follower, capability=capability)
            if others:
                # Not with every list: rights that came as proofs take a while to look at.
                self._check_rights(place, followed, time.time())

    def check_rights(self, key: str | None = None) -> None:
        """End whatever has no right any more, of one key or of all; slow where rights came as proofs."""
        now = time.time()
        self._sweep(now)
        for place, followed in list(self._followed.items()):
            self._check_rights(place, followed, now, key)

    async def run(self) -> None:
        """Read what nobody tells about, and forget what is over, until cancelled."""
        while True:
            await asyncio.sleep(self.limits.resource_poll_seconds)
            self._sweep(time.time())
            for followed in list(self._followed.values()):
                if not followed.is_told:
                    self._update(followed, "look")

    async def close(self) -> None:
        await self._tasks.close()
        self._followed.clear()
        self._by_sender.clear()

    # Inside

    def _check_room(self, sender: str) -> None:
        limits = self.limits
        if len(self) >= limits.subscriptions:
            raise SourceFault(
                fault(
                    "ENDPOINT_UNAVAILABLE",
                    f"limits.subscriptions is {limits.subscriptions}: no more can be followed",
                )
            )
        if self._by_sender.get(sender, 0) >= limits.subscriptions_per_sender:
            raise SourceFault(
                fault(
                    "RATE_LIMITED",
                    f"limits.subscriptions_per_sender is {limits.subscriptions_per_sender}: end one first",
                )
            )

    async def _read(self, followed: WatchedResource) -> dict[str, Json]:
        result = await followed.source.request("resources/read", {"uri": followed.uri})
        return contents_payload(followed.uri, result)

    def _update(self, followed: WatchedResource, wanted: Wanted) -> None:
        if followed.wanted != "tell":
            followed.wanted = wanted
        if followed.task is None:
            followed.task = self._tasks.start(self._carry(followed))

    async def _carry(self, followed: WatchedResource) -> None:
        try:
            while followed.wanted != "nothing":
                always, followed.wanted = followed.wanted == "tell", "nothing"
                await self._tell(followed, always=always)
                await asyncio.sleep(UPDATE_SECONDS)
        finally:
            followed.task = None

    async def _tell(self, followed: WatchedResource, *, always: bool) -> None:
        try:
            payload = await self._read(followed)
        except (SourceFault, ContractRefused) as refusal:
            log.info("no update", extra={"source": followed.source.name, "reason": str(refusal)})
            return
        digest = _digest(payload)
        if digest == followed.digest and not always:
            return
        followed.digest = digest
        now = time.time()
        self._sweep(now)
        self._check_rights((followed.source.name, followed.uri), followed, now)
        followers = list(followed.followers.values())
        self.updates += len(followers)
        for start in range(0, len(followers), AT_ONCE):
            some = followers[start : start + AT_ONCE]
            await asyncio.gather(*(self._send(each.request, followed.kind, payload) for each in some))

    async def _send(self, request: DirectedEvent, kind: str, payload: Json) -> None:
        sent = await self._answering.answer(request, kind, payload)
        self._audit.note(
            {
                "event": request.id,
                "kind": kind,
                "sender": request.sender,
                "delegation": request.delegation,
                "correlation_id": request.correlation_id,
                "outcome": sent.fault or "update",
                "bytes_out": sent.size,
                "answer": sent.id,
                "result": sent.told if self._audit.plaintext else None,
            }
        )

    def _sweep(self, now: float) -> None:
        """Forget what has expired."""
        for place, followed in list(self._followed.items()):
            for sender, follower in list(followed.followers.items()):
                if now >= follower.request.expires_at:
                    self._unfollow(place, sender)

    def _check_rights(
        self, place: tuple[str, str], followed: WatchedResource, now: float, key: str | None = None
    ) -> None:
        for sender, follower in list(followed.followers.items()):
            if key in (None, sender) and not self._may(follower, now):
                self._unfollow(place, sender)

    def _may(self, follower: ResourceFollower, now: float) -> bool:
        access, request = self._access(), follower.request
        if access.is_revoked(request.sender, now):
            return False
        try:
            access.authorize(
                request.sender,
                follower.capability,
                delegation=request.delegation,
                proofs=follower.proofs,
                now=now,
            )
        except AuthorizationInsufficient:
            return False
        return True

    def _unfollow(self, place: tuple[str, str], sender: str, request_id: str | None = None) -> None:
        followed = self._followed.get(place)
        if followed is None or sender not in followed.followers:
            return
        if request_id is not None and followed.followers[sender].request.id != request_id:
            # A later request has taken its place.
            return
        del followed.followers[sender]
        self._by_sender[sender] -= 1
        if not self._by_sender[sender]:
            del self._by_sender[sender]
        if not followed.followers:
            del self._followed[place]
            if followed.is_told and followed.source.state == "up":
                self._tasks.start(self._unwatch(place, followed))

    async def _unwatch(self, place: tuple[str, str], followed: WatchedResource) -> None:
        # Somebody may have subscribed again since.
        if place not in self._followed:
            await followed.source.unwatch(followed.uri)


def _offers(route: KindRoute, uri: str) -> bool:
    return route.subscribable is not None and route.subscribable.allows(uri)


def _digest(payload: Json) -> bytes:
    return sha256(encode(payload)).digest()
