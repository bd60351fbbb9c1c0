"""Finding out what members offer: asked for where that is allowed, overheard otherwise.

Everybody sees every message, so a member that may not ask for lists still learns from answers that others
got. Only an answer to a list request that was seen counts, and only from a member that was asked (D-80); it
tells of its sender alone. A list changes when its member says so, comes back or leaves.
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
from moot.participant.joined_space import JoinedSpace
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json

log = logging.getLogger(__name__)

METHODS: Final[Mapping[OfferKind, str]] = {
    "tools": "tools/list",
    "resources": "resources/list",
    "resourceTemplates": "resources/templates/list",
    "prompts": "prompts/list",
}
_ANNOUNCED: Final[Mapping[str, tuple[OfferKind, ...]]] = {
    "tools": ("tools",),
    "resources": ("resources", "resourceTemplates"),
    "prompts": ("prompts",),
}
# List requests of others whose answers are still waited for.
_OVERHEARD: Final = 512
# A client's first list waits for members this long: several clients never ask a second time.
FIRST_SECONDS: Final = 2.0
# A member that announces many changes in a row is asked once.
_SETTLE_SECONDS: Final = 0.05
# One list of one member; a server that is still starting answers late and announces a change then.
_LIST_SECONDS: Final = 20.0


class _Asked(NamedTuple):
    what: OfferKind
    more: bool


class OfferDiscovery:
    """Keeps an offer table up to date. `changed` is called with the lists that are different."""

    def __init__(
        self, space: JoinedSpace, offers: OfferTable, changed: Callable[[set[OfferKind]], None]
    ) -> None:
        self._space = space
        self._offers = offers
        self._changed = changed
        self._overheard: OrderedDict[str, _Asked] = OrderedDict()
        self._asking: dict[tuple[str, OfferKind], asyncio.Task[None]] = {}
        self._again: set[tuple[str, OfferKind]] = set()
        # Lists that their members said had changed: told on, even if nothing of it shows here.
        self._announced: set[tuple[str, OfferKind]] = set()
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: set[tuple[str, OfferKind]] = set()
        self._settled = asyncio.Event()
        self._unsettled_until = 0.0

    async def __aenter__(self) -> OfferDiscovery:
        await self._group.__aenter__()
        space = self._space
        space.on("mcp/request")(self._hear_request)
        space.on("mcp/response")(self._hear_response)
        space.roster.on_change(self._presence)
        space.on_rejoined(self._everything)
        self._everything()
        return self

    async def __aexit__(self, *_fault: object) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await self._group.__aexit__(None, None, None)

    async def settled(self) -> None:
        """Until everybody who was asked first has answered, or had the time for it."""
        left = self._unsettled_until - asyncio.get_running_loop().time()
        if self._waiting and left > 0:
            try:
                async with asyncio.timeout(left):
                    await self._settled.wait()
            except TimeoutError:
                pass

    def refresh(self, member: str, whats: tuple[OfferKind, ...] = OFFER_KINDS) -> None:
        """Ask a member for its lists, once more if it is being asked already."""
        for what in whats:
            key = (member, what)
            if key in self._asking:
                self._again.add(key)
            elif self._space.may_request(member, METHODS[what]):
                task = self._group.create_task(self._ask(member, what))
                self._asking[key] = task
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    def rights_changed(self) -> None:
        """What was not allowed may be now."""
        for member in self._space.roster.values():
            missing = tuple(what for what in OFFER_KINDS if not self._offers.offers_of(member.name, what))
            self.refresh(member.id, missing)

    def _everything(self, *_: object) -> None:
        """Joined, or back after having been away: anything may be different."""
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
        self._waiting = set(self._asking)
        self._settled.clear()
        self._unsettled_until = asyncio.get_running_loop().time() + FIRST_SECONDS

    async def _ask(self, member: str, what: OfferKind) -> None:
        key = (member, what)
        try:
            while True:
                self._again.discard(key)
                await self._learn(member, what)
                if key not in self._again:
                    return
                await asyncio.sleep(_SETTLE_SECONDS)
        finally:
            self._asking.pop(key, None)
            self._waiting.discard(key)
            if not self._waiting:
                self._settled.set()

    async def _learn(self, member: str, what: OfferKind) -> None:
        try:
            async with asyncio.timeout(_LIST_SECONDS):
                items = await self._space.list_all(member, what)
        except (MootError, TimeoutError) as fault:
            # Most members host nothing and say so, or say nothing; neither is worth a line.
            log.debug("no list", extra={"participant": member, "what": what, "why": type(fault).__name__})
            return
        except Exception:
            # A request's task: what one member sends must not end everybody's face.
            log.exception("a list could not be learned", extra={"participant": member, "what": what})
            return
        self._know(member, what, items, more=False)

    def _know(self, member: str, what: OfferKind, items: list[Json], *, more: bool) -> None:
        known = self._space.roster.get(member)
        if known is None:
            return
        changed = self._offers.learn(known.name, what, items, more=more)
        if changed or (member, what) in self._announced:
            self._announced.discard((member, what))
            self._changed({what})

    # Overhearing

    def _hear_request(self, envelope: Envelope) -> None:
        method = envelope.payload.get("method")
        if not isinstance(method, str):
            return
        if method in LIST_CHANGED:
            whats = _ANNOUNCED[LIST_CHANGED[method]]
            if self._space.may_request(envelope.sender, METHODS[whats[0]]):
                self._announced.add((envelope.sender, whats[0]))
            self.refresh(envelope.sender, whats)
        elif method in LISTS and "id" in envelope.payload:
            params: Json = envelope.payload.get("params")
            more = isinstance(params, dict) and params.get("cursor") is not None
            what = next(what for what, name in METHODS.items() if name == method)
            self._overheard[envelope.id] = _Asked(what, more)
            while len(self._overheard) > _OVERHEARD:
                self._overheard.popitem(last=False)

    def _hear_response(self, envelope: Envelope) -> None:
        result: Json = envelope.payload.get("result")
        if not self._overheard or not isinstance(result, dict):
            return
        for id in envelope.correlation_id:
            asked = self._overheard.get(id)
            if asked is None:
                continue
            items = result.get(LISTS[METHODS[asked.what]])
            if isinstance(items, list) and (envelope.sender, asked.what) not in self._asking:
                self._know(envelope.sender, asked.what, items, more=asked.more)

    def _presence(self, event: PresenceEvent) -> None:
        if event.member is None:
            return
        if event.event == "join":
            self.refresh(event.member.id)
        elif event.event == "leave":
            changed = self._offers.remove_owner(event.member.name)
            if changed:
                self._changed(changed)
