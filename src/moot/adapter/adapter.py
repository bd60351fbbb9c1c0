"""The whole adapter: MCP servers in, XProtocol endpoints out, both directions at once (XP 1.5, 2.1).

async with Adapter(settings) as adapter:
    adapter.key, adapter.address, adapter.status()
    await adapter.reload(new_settings)

One identity, one set of relays, one receiver. What comes for the adapter's key goes through `Inbound`:
requests to the wrapped servers, answers to whoever of direction 2 waits for them. Everything is opened in the
order in which the one needs the other, and closed in the opposite order: callers are answered before the
relay goes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, Self

from moot.adapter.config.adapter_settings import AdapterSettings
from moot.adapter.config.config_changes import ConfigChanges, changes_between, file_changes, own_delegations
from moot.adapter.config.config_loader import load_settings
from moot.adapter.inbound.announcer import Announcer
from moot.adapter.inbound.contract_registry import ContractRegistry
from moot.adapter.inbound.event_intake import consume_events
from moot.adapter.inbound.mcp_source import McpServerSource
from moot.adapter.inbound.operation_runner import OperationRunner
from moot.adapter.inbound.reply_publisher import ReplyPublisher
from moot.adapter.inbound.request_handler import RequestHandler
from moot.adapter.inbound.resource_subscriptions import ResourceSubscriptions
from moot.adapter.inbound.revoked_keys import RevokedKeys
from moot.adapter.inbound.source_set import SourceSet
from moot.adapter.inbound.well_known import SchemaPage, WellKnown, serving
from moot.adapter.operations.adapter_metrics import AdapterMetrics
from moot.adapter.operations.adapter_status import (
    announced_payload,
    document_of,
    health_of,
    measure,
    status_of,
)
from moot.adapter.operations.audit_log import AuditLog
from moot.adapter.operations.control_handlers import control_handlers
from moot.adapter.operations.control_socket import control_socket
from moot.adapter.outbound.call_audit import note_call
from moot.adapter.outbound.mcp_listener import McpListener
from moot.adapter.outbound.outbound import Outbound
from moot.adapter.outbound.stdio_check import usable_listener
from moot.adapter.task_set import TaskSet
from moot.adapter.trust_chain.chain_walk import anchors_with, own_chain
from moot.endpoint.relay_client import RelayClient
from moot.endpoint.relay_settings import RelaysSettings
from moot.errors import MootError
from moot.identity import keyfile
from moot.identity.keys import Identity
from moot.protocol.operation import Json
from moot.store.event_query import EventQuery
from moot.store.event_store import EventStore, StoreLimits
from moot.xprotocol.access_rights import Access
from moot.xprotocol.delegation import DelegationChain
from moot.xprotocol.events import ANNOUNCE, REVOKE, SignedPublic
from moot.xprotocol.key_statements import expand_for

log = logging.getLogger(__name__)

# At the start, servers that are slower than this are waited for in the background.
_BEGIN_SECONDS: Final = 10.0


class Adapter:
    """A running adapter, for the length of the block. Entering raises UsageError for what cannot work.

    It does not wait for a relay; `announced` does.
    """

    def __init__(
        self,
        settings: AdapterSettings,
        *,
        port: int | None = None,
        environ: Mapping[str, str] | None = None,
        load: Callable[[], AdapterSettings] | None = None,
    ) -> None:
        """`port` overrides `mcp_server.sse_port` (D-72).

        `load` gives the settings anew when the adapter is told to reload; by default from their file. Give it
        wherever settings are not just what stands in that file.
        """
        self.settings = settings
        self.started_at = time.time()
        self.address = ""
        self.measures = AdapterMetrics()
        self._port = port
        self._environ = os.environ if environ is None else environ
        self._load = load
        self._stack = AsyncExitStack()
        self._tasks = TaskSet("adapter")
        self._reloading = asyncio.Lock()
        self._is_composed = False
        self.is_up = False

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    # What others read

    @property
    def key(self) -> str:
        return self.identity.key.text

    @property
    def sources(self) -> dict[str, McpServerSource]:
        """The wrapped servers by name."""
        return self.wrapping.sources

    @property
    def own_key_revoked(self) -> bool:
        """Nobody should listen to it any more; it answers all the same, since they decide."""
        return self.access.is_revoked(self.key, time.time())

    def status(self) -> dict[str, Json]:
        """For `status`; no secrets."""
        return status_of(self)

    def health(self) -> dict[str, Json]:
        return health_of(self)

    async def announced(self) -> None:
        """Wait until the adapter has announced itself."""
        await self.announcer.announced()

    async def ended(self) -> None:
        """Wait until whoever started the adapter over stdio is gone; for ever where nobody did."""
        await self.listener.ended()

    # From nothing to running

    async def _start(self) -> None:
        settings, stack = self.settings, self._stack
        self.identity: Identity = keyfile.load_or_create(settings.identity.key_file)
        self.chain: DelegationChain | None = own_chain(settings, self.identity, now=time.time())
        self.delegations: tuple[SignedPublic, ...] = own_delegations(settings, self.chain)
        # Before anything is touched: it tells whether another adapter uses this data.
        await stack.enter_async_context(control_socket(settings.control, control_handlers(self)))
        self.store = EventStore.open(settings.store, StoreLimits(seen_ids=settings.limits.seen_events))
        stack.push_async_callback(self.store.close)
        self.registry = ContractRegistry.open(settings.store)
        self.registry.vectors.settings = settings.search
        self._schemas = SchemaPage(self.registry)
        self.audit = AuditLog(settings.audit_file, settings.audit)
        stack.push_async_callback(self.audit.close)
        self._revoking = RevokedKeys(self.key, self.store)
        self._revoking.configure(settings, self.chain)
        await self._revoking.recall()
        self.access = self._access_of(settings)
        self.relays: RelayClient = await stack.enter_async_context(self._opened_relays())
        await self._compose()
        stack.push_async_callback(self._tasks.close)
        await self._serve_pages()
        await self._open_sources()
        await self._open_outward()
        self._tasks.start(consume_events(self.relays, {"recipients": [self.key]}, self.inbound.receive))
        self._tasks.start(consume_events(self.relays, {"kinds": [REVOKE]}, self.inbound.receive))
        self._tasks.start(self.subscriptions.run())
        self._tasks.start(self.announcer.run())
        self.is_up = True
        log.info("adapter up", extra={"key": self.key, "kinds": len(self.registry.catalog)})

    @asynccontextmanager
    async def _opened_relays(self) -> AsyncIterator[RelayClient]:
        relay = self.settings.relay
        settings = RelaysSettings(
            reconnect_interval_seconds=relay.reconnect_interval_seconds,
            publish_waiting=4 * self.settings.limits.calls + 1_024,
        )
        async with RelayClient(relay.urls, self.identity, settings, on_change=self._relay_changed) as relays:
            yield relays

    async def _compose(self) -> None:
        settings, limits = self.settings, self.settings.limits
        ttl = settings.relay.event_ttl_seconds
        self.answering = ReplyPublisher(self.identity, self.relays, ttl=ttl, within=limits.answer_seconds)
        self.wrapping = SourceSet(
            limits,
            registry=self.registry,
            environ=self._environ,
            store=settings.store,
            measures=self.measures,
            on_change=self._stir,
        )
        self.subscriptions = ResourceSubscriptions(
            limits, access=lambda: self.access, answering=self.answering, audit=self.audit
        )
        self.wrapping.attach(self.subscriptions)
        self._stack.push_async_callback(self.subscriptions.close)
        self.performing = OperationRunner(
            self.registry,
            self.wrapping.sources,
            limits,
            access=lambda: self.access,
            refresh=self.wrapping.refresher.asked,
            subscribe=self.subscriptions.subscribe,
            unsubscribe=self.subscriptions.unsubscribe,
        )
        self.inbound = RequestHandler(
            self.identity,
            access=self.access,
            registry=self.registry,
            performer=self.performing,
            answering=self.answering,
            seen_ids=self.store.seen_ids,
            limits=limits,
            audit=self.audit,
            measures=self.measures,
            on_revoked=self._revoked,
        )
        self.announcer = Announcer(
            self.identity,
            self.relays,
            limits,
            payload=lambda: announced_payload(self),
            ttl=ttl,
            delegations=self.delegations,
            last_time=await self._last_announce(),
            keep=self.store.put,
        )
        measure(self)
        self._is_composed = True

    async def _serve_pages(self) -> None:
        discovery = self.settings.discovery
        pages = WellKnown(
            document=lambda base: document_of(self, base),
            schemas=self._schemas.page,
            health=self.health,
            metrics=self.measures.registry.exposition if discovery.metrics else None,
            address=discovery.address,
        )
        self.pages = pages
        self.address = await self._stack.enter_async_context(
            serving(pages, discovery.well_known_host, discovery.well_known_port)
        )

    async def _open_sources(self) -> None:
        self._stack.push_async_callback(self.wrapping.close_all)
        for each in self.settings.mcp_sources:
            await self.wrapping.open(each)
        self.inbound.configure(self.settings.limits, self.wrapping.rates)
        late = await self.wrapping.refresher.begun(_BEGIN_SECONDS)
        if late:
            log.warning("sources are still starting", extra={"sources": ", ".join(late)})

    async def _open_outward(self) -> None:
        settings = self.settings
        self.outward = await self._stack.enter_async_context(
            Outbound(
                settings.xprotocol_sources,
                self.identity,
                self.relays,
                limits=settings.limits,
                ttl=settings.relay.event_ttl_seconds,
                store=settings.store,
                hears_home=False,
                is_revoked=lambda key, now: self.access.is_revoked(key, now),
                on_change=self._stir,
                on_call=lambda call: note_call(call, self.measures, self.audit),
            )
        )
        self.inbound.answers = self.outward.caller
        # Callers are answered while everything that could answer them is still there.
        self._stack.push_async_callback(self.inbound.close)
        self.listener = await self._stack.enter_async_context(
            McpListener(usable_listener(settings.mcp_server), self.outward.backend, port=self._port)
        )

    def _access_of(self, settings: AdapterSettings) -> Access:
        return Access(
            own_key=self.key,
            access=settings.access,
            trust=anchors_with(settings, self.chain),
            own_chain=self.chain,
            revocations=self._revoking.revocations,
            expand=expand_for(settings.namespaces),
        )

    # Relays

    def _relay_changed(self, url: str | None) -> None:
        if url is not None and self._is_composed:
            log.info("relay in use", extra={"relay": url})
            # Perhaps it has never heard of us.
            self.announcer.stir(again=True)

    def _stir(self) -> None:
        self._schemas.forget()
        self.announcer.stir()

    def _revoked(self, signed: SignedPublic) -> None:
        key = signed.event.payload.get("revoked_key")
        if self._revoking.heeds(signed):
            self._tasks.start(self._revoking.keep(signed))
            self.subscriptions.check_rights()
        elif isinstance(key, str):
            # Strangers revoke their own keys by the thousand: only what concerns somebody here is looked at.
            self.subscriptions.check_rights(key)
        if key == self.key and self.own_key_revoked:
            log.error("this adapter's own key has been revoked: make another with keygen --force")

    async def _last_announce(self) -> int:
        """When an earlier process announced itself last; 0: never."""
        query = EventQuery(kinds=(ANNOUNCE,), senders=(self.key,))
        return max([stored.timestamp async for stored in self.store.find(query)], default=0)

    # Changing while it runs

    async def reload(self, settings: AdapterSettings) -> ConfigChanges:
        """Take on another configuration; what did not change goes on undisturbed.

        Raises UsageError, and changes nothing, when its chain or its proofs cannot be used. What can only be
        changed by a restart is named in the outcome.
        """
        async with self._reloading:
            chain = own_chain(settings, self.identity, now=time.time())
            delegations = own_delegations(settings, chain)
            rotated = keyfile.load(self.settings.identity.key_file) != self.identity
            found = changes_between(self.settings, settings, rotated=rotated)
            if found.endpoints_changed:
                await self.outward.replace_sources(found.applied.xprotocol_sources)
            self.chain, self.delegations = chain, delegations
            self.announcer.delegations = delegations
            self.settings = found.applied
            self._revoking.configure(settings, chain)
            self.access = self.inbound.access = self._access_of(found.applied)
            limited = (self.wrapping, self.wrapping.refresher, self.performing)
            for part in (*limited, self.subscriptions, self.announcer):
                part.limits = found.applied.limits
            self.registry.vectors.settings = found.applied.search
            for name in (*found.removed, *found.restarted):
                await self.wrapping.close(name)
            for each in found.applied.mcp_sources:
                if each.name not in self.sources:
                    await self.wrapping.try_open(each)
                elif each.name in found.changed:
                    await self.wrapping.change(each)
            self.inbound.configure(found.applied.limits, self.wrapping.rates)
            self.subscriptions.check_rights()
            self._stir()
            for key in found.needs_restart:
                log.warning("changed, but only a restart applies it", extra={"setting": key})
            log.info("configuration reloaded", extra=found.summary())
            return found

    async def reload_file(self) -> ConfigChanges | None:
        """Read the file again; raises UsageError, and changes nothing, when it is wrong."""
        if self._load is not None:
            return await self.reload(self._load())
        if self.settings.file is None:
            return None
        return await self.reload(load_settings(self.settings.file, environ=self._environ))

    async def watch_file(self) -> None:
        """Reload whenever the file changes, until cancelled; a wrong one is told of and passed over."""
        if self.settings.file is None:
            return
        async for _ in file_changes(self.settings.file):
            try:
                await self.reload_file()
            except MootError as fault:
                log.error("configuration not reloaded", extra={"reason": str(fault)})

    def accept(self, source: str, names: list[str] | None = None) -> list[str]:
        """The operator consents to definitions that changed; which ones. Raises UsageError (D-87)."""
        held = self.wrapping if source in self.sources else self.outward
        return held.accept(source, names)


async def run_adapter(
    settings: AdapterSettings, *, port: int | None = None, environ: Mapping[str, str] | None = None
) -> None:
    """Run until cancelled, or until the MCP client that started us over stdio has gone.

    The file is read again when it changes, and on `reload` at the control socket (hot reload).
    """
    async with Adapter(settings, port=port, environ=environ) as adapter:
        adapter._tasks.start(adapter.watch_file())
        await adapter.ended()
        if settings.mcp_sources and not adapter.listener.counts.requests:
            # Nobody was ever there: a service whose stdin is /dev/null. Direction 1 goes on.
            log.info("no MCP client at stdin; serving XProtocol alone")
            await asyncio.Event().wait()
