"""A space as a backend of the MCP face: everything that one member may do in it, as MCP.

    async with connect(url, space, token) as joined, SpaceBackend(joined) as backend, Face(backend) as face:
        await stdio.serve(face, stop=stop)

A call goes to the member whose name the client saw. Where this member's rights allow the call, it is a
request; where they allow to propose it, it is a proposal, and the face tells the client of the decision.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from moot import __version__
from moot.bridge.space_server.error_text import failed
from moot.bridge.space_server.own_tools import OWN_NAMES, OwnTools
from moot.bridge.space_server.pending_calls import PendingCalls
from moot.errors import McpError, MemberLeft, MootError, NotAllowed, TimedOut, Unreachable
from moot.mcp.downstream.backend import (
    BackendCall,
    Change,
    ListChanged,
    PendingCall,
    ResourceUpdated,
    ServerDescription,
    text_result,
)
from moot.mcp.eras import INVALID_PARAMS, OFFER_KEYS, OFFER_KINDS, JsonObject, OfferKind
from moot.offers.offer_table import Offer, OfferTable
from moot.offers.search_settings import SearchSettings
from moot.participant import JoinedSpace
from moot.participant.discovery.offer_access import OfferAccess
from moot.participant.discovery.offer_discovery import OfferDiscovery
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json

if TYPE_CHECKING:
    from moot.offers.offer_search import OfferSearch
    from moot.offers.vector_search import SearchMode

log = logging.getLogger(__name__)

_LISTS_OF: Final[Mapping[OfferKind, Literal["tools", "resources", "prompts"]]] = {
    "tools": "tools",
    "resources": "resources",
    "resourceTemplates": "resources",
    "prompts": "prompts",
}
# Tasks that members made, and whose they are.
_TASKS_KEPT: Final = 1_000
_PROPOSED: Final = "\n\n(You may only propose this: each call waits for somebody's approval.)"


class BackendSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a face behaves towards its space."""

    # A call that is allowed; tools take their time, and the client can cancel.
    call_seconds: float = 3_600.0
    # A proposal waits for a person, but not for ever: a day is the gateway's own bound (D-28).
    proposal_seconds: float = 86_400.0
    # D-28: fail at the first no, or wait whether somebody else approves.
    wait_for_others: bool = False
    # A call while the gateway or its host is away waits this long for it to come back.
    reconnect_seconds: float = 5.0
    # How moot_find_tools searches.
    search: SearchSettings = SearchSettings()


