"""A space as a backend of the MCP server: everything that one member may do in it, as MCP.

    async with connect(url, space, token) as joined, SpaceBackend(joined) as backend:
        async with McpServer(backend) as server:
            await stdio_server.serve(server, stop=stop)

A call goes to the member that owns the name. Where our rights allow the call, it is a request; where they
only allow to propose it, it is a proposal, and the server reports the decision to the client.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from moot import __version__
from moot.bridges.space.calls_file import CallsFile
from moot.bridges.space.error_text import failure_result
from moot.bridges.space.member_resources import MemberResources, with_uri
from moot.bridges.space.own_tools import ANSWERED_NAMES, CALL_TOOL, RESERVED_NAMES, OwnTools
from moot.bridges.space.pending_calls import PendingCalls
from moot.bridges.space.person_decisions import PersonDecisions
from moot.bridges.space.room_view import RoomView
from moot.bridges.space.shared_offers import SharedOffers
from moot.errors import ApprovalRequired, McpError, MemberLeft, MootError, NotAllowed, TimedOut, Unreachable
from moot.mcp.downstream.backend import (
    BackendCall,
    Change,
    ListChanged,
    PendingCall,
    ResourceUpdated,
    ServerDescription,
    text_result,
)
from moot.mcp.eras import OFFER_KEYS, OFFER_KINDS, JsonObject, OfferKind
from moot.offers.offer_table import Offer, OfferTable
from moot.participant import JoinedSpace
from moot.participant.programs.offer_access import OfferAccess
from moot.participant.programs.offer_discovery import OfferDiscovery
from moot.protocol import strict_json
from moot.protocol.envelope import Envelope
from moot.protocol.latest_dict import LatestDict
from moot.protocol.operation import Json
from moot.protocol.patterns import Capability
from moot.protocol.rpc_codes import INVALID_PARAMS

if TYPE_CHECKING:
    from moot.offers.offer_search import OfferSearch

# A call that is allowed: tools may take long, and the client can cancel.
CALL_SECONDS: Final = 3_600.0
# How long a client may count on a pending call: proposals expire after a day (D-28). Nothing is withdrawn.
PROPOSAL_SECONDS: Final = 86_400.0
# How long a call waits for a gateway or a host that is away.
RECONNECT_SECONDS: Final = 5.0
# How long a list, and a call of a tool that is not known, wait for members that are here for what they
# offer and have not told it yet: a server may be starting. Clients give up after 30 s and more.
LIST_SECONDS: Final = 15.0

# Tools whose definitions have more bytes than this together are not listed, but found and called with
# moot_find_tools and moot_call_tool: they are some 30,000 tokens in every conversation.
MAX_LISTED_BYTES: Final = 128 << 10

log = logging.getLogger(__name__)

_LIST_OF: Final[Mapping[OfferKind, Literal["tools", "resources", "prompts"]]] = {
    "tools": "tools",
    "resources": "resources",
    "resourceTemplates": "resources",
    "prompts": "prompts",
}
# Tasks of members that are remembered with their owners.
_MAX_TASKS: Final = 1_000
_PROPOSAL_NOTE: Final = "\n\n(You may only propose this: each call waits for somebody's approval.)"


class BackendSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How an MCP server behaves towards its space."""

    # The address of the gateway's web console; empty: not known.
    console: str = ""
    # D-28: after a rejection, fail at once or wait for others to approve.
    wait_for_others: bool = False


