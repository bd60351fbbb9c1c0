"""Discovery of kind members offer: by requests where we may, otherwise from answers to others.

Everybody gets every message, so a member that may not request lists still learns from the answers that others
get. Only an answer to a list request that we saw counts, only from a member that was asked (D-80), and only
for its sender. A list changes when its member announces it, rejoins or leaves.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from moot.errors import MootError
from moot.mcp.eras import LIST_CHANGED, LISTS, OFFER_KINDS, OfferKind
from moot.offers.offer_table import OfferTable
from moot.participant.connection.roster import PresenceEvent
from moot.participant.joined_space import LIST_METHODS, JoinedSpace
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json

log = logging.getLogger(__name__)

_ANNOUNCED: Final[Mapping[str, tuple[OfferKind, ...]]] = {
    "tools": ("tools",),
    "resources": ("resources", "resourceTemplates"),
    "prompts": ("prompts",),
}
# List requests of others whose answers are still to come.
_MAX_OBSERVED: Final = 512
# A client's first list waits for members this long: several clients never ask a second time.
_FIRST_LIST_SECONDS: Final = 2.0
# A member that announces many changes in a row is asked once.
_SETTLE_SECONDS: Final = 0.05
# One list of one member; a server that is still starting answers late and announces a change then.
_LIST_SECONDS: Final = 20.0


class _ListRequest(NamedTuple):
    kind: OfferKind
    more: bool


class OfferDiscovery:
    """Keeps an offer table up to date. `changed` is called with the lists that are different."""

    def __init__(
        self, space: JoinedSpace, offers: OfferTable, changed: Callable[[set[OfferKind]], None]
    ) -> None:
        self._space = space
        self._offers = offers
        self._changed = changed
        self._observed: OrderedDict[str, _ListRequest] = OrderedDict()
        self._requesting: dict[tuple[str, OfferKind], asyncio.Task[None]] = {}
        self._again: set[tuple[str, OfferKind]] = set()
        # Lists that their members announced as changed: passed on, even if nothing changed here.
        self._announced: set[tuple[str, OfferKind]] = set()
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: set[tuple[str, OfferKind]] = set()
        self._settled = asyncio.Event()
        self._unsettled_until = 0.0
        # The lists of those who were here when we joined: learned together, in the order of their names, so
        # that a name which several offer does not go to whoever answers first. None: learn at once.
        self._first: dict[tuple[str, OfferKind], list[Json]] | None = None

    async def __aenter__(self) -> OfferDiscovery:
        await self._group.__aenter__()
        space = self._space
        space.on("mcp/request")(self._handle_request)
        space.on("mcp/response")(self._handle_response)
        space.roster.on_change(self._handle_presence)
        space.on_reconnected(self._refresh_all)
        self._refresh_all()
        return self

    async def __aexit__(self, *_fault: object) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await self._group.__aexit__(None, None, None)

    async def wait_settled(self) -> None:
        """Wait until every member has answered the first requests, or had enough time."""
        left = self._unsettled_until - asyncio.get_running_loop().time()
        if self._waiting and left > 0:
            try:
                async with asyncio.timeout(left):
                    await self._settled.wait()
            except TimeoutError:
                pass

    def refresh(self, member: str, kinds: tuple[OfferKind, ...] = OFFER_KINDS) -> None:
        """Request the lists of a member, again if that is under way already."""
        for kind in kinds:
            key = (member, kind)
            if key in self._requesting:
                self._again.add(key)
            elif self._space.may_request(member, LIST_METHODS[kind]):
                task = self._group.create_task(self._request(member, kind))
                self._requesting[key] = task
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    def refresh_missing(self) -> None:
        """Request kind we could not request before."""
        for member in self._space.roster.values():
            missing = tuple(kind for kind in OFFER_KINDS if not self._offers.offers_of(member.name, kind))
            self.refresh(member.id, missing)

    def _refresh_all(self) -> None:
        """We have joined, or are back: everything may be different."""
        roster = self._space.roster
        here = {member.name for member in roster.values()}
        changed: set[OfferKind] = set()
        for owner in self._offers.owners():
            if owner not in here:
                changed |= self._offers.remove_owner(owner)
        if changed:
            self._changed(changed)
        for id in sorted(roster):
            self.refresh(id)
        self._waiting = set(self._requesting)
        self._settled.clear()
        loop = asyncio.get_running_loop()
        self._unsettled_until = loop.time() + _FIRST_LIST_SECONDS
        if self._waiting and self._first is None:
            self._first = {}
            # Whoever is slower than that comes after the others.
            loop.call_later(_FIRST_LIST_SECONDS * 0.9, self._learn_first)

    async def _request(self, member: str, kind: OfferKind) -> None:
        key = (member, kind)
        try:
            while True:
                self._again.discard(key)
                await self._request_once(member, kind)
                if key not in self._again:
                    return
                await asyncio.sleep(_SETTLE_SECONDS)
        finally:
            self._requesting.pop(key, None)
            self._waiting.discard(key)
            if not self._waiting:
                self._learn_first()
                self._settled.set()

    async def _request_once(self, member: str, kind: OfferKind) -> None:
        try:
            async with asyncio.timeout(_LIST_SECONDS):
                items = await self._space.list_all(member, kind)
        except (MootError, TimeoutError) as fault:
            # Most members offer nothing and say so, or do not answer; neither is worth a line.
            log.debug("no list", extra={"participant": member, "kind": kind, "why": type(fault).__name__})
            return
        except Exception:
            # A request's task: kind one member sends must not end the discovery of others.
            log.exception("a list could not be read", extra={"participant": member, "kind": kind})
            return
        if self._first is not None and (member, kind) in self._waiting:
            self._first[member, kind] = items
        else:
            self._update(member, kind, items, more=False)

    def _learn_first(self) -> None:
        first, self._first = self._first or {}, None
        for (member, kind), items in sorted(first.items(), key=lambda item: item[0]):
            self._update(member, kind, items, more=False)

    def _update(self, member: str, kind: OfferKind, items: list[Json], *, more: bool) -> None:
        known = self._space.roster.get(member)
        if known is None:
            return
        changed = self._offers.learn(known.name, kind, items, more=more)
        if changed or (member, kind) in self._announced:
            self._announced.discard((member, kind))
            self._changed({kind})

    # Requests and answers of others

    def _handle_request(self, envelope: Envelope) -> None:
        method = envelope.payload.get("method")
        if not isinstance(method, str):
            return
        if method in LIST_CHANGED:
            kinds = _ANNOUNCED[LIST_CHANGED[method]]
            if self._space.may_request(envelope.sender, LIST_METHODS[kinds[0]]):
                self._announced.add((envelope.sender, kinds[0]))
            self.refresh(envelope.sender, kinds)
        elif method in LISTS and "id" in envelope.payload:
            params: Json = envelope.payload.get("params")
            more = isinstance(params, dict) and params.get("cursor") is not None
            self._observed[envelope.id] = _ListRequest(LISTS[method], more)
            while len(self._observed) > _MAX_OBSERVED:
                self._observed.popitem(last=False)

    def _handle_response(self, envelope: Envelope) -> None:
        result: Json = envelope.payload.get("result")
        if not self._observed or not isinstance(result, dict):
            return
        for id in envelope.correlation_id:
            asked = self._observed.get(id)
            if asked is None:
                continue
            items = result.get(asked.kind)
            if isinstance(items, list) and (envelope.sender, asked.kind) not in self._requesting:
                self._update(envelope.sender, asked.kind, items, more=asked.more)

    def _handle_presence(self, event: PresenceEvent) -> None:
        if event.member is None:
            return
        if event.event == "join":
            self.refresh(event.member.id)
        elif event.event == "leave":
            changed = self._offers.remove_owner(event.member.name)
            if changed:
                self._changed(changed)