class SpaceBackend:
    """One member's view of a space, within `async with`."""

    def __init__(
        self,
        space: JoinedSpace,
        settings: BackendSettings | None = None,
        *,
        called: str = "",
        offers: OfferTable | None = None,
    ) -> None:
        """`called` is the space's name as people know it; `offers` may bring names of an earlier life."""
        self._space = space
        self._settings = settings or BackendSettings()
        self.offered = offers if offers is not None else OfferTable(OWN_NAMES)
        self._accesses = OfferAccess(space)
        self._finder: OfferSearch | None = None
        self._listeners: list[Callable[[Change], None]] = []
        self._subscribed: dict[tuple[str, str], int] = {}
        self._tasks: dict[str, str] = {}
        self._stack = AsyncExitStack()
        self.learning = OfferDiscovery(space, self.offered, self._lists_changed)
        self.decisions = PendingCalls(
            space,
            wait_for_others=self._settings.wait_for_others,
            proposal_seconds=self._settings.proposal_seconds,
        )
        self.own = OwnTools(
            space,
            self.decisions,
            called=called or "default",
            offered=self._counted,
            find=self._find,
            search=lambda: self._searching().vectors.status(),
        )
        self.about = ServerDescription(
            {"name": "moot", "title": f"Moot space {called}".strip(), "version": __version__},
            _instructions(called, space.me),
        )

    async def __aenter__(self) -> SpaceBackend:
        await self._stack.enter_async_context(self.decisions)
        await self._stack.enter_async_context(self.learning)
        self._space.on("mcp/request")(self._hear)
        self._space.on("system/welcome", own=True)(self._welcomed)
        return self

    async def __aexit__(self, *_fault: object) -> None:
        await self._stack.aclose()

    # Lists

    async def offers(self, what: OfferKind) -> list[JsonObject]:
        await self.learning.wait_settled()
        shown = [self._shown(offer) for offer in self.offered.all(what) if self._visible(offer)]
        return [*self.own.definitions(), *shown] if what == "tools" else shown

    def tool(self, name: str) -> JsonObject | None:
        offer = self.offered.find("tools", name)
        return None if offer is None else offer.item

    def _visible(self, offer: Offer) -> bool:
        return self._accesses.of(offer) != "none"

    def _shown(self, offer: Offer) -> JsonObject:
        """A member's own description under the name that clients see; nothing else of it is changed.

        But what may only be proposed says so, and promises no output schema: a client would refuse the
        answer that its call is pending for not matching it.
        """
        access = self._accesses.of(offer)
        meta: Json = offer.item.get("_meta")
        about: JsonObject = {"moot/member": offer.owner, "moot/access": access}
        made: JsonObject = {**offer.item, "_meta": (meta if isinstance(meta, dict) else {}) | about}
        made[OFFER_KEYS[offer.kind]] = offer.shown
        if access == "propose":
            made.pop("outputSchema", None)
            made["description"] = f"{made.get('description') or ''}{_PROPOSED}".strip()
        return made

    def _counted(self) -> dict[str, dict[str, int]]:
        counted: dict[str, dict[str, int]] = {}
        for owner in self.offered.owners():
            counts = {what: len(self.offered.offers_of(owner, what)) for what in OFFER_KINDS}
            counted[owner] = {what: count for what, count in counts.items() if count}
        return counted

    def _searching(self) -> OfferSearch:
        if self._finder is None:
            # At the first search: reading words takes longer to import than all else, and few clients search.
            from moot.offers.offer_search import OfferSearch

            self._finder = OfferSearch(self.offered, self._settings.search)
        return self._finder

    async def _find(self, query: str, limit: int) -> tuple[list[JsonObject], SearchMode]:
        finder = self._searching()
        offers = await finder.find(query, limit, self._visible)
        found: list[JsonObject] = [
            {
                "name": offer.shown,
                "kind": offer.kind,
                "member": offer.owner,
                "access": self._accesses.of(offer),
                "description": offer.item.get("description") or offer.item.get("title") or "",
                **({"inputSchema": offer.item["inputSchema"]} if offer.kind == "tools" else {}),
            }
            for offer in offers
        ]
        return found, finder.mode

    # Changes

    def watch(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _tell(self, change: Change) -> None:
        for listener in tuple(self._listeners):
            listener(change)

    def _lists_changed(self, whats: set[OfferKind]) -> None:
        for word in sorted({_LISTS_OF[what] for what in whats}):
            self._tell(ListChanged(word))

    def _welcomed(self, _: Envelope) -> None:
        """Another welcome: our rights may be others now, and with them what we show."""
        self.learning.refresh_missing()
        self._lists_changed(set(OFFER_KINDS))

    def _hear(self, envelope: Envelope) -> None:
        if envelope.payload.get("method") != "notifications/resources/updated":
            return
        params: Json = envelope.payload.get("params")
        member = self._space.roster.get(envelope.sender)
        if member is not None and isinstance(params, dict) and isinstance(params.get("uri"), str):
            self._tell(ResourceUpdated(self.offered.uris.shown(member.name, params["uri"])))

    # Doing

    def pending(self, handle: str) -> PendingCall | None:
        return self.decisions.get(handle)

    async def perform(self, call: BackendCall) -> JsonObject | PendingCall:
        params = call.params
        match call.method:
            case "tools/call":
                name = params["name"]
                if name in OWN_NAMES:
                    return await self.own.call(name, params.get("arguments") or {})
                return await self._named("tools", name, call)
            case "prompts/get":
                return await self._named("prompts", params["name"], call)
            case "resources/read":
                owner, uri = self._place(params["uri"])
                result = await self._do(owner, params | {"uri": uri}, call, params["uri"])
                return result if isinstance(result, PendingCall) else _renamed(result, uri, params["uri"])
            case "completion/complete":
                return await self._complete(call)
        return await self._task(call)

    async def _named(
        self, what: Literal["tools", "prompts"], name: str, call: BackendCall
    ) -> JsonObject | PendingCall:
        offer = self.offered.find(what, name)
        if offer is None and call.method == "tools/call":
            await self.learning.wait_settled()
            offer = self.offered.find(what, name)
        if offer is None or not self._visible(offer):
            names = self.offered.tool_names if what == "tools" else self.offered.prompt_names
            owned = names.binding_of(name)
            if owned is not None and offer is None and what == "tools":
                text = f"{owned.owner}, whose tool {name} is, is not here. moot_participants shows who is."
                return text_result(text, is_error=True)
            raise McpError(INVALID_PARAMS, f"Unknown {what.removesuffix('s')}: {name[:128]}")
        return await self._do(offer.owner, call.params | {"name": offer.key}, call, name)

    async def _complete(self, call: BackendCall) -> JsonObject | PendingCall:
        ref = call.params["ref"]
        if ref.get("type") == "ref/resource":
            template = self.offered.find("resourceTemplates", ref["uri"])
            owner, uri = (template.owner, template.key) if template is not None else self._place(ref["uri"])
            return await self._do(owner, call.params | {"ref": {**ref, "uri": uri}}, call, ref["uri"])
        offer = self.offered.find("prompts", ref["name"])
        if offer is None or not self._visible(offer):
            raise McpError(INVALID_PARAMS, f"Unknown prompt: {ref['name'][:128]}")
        return await self._do(
            offer.owner, call.params | {"ref": {**ref, "name": offer.key}}, call, ref["name"]
        )

    def _place(self, uri: str) -> tuple[str, str]:
        place = self.offered.locate(uri)
        if place is None or place.owner not in self._space.roster:
            hint = "resources/list shows what there is; moot://MEMBER/URI names a member outright"
            raise McpError(INVALID_PARAMS, f"Resource not found: {hint}", {"uri": uri})
        return place.owner, place.uri

    async def _task(self, call: BackendCall) -> JsonObject | PendingCall:
        """A task that a member made: it knows what became of it."""
        id = call.params["taskId"]
        owner = self._tasks.get(id)
        if owner is None:
            raise McpError(INVALID_PARAMS, "Failed to retrieve task: Task not found")
        return await self._do(owner, call.params, call, f"task {id}")

    async def _do(
        self, owner: str, params: JsonObject, call: BackendCall, what: str
    ) -> JsonObject | PendingCall:
        """Request it, or propose it; a failure becomes the answer that says why."""
        space, method = self._space, call.method
        try:
            if space.state == "reconnecting":
                await self._connected()
            if owner not in space.roster:
                await self._present(owner)
            progress, say = call.progress, call.log
            try:
                result = await space.request(
                    owner,
                    method,
                    params,
                    timeout_seconds=self._settings.call_seconds,
                    progress=None if progress is None else lambda heard: progress(dict(heard.params)),
                    log=None if say is None else lambda heard: say(dict(heard)),
                )
            except NotAllowed:
                # Our rights say so, before anything is sent.
                if space.may_propose(owner, method, params):
                    return await self.decisions.propose(owner, params, call, what)
                raise NotAllowed("no such right", missing=("mcp/request", "mcp/proposal")) from None
            if result.get("resultType") == "task" and isinstance(result.get("taskId"), str):
                self._remember_task(result["taskId"], owner)
            return result
        except MootError as fault:
            return failed(fault, method=method, what=what, host=owner)

    def _remember_task(self, id: str, owner: str) -> None:
        while len(self._tasks) >= _TASKS_KEPT:
            del self._tasks[next(iter(self._tasks))]
        self._tasks[id] = owner

    async def _connected(self) -> None:
        """Wait a moment for a gateway that is being restarted; raises Unreachable."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._settings.reconnect_seconds
        while self._space.state == "reconnecting" and loop.time() < end:
            await asyncio.sleep(0.05)
        if self._space.state == "reconnecting":
            raise Unreachable("the gateway is away")

    async def _present(self, owner: str) -> None:
        """What is sent to a member that is away reaches nobody; raises MemberLeft."""
        try:
            await self._space.roster.wait_for(owner, timeout_seconds=self._settings.reconnect_seconds)
        except TimedOut:
            raise MemberLeft(owner) from None

    # Subscriptions: several clients share one at the host.

    async def subscribe(self, uri: str) -> None:
        owner, theirs = self._place(uri)
        key = (owner, theirs)
        if not self._subscribed.get(key):
            await self._said(owner, "resources/subscribe", theirs)
        self._subscribed[key] = self._subscribed.get(key, 0) + 1

    async def unsubscribe(self, uri: str) -> None:
        try:
            owner, theirs = self._place(uri)
        except McpError:
            return
        key = (owner, theirs)
        left = self._subscribed.pop(key, 0) - 1
        if left > 0:
            self._subscribed[key] = left
        elif left == 0:
            try:
                await self._said(owner, "resources/unsubscribe", theirs)
            except McpError as fault:
                log.debug("not unsubscribed", extra={"participant": owner, "why": fault.message})

    async def _said(self, owner: str, method: str, uri: str) -> None:
        try:
            await self._space.request(owner, method, {"uri": uri})
        except MootError as fault:
            failed(fault, method=method, what=method, host=owner)


def _renamed(result: JsonObject, uri: str, shown: str) -> JsonObject:
    """Contents under the URI that the client asked for, where that is not the host's own."""
    contents: Json = result.get("contents")
    if uri == shown or not isinstance(contents, list):
        return result
    renamed = [
        {**each, "uri": shown} if isinstance(each, dict) and each.get("uri") == uri else each
        for each in contents
    ]
    return result | {"contents": renamed}


def _instructions(space: str, me: str) -> str:
    return (
        f"You take part in the Moot space {space!r} as {me!r}. Its members are people, agents and tool "
        "servers; everybody sees every message. The tools, resources and prompts here are those of the "
        "members. What you may not do yourself becomes a proposal that somebody has to approve: such a call "
        "takes longer or answers PENDING, and moot_status tells what became of it. moot_chat talks to the "
        "others, moot_participants shows who is here, moot_find_tools searches."
    )
