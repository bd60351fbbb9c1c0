"""The whole adapter: MCP servers in, XProtocol endpoints out, both directions at once (XP 1.5, 2.1).

async with Adapter(settings) as adapter:
    adapter.key, adapter.address, adapter.status()
    await adapter.reload(new_settings)

One identity, one set of relays, one receiver. Events for the adapter's key go to `RequestHandler`: requests
to the wrapped servers, answers to the outbound calls that wait for them. The parts are opened in the order
in which they need each other and closed in the opposite order: callers are answered before the relay closes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Final, Self

from moot.errors import MootError
from moot.private_files import use_folder
from moot.protocol.operation import Json
from moot.resilience.task_set import TaskSet
from moot.xprotocol.adapter.config.adapter_settings import AdapterSettings
from moot.xprotocol.adapter.config.config_changes import ConfigChanges, changes_between, file_changes
from moot.xprotocol.adapter.config.config_loader import load_settings
from moot.xprotocol.adapter.discovery.announcer import Announcer, last_announce_time
from moot.xprotocol.adapter.discovery.well_known import SchemaPage, WellKnownPages, serve_pages
from moot.xprotocol.adapter.inbound.contract_registry import ContractRegistry
from moot.xprotocol.adapter.inbound.event_consumer import consume_events
from moot.xprotocol.adapter.inbound.mcp_source import McpServerSource
from moot.xprotocol.adapter.inbound.operation_runner import OperationRunner
from moot.xprotocol.adapter.inbound.reply_publisher import ReplyPublisher
from moot.xprotocol.adapter.inbound.request_handler import RequestHandler
from moot.xprotocol.adapter.inbound.resource_subscriptions import ResourceSubscriptions
from moot.xprotocol.adapter.inbound.source_set import SourceSet
from moot.xprotocol.adapter.operations.adapter_status import AdapterStatus
from moot.xprotocol.adapter.operations.control_socket import control_handlers, control_socket
from moot.xprotocol.adapter.outbound.mcp_listener import McpListener, usable_listener_settings
from moot.xprotocol.adapter.outbound.outbound import Outbound
from moot.xprotocol.adapter.telemetry.adapter_metrics import AdapterMetrics
from moot.xprotocol.adapter.telemetry.audit_log import AuditLog, record_call
from moot.xprotocol.adapter.trust_chain.own_chain import (
    AppliedConfig,
    apply_config,
    registration_file,
    trust_anchors,
)
from moot.xprotocol.adapter.trust_chain.revoked_keys import RevokedKeys
from moot.xprotocol.endpoint.relay_client import MAX_PENDING_EVENTS, RelayClient
from moot.xprotocol.event_store.event_store import EventStore
from moot.xprotocol.events.access_rights import Access
from moot.xprotocol.events.events import REVOKE, SignedPublic
from moot.xprotocol.events.key_statements import expand_for
from moot.xprotocol.identity import keyfile
from moot.xprotocol.identity.keys import Identity

# How long an answer waits for a relay's OK; then it is dropped and logged.
ANSWER_SECONDS: Final = 300.0

log = logging.getLogger(__name__)

# At the start, servers that are slower than this are waited for in the background.
_FIRST_REFRESH_SECONDS: Final = 10.0


class Adapter:
    """A running adapter, for the length of the block. Entering raises UsageError for what cannot work.

    Entering does not wait for a relay; `announcer.wait_announced` does.
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

        `load` gives the settings anew when the adapter reloads; the default reads their file. Pass it when
        the settings differ from what the file says.
        """
        self.config = AppliedConfig(settings, None, ())
        self.started_at = time.monotonic()
        self.metrics = AdapterMetrics()
        self._port = port
        self._environ = os.environ if environ is None else environ
        self._load = load
        self._stack = AsyncExitStack()
        self._tasks = TaskSet("adapter")
        self._reload_lock = asyncio.Lock()
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

    # State

    @property
    def settings(self) -> AdapterSettings:
        return self.config.settings

    @property
    def key(self) -> str:
        return self.identity.key.text

    @property
    def sources(self) -> dict[str, McpServerSource]:
        """The wrapped servers by name."""
        return self.source_set.sources

    @property
    def address(self) -> str:
        """Where the well-known pages are served."""
        return self.pages.own_address

    @property
    def is_own_key_revoked(self) -> bool:
        """Whether the adapter has to stop: it makes no call, answers only that, and announces nothing."""
        return self.access.is_own_key_revoked(time.time())

    def status(self) -> dict[str, Json]:
        """For `status`; no secrets."""
        return self._status.status()

    def health(self) -> dict[str, Json]:
        return self._status.health()

    async def wait_ended(self) -> None:
        """Wait until the MCP client that started the adapter over stdio is gone; for ever without one."""
        await self.listener.wait_ended()

    # Starting

    async def _start(self) -> None:
        settings, stack = self.settings, self._stack
        self.identity: Identity = keyfile.load_or_create(settings.identity.key_file)
        self.config = apply_config(settings, self.identity, now=time.time())
        handlers = control_handlers(
            is_up=lambda: self.is_up, status=self.status, reload=self.reload_file, accept=self.accept
        )
        # Before any file is touched: it tells whether another adapter uses this data.
        await stack.enter_async_context(control_socket(settings.control, handlers))
        use_folder(settings.store, option="store:")
        self.store = EventStore.open(settings.store)
        stack.push_async_callback(self.store.close)
        self.registry = ContractRegistry.open(settings.store)
        self._schemas = SchemaPage(self.registry.contracts)
        self.audit = AuditLog(settings.audit_file, settings.audit)
        stack.push_async_callback(self.audit.close)
        self._revoked_keys = RevokedKeys(self.key, self.store)
        self._revoked_keys.configure(settings, self.config.chain)
        await self._revoked_keys.load()
        self.access = self._access_of(self.config)
        self.relays: RelayClient = await stack.enter_async_context(self._make_relays())
        await self._compose()
        stack.push_async_callback(self._tasks.close)
        discovery = settings.discovery
        await stack.enter_async_context(
            serve_pages(self.pages, discovery.well_known_host, discovery.well_known_port)
        )
        await self._open_sources()
        await stack.enter_async_context(self.outbound)
        # Callers are answered while everything that could answer them is still open.
        stack.push_async_callback(self.requests.close)
        await stack.enter_async_context(self.listener)
        requests = self.requests
        self._tasks.start(
            consume_events(self.relays, {"recipients": [self.key]}, requests.receive, requests.receive_stored)
        )
        self._tasks.start(consume_events(self.relays, {"kinds": [REVOKE]}, self.requests.receive))
        self._tasks.start(self.subscriptions.run())
        self._tasks.start(self.announcer.run())
        self.is_up = True
        log.info("adapter up", extra={"key": self.key, "kinds": len(self.registry.catalog)})

    def _make_relays(self) -> RelayClient:
        relay = self.settings.relay
        return RelayClient(
            relay.urls,
            self.identity,
            reconnect_interval_seconds=relay.reconnect_interval_seconds,
            max_pending_events=4 * self.settings.limits.max_calls + MAX_PENDING_EVENTS,
            on_change=self._relay_changed,
        )

    async def _compose(self) -> None:
        """Make all parts; none of them is opened here."""
        settings, limits = self.settings, self.settings.limits
        ttl = settings.relay.event_ttl_seconds
        replies = ReplyPublisher(self.identity, self.relays, ttl_seconds=ttl, publish_seconds=ANSWER_SECONDS)
        self.subscriptions = ResourceSubscriptions(
            access=lambda: self.access, replies=replies, audit=self.audit
        )
        self._stack.push_async_callback(self.subscriptions.close)
        self.source_set = SourceSet(
            limits,
            registry=self.registry,
            subscriptions=self.subscriptions,
            environ=self._environ,
            store=settings.store,
            metrics=self.metrics,
            on_change=self._offers_changed,
        )
        self._operations = OperationRunner(
            self.registry,
            self.source_set.sources,
            access=lambda: self.access,
            refresh=self.source_set.refresher.refresh_on_request,
            subscribe=self.subscriptions.subscribe,
            unsubscribe=self.subscriptions.unsubscribe,
        )
        self.outbound = Outbound(
            settings.xprotocol_sources,
            self.identity,
            self.relays,
            ttl_seconds=ttl,
            store=settings.store,
            listens_for_answers=False,
            is_revoked=lambda key, now: self.access.is_revoked(key, now),
            revokers=lambda key: self.access.revocations.signers(key),
            on_change=self._offers_changed,
            on_call=lambda call: record_call(call, self.metrics, self.audit),
            accepts_calls=lambda: self.audit.accepts_calls,
        )
        self.requests = RequestHandler(
            self.identity,
            access=self.access,
            registry=self.registry,
            operations=self._operations,
            replies=replies,
            seen_ids=self.store.seen_ids,
            limits=limits,
            audit=self.audit,
            metrics=self.metrics,
            caller=self.outbound.caller,
            on_revoked=self._key_revoked,
        )
        self.announcer = Announcer(
            self.identity,
            self.relays,
            payload=lambda: self._status.announce_payload(),
            ttl_seconds=ttl,
            delegations=self.config.delegations,
            last_time=await last_announce_time(self.store, self.key),
            save=self.store.put,
            is_allowed=lambda: not self.is_own_key_revoked,
        )
        self.pages = WellKnownPages(
            document=lambda base: self._status.discovery_document(base),
            schemas=self._schemas.page,
            health=self.health,
            metrics=self.metrics.registry.exposition if settings.discovery.metrics else None,
            address=settings.discovery.address,
        )
        self.listener = McpListener(
            usable_listener_settings(settings.mcp_server), self.outbound.backend, port=self._port
        )
        self._status = AdapterStatus(self)
        self._status.register_gauges()
        self._is_composed = True

    async def _open_sources(self) -> None:
        self._stack.push_async_callback(self.source_set.close_all)
        for each in self.settings.mcp_sources:
            await self.source_set.open(each)
        self.requests.configure(self.settings.limits, self.source_set.rate_limits)
        late = await self.source_set.refresher.wait_first_refresh(_FIRST_REFRESH_SECONDS)
        if late:
            log.warning("sources are still starting", extra={"sources": ", ".join(late)})

    def _access_of(self, config: AppliedConfig) -> Access:
        settings, chain = config.settings, config.chain
        return Access(
            own_key=self.key,
            access=settings.access,
            trust=trust_anchors(settings, chain),
            own_chain=chain,
            revocations=self._revoked_keys.revocations,
            expand=expand_for(settings.namespaces),
        )

    # Events

    def _relay_changed(self, url: str | None) -> None:
        if url is not None and self._is_composed:
            log.info("relay in use", extra={"relay": url})
            # It may have no announce of ours.
            self.announcer.notify_change(force=True)

    def _offers_changed(self) -> None:
        self._schemas.invalidate()
        self.announcer.notify_change()

    def _key_revoked(self, signed: SignedPublic) -> None:
        key = signed.event.payload.get("revoked_key")
        if self._revoked_keys.is_relevant(signed):
            self._tasks.start(self._revoked_keys.save(signed))
            self.subscriptions.check_rights()
        elif isinstance(key, str):
            # Strangers revoke their own keys by the thousand: only that key's subscriptions are checked.
            self.subscriptions.check_rights(key)
        self.outbound.check_revoked()
        if key == self.key and self.is_own_key_revoked:
            log.error("this adapter's own key has been revoked: make another with keygen --force")

    # Changing while it runs

    async def reload(self, settings: AdapterSettings) -> ConfigChanges:
        """Apply another configuration; what did not change goes on undisturbed.

        Raises UsageError, and changes nothing, when its chain or its proofs cannot be used. Settings that
        need a restart are named in the result.
        """
        async with self._reload_lock:
            loaded = apply_config(settings, self.identity, now=time.time())
            rotated = keyfile.load(self.settings.identity.key_file) != self.identity
            changes = changes_between(self.settings, settings, rotated=rotated)
            applied = changes.applied
            if changes.endpoints_changed:
                await self.outbound.replace_sources(applied.xprotocol_sources)
            self.config = replace(loaded, settings=applied)
            self.announcer.delegations = loaded.delegations
            self._revoked_keys.configure(settings, loaded.chain)
            self.access = self.requests.access = self._access_of(self.config)
            self.source_set.limits = applied.limits
            for name in (*changes.removed, *changes.restarted):
                await self.source_set.close(name)
            for each in applied.mcp_sources:
                if each.name not in self.sources:
                    await self.source_set.try_open(each)
                elif each.name in changes.changed:
                    await self.source_set.update_settings(each)
            self.requests.configure(applied.limits, self.source_set.rate_limits)
            self.subscriptions.check_rights()
            self._offers_changed()
            for key in changes.needs_restart:
                log.warning("changed, but only a restart applies it", extra={"setting": key})
            log.info("configuration reloaded", extra=changes.summary())
            return changes

    async def reload_file(self) -> ConfigChanges | None:
        """Read the file again; raises UsageError, and changes nothing, when it is wrong."""
        if self._load is not None:
            return await self.reload(self._load())
        if self.settings.file is None:
            return None
        return await self.reload(load_settings(self.settings.file, environ=self._environ))

    async def watch_file(self) -> None:
        """Reload whenever the file changes, until cancelled; a wrong file is logged and ignored."""
        if self.settings.file is None:
            return
        async for _ in file_changes(self.settings.file, registration_file(self.settings.identity.key_file)):
            try:
                await self.reload_file()
            except MootError as fault:
                log.error("configuration not reloaded", extra={"reason": str(fault)})

    def accept(self, source: str, names: list[str] | None = None) -> list[str]:
        """The operator accepts changed definitions; returns which ones. Raises UsageError (D-87)."""
        owner = self.source_set if source in self.sources else self.outbound
        return owner.accept(source, names)


async def run_adapter(
    settings: AdapterSettings, *, port: int | None = None, environ: Mapping[str, str] | None = None
) -> None:
    """Run until cancelled, or until the MCP client that started us over stdio has gone.

    The file is read again when it changes, and on `reload` at the control socket (hot reload).
    """
    async with Adapter(settings, port=port, environ=environ) as adapter:
        adapter._tasks.start(adapter.watch_file())
        await adapter.wait_ended()
        if settings.mcp_sources and not adapter.listener.counts.requests:
            # There never was a client: a service whose stdin is /dev/null. The wrapped servers go on.
            log.info("no MCP client at stdin; serving XProtocol alone")
            await asyncio.Event().wait()