class SpaceBackend:
    """One member's view of a space, within `async with`."""

    def __init__(
        self,
        space: JoinedSpace,
        settings: BackendSettings | None = None,
        *,
        space_name: str = "",
        offers: OfferTable | None = None,
        calls: CallsFile | None = None,
        person: PersonDecisions | None = None,
        shared: SharedOffers | None = None,
        more_rights: Sequence[Capability] = (),
    ) -> None:
        """`space_name` is the name that people know; `offers` may hold names of an earlier run, and `calls`
        what was proposed in one. `person` decides for the person at the client. With `shared` another member
        has learned what there is, for all members that this process serves. What `more_rights` would allow is
        listed, too: the client is asked for a wider sign-in when it calls that."""
        self._space = space
        self._settings = settings or BackendSettings()
        self._shared = shared
        if shared is not None:
            offers = shared.table
        self.offer_table = offers if offers is not None else OfferTable(RESERVED_NAMES)
        self._access = OfferAccess(space, more_rights)
        self._search: OfferSearch | None = None
        self._listeners: list[Callable[[Change], None]] = []
        self._resources = resources = MemberResources(space, self.offer_table)
        self.subscribe, self.unsubscribe = resources.subscribe, resources.unsubscribe
        self._tasks: LatestDict[str, str] = LatestDict(_MAX_TASKS)
        self._stack = AsyncExitStack()
        self.discovery = (
            OfferDiscovery(space, self.offer_table, self._on_lists_changed)
            if shared is None
            else shared.discovery
        )
        self.pending_calls = PendingCalls(
            space,
            wait_for_others=self._settings.wait_for_others,
            proposal_seconds=PROPOSAL_SECONDS,
            file=calls,
            console=self._settings.console,
            space_name=space_name,
            person=person,
        )
        self.own_tools = OwnTools(
            space,
            self.pending_calls,
            RoomView(space) if shared is None else shared.room,
            space_name=space_name or "default",
            count_offers=self._count_offers,
            find=self._find,
            silent_hosts=self._silent_hosts,
            definition_of=self._definition_of,
            locate=self._locate_tool,
        )
        self.about = ServerDescription(
            {"name": "moot", "title": f"Moot space {space_name}".strip(), "version": __version__},
            _instructions(space_name, space.me),
        )

    async def __aenter__(self) -> SpaceBackend:
        await self._stack.enter_async_context(self.pending_calls)
        if self._shared is None:
            await self._stack.enter_async_context(self.discovery)
        else:
            self._stack.callback(self._shared.watch(self._on_lists_changed))
        self._space.on("mcp/request")(self._on_request)
        self._space.on("system/welcome", own=True)(self._on_welcome)
        return self

    async def __aexit__(self, *_fault: object) -> None:
        await self._stack.aclose()

    # Lists

    async def offers(self, what: OfferKind) -> list[JsonObject]:
        silent = await self.discovery.wait_settled(LIST_SECONDS, kinds=[what])
        shown = [self._to_listed(offer) for offer in self.offer_table.all(what) if self._is_visible(offer)]
        if what != "tools":
            return shown
        if _is_longer(shown, MAX_LISTED_BYTES):
            return self.own_tools.definitions(unlisted=len(shown), silent=self._offering(silent))
        # Where one member asks for all who are served, that one may.
        may_ask = self._shared is not None or self.discovery.may_ask or not self._space.roster
        return [*self.own_tools.definitions(silent=self._offering(silent), may_ask=may_ask), *shown]

    def tool(self, name: str) -> JsonObject | None:
        offer = self.offer_table.find("tools", name)
        return None if offer is None else offer.item

    async def _silent_hosts(self) -> list[str]:
        return self._offering(await self.discovery.wait_settled(LIST_SECONDS, kinds=["tools"]))

    def _offering(self, members: Sequence[str]) -> list[str]:
        """Those of members, by their ids, that are here for what they offer; people never answer."""
        return [member for member in members if self.discovery.is_host(member)]

    def _is_visible(self, offer: Offer) -> bool:
        access = self._access.of(offer)
        return access == "request" or (access == "propose" and not self._is_for_deciders(offer))

    def _is_for_deciders(self, offer: Offer) -> bool:
        """An approver reports its rules to whoever decides; nobody has to approve that others read them."""
        owner = self._space.roster.get(offer.owner)
        is_report = offer.kind == "tools" and offer.key.startswith("trust_")
        return is_report and owner is not None and owner.may("trust/rule")

    def _to_listed(self, offer: Offer) -> JsonObject:
        """A member's own definition under the name that clients see; nothing else of it is changed.

        But what may only be proposed says so, and has no output schema: a client would refuse the result
        "pending" because it does not match.
        """
        access = self._access.of(offer)
        meta: Json = offer.item.get("_meta")
        about: JsonObject = {"moot/member": offer.owner, "moot/access": access}
        made: JsonObject = {**offer.item, "_meta": (meta if isinstance(meta, dict) else {}) | about}
        made[OFFER_KEYS[offer.kind]] = offer.shown
        if access == "propose":
            made.pop("outputSchema", None)
            made["description"] = f"{made.get('description') or ''}{_PROPOSAL_NOTE}".strip()
        return made

    def _count_offers(self) -> dict[str, dict[str, int]]:
        by_owner: dict[str, dict[str, int]] = {}
        for owner in self.offer_table.owners():
            counts = {what: len(self.offer_table.offers_of(owner, what)) for what in OFFER_KINDS}
            by_owner[owner] = {what: count for what, count in counts.items() if count}
        return by_owner

    def _offer_search(self) -> OfferSearch:
        if self._shared is not None:
            return self._shared.search
        if self._search is None:
            # Imported at the first search: it takes longer than everything else, and few clients search.
            from moot.offers.offer_search import OfferSearch

            self._search = OfferSearch(self.offer_table)
        return self._search

    def _definition_of(self, name: str) -> JsonObject | None:
        offer = self.offer_table.find("tools", name)
        return None if offer is None or not self._is_visible(offer) else self._to_listed(offer)

    def _locate_tool(self, name: str) -> tuple[str, str] | None:
        offer = self.offer_table.find("tools", name)
        return None if offer is None or not self._is_visible(offer) else (offer.owner, offer.key)

    async def _find(self, query: str, limit: int) -> list[JsonObject]:
        offers = await self._offer_search().find(query, limit, self._is_visible)
        return [
            {
                "name": offer.shown,
                "kind": offer.kind,
                "member": offer.owner,
                "access": self._access.of(offer),
                "description": offer.item.get("description") or offer.item.get("title") or "",
                **({"inputSchema": offer.item["inputSchema"]} if offer.kind == "tools" else {}),
            }
            for offer in offers
        ]

    # Changes

    def watch(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _notify_listeners(self, change: Change) -> None:
        for listener in tuple(self._listeners):
            listener(change)

    def _on_lists_changed(self, whats: set[OfferKind]) -> None:
        for word in sorted({_LIST_OF[what] for what in whats}):
            self._notify_listeners(ListChanged(word))

    def _on_welcome(self, _: Envelope) -> None:
        """A new welcome: our rights may have changed, and with them what we list."""
        if self._shared is None:
            self.discovery.refresh_missing()
        self._on_lists_changed(set(OFFER_KINDS))

    def _on_request(self, envelope: Envelope) -> None:
        params, member = envelope.payload.get("params"), self._space.roster.get(envelope.sender)
        uri = params.get("uri") if isinstance(params, dict) else None
        is_update = envelope.payload.get("method") == "notifications/resources/updated"
        if is_update and member is not None and isinstance(uri, str):
            self._notify_listeners(ResourceUpdated(self.offer_table.uris.shown(member.name, uri)))

    # Calls

    async def pending(self, handle: str) -> PendingCall | None:
        return await self.pending_calls.find(handle)

    async def perform(self, call: BackendCall) -> JsonObject | PendingCall:
        params = call.params
        match call.method:
            case "tools/call":
                name = params["name"]
                arguments = params.get("arguments") or {}
                if name == CALL_TOOL:
                    member = arguments.get("member")
                    name, arguments = arguments.get("name"), arguments.get("arguments", {})
                    if not isinstance(name, str) or not name or not isinstance(arguments, dict):
                        text = f"{CALL_TOOL}: `name` is the name of a tool, `arguments` an object"
                        return text_result(text, is_error=True)
                    if isinstance(member, str) and self.offer_table.find("tools", name) is None:
                        return await self._call_unlisted(member, name, arguments, call)
                if name in ANSWERED_NAMES:
                    return await self.own_tools.call(name, arguments)
                return await self._call_named("tools", name, call, {"arguments": arguments})
            case "prompts/get":
                return await self._call_named("prompts", params["name"], call, {})
            case "resources/read":
                owner, uri = self._resources.locate(params["uri"])
                result = await self._send_call(owner, params | {"uri": uri}, call, params["uri"])
                return result if isinstance(result, PendingCall) else with_uri(result, uri, params["uri"])
            case "completion/complete":
                return await self._complete(call)
        return await self._send_task_request(call)

    async def _call_named(
        self, what: Literal["tools", "prompts"], name: str, call: BackendCall, more: JsonObject
    ) -> JsonObject | PendingCall:
        """Call the owner of a name; `more` goes over the params that the client gave."""
        offer = self.offer_table.find(what, name)
        silent: list[str] = []
        if offer is None and call.method == "tools/call":
            silent = await self.discovery.wait_settled(LIST_SECONDS, kinds=["tools"])
            offer = self.offer_table.find(what, name)
        if offer is None or not self._is_visible(offer):
            names = self.offer_table.tool_names if what == "tools" else self.offer_table.prompt_names
            owned = names.binding_of(name)
            if owned is not None and offer is None and what == "tools":
                params = call.params | more | {"name": owned.name}
                if self._space.roster.get(owned.owner) is None:
                    why = "is not in the space. moot_participants lists who is."
                elif self._space.may_request(owned.owner, call.method, params):
                    # It does not list the tool: only the owner knows why, and says so.
                    return await self._send_call(owned.owner, params, call, name)
                else:
                    why = "does not offer it now. A tool that has changed is withheld until that is accepted."
                return text_result(f"{owned.owner}, which owns {name}, {why}", is_error=True)
            unknown = f"Unknown {what.removesuffix('s')}: {name[:128]}"
            if silent:
                unknown += f". These have not answered yet which tools they offer: {', '.join(silent)[:256]}"
            raise McpError(INVALID_PARAMS, unknown)
        return await self._send_call(offer.owner, call.params | more | {"name": offer.key}, call, name)

    async def _call_unlisted(
        self, member: str, name: str, arguments: JsonObject, call: BackendCall
    ) -> JsonObject | PendingCall:
        """Call a tool of a member that could not be asked for its tools."""
        owner = next((each for each in self._space.roster.values() if member in (each.id, each.name)), None)
        if owner is None:
            text = f"{CALL_TOOL}: no member is called {member[:128]}; moot_participants lists them"
            return text_result(text, is_error=True)
        params = call.params | {"name": name, "arguments": arguments}
        return await self._send_call(owner.name, params, call, name)

    async def _complete(self, call: BackendCall) -> JsonObject | PendingCall:
        ref = call.params["ref"]
        if ref.get("type") == "ref/resource":
            template = self.offer_table.find("resourceTemplates", ref["uri"])
            owner, uri = (
                (template.owner, template.key) if template is not None else self._resources.locate(ref["uri"])
            )
            return await self._send_call(owner, call.params | {"ref": {**ref, "uri": uri}}, call, ref["uri"])
        offer = self.offer_table.find("prompts", ref["name"])
        if offer is None or not self._is_visible(offer):
            raise McpError(INVALID_PARAMS, f"Unknown prompt: {ref['name'][:128]}")
        return await self._send_call(
            offer.owner, call.params | {"ref": {**ref, "name": offer.key}}, call, ref["name"]
        )

    async def _send_task_request(self, call: BackendCall) -> JsonObject | PendingCall:
        """Pass a task request on to the member that made the task."""
        id = call.params["taskId"]
        owner = self._tasks.get(id)
        if owner is None:
            raise McpError(INVALID_PARAMS, "Failed to retrieve task: Task not found")
        return await self._send_call(owner, call.params, call, f"task {id}")

    async def _send_call(
        self, owner: str, params: JsonObject, call: BackendCall, what: str
    ) -> JsonObject | PendingCall:
        """Request a call, or propose it; a failure becomes a result that says why."""
        space, method = self._space, call.method
        try:
            if space.state == "reconnecting":
                await self._wait_for_gateway()
            if owner not in space.roster:
                await self._wait_for_member(owner)
            progress, send_log = call.progress, call.log
            try:
                continued = self.pending_calls.continue_call(owner, params, call)
                if continued is not None:
                    return continued
                if space.may_request(owner, method, params):
                    earlier = await self.pending_calls.resume_before_request(owner, method, params)
                    if earlier is not None:
                        return earlier
                result = await space.request(
                    owner,
                    method,
                    params,
                    timeout_seconds=CALL_SECONDS,
                    progress=None if progress is None else lambda update: progress(dict(update.params)),
                    log=None if send_log is None else lambda message: send_log(dict(message)),
                )
            except (NotAllowed, ApprovalRequired):
                # Our own rights, checked before anything is sent; or a quorum, which no right lifts.
                if space.may_propose(owner, method, params):
                    return await self.pending_calls.propose(owner, params, call, what)
                raise NotAllowed("no such right", missing=("mcp/request", "mcp/proposal")) from None
            if result.get("resultType") == "task" and isinstance(result.get("taskId"), str):
                self._tasks[result["taskId"]] = owner
            return result
        except MootError as fault:
            return failure_result(fault, method=method, what=what, host=owner)

    async def _wait_for_gateway(self) -> None:
        """Wait a moment for the connection to come back; raises Unreachable."""
        try:
            async with asyncio.timeout(RECONNECT_SECONDS):
                while self._space.state == "reconnecting":
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise Unreachable("the gateway cannot be reached") from None

    async def _wait_for_member(self, owner: str) -> None:
        """Wait a moment for a member that is away; raises MemberLeft."""
        try:
            await self._space.roster.wait_for(owner, timeout_seconds=RECONNECT_SECONDS)
        except TimedOut:
            raise MemberLeft(owner) from None


def _is_longer(items: list[JsonObject], limit: int) -> bool:
    """Whether definitions have more bytes than this together; stops counting there."""
    return any(size > limit for size in accumulate(len(strict_json.encode(item)) for item in items))


def _instructions(space: str, me: str) -> str:
    return (
        f"You take part in the Moot space {space!r} as {me!r}. Its members are people, agents and tool "
        "servers; everybody sees every message. The tools, resources and prompts here are those of the "
        "members. What you may not do yourself becomes a proposal that somebody has to approve: such a call "
        "takes longer or answers PENDING, and moot_status shows its result. moot_chat talks to the "
        "others, moot_participants lists who is here, moot_find_tools searches."
    )
