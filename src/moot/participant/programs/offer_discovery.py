"""Discovery of what members offer: by requests where we may, otherwise from answers to others.

Everybody gets every message, so a member that may not request lists still learns from the answers that others
get. Only an answer to a list request that we saw counts, only from a member that was asked (D-80), and only
for its sender. A list changes when its member announces it, rejoins or leaves.

Before a list is learned the gateway is asked which names in it are another member's (`owner_lookup`), so that
every client shows a name as the same member's. Where a gateway does not tell, the lists of those who were
here when we joined are learned in the order of their names.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from moot.errors import MootError, OutboxFull, RateLimited, Refused, TimedOut
from moot.mcp.eras import LIST_CHANGED, LISTS, OFFER_KINDS, OfferKind
from moot.offers.offer_table import OfferTable
from moot.participant.connection.owner_lookup import TakenNames
from moot.participant.connection.roster import PresenceEvent
from moot.participant.joined_space import JoinedSpace
from moot.participant.space_calls import LIST_METHODS
from moot.protocol.envelope import Envelope
from moot.protocol.latest_dict import LatestDict
from moot.protocol.operation import Json
from moot.resilience.task_set import BackgroundTasks

log = logging.getLogger(__name__)

_ANNOUNCED: Final[Mapping[str, tuple[OfferKind, ...]]] = {
    "tools": ("tools",),
    "resources": ("resources", "resourceTemplates"),
    "prompts": ("prompts",),
}
# List requests of others whose answers are still to come.
_MAX_OBSERVED: Final = 512
# A client's first list waits for members this long: several clients never ask a second time.
FIRST_LIST_SECONDS: Final = 2.0
# A member that announces many changes in a row is asked once.
_SETTLE_SECONDS: Final = 0.05
# A question about names that failed is put again: a name must not pass to another because a gateway was busy.
_OWNER_ATTEMPTS: Final = 5
_OWNER_RETRY_SECONDS: Final = 1.0
# One page of a list of one member. A server that is still starting answers late, and announces a change then.
# Who did not answer is asked once more: people at a console never do, but a server on a busy machine may.
_LIST_SECONDS: Final = 20.0
_LIST_ATTEMPTS: Final = 2
_LIST_RETRY_SECONDS: Final = 1.0
_CALL: Final[Mapping[str, Json]] = {"method": "tools/call"}


class _ListRequest(NamedTuple):
    kind: OfferKind
    more: bool


class _LearnedList(NamedTuple):
    member: str
    kind: OfferKind
    items: list[Json]
    more: bool


class OfferDiscovery:
    """Keeps an offer table up to date. `changed` is called with the lists that are different."""

    def __init__(
        self,
        space: JoinedSpace,
        offers: OfferTable,
        changed: Callable[[set[OfferKind]], None],
        *,
        asks: Callable[[str], bool] = lambda _id: True,
    ) -> None:
        """`asks` tells whether a member, by its id, is asked for its lists; what it says is heard anyway."""
        self._asks = asks
        self._space = space
        self._offers = offers
        self._changed = changed
        self._observed: LatestDict[str, _ListRequest] = LatestDict(_MAX_OBSERVED)
        self._requesting: dict[tuple[str, OfferKind], asyncio.Task[None]] = {}
        self._again: set[tuple[str, OfferKind]] = set()
        # Lists that their members announced as changed: passed on, even if nothing changed here.
        self._announced: set[tuple[str, OfferKind]] = set()
        self._group = asyncio.TaskGroup()
        self._tasks = BackgroundTasks(self._group)
        # First lists that were requested and not answered yet, with the time of the request.
        self._waiting: dict[tuple[str, OfferKind], float] = {}
        # Members that have answered a page of a list: more of them is on its way.
        self._answering: set[str] = set()
        # Those who were here when we looked: a long welcome lists more of them later.
        self._known_here: set[str] = set()
        self._progress = asyncio.Event()
        # The lists of those who were here when we joined: learned together, so that a name which several
        # offer does not go to whoever answers first. None: learn at once.
        self._first: dict[tuple[str, OfferKind], list[Json]] | None = None
        self._first_keys: set[tuple[str, OfferKind]] = set()
        # Lists that are learned once the gateway has told whose their names are.
        self._unowned: list[_LearnedList] = []
        self._asking_owners = False
        # When we began to hold lists back, for either of these reasons.
        self._learning_since = 0.0

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
        self._tasks.cancel()
        await self._group.__aexit__(None, None, None)

    async def wait_settled(
        self,
        host_seconds: float = FIRST_LIST_SECONDS,
        *,
        kinds: Collection[OfferKind] = OFFER_KINDS,
        apart_from: str = "",
    ) -> list[str]:
        """Wait for the first lists of members, after our joining or theirs; returns who has not answered.

        Most have `FIRST_LIST_SECONDS`, since people at a console never answer. But a member that neither
        calls nor proposes nor only talks is there for what it offers, and has `host_seconds`; so has one that
        has begun to answer. `apart_from` is not waited for.
        """
        loop = asyncio.get_running_loop()
        while True:
            ends = {
                member: at + self._seconds_of(member, host_seconds)
                for (member, kind), at in self._waiting.items()
                if kind in kinds and member != apart_from
            }
            end = max(ends.values(), default=0.0)
            if self._asking_owners or self._first:
                end = max(end, self._learning_since + host_seconds)
            left = end - loop.time()
            if left <= 0:
                return sorted(ends)
            self._progress.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._progress.wait()

    def _seconds_of(self, member: str, host_seconds: float) -> float:
        return host_seconds if self.is_host(member) else min(host_seconds, FIRST_LIST_SECONDS)

    def is_host(self, member: str) -> bool:
        """Whether a member, by its id, is here for what it offers, or has begun to tell of it."""
        if member in self._answering:
            return True
        known = self._space.roster.get(member)
        if known is None or known.may("mcp/proposal", _CALL) or known.may("mcp/request", _CALL):
            return False
        # An answer that is owed needs no right (D-15), but whoever has only that of talking is a person.
        return known.may("mcp/response") or not known.may("chat")

    @property
    def may_ask(self) -> bool:
        """Whether our rights let us ask anybody here for tools. If not, we know what others asked for."""
        return any(self._space.may_request(id, LIST_METHODS["tools"]) for id in self._space.roster)

    def refresh(self, member: str, kinds: tuple[OfferKind, ...] = OFFER_KINDS) -> None:
        """Request the lists of a member, again if that is under way already."""
        for kind in kinds if self._asks(member) else ():
            key = (member, kind)
            if key in self._requesting:
                self._again.add(key)
            elif self._space.may_request(member, LIST_METHODS[kind]):
                self._requesting[key] = self._tasks.start(self._request(member, kind))

    def refresh_missing(self) -> None:
        """Request kind we could not request before."""
        for member in self._space.roster.values():
            missing = tuple(kind for kind in OFFER_KINDS if not self._offers.offers_of(member.name, kind))
            self.refresh(member.id, missing)

    def _refresh_all(self) -> None:
        """We have joined, or are back: everything may be different."""
        self._known_here.clear()
        self._refresh_new()

    def _refresh_new(self) -> None:
        """Forget whoever is gone, and ask those who were not here before."""
        roster = self._space.roster
        here = {member.name for member in roster.values()}
        changed: set[OfferKind] = set()
        for owner in self._offers.owners():
            if owner not in here:
                changed |= self._offers.remove_owner(owner)
        if changed:
            self._changed(changed)
        for id in sorted(roster.keys() - self._known_here):
            self.refresh(id)
            self._expect(id)
        self._known_here = set(roster)
        if self._waiting and self._first is None:
            loop = asyncio.get_running_loop()
            self._first, self._first_keys, self._learning_since = {}, set(self._waiting), loop.time()
            # Whoever is slower than that comes after the others.
            loop.call_later(FIRST_LIST_SECONDS * 0.9, self._learn_first)

    def _expect(self, member: str) -> None:
        """Count what is requested of a member as its first lists, for `wait_settled`."""
        now = asyncio.get_running_loop().time()
        self._waiting.update(
            ((member, kind), now) for kind in OFFER_KINDS if (member, kind) in self._requesting
        )

    async def _request(self, member: str, kind: OfferKind) -> None:
        key = (member, kind)
        try:
            attempt = 1
            while True:
                self._again.discard(key)
                answered = await self._request_once(member, kind)
                if key in self._again:
                    attempt = 1
                    await asyncio.sleep(_SETTLE_SECONDS)
                elif answered or attempt == _LIST_ATTEMPTS or member not in self._space.roster:
                    return
                else:
                    attempt += 1
                    await asyncio.sleep(_LIST_RETRY_SECONDS)
        finally:
            if self._requesting.get(key) is asyncio.current_task():
                self._end_request(key)

    def _end_request(self, key: tuple[str, OfferKind]) -> None:
        del self._requesting[key]
        self._waiting.pop(key, None)
        self._first_keys.discard(key)
        if not self._first_keys:
            self._learn_first()
        self._progress.set()

    async def _request_once(self, member: str, kind: OfferKind) -> bool:
        """Request one list and learn it; False if it is worth asking again."""
        try:
            items = await self._space.list_all(
                member, kind, timeout_seconds=_LIST_SECONDS, on_page=lambda: self._answering.add(member)
            )
        except MootError as fault:
            # Most members offer nothing and say so, or do not answer; neither is worth a line.
            log.debug("no list", extra={"participant": member, "kind": kind, "why": type(fault).__name__})
            return not isinstance(fault, TimedOut | RateLimited | OutboxFull)
        except Exception:
            # A request's task: kind one member sends must not end the discovery of others.
            log.exception("a list could not be read", extra={"participant": member, "kind": kind})
            return True
        if self._first is not None and (member, kind) in self._first_keys:
            self._first[member, kind] = items
        else:
            self._update(member, kind, items, more=False)
        return True

    def _learn_first(self) -> None:
        first, self._first = self._first or {}, None
        for (member, kind), items in sorted(first.items(), key=lambda item: item[0]):
            self._update(member, kind, items, more=False)
        self._progress.set()

    def _update(self, member: str, kind: OfferKind, items: list[Json], *, more: bool) -> None:
        learned = _LearnedList(member, kind, items, more)
        # An empty list has no names, and most lists are empty.
        if self._space.owner_lookup.is_supported and (items or self._asking_owners):
            self._unowned.append(learned)
            if not self._asking_owners:
                self._asking_owners, self._learning_since = True, asyncio.get_running_loop().time()
                self._tasks.start(self._learn_owned())
        else:
            self._learn(learned, {})

    async def _learn_owned(self) -> None:
        """Learn the lists that wait, in the order in which they came, with the owners of their names."""
        try:
            while self._unowned:
                lists, self._unowned = self._unowned, []
                taken = await self._find_taken(dict.fromkeys(each.member for each in lists if each.items))
                for each in lists:
                    namespace = "uris" if each.kind in ("resources", "resourceTemplates") else each.kind
                    self._learn(each, taken.get(each.member, {}).get(namespace, {}))
        except MootError as fault:
            # After a reconnect all lists are requested anew.
            log.warning("offers are not shown: whose names they are is not known", extra={"why": str(fault)})
            self._unowned.clear()
        finally:
            self._asking_owners = False
            self._progress.set()

    async def _find_taken(self, members: Iterable[str]) -> TakenNames:
        for attempt in range(_OWNER_ATTEMPTS):
            try:
                return await self._space.owner_lookup.find_taken(members)
            except (Refused, TimedOut) as fault:
                if attempt + 1 == _OWNER_ATTEMPTS:
                    raise
                seconds = fault.details.get("retry_after") if isinstance(fault, RateLimited) else None
                await asyncio.sleep(seconds if isinstance(seconds, int | float) else _OWNER_RETRY_SECONDS)
        raise AssertionError("unreachable")

    def _learn(self, learned: _LearnedList, taken: Mapping[str, str]) -> None:
        member, kind, items, more = learned
        known = self._space.roster.get(member)
        if known is None:
            return
        changed = self._offers.learn(known.name, kind, items, more=more, taken=taken)
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
        elif method in LISTS:
            # Also without a JSON-RPC id, as the reference's clients ask (D-95): the envelope correlates.
            params: Json = envelope.payload.get("params")
            more = isinstance(params, dict) and params.get("cursor") is not None
            self._observed[envelope.id] = _ListRequest(LISTS[method], more)

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
        if event.event == "refreshed":
            self._refresh_new()
        elif event.member is None:
            return
        elif event.event == "join":
            self._known_here.add(event.member.id)
            self.refresh(event.member.id)
            self._expect(event.member.id)
        elif event.event == "leave":
            self._known_here.discard(event.member.id)
            self._answering.discard(event.member.id)
            # Should it come back, it was not sent what its last connection was asked.
            for key in [key for key in self._requesting if key[0] == event.member.id]:
                self._requesting[key].cancel()
                self._end_request(key)
            changed = self._offers.remove_owner(event.member.name)
            if changed:
                self._changed(changed)
