"""An XProtocol endpoint as strangers run one: made of `moot.xprotocol` parts alone, on a real relay.

It checks what comes as the profile says, answers from plain functions, announces itself and lists its
contracts. It can be made to misbehave: `answer` may be replaced by anything.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from moot.errors import EventFault, KindNotFound
from moot.protocol.operation import Json
from moot.xprotocol.contracts.contracts import (
    Contract,
    ContractAuth,
    ContractResponse,
    ContractSource,
    ContractSubscription,
)
from moot.xprotocol.endpoint.catalog_pages import LIST_KIND, make_page, read_list_query
from moot.xprotocol.endpoint.relay_client import RelayClient
from moot.xprotocol.events.access_rights import Access, AuthorizedCaller
from moot.xprotocol.events.event_composer import compose, publish, reply, reply_fault
from moot.xprotocol.events.event_receiver import Accepted, EventReceiver, EventRejected, Hooks, KindTerms
from moot.xprotocol.events.events import ANNOUNCE, DirectedEvent
from moot.xprotocol.events.replay import ReplayCache
from moot.xprotocol.identity.keys import Identity
from moot.xprotocol.translation.announcement import schemas_digest
from moot.xprotocol.translation.call_translation import terms_of

quick_relay_client = partial(RelayClient, reconnect_interval_seconds=0.1)
NAMESPACE = "weather"
READ = "weather.read"

# XP 4.2.
CURRENT = Contract(
    kind="weather.current.get",
    description="Get current weather conditions for a location",
    payload={
        "type": "object",
        "properties": {
            "location": {"type": "string", "description": "City name or coordinates"},
            "units": {"type": "string", "enum": ["metric", "imperial"]},
        },
        "required": ["location"],
    },
    auth=ContractAuth(READ),
)
FORECAST = Contract(
    kind="weather.forecast.get",
    description="Get the forecast for a location",
    payload={
        "type": "object",
        "properties": {"location": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["location"],
    },
    response=ContractResponse(
        "weather.forecast.get.result",
        {"type": "object", "properties": {"highs": {"type": "array"}}, "required": ["highs"]},
    ),
    auth=ContractAuth(READ),
)
SECRET = Contract(
    kind="weather.station.reset",
    description="Reset a weather station",
    payload={"type": "object"},
    auth=ContractAuth("weather.admin"),
)
GREETING = Contract(
    kind="weather.prompt.greet",
    description="Greet somebody with the weather",
    payload={"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    source=ContractSource(type="mcp_adapter", mcp_server="weather", mcp_prompt="greet"),
    auth=ContractAuth(READ),
)
STATIONS = Contract(
    kind="weather.resource.subscribe",
    description="Follow a station",
    payload={"type": "object", "properties": {"uri": {"type": "string"}}, "required": ["uri"]},
    subscription=ContractSubscription(
        updated_kind="weather.resource.updated",
        resources=({"uri": "weather://stations/bern", "name": "Bern", "mimeType": "text/plain"},),
        templates=({"uriTemplate": "weather://stations/{name}", "name": "A station"},),
    ),
    auth=ContractAuth(READ),
)
ALL = (CURRENT, FORECAST, SECRET, GREETING, STATIONS)

Handler = Callable[[DirectedEvent, dict[str, Json]], Awaitable[Json]]


@dataclass
class StubEndpoint:
    """Everything may be changed while it runs; `announce` tells the world."""

    identity: Identity
    relays: RelayClient
    contracts: list[Contract]
    access: dict[str, frozenset[str]] = field(default_factory=dict)
    trust: frozenset[str] = frozenset()
    lists: bool = True
    handlers: dict[str, Handler] = field(default_factory=dict)
    # Requests that passed every check.
    served: list[Accepted] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    temperature: int = 17
    followers: dict[tuple[str, str], DirectedEvent] = field(default_factory=dict)
    seen: ReplayCache = field(default_factory=ReplayCache)
    # Instead of answering: request, kind and payload of the answer that would have been.
    answer: Callable[[DirectedEvent, str, Json], Awaitable[None]] | None = None
    announced: int = 0

    def __post_init__(self) -> None:
        self.handlers = {
            CURRENT.kind: self._current,
            FORECAST.kind: self._forecast,
            SECRET.kind: self._reset,
            GREETING.kind: self._greet,
            STATIONS.kind: self._follow,
            LIST_KIND: self._list,
        } | self.handlers
        self._receiver = EventReceiver(
            self.identity,
            Hooks(
                is_revoked=lambda _key, _now: False,
                seen_ids=self.seen,
                too_fast=lambda _key, _size, _now: None,
                terms=self._terms,
                authorize=self._authorize,
                is_expected=lambda _event: False,
            ),
        )

    @property
    def key(self) -> str:
        return self.identity.key.text

    def allow(self, caller: Identity, *capabilities: str) -> None:
        self.access[caller.key.text] = frozenset(capabilities or {READ})

    async def announce(self, **more: Any) -> None:
        # Announces of one second have no order; here each comes after the last.
        self.announced = max(self.announced + 1, int(time.time()))
        payload = {"display_name": "Weather", "schemas_digest": schemas_digest(self.contracts)} | more
        await self.relays.publish(publish(self.identity, ANNOUNCE, payload, now=self.announced))

    async def run(self) -> None:
        async with (
            asyncio.TaskGroup() as group,
            self.relays.subscribe([{"recipients": [self.key]}]) as events,
        ):
            async for raw in events:
                outcome = self._receiver.receive(raw, time.time())
                if isinstance(outcome, Accepted):
                    self.served.append(outcome)
                    group.create_task(self._serve(outcome))
                elif isinstance(outcome, EventRejected):
                    self.refused.append(outcome.fault.code)
                    group.create_task(
                        self._say(reply_fault(self.identity, outcome.event, outcome.fault, now=time.time()))
                    )

    async def _serve(self, accepted: Accepted) -> None:
        event = accepted.event
        try:
            payload = await self.handlers[event.kind](event, accepted.payload)
        except EventFault as fault:
            await self._say(reply_fault(self.identity, event, fault, now=time.time()))
            return
        if self.answer is not None and event.kind != LIST_KIND:
            await self.answer(event, f"{event.kind}.result", payload)
            return
        await self._say(reply(self.identity, event, f"{event.kind}.result", payload, now=time.time()))

    async def _say(self, signed: Any) -> None:
        await self.relays.publish(signed)

    # What it can do

    async def _current(self, _event: DirectedEvent, payload: dict[str, Json]) -> Json:
        text = f"{payload['location']}: {self.temperature}°C"
        return {"content": text, "encoding": "utf-8", "mimeType": "text/plain", "isError": False}

    async def _forecast(self, _event: DirectedEvent, payload: dict[str, Json]) -> Json:
        return {"highs": [self.temperature + day for day in range(payload.get("days", 1))]}

    async def _reset(self, _event: DirectedEvent, _payload: dict[str, Json]) -> Json:
        return {"content": "reset"}

    async def _greet(self, _event: DirectedEvent, payload: dict[str, Json]) -> Json:
        text = f"Hello {payload['name']}, it is {self.temperature} degrees."
        return {"content": text, "messages": [{"role": "user", "content": {"type": "text", "text": text}}]}

    async def _follow(self, event: DirectedEvent, payload: dict[str, Json]) -> Json:
        uri = payload["uri"]
        if not uri.startswith("weather://stations/"):
            raise KindNotFound("no such station")
        if payload.get("updates") is False:
            self.followers.pop((event.sender, uri), None)
        else:
            self.followers[event.sender, uri] = event
        return self.contents(uri)

    def contents(self, uri: str) -> dict[str, Json]:
        return {"uri": uri, "contents": [{"uri": uri, "text": f"{self.temperature}"}]}

    async def change(self, temperature: int) -> None:
        """The weather changes; whoever follows a station hears of it."""
        self.temperature = temperature
        for (_, uri), request in list(self.followers.items()):
            await self._say(
                compose(
                    self.identity,
                    "weather.resource.updated",
                    self.contents(uri),
                    recipient=request.sender,
                    enc_key=request.sender_enc_key,
                    now=time.time(),
                    correlation_id=request.correlation_id,
                    in_reply_to=request.id,
                )
            )

    async def _list(self, _event: DirectedEvent, payload: dict[str, Json]) -> Json:
        return make_page(sorted(self.contracts, key=lambda each: each.kind), read_list_query(payload))

    # Whom it asks

    def _terms(self, kind: str) -> KindTerms | None:
        if kind == LIST_KIND:
            return KindTerms(None) if self.lists else None
        return next((terms_of(each) for each in self.contracts if each.kind == kind), None)

    def _authorize(
        self, event: DirectedEvent, capability: str | None, proofs: Sequence[Json], now: float
    ) -> AuthorizedCaller:
        access = Access(own_key=self.key, access=self.access, trust=self.trust)
        return access.authorize(event.sender, capability, delegation=event.delegation, proofs=proofs, now=now)


@asynccontextmanager
async def stub_endpoint(
    url: str, identity: Identity, *contracts: Contract, caller: Identity | None = None, **more: Any
) -> AsyncIterator[StubEndpoint]:
    """On the relay, announced, and answering; `caller` may use what needs `weather.read`."""
    async with quick_relay_client([url], identity) as relays:
        far = StubEndpoint(identity, relays, list(contracts or ALL), **more)
        if caller is not None:
            far.allow(caller)
        running = asyncio.create_task(far.run())
        await far.announce()
        try:
            yield far
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
