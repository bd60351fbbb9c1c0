"""Runs requests that are allowed: tools, prompts, resources, and searches in our own catalog.

The protocol's own requests need no capability, since discovery comes before rights (D-77):

    xp.schema.describe   the contracts that fit an intent, ranked
    xp.schema.list       the contracts themselves, page by page
    xp.schema.refresh    fetch the servers' lists now (XP 7.2)
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final, TypeVar

import msgspec

from moot import tracing
from moot.errors import AuthorizationInsufficient, KindNotFound, SchemaViolation
from moot.protocol.operation import Json
from moot.protocol.strict_json import encode
from moot.xprotocol.adapter.inbound.contract_registry import ContractRegistry, KindRoute
from moot.xprotocol.adapter.inbound.mcp_source import McpServerSource, SourceFault
from moot.xprotocol.contracts.contract_catalog import DESCRIBE_KIND, read_query
from moot.xprotocol.contracts.contracts import Contract, ContractRefused
from moot.xprotocol.endpoint.catalog_pages import LIST_KIND, make_page, read_list_query
from moot.xprotocol.events.access_rights import Access
from moot.xprotocol.events.delegation import DelegationChain
from moot.xprotocol.events.event_composer import RESULT_SUFFIX
from moot.xprotocol.events.event_receiver import Accepted, KindTerms
from moot.xprotocol.events.faults import Fault, fault
from moot.xprotocol.events.key_statements import KeyGrant
from moot.xprotocol.translation.call_translation import result_payload
from moot.xprotocol.translation.prompts import prompt_payload
from moot.xprotocol.translation.resources import contents_payload

# Matches in an answer to `xp.schema.describe`.
MAX_DESCRIBE_RESULTS: Final = 100

REFRESH_KIND: Final = "xp.schema.refresh"
# XP 4.5, our addition: false reads once and ends the sender's subscription.
UPDATES: Final = "updates"

_NO_CAPABILITY: Final = KindTerms(None)
_METHODS: Final = {"tool": "tools/call", "prompt": "prompts/get"}
_OWN_KINDS: Final = frozenset({DESCRIBE_KIND, LIST_KIND, REFRESH_KIND})


# Bounds the cost of proofs (xp1: `proofs` inside the payload): their size, and one verification each.
#
# Anybody may send proofs, and each has to be written canonically and its signature checked before it can be
# rejected: half a microsecond a byte, on the loop. An event has room for 700 KiB of them.

# A chain of eight and eight grants, with a few dozen capabilities each: some 16 ms at worst.
MAX_PROOF_BYTES: Final = 32 * 1024

_Read = TypeVar("_Read")


def check_proof_bytes(proofs: Sequence[Json]) -> None:
    """Raises AuthorizationInsufficient when they are too large, before any of them is parsed."""
    size = len(encode(list(proofs))) if proofs else 0
    if size > MAX_PROOF_BYTES:
        raise AuthorizationInsufficient(f"{size} bytes of proofs; {MAX_PROOF_BYTES} are the most")


@dataclass(frozen=True, kw_only=True)
class CachedAccess(Access):
    """`Access` that reads the proofs of one event only once, for checks of many capabilities.

    Never use it for two events: the cache belongs to the proofs of the first check.
    """

    _cache: dict[str, object] = field(default_factory=dict)

    @classmethod
    def of(cls, access: Access) -> CachedAccess:
        return cls(**{each.name: getattr(access, each.name) for each in fields(access)})

    def _grants(self, proofs: Sequence[Json]) -> list[KeyGrant]:
        return self._cached("grants", lambda: Access._grants(self, proofs))

    def _chain(self, leaf: str, proofs: Sequence[Json]) -> DelegationChain:
        return self._cached(leaf, lambda: Access._chain(self, leaf, proofs))

    def _cached(self, what: str, read: Callable[[], _Read]) -> _Read:
        if what not in self._cache:
            try:
                self._cache[what] = read()
            except AuthorizationInsufficient as refusal:
                self._cache[what] = refusal
        found = self._cache[what]
        if isinstance(found, AuthorizationInsufficient):
            raise found
        return found  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class SubscribeRequest:
    """A request to follow a resource."""

    accepted: Accepted
    proofs: Sequence[Json]
    route: KindRoute
    source: McpServerSource
    uri: str


class OperationRunner:
    """Runs accepted requests."""

    def __init__(
        self,
        registry: ContractRegistry,
        sources: Mapping[str, McpServerSource],
        *,
        access: Callable[[], Access],
        refresh: Callable[[str | None], Awaitable[dict[str, Json]]],
        subscribe: Callable[[SubscribeRequest], Awaitable[dict[str, Json]]],
        unsubscribe: Callable[[str, str, str], Awaitable[None]],
    ) -> None:
        self._registry = registry
        self._sources = sources
        self._access = access
        self._refresh = refresh
        self._subscribe = subscribe
        self._unsubscribe = unsubscribe

    def terms(self, kind: str) -> KindTerms | None:
        """What a kind of our own requires; None: it is not one of our own."""
        return _NO_CAPABILITY if kind in _OWN_KINDS else None

    def may_be_offered_later(self, kind: str) -> bool:
        """Whether a source whose lists are not known yet could offer this kind."""
        return any(
            kind.startswith(source.settings.namespace + ".") and self._registry.publication(name) is None
            for name, source in self._sources.items()
        )

    def is_idempotent(self, kind: str) -> bool:
        """Whether running such a request twice does no harm: our own requests only read or refresh."""
        return kind in _OWN_KINDS

    async def run(
        self, route: KindRoute | None, accepted: Accepted, proofs: Sequence[Json]
    ) -> tuple[str, Json]:
        """Kind and payload of the answer; raises SourceFault or EventFault."""
        if route is None:
            return accepted.event.kind + RESULT_SUFFIX, await self._run_own(accepted, proofs)
        source = self._sources.get(route.source)
        if source is None:
            raise KindNotFound("this kind is no longer offered here")
        try:
            return route.response_kind, await self._call_traced(route, source, accepted, proofs)
        except ContractRefused as refusal:
            # The result is not valid MCP.
            raise SourceFault(Fault("UPSTREAM_ERROR", refusal.message)) from None

    async def _call_traced(
        self, route: KindRoute, source: McpServerSource, accepted: Accepted, proofs: Sequence[Json]
    ) -> Json:
        """`_call_source`, as a span of the sender's trace if calls are traced."""
        if tracing.active is None:
            return await self._call_source(route, source, accepted, proofs)
        params = {"name": accepted.event.kind, "arguments": accepted.payload}
        with tracing.active.operation(
            "server",
            _METHODS.get(route.target, "resources/read"),
            params if route.target in _METHODS else accepted.payload,
            carrier=accepted.trace,
            moot__sender=accepted.event.sender,
            network__transport="tcp",
        ) as operation:
            answer = await self._call_source(route, source, accepted, proofs)
            if operation is not None and isinstance(answer, dict):
                operation.result = answer
            return answer

    async def _call_source(
        self, route: KindRoute, source: McpServerSource, accepted: Accepted, proofs: Sequence[Json]
    ) -> Json:
        payload = accepted.payload
        if route.target == "tool":
            result = await source.request("tools/call", {"name": route.name, "arguments": payload})
            answer = result_payload(result, structured=route.structured)
            if route.check_answer is not None and "structuredContent" in result:
                route.check_answer(result, answer)
            return answer
        if route.target == "prompt":
            return prompt_payload(
                await source.request("prompts/get", {"name": route.name, "arguments": payload})
            )
        return await self._read_resource(route, source, accepted, proofs)

    async def _read_resource(
        self, route: KindRoute, source: McpServerSource, accepted: Accepted, proofs: Sequence[Json]
    ) -> dict[str, Json]:
        uri = accepted.payload["uri"]
        if route.subscribable is None or not route.subscribable.allows(uri):
            raise KindNotFound("no such resource: it is not listed and fits no template")
        if accepted.payload.get(UPDATES) is False:
            await self._unsubscribe(accepted.event.sender, route.source, uri)
            return contents_payload(uri, await source.request("resources/read", {"uri": uri}))
        return await self._subscribe(SubscribeRequest(accepted, proofs, route, source, uri))

    async def _run_own(self, accepted: Accepted, proofs: Sequence[Json]) -> Json:
        kind = accepted.event.kind
        if kind == DESCRIBE_KIND:
            return await self._describe(accepted, proofs)
        if kind == LIST_KIND:
            return make_page(self._registry.contracts(), read_list_query(accepted.payload))
        if kind == REFRESH_KIND:
            name = accepted.payload.get("source")
            if name is not None and not isinstance(name, str):
                raise SchemaViolation("source has to be the name of a source, or absent")
            if name is not None and name not in self._sources:
                raise KindNotFound("no source of that name")
            return await self._refresh(name)
        raise SourceFault(fault("NOT_FOUND"))

    async def _describe(self, accepted: Accepted, proofs: Sequence[Json]) -> Json:
        query = read_query(accepted.payload)
        if query.limit > MAX_DESCRIBE_RESULTS:
            query = msgspec.structs.replace(query, limit=MAX_DESCRIBE_RESULTS)
        event, access, now = accepted.event, CachedAccess.of(self._access()), time.time()
        known: dict[str, bool] = {}

        def callable_by(contract: Contract) -> bool:
            capability = contract.auth.required_capability if contract.auth is not None else None
            if capability is None:
                return False
            if capability not in known:
                try:
                    access.authorize(
                        event.sender, capability, delegation=event.delegation, proofs=proofs, now=now
                    )
                    known[capability] = True
                except AuthorizationInsufficient:
                    known[capability] = False
            return known[capability]

        return msgspec.to_builtins(self._registry.catalog.describe(query, callable_by))
