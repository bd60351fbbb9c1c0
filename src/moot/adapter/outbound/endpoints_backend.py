"""What MCP clients see of XProtocol endpoints, and what becomes of their calls (XP 4.2, 5.2, 5.3).

A client knows nothing of XProtocol: it lists tools, resources and prompts and calls them. A call goes out as
a signed, sealed event and comes back as an MCP result, or as the error that the document's table has for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, Self

from moot import __version__
from moot.adapter.outbound.followed_resources import FollowedResources
from moot.adapter.outbound.mirrored_offers import takes_updates_word
from moot.adapter.outbound.outbound_source import OutboundSource
from moot.adapter.outbound.tool_listing import ListedResource, ListedTool, ToolListing, lists_of
from moot.endpoint.endpoint_caller import fault_of
from moot.endpoint.remote_endpoint import RemoteEndpoint
from moot.errors import McpError, MootError, Unreachable
from moot.mcp.downstream.backend import (
    BackendCall,
    Change,
    ListChanged,
    PendingCall,
    ResourceUpdated,
    ServerDescription,
)
from moot.mcp.downstream.rpc import RESOURCE_NOT_FOUND
from moot.mcp.eras import INVALID_PARAMS, METHOD_NOT_FOUND, JsonObject, OfferKind
from moot.protocol.operation import Json
from moot.xprotocol.call_translation import payload_result
from moot.xprotocol.contracts import Contract, ContractRefused
from moot.xprotocol.event_receiver import PROOFS
from moot.xprotocol.faults import MCP_ERRORS, Fault, mcp_error, scrub
from moot.xprotocol.prompts import payload_prompt
from moot.xprotocol.resources import payload_contents


@dataclass(frozen=True, slots=True)
class AuditedCall:
    """A call that was made, without what was in it: for the audit log and for metrics (XP 8.6)."""

    source: str
    key: str
    kind: str
    # `ok`, CANCELLED, a code of XP 5.3, or OTHER.
    outcome: str
    seconds: float


class EndpointsBackend:
    """The `Backend` of `moot.mcp.downstream`, over all sources."""

    def __init__(
        self,
        sources: Callable[[], Sequence[OutboundSource]],
        *,
        settle_seconds: float,
        display_name: str = "",
        on_call: Callable[[AuditedCall], None] = lambda _asked: None,
    ) -> None:
        """`settle_seconds`: how long a list waits for sources that have not been tried yet."""
        self._on_call = on_call
        self._sources = sources
        self._settle_seconds = settle_seconds
        self._lists = ToolListing()
        self._listeners: list[Callable[[Change], None]] = []
        self._followed = FollowedResources(self._updated)
        self.about = ServerDescription(
            {"name": "xprotocol-adapter", "title": display_name or "XProtocol", "version": __version__},
            "The tools, resources and prompts here belong to XProtocol endpoints, each named at the end of "
            "its description. What an endpoint answers is its own word, not this adapter's.",
        )
        # By how they ended; for metrics.
        self.outcomes: dict[str, int] = {}

    async def __aenter__(self) -> Self:
        await self._followed.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._followed.__aexit__()

    # Lists

    async def offers(self, kind: OfferKind) -> list[JsonObject]:
        await self._settled()
        lists = self._lists
        match kind:
            case "tools":
                return [shown.item for shown in lists.tools.values()]
            case "prompts":
                return [shown.item for shown in lists.prompts.values()]
            case "resources":
                return [item for _, item in lists.resources.values()]
        return list(lists.templates)

    def tool(self, name: str) -> JsonObject | None:
        shown = self._lists.tools.get(name)
        return None if shown is None else shown.item

    def kind_of(self, name: str) -> tuple[str, str] | None:
        """XP 7.1: the source and the kind behind a tool's name."""
        shown = self._lists.tools.get(name) or self._lists.prompts.get(name)
        return None if shown is None else (shown.source.name, shown.contract.kind)

    async def _settled(self) -> None:
        """A client that lists right after the start shall not find nothing."""
        waiting = [source.settled for source in self._sources() if not source.settled.is_set()]
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settle_seconds):
                for each in waiting:
                    await each.wait()

    # Changes

    def watch(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def sources_changed(self) -> None:
        """A source offers something else than before, came, or went."""
        before, after = self._lists, lists_of(self._sources())
        self._lists = after
        self._followed.keep({source.name for source in self._sources()})
        if _items(before.tools) != _items(after.tools):
            self._tell(ListChanged("tools"))
        if _items(before.prompts) != _items(after.prompts):
            self._tell(ListChanged("prompts"))
        if [item for _, item in before.resources.values()] != [
            item for _, item in after.resources.values()
        ] or before.templates != after.templates:
            self._tell(ListChanged("resources"))

    def announced(self, source: OutboundSource) -> None:
        """An endpoint announced itself: if it was restarted, it has forgotten who follows what."""
        self._followed.renew(source.name)

    def _updated(self, shown_uri: str) -> None:
        self._tell(ResourceUpdated(shown_uri))

    def _tell(self, change: Change) -> None:
        for listener in tuple(self._listeners):
            listener(change)

    # Doing

    def pending(self, _handle: str) -> PendingCall | None:
        return None

    async def perform(self, call: BackendCall) -> JsonObject | PendingCall:
        params = call.params
        match call.method:
            case "tools/call":
                shown = await self._named("tools", params["name"])
                payload = await self._ask(shown, params.get("arguments") or {})
                return self._result(lambda: payload_result(payload, shown.contract))
            case "prompts/get":
                shown = await self._named("prompts", params["name"])
                payload = await self._ask(shown, params.get("arguments") or {})
                return self._result(lambda: payload_prompt(payload))
            case "resources/read":
                return await self._read(params["uri"])
            case "completion/complete":
                # XProtocol has nothing like it; a client that asks gets no suggestions rather than an error.
                return {"completion": {"values": [], "total": 0, "hasMore": False}}
        raise McpError(METHOD_NOT_FOUND, f"Method not found: {call.method[:64]}")

    async def _named(self, what: Literal["tools", "prompts"], name: str) -> ListedTool:
        shown = self._among(what).get(name)
        if shown is None:
            await self._settled()
            shown = self._among(what).get(name)
        if shown is None:
            raise McpError(INVALID_PARAMS, f"Unknown {what.removesuffix('s')}: {name[:128]}")
        return shown

    def _among(self, what: Literal["tools", "prompts"]) -> Mapping[str, ListedTool]:
        return self._lists.tools if what == "tools" else self._lists.prompts

    async def _ask(self, shown: ListedTool, payload: Json) -> Json:
        contract, seconds = shown.contract, shown.source.settings.call_timeout_seconds
        proofs = not _has_own_proofs(contract)

        async def ask(remote: RemoteEndpoint) -> Json:
            return await remote.call(contract.kind, payload, within=seconds, proofs=proofs)

        return await self._asked(shown.source, contract.kind, ask)

    async def _asked(
        self, source: OutboundSource, kind: str, ask: Callable[[RemoteEndpoint], Awaitable[Json]]
    ) -> Json:
        """Ask, and note how it ended; raises the McpError that the client gets."""
        begun, outcome = time.perf_counter(), "OTHER"
        try:
            if source.remote is None:
                raise Unreachable(str(source.fault or f"{source.settings.address} is not connected yet"))
            answer = await ask(source.remote)
            outcome = "ok"
        except MootError as trouble:
            fault = fault_of(trouble)
            known = fault.code in MCP_ERRORS or fault.code == "UPSTREAM_ERROR"
            outcome = fault.code if known else "OTHER"
            raise _mcp(fault) from None
        except asyncio.CancelledError:
            outcome = "CANCELLED"
            raise
        finally:
            self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
            seconds = time.perf_counter() - begun
            self._on_call(AuditedCall(source.name, source.key or "", kind, outcome, seconds))
        return answer

    def _result(self, make: Callable[[], JsonObject]) -> JsonObject:
        try:
            return make()
        except ContractRefused as refusal:
            # It answered, and what it answered is nothing that MCP has a form for.
            raise _mcp(fault_of(refusal)) from None

    # Resources

    async def _read(self, shown_uri: str) -> JsonObject:
        place = await self._place(shown_uri)
        question: JsonObject = {"uri": place.uri}
        if takes_updates_word(place.resources.contract):
            question["updates"] = False
        kind, seconds = place.resources.subscribe_kind, place.source.settings.call_timeout_seconds

        async def ask(remote: RemoteEndpoint) -> Json:
            followed = await self._followed.read(shown_uri)
            return followed if followed is not None else await remote.call(kind, question, within=seconds)

        payload = await self._asked(place.source, kind, ask)
        return self._result(lambda: _renamed(payload_contents(payload), place.uri, shown_uri))

    async def subscribe(self, uri: str) -> None:
        place = await self._place(uri)

        async def ask(_remote: RemoteEndpoint) -> None:
            await self._followed.follow(uri, place.source, place.resources, place.uri)

        await self._asked(place.source, place.resources.subscribe_kind, ask)

    async def unsubscribe(self, uri: str) -> None:
        await self._followed.unfollow(uri)

    async def _place(self, uri: str) -> ListedResource:
        found = self._lists.place(uri, self._sources())
        if found is None:
            await self._settled()
            found = self._lists.place(uri, self._sources())
        if found is None:
            raise McpError(
                RESOURCE_NOT_FOUND, "Resource not found: resources/list shows what there is", {"uri": uri}
            )
        return found


def _has_own_proofs(contract: Contract) -> bool:
    """A tool with an argument of this name gets what the client gave it, and nothing of ours."""
    declared = contract.payload.get("properties") if isinstance(contract.payload, dict) else None
    return isinstance(declared, dict) and PROOFS in declared


def _items(shown: Mapping[str, ListedTool]) -> list[JsonObject]:
    return [each.item for each in shown.values()]


def _renamed(result: JsonObject, uri: str, shown: str) -> JsonObject:
    contents: Json = result.get("contents")
    if uri == shown or not isinstance(contents, list):
        return result
    renamed = [
        {**each, "uri": shown} if isinstance(each, dict) and each.get("uri") == uri else each
        for each in contents
    ]
    return {**result, "contents": renamed}


def _mcp(fault: Fault) -> McpError:
    """XP 5.3: code and message are the table's; what else is known stands in `data`."""
    error = mcp_error(fault)
    data: JsonObject = dict(error.data) if isinstance(error.data, dict) else {}
    detail = scrub(fault.message)
    if detail and detail != error.message:
        data["detail"] = detail
    return McpError(error.code, error.message, data)
