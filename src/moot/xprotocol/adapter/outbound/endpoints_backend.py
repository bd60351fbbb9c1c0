"""XProtocol endpoints as the backend of an MCP server (XP 4.2, 5.2, 5.3).

A client knows nothing of XProtocol: it lists tools, resources and prompts and calls them. A call is sent as a
signed, sealed event; its answer becomes an MCP result, or the error from the specification's table.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal, Self

from moot import __version__, tracing
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
from moot.mcp.eras import JsonObject, OfferKind
from moot.protocol.operation import Json
from moot.protocol.rpc_codes import INVALID_PARAMS, METHOD_NOT_FOUND
from moot.xprotocol.adapter.outbound.followed_resources import FollowedResources
from moot.xprotocol.adapter.outbound.mirrored_offers import ResourceContract, accepts_updates_flag
from moot.xprotocol.adapter.outbound.outbound_source import OutboundSource
from moot.xprotocol.adapter.telemetry.audit_log import AuditedCall
from moot.xprotocol.contracts.contracts import Contract, ContractRefused
from moot.xprotocol.contracts.payload_validation import Validator
from moot.xprotocol.endpoint.endpoint_caller import fault_of
from moot.xprotocol.endpoint.remote_endpoint import RemoteEndpoint
from moot.xprotocol.events.faults import MCP_ERRORS, Fault, mcp_error, scrub
from moot.xprotocol.translation.call_translation import payload_result
from moot.xprotocol.translation.mcp_mirror import MirroredTool, noted, tool_names
from moot.xprotocol.translation.prompts import is_prompt, payload_prompt
from moot.xprotocol.translation.resources import payload_contents

# The lists for MCP clients over all sources: names, descriptions, and the source of each (D-68).

# Prefix of a resource whose URI another source has, too.
OWN_SCHEME: Final = "xprotocol://"


@dataclass(frozen=True)
class ListedTool:
    """A tool or prompt under the name that clients see."""

    source: OutboundSource
    contract: Contract
    item: JsonObject

    @cached_property
    def arguments(self) -> Validator:
        """Checks arguments against the contract, before they leave; raises ContractRefused."""
        return Validator(self.contract.payload)


@dataclass(frozen=True, slots=True)
class ListedResource:
    """The source and contract of a resource."""

    source: OutboundSource
    resources: ResourceContract
    uri: str


@dataclass(frozen=True, slots=True)
class OfferListing:
    """The lists at one moment; never changed, only replaced."""

    tools: Mapping[str, ListedTool] = field(default_factory=dict)
    prompts: Mapping[str, ListedTool] = field(default_factory=dict)
    # By the URI in the list.
    resources: Mapping[str, tuple[ListedResource, JsonObject]] = field(default_factory=dict)
    templates: tuple[JsonObject, ...] = ()

    def locate(self, uri: str, sources: Sequence[OutboundSource]) -> ListedResource | None:
        """Find a URI: listed, matching a template, or prefixed with its source."""
        listed = self.resources.get(uri)
        if listed is not None:
            return listed[0]
        name, theirs = "", uri
        if uri.startswith(OWN_SCHEME):
            name, _, theirs = uri.removeprefix(OWN_SCHEME).partition("/")
        for source in sources:
            if name in ("", source.name):
                for each in source.offers.resources:
                    if each.subscribable.allows(theirs):
                        return ListedResource(source, each, theirs)
        return None


def list_offers(sources: Sequence[OutboundSource]) -> OfferListing:
    """The lists of all sources together. A name that two sources prefer goes to neither (D-68)."""
    tools: dict[str, ListedTool] = {}
    prompts: dict[str, ListedTool] = {}
    resources: dict[str, tuple[ListedResource, JsonObject]] = {}
    templates: dict[str, JsonObject] = {}
    preferred = [source.offers.preferred_names(source.settings.mcp_tool_prefix) for source in sources]
    for index, source in enumerate(sources):
        others = set().union(*(names for position, names in enumerate(preferred) if position != index))
        contracts = {each.kind: each for each in (*source.offers.tools, *source.offers.prompts)}
        names = tool_names(
            contracts, prefix=source.settings.mcp_tool_prefix, taken=others | tools.keys() | prompts.keys()
        )
        for kind, contract in contracts.items():
            mirrored = MirroredTool(names[kind], contract, source.settings.address)
            if is_prompt(contract):
                prompts[names[kind]] = ListedTool(source, contract, mirrored.as_prompt_json())
            else:
                tools[names[kind]] = ListedTool(source, contract, mirrored.as_json())
        for each in source.offers.resources:
            _add_resources(source, each, resources, templates)
    return OfferListing(tools, prompts, resources, tuple(templates.values()))


def _add_resources(
    source: OutboundSource,
    each: ResourceContract,
    resources: dict[str, tuple[ListedResource, JsonObject]],
    templates: dict[str, JsonObject],
) -> None:
    for item in each.resources:
        uri = item["uri"]
        listed_uri = uri if uri not in resources else f"{OWN_SCHEME}{source.name}/{uri}"
        resources[listed_uri] = (
            ListedResource(source, each, uri),
            _with_origin_note(item, "uri", listed_uri, source, each.contract),
        )
    for item in each.templates:
        template = item["uriTemplate"]
        listed_uri = template if template not in templates else f"{OWN_SCHEME}{source.name}/{template}"
        templates[listed_uri] = _with_origin_note(item, "uriTemplate", listed_uri, source, each.contract)


def _with_origin_note(
    item: JsonObject, key: str, listed_uri: str, source: OutboundSource, contract: Contract
) -> JsonObject:
    """A listed resource with its URI in the list, and the note about its origin (XP 4.2)."""
    described = Contract(
        kind=contract.kind, description=str(item.get("description") or ""), payload=contract.payload
    )
    return {**item, key: listed_uri, "description": noted(described, source.settings.address)}


class EndpointsBackend:
    """The `Backend` of `moot.mcp.downstream`, over all sources."""

    def __init__(
        self,
        sources: Callable[[], Sequence[OutboundSource]],
        *,
        settle_seconds: float,
        display_name: str = "",
        on_call: Callable[[AuditedCall], None] = lambda _call: None,
        accepts_calls: Callable[[], bool] = lambda: True,
    ) -> None:
        """`settle_seconds`: how long a list request waits for sources that were not tried yet."""
        self._on_call = on_call
        self._accepts_calls = accepts_calls
        self._sources = sources
        self._settle_seconds = settle_seconds
        self._listing = OfferListing()
        # What revoked endpoints offered: not listed, but a call of it is told why.
        self._revoked = OfferListing()
        self._listeners: list[Callable[[Change], None]] = []
        self._followed = FollowedResources(self._resource_updated)
        self.about = ServerDescription(
            {"name": "xprotocol-adapter", "title": display_name or "XProtocol", "version": __version__},
            "The tools, resources and prompts here belong to XProtocol endpoints, each named at the end of "
            "its description. Their answers come from those endpoints, not from this adapter.",
        )
        # Calls by outcome.
        self.outcomes: dict[str, int] = {}

    async def __aenter__(self) -> Self:
        await self._followed.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._followed.__aexit__()

    # Lists

    async def offers(self, kind: OfferKind) -> list[JsonObject]:
        await self._wait_for_sources()
        listing = self._listing
        match kind:
            case "tools":
                return [listed.item for listed in listing.tools.values()]
            case "prompts":
                return [listed.item for listed in listing.prompts.values()]
            case "resources":
                return [item for _, item in listing.resources.values()]
        return list(listing.templates)

    def tool(self, name: str) -> JsonObject | None:
        listed = self._listing.tools.get(name)
        return None if listed is None else listed.item

    def kind_of(self, name: str) -> tuple[str, str] | None:
        """XP 7.1: the source and the kind of a tool's name."""
        listed = self._listing.tools.get(name) or self._listing.prompts.get(name)
        return None if listed is None else (listed.source.name, listed.contract.kind)

    async def _wait_for_sources(self) -> None:
        """Wait a while for sources that were not tried yet, so that an early list is not empty."""
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
        """A source was added or removed, or its offers changed."""
        sources = self._sources()
        before, after = self._listing, list_offers([each for each in sources if not each.is_revoked])
        self._listing = after
        self._revoked = list_offers([each for each in sources if each.is_revoked])
        self._followed.keep_only({source.name for source in self._sources()})
        if _items(before.tools) != _items(after.tools):
            self._notify(ListChanged("tools"))
        if _items(before.prompts) != _items(after.prompts):
            self._notify(ListChanged("prompts"))
        if [item for _, item in before.resources.values()] != [
            item for _, item in after.resources.values()
        ] or before.templates != after.templates:
            self._notify(ListChanged("resources"))

    def endpoint_announced(self, source: OutboundSource) -> None:
        """An endpoint announced itself: it may have been restarted and have lost its subscriptions."""
        self._followed.renew(source.name)

    def _resource_updated(self, listed_uri: str) -> None:
        self._notify(ResourceUpdated(listed_uri))

    def _notify(self, change: Change) -> None:
        for listener in tuple(self._listeners):
            listener(change)

    # Calls

    async def pending(self, _handle: str) -> PendingCall | None:
        return None

    async def perform(self, call: BackendCall) -> JsonObject | PendingCall:
        params = call.params
        match call.method:
            case "tools/call":
                listed = await self._find("tools", params["name"])
                payload = await self._call_tool(call.method, listed, params.get("arguments") or {})
                return self._convert(lambda: payload_result(payload, listed.contract))
            case "prompts/get":
                listed = await self._find("prompts", params["name"])
                payload = await self._call_tool(call.method, listed, params.get("arguments") or {})
                return self._convert(lambda: payload_prompt(payload))
            case "resources/read":
                return await self._read_resource(params["uri"])
            case "completion/complete":
                # XProtocol has no completions: return none rather than an error.
                return {"completion": {"values": [], "total": 0, "hasMore": False}}
        raise McpError(METHOD_NOT_FOUND, f"Method not found: {call.method[:64]}")

    async def _find(self, what: Literal["tools", "prompts"], name: str) -> ListedTool:
        listed = self._listed(what).get(name)
        if listed is None:
            await self._wait_for_sources()
            listed = self._listed(what).get(name) or self._was_listed(what).get(name)
        if listed is None:
            raise McpError(INVALID_PARAMS, f"Unknown {what.removesuffix('s')}: {name[:128]}")
        return listed

    def _listed(self, what: Literal["tools", "prompts"]) -> Mapping[str, ListedTool]:
        return self._listing.tools if what == "tools" else self._listing.prompts

    def _was_listed(self, what: Literal["tools", "prompts"]) -> Mapping[str, ListedTool]:
        return self._revoked.tools if what == "tools" else self._revoked.prompts

    async def _call_tool(self, method: str, listed: ListedTool, payload: Json) -> Json:
        contract, seconds = listed.contract, listed.source.settings.call_timeout_seconds
        declared = contract.payload.get("properties") if isinstance(contract.payload, dict) else None
        names = declared if isinstance(declared, dict) else {}

        async def send(remote: RemoteEndpoint) -> Json:
            # Here, and not by the endpoint only: what it would refuse need not leave this machine.
            listed.arguments.check(payload)
            return await remote.call(contract.kind, payload, timeout_seconds=seconds, declared=names)

        traced = {"name": contract.kind, "arguments": payload}
        return await self._call(listed.source, contract.kind, send, method, traced)

    async def _call(
        self,
        source: OutboundSource,
        kind: str,
        send: Callable[[RemoteEndpoint], Awaitable[Json]],
        method: str,
        params: JsonObject,
    ) -> Json:
        """One call, as a span of its trace if calls are traced."""
        if tracing.active is None:
            return await self._call_endpoint(source, kind, send)
        with tracing.active.operation(
            "client", method, params, moot__endpoint=source.settings.address, network__transport="tcp"
        ) as operation:
            answer = await self._call_endpoint(source, kind, send)
            if operation is not None and isinstance(answer, dict):
                operation.result = answer
            return answer

    async def _call_endpoint(
        self, source: OutboundSource, kind: str, send: Callable[[RemoteEndpoint], Awaitable[Json]]
    ) -> Json:
        """Make a call and record its outcome; raises the McpError for the client."""
        started, outcome = time.perf_counter(), "OTHER"
        is_refused = not self._accepts_calls()
        try:
            if is_refused:
                raise Unreachable("this adapter makes no calls while its audit log cannot be written")
            if source.remote is None:
                raise Unreachable(str(source.fault or f"{source.settings.address} is not connected yet"))
            answer = await send(source.remote)
            outcome = "ok"
        except MootError as trouble:
            fault = fault_of(trouble)
            known = fault.code in MCP_ERRORS or fault.code == "UPSTREAM_ERROR"
            outcome = fault.code if known else "OTHER"
            raise _to_mcp_error(fault) from None
        except asyncio.CancelledError:
            outcome = "CANCELLED"
            raise
        finally:
            self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
            seconds = time.perf_counter() - started
            self._on_call(AuditedCall(source.name, source.key or "", kind, outcome, seconds, is_refused))
        return answer

    def _convert(self, make: Callable[[], JsonObject]) -> JsonObject:
        try:
            return make()
        except ContractRefused as refusal:
            # The answer cannot be converted to MCP.
            raise _to_mcp_error(fault_of(refusal)) from None

    # Resources

    async def _read_resource(self, listed_uri: str) -> JsonObject:
        resource = await self._locate(listed_uri)
        payload_out: JsonObject = {"uri": resource.uri}
        if accepts_updates_flag(resource.resources.contract):
            payload_out["updates"] = False
        kind, seconds = resource.resources.subscribe_kind, resource.source.settings.call_timeout_seconds

        async def send(remote: RemoteEndpoint) -> Json:
            followed = await self._followed.read(listed_uri)
            return (
                followed
                if followed is not None
                else await remote.call(kind, payload_out, timeout_seconds=seconds)
            )

        payload = await self._call(resource.source, kind, send, "resources/read", {"uri": resource.uri})
        return self._convert(lambda: _with_listed_uri(payload_contents(payload), resource.uri, listed_uri))

    async def subscribe(self, uri: str) -> None:
        resource = await self._locate(uri)

        async def send(_remote: RemoteEndpoint) -> None:
            await self._followed.follow(uri, resource.source, resource.resources, resource.uri)

        await self._call_endpoint(resource.source, resource.resources.subscribe_kind, send)

    async def unsubscribe(self, uri: str) -> None:
        await self._followed.unfollow(uri)

    async def _locate(self, uri: str) -> ListedResource:
        found = self._listing.locate(uri, self._sources())
        if found is None:
            await self._wait_for_sources()
            found = self._listing.locate(uri, self._sources())
        if found is None:
            raise McpError(RESOURCE_NOT_FOUND, "Resource not found: see resources/list", {"uri": uri})
        return found


def _items(listed: Mapping[str, ListedTool]) -> list[JsonObject]:
    return [each.item for each in listed.values()]


def _with_listed_uri(result: JsonObject, uri: str, listed: str) -> JsonObject:
    contents: Json = result.get("contents")
    if uri == listed or not isinstance(contents, list):
        return result
    renamed = [
        {**each, "uri": listed} if isinstance(each, dict) and each.get("uri") == uri else each
        for each in contents
    ]
    return {**result, "contents": renamed}


def _to_mcp_error(fault: Fault) -> McpError:
    """XP 5.3: code and message are from the table; details are in `data`."""
    error = mcp_error(fault)
    data: JsonObject = dict(error.data) if isinstance(error.data, dict) else {}
    detail = scrub(fault.message)
    if detail and detail != error.message:
        data["detail"] = detail
    return McpError(error.code, error.message, data)
