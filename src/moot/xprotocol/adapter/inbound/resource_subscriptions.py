"""Resources that callers follow (XP 4.5, D-78): contents now, and again whenever they change.

A subscription belongs to one sender, source and URI; subscribing again replaces it. It lasts until the
request that made it expires. The subscriber's right is checked again with every update: whoever lost it, or
whose key was revoked, gets no more updates. An update is a reply to that request.

Servers with notifications are listened to; others are read every RESOURCE_POLL_SECONDS. Several changes
while an update is being sent become one more update.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final, Literal

from moot.errors import AuthorizationInsufficient
from moot.protocol.operation import Json
from moot.protocol.strict_json import encode
from moot.resilience.task_set import TaskSet
from moot.xprotocol.adapter.inbound.contract_registry import KindRoute
from moot.xprotocol.adapter.inbound.mcp_source import McpServerSource, SourceFault
from moot.xprotocol.adapter.inbound.operation_runner import SubscribeRequest
from moot.xprotocol.adapter.inbound.reply_publisher import ReplyPublisher
from moot.xprotocol.adapter.telemetry.audit_log import AuditLog
from moot.xprotocol.contracts.contracts import ContractRefused
from moot.xprotocol.events.access_rights import Access
from moot.xprotocol.events.events import DirectedEvent
from moot.xprotocol.events.faults import fault
from moot.xprotocol.translation.resources import contents_payload, updated_kind

# Resource subscriptions of one sender (XP 4.5).
# How often a resource is read whose server sends no notifications (XP 4.5).
RESOURCE_POLL_SECONDS: Final = 30.0
# Of all senders (XP 4.5), and of one.
MAX_SUBSCRIPTIONS: Final = 1_024
MAX_SUBSCRIPTIONS_PER_SENDER: Final = 64

log = logging.getLogger(__name__)

# Updates that are signed and sealed before the loop may run other tasks: some 3 ms.
UPDATE_BATCH: Final = 16
# Between two updates of one resource: a file that is being written changes a thousand times a second.
UPDATE_SECONDS: Final = 0.1

# `notify`: the server says that it changed; `poll`: read it, and send an update only if it changed.
UpdateNeed = Literal["none", "poll", "notify"]


@dataclass(frozen=True, slots=True)
class ResourceFollower:
    """Who follows a resource, and by what right."""

    request: DirectedEvent
    capability: str
    proofs: Sequence[Json]


class WatchedResource:
    """One resource that somebody follows."""

    __slots__ = (
        "digest",
        "followers",
        "has_notifications",
        "kind",
        "needed",
        "source",
        "subscribe_kind",
        "task",
        "uri",
    )

    def __init__(self, source: McpServerSource, route: KindRoute, uri: str) -> None:
        self.source = source
        self.uri = uri
        self.subscribe_kind = route.contract.kind
        self.kind = (
            route.contract.subscription.updated_kind
            if route.contract.subscription is not None
            else updated_kind(source.settings.namespace)
        )
        self.followers: dict[str, ResourceFollower] = {}
        # Whether the server notifies us of changes; else it is polled.
        self.has_notifications = True
        self.digest = b""
        # The task that sends updates, and what it has to do next.
        self.task: asyncio.Task[None] | None = None
        self.needed: UpdateNeed = "none"


class ResourceSubscriptions:
    """All subscriptions of an adapter."""

    def __init__(
        self,
        *,
        access: Callable[[], Access],
        replies: ReplyPublisher,
        audit: AuditLog,
    ) -> None:
        self._access = access
        self._replies = replies
        self._audit = audit
        self._followed: dict[tuple[str, str], WatchedResource] = {}
        self._by_sender: dict[str, int] = {}
        self._tasks = TaskSet("update")
        self.updates = 0

    def __len__(self) -> int:
        return sum(self._by_sender.values())

    # For callers

    async def subscribe(self, request: SubscribeRequest) -> dict[str, Json]:
        """Follow a resource; its contents now. Raises SourceFault."""
        self._sweep(time.time())
        event, terms = request.accepted.event, request.route.terms
        place = (request.route.source, request.uri)
        known = self._followed.get(place)
        if known is None or event.sender not in known.followers:
            self._check_limits(event.sender)
        followed = known or WatchedResource(request.source, request.route, request.uri)
        self._followed[place] = followed
        if event.sender not in followed.followers:
            self._by_sender[event.sender] = self._by_sender.get(event.sender, 0) + 1
        followed.followers[event.sender] = ResourceFollower(event, terms.capability or "", request.proofs)
        try:
            # Before reading, so that a change in between is not missed.
            followed.has_notifications = await request.source.watch(request.uri)
            payload = await self._read(followed)
        except BaseException:
            self._unfollow(place, event.sender, event.id)
            raise
        followed.digest = _digest(payload)
        return payload

    async def unsubscribe(self, sender: str, source: str, uri: str) -> None:
        """End a subscription; does nothing where there is none."""
        self._unfollow((source, uri), sender)

    # For the adapter

    def on_resource_updated(self, source: str, uri: str) -> None:
        """A server notified us that a resource changed."""
        for (name, watched), followed in list(self._followed.items()):
            # MCP: the URI may be that of a part of what was subscribed to.
            if name == source and (
                uri == watched or uri.startswith((f"{watched.rstrip('/')}/", f"{watched}#", f"{watched}?"))
            ):
                self._schedule_update(followed, "notify")

    def on_source_up(self, source: str) -> None:
        """A server is up again; what changed meanwhile is unknown."""
        for (name, _), followed in list(self._followed.items()):
            if name == source and followed.digest:
                self._schedule_update(followed, "poll")

    def remove_source(self, source: str) -> None:
        for place in [place for place in self._followed if place[0] == source]:
            for sender in list(self._followed[place].followers):
                self._unfollow(place, sender)

    def on_published(self, source: str, route_of: Callable[[str], KindRoute | None]) -> None:
        """A source's contracts changed: end what it no longer offers, and check changed capabilities."""
        for place, followed in list(self._followed.items()):
            if place[0] != source:
                continue
            route = route_of(followed.subscribe_kind)
            if route is None or route.source != source or not _is_offered(route, followed.uri):
                for sender in list(followed.followers):
                    self._unfollow(place, sender)
                continue
            capability = route.terms.capability or ""
            others = [each for each in followed.followers.items() if each[1].capability != capability]
            for sender, follower in others:
                followed.followers[sender] = replace(follower, capability=capability)
            if others:
                # Not with every list: rights that came as proofs are slow to check.
                self._check_rights(place, followed, time.time())

    def check_rights(self, key: str | None = None) -> None:
        """End subscriptions without a right, of one key or of all; slow where rights came as proofs."""
        now = time.time()
        self._sweep(now)
        for place, followed in list(self._followed.items()):
            self._check_rights(place, followed, now, key)

    async def run(self) -> None:
        """Poll servers without notifications and drop expired subscriptions, until cancelled."""
        while True:
            await asyncio.sleep(RESOURCE_POLL_SECONDS)
            self._sweep(time.time())
            for followed in list(self._followed.values()):
                if not followed.has_notifications:
                    self._schedule_update(followed, "poll")

    async def close(self) -> None:
        await self._tasks.close()
        self._followed.clear()
        self._by_sender.clear()

    # Inside

    def _check_limits(self, sender: str) -> None:
        if len(self) >= MAX_SUBSCRIPTIONS:
            raise SourceFault(
                fault(
                    "ENDPOINT_UNAVAILABLE",
                    f"{MAX_SUBSCRIPTIONS} subscriptions are followed here, and no more",
                )
            )
        if self._by_sender.get(sender, 0) >= MAX_SUBSCRIPTIONS_PER_SENDER:
            raise SourceFault(
                fault(
                    "RATE_LIMITED",
                    f"a sender has at most {MAX_SUBSCRIPTIONS_PER_SENDER} subscriptions: end one first",
                )
            )

    async def _read(self, followed: WatchedResource) -> dict[str, Json]:
        result = await followed.source.request("resources/read", {"uri": followed.uri})
        return contents_payload(followed.uri, result)

    def _schedule_update(self, followed: WatchedResource, needed: UpdateNeed) -> None:
        if followed.needed != "notify":
            followed.needed = needed
        if followed.task is None:
            followed.task = self._tasks.start(self._run_updates(followed))

    async def _run_updates(self, followed: WatchedResource) -> None:
        try:
            while followed.needed != "none":
                # What cannot be recorded is not sent; by then it is the latest state.
                await self._audit.wait_accepting()
                always, followed.needed = followed.needed == "notify", "none"
                await self._send_update(followed, always=always)
                await asyncio.sleep(UPDATE_SECONDS)
        finally:
            followed.task = None

    async def _send_update(self, followed: WatchedResource, *, always: bool) -> None:
        try:
            payload = await self._read(followed)
        except (SourceFault, ContractRefused) as refusal:
            log.info("resource update failed", extra={"source": followed.source.name, "reason": str(refusal)})
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
        for start in range(0, len(followers), UPDATE_BATCH):
            some = followers[start : start + UPDATE_BATCH]
            await asyncio.gather(*(self._send_reply(each.request, followed.kind, payload) for each in some))

    async def _send_reply(self, request: DirectedEvent, kind: str, payload: Json) -> None:
        sent = await self._replies.send(request, kind, payload)
        self._audit.record(
            {
                "event": request.id,
                "kind": kind,
                "sender": request.sender,
                "delegation": request.delegation,
                "correlation_id": request.correlation_id,
                "outcome": sent.fault or "update",
                "bytes_out": sent.size,
                "answer": sent.id,
                "result": sent.payload if self._audit.plaintext else None,
            }
        )

    def _sweep(self, now: float) -> None:
        """Drop what has expired."""
        for place, followed in list(self._followed.items()):
            for sender, follower in list(followed.followers.items()):
                if now >= follower.request.expires_at:
                    self._unfollow(place, sender)

    def _check_rights(
        self, place: tuple[str, str], followed: WatchedResource, now: float, key: str | None = None
    ) -> None:
        for sender, follower in list(followed.followers.items()):
            if key in (None, sender) and not self._is_allowed(follower, now):
                self._unfollow(place, sender)

    def _is_allowed(self, follower: ResourceFollower, now: float) -> bool:
        access, request = self._access(), follower.request
        if access.is_revoked(request.sender, now) or access.is_own_key_revoked(now):
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
            if followed.has_notifications and followed.source.state == "up":
                self._tasks.start(self._unwatch(place, followed))

    async def _unwatch(self, place: tuple[str, str], followed: WatchedResource) -> None:
        # Somebody may have subscribed again since.
        if place not in self._followed:
            await followed.source.unwatch(followed.uri)


def _is_offered(route: KindRoute, uri: str) -> bool:
    return route.subscribable is not None and route.subscribable.allows(uri)


def _digest(payload: Json) -> bytes:
    return sha256(encode(payload)).digest()
