"""The outbound direction: XProtocol endpoints become MCP tools, resources and prompts (XP 4.2, 5.2).

async with Outbound(settings.xprotocol_sources, identity, relays) as outbound:
    async with McpServer(outbound.backend) as server: ...

Sources can be replaced at run time (`replace_sources`); each runs in a task of its own, so that one that
hangs does not hold up the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, Self

from moot.errors import InvalidJson, InvalidStatement, MalformedEvent, UsageError
from moot.protocol.operation import Json
from moot.protocol.strict_json import encode, parse
from moot.xprotocol.adapter.config.source_settings import XProtocolSource
from moot.xprotocol.adapter.outbound.endpoints_backend import EndpointsBackend
from moot.xprotocol.adapter.outbound.outbound_source import OutboundSource, SourceContext
from moot.xprotocol.adapter.outbound.relay_pool import RelayPool
from moot.xprotocol.adapter.telemetry.audit_log import AuditedCall
from moot.xprotocol.adapter.trust_chain.event_files import read_event_file
from moot.xprotocol.endpoint.dns_records import Lookup, dns_lookup
from moot.xprotocol.endpoint.document_fetch import FetchPolicy
from moot.xprotocol.endpoint.endpoint_caller import NO_PROOFS, CallProofs, EndpointCaller
from moot.xprotocol.endpoint.known_endpoints import FILE_NAME, KnownEndpoints
from moot.xprotocol.endpoint.relay_client import RelayClient
from moot.xprotocol.events.access_rights import MAX_PROOFS
from moot.xprotocol.events.delegation import read_chain
from moot.xprotocol.events.events import DEFAULT_TTL_SECONDS, SignedPublic, read
from moot.xprotocol.events.key_statements import read_grant
from moot.xprotocol.identity.keys import Identity
from moot.xprotocol.translation.announcement import MirroredSource

# Discovery of one endpoint: DNS, well-known document, catalog.
# Tools of one XProtocol endpoint; MCP clients show them all to their model.
MAX_TOOLS_PER_ENDPOINT: Final = 1_000
# Concurrent calls to XProtocol endpoints.
MAX_OUTBOUND_CALLS: Final = 256


def read_call_proofs(source: XProtocolSource, key: str) -> CallProofs:
    """The delegations and grants that are sent with calls to this source (D-59), verified; raises UsageError.

    `key` is ours: grants for others are refused."""
    proofs: list[Json] = []
    delegation: str | None = None
    if source.delegation_event is not None:
        raw = read_event_file(source.delegation_event)
        try:
            chain = read_chain(raw, holder=key)
        except InvalidStatement as fault:
            raise UsageError(
                f"{source.name}: delegation_event: {source.delegation_event}: {fault.message}"
            ) from None
        delegation = chain.links[-1].id
        proofs += _events(raw, source.delegation_event)
    for file in source.proofs:
        for event in _events(read_event_file(file), file):
            _check_grant(event, file, holder=key, acts_for_another=delegation is not None)
            proofs.append(event)
    if len(proofs) > MAX_PROOFS:
        raise UsageError(f"{source.name}: {len(proofs)} proofs; at most {MAX_PROOFS} can be sent")
    return CallProofs(tuple(proofs), delegation) if proofs else NO_PROOFS


def _events(raw: bytes, file: Path) -> list[Json]:
    try:
        value = parse(raw)
    except InvalidJson as fault:
        raise UsageError(f"{file}: {fault.message}") from None
    return value if isinstance(value, list) else [value]


def _check_grant(event: Json, file: Path, *, holder: str, acts_for_another: bool) -> None:
    try:
        signed = read(event, encode(event))
        if not isinstance(signed, SignedPublic):
            raise InvalidStatement("a directed event")
        granted = read_grant(signed)
    except (MalformedEvent, InvalidStatement) as fault:
        raise UsageError(f"{file}: holds no xp.capability.grant: {fault}") from None
    # With a delegation the grant may be the user's own.
    if granted.grantee != holder and not acts_for_another:
        raise UsageError(f"{file}: is a grant for {granted.grantee}, but this adapter is {holder}")


log = logging.getLogger(__name__)

# A refresh of one source: discovery, a relay and a catalog of several pages.
REFRESH_SECONDS: Final = 60.0
# How long a client's first list waits for sources that are not ready; later ones are notified as a change.
SETTLE_SECONDS: Final = 10.0


class Outbound:
    """Within `async with`. `relays` are the adapter's own; they are not closed here."""

    def __init__(
        self,
        sources: Sequence[XProtocolSource],
        identity: Identity,
        relays: RelayClient,
        *,
        ttl_seconds: int = DEFAULT_TTL_SECONDS,
        store: Path | None = None,
        listens_for_answers: bool = True,
        display_name: str = "",
        is_revoked: Callable[[str, float], bool] = lambda _key, _now: False,
        revokers: Callable[[str], frozenset[str]] = lambda _key: frozenset(),
        on_change: Callable[[], None] = lambda: None,
        on_call: Callable[[AuditedCall], None] = lambda _call: None,
        accepts_calls: Callable[[], bool] = lambda: True,
        lookup: Lookup | None = None,
        fetch_policy: FetchPolicy | None = None,
    ) -> None:
        """`listens_for_answers` False: the request handler passes answers on (`caller.expects`, `.deliver`).

        `store` keeps the keys of endpoints and pins of their contracts; None keeps them in memory.
        `on_change` is called when the offers differ: the announce names them (XP 6.3). `on_call` is called
        after every call, for audit and metrics; while `accepts_calls` is false none is made.
        """
        self.identity = identity
        self.caller = EndpointCaller(
            identity,
            ttl_seconds=ttl_seconds,
            max_calls=MAX_OUTBOUND_CALLS,
            is_revoked=is_revoked,
            revokers=revokers,
        )
        self._initial_sources = tuple(sources)
        self._on_change = on_change
        self._last_mirrored: list[MirroredSource] = []
        self._sources: dict[str, OutboundSource] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._relay_pool = RelayPool(identity, self.caller, relays, listens_for_answers=listens_for_answers)
        self.backend = EndpointsBackend(
            lambda: self.sources,
            settle_seconds=SETTLE_SECONDS,
            display_name=display_name,
            on_call=on_call,
            accepts_calls=accepts_calls,
        )
        self._context = SourceContext(
            caller=self.caller,
            relay_pool=self._relay_pool,
            known_endpoints=KnownEndpoints(None if store is None else store / FILE_NAME),
            lookup=lookup or dns_lookup(),
            fetch_policy=fetch_policy or FetchPolicy(),
            store=store,
            max_tools=MAX_TOOLS_PER_ENDPOINT,
            on_change=self._changed,
            on_announce=self.backend.endpoint_announced,
        )
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self.caller)
        await self._stack.enter_async_context(self._relay_pool)
        await self._stack.enter_async_context(self.backend)
        try:
            await self.replace_sources(self._initial_sources)
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end(list(self._sources))
        await self._stack.aclose()

    @property
    def sources(self) -> Sequence[OutboundSource]:
        """In the order of the configuration."""
        return list(self._sources.values())

    async def replace_sources(self, sources: Sequence[XProtocolSource]) -> None:
        """Replace the sources; unchanged ones go on. Raises UsageError and changes nothing.

        Files of proofs and delegations are read again.
        """
        own = self.identity.key.text
        wanted = {source.name: (source, read_call_proofs(source, own)) for source in sources}
        if len(wanted) != len(sources):
            raise UsageError("two xprotocol_sources have the same name")
        if any(source.key == own for source in sources):
            raise UsageError("an adapter cannot be a source of its own: its calls would loop")
        gone = [
            name
            for name, source in self._sources.items()
            if name not in wanted or wanted[name] != (source.settings, source.credentials)
        ]
        await self._end(gone)
        kept, self._sources = self._sources, {}
        for name, (source, credentials) in wanted.items():
            if name in kept:
                self._sources[name] = kept[name]
                continue
            made = self._sources[name] = OutboundSource(source, credentials, self._context)
            self._tasks[name] = asyncio.create_task(made.run())
        self._changed()

    async def refresh(self, name: str | None = None, *, timeout_seconds: float = REFRESH_SECONDS) -> None:
        """Fetch catalogs anew, of one source or of all; raises what is wrong with it, TimeoutError."""
        if name is not None:
            if name not in self._sources:
                raise UsageError(f"no xprotocol_source is named {name!r}")
            await self._sources[name].refresh(timeout_seconds)
            return
        await asyncio.gather(
            *(source.refresh(timeout_seconds) for source in self._sources.values()), return_exceptions=True
        )

    async def wait_settled(self, timeout_seconds: float) -> None:
        """Wait until every source has been tried once; raises TimeoutError."""
        async with asyncio.timeout(timeout_seconds):
            for source in self.sources:
                await source.settled.wait()

    def mirrored(self) -> list[MirroredSource]:
        """XP 6.3: these sources in the announce."""
        return [
            MirroredSource(source.name, source.settings.address, len(source.offers.tools))
            for source in self._sources.values()
            if not source.is_revoked
        ]

    def health(self) -> list[dict[str, Json]]:
        """The state of each source; no secrets."""
        return [source.health() for source in self._sources.values()]

    def check_revoked(self) -> None:
        """A key was revoked: sources that have it list nothing any more."""
        for source in self._sources.values():
            source.check_revoked()

    def accept(self, name: str, contracts: list[str] | None = None) -> list[str]:
        """The operator accepts contracts that changed under their version; returns which ones."""
        if name not in self._sources:
            raise UsageError(f"no xprotocol_source is named {name!r}")
        return self._sources[name].accept(contracts)

    def _changed(self, _source: OutboundSource | None = None) -> None:
        self.backend.sources_changed()
        before, self._last_mirrored = self._last_mirrored, self.mirrored()
        if before != self._last_mirrored:
            self._on_change()

    async def _end(self, names: list[str]) -> None:
        tasks = [self._tasks.pop(name) for name in names if name in self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for name in names:
            self._sources.pop(name, None)
