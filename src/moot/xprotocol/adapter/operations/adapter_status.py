"""The state of a running adapter: for `status`, for `/health`, for gauges, and for the announce (XP 6.3)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from moot import __version__
from moot.protocol.operation import Json
from moot.protocol.strict_json import encode
from moot.xprotocol.adapter.discovery.announcer import Announcer
from moot.xprotocol.adapter.discovery.well_known import SCHEMAS_PATH, WellKnownPages
from moot.xprotocol.adapter.inbound.contract_registry import ContractRegistry
from moot.xprotocol.adapter.inbound.mcp_source import MAX_LISTED
from moot.xprotocol.adapter.inbound.request_handler import RequestHandler
from moot.xprotocol.adapter.inbound.resource_subscriptions import ResourceSubscriptions
from moot.xprotocol.adapter.inbound.source_set import SourceSet
from moot.xprotocol.adapter.outbound.mcp_listener import McpListener
from moot.xprotocol.adapter.outbound.outbound import Outbound
from moot.xprotocol.adapter.telemetry import adapter_metrics
from moot.xprotocol.adapter.telemetry.adapter_metrics import AdapterMetrics
from moot.xprotocol.adapter.telemetry.audit_log import AuditLog
from moot.xprotocol.adapter.trust_chain.own_chain import AppliedConfig
from moot.xprotocol.contracts.versions import EMPTY
from moot.xprotocol.endpoint.relay_client import RelayClient
from moot.xprotocol.event_store.event_store import EventStore
from moot.xprotocol.identity.keys import Identity
from moot.xprotocol.translation.announcement import WrappedSource, announce_payload, discovery_document
from moot.xprotocol.translation.publication import Publication

_NO_PUBLICATION: Final = Publication((), (), (), (), EMPTY, ())
# Of an announce, which has 128 KiB in all: eight delegations with a few dozen capabilities each.
MAX_DELEGATION_BYTES: Final = 16 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterStatus:
    """Reads the state of an adapter from its parts."""

    identity: Identity
    started_at: float  # by the monotonic clock
    # Replaced when the adapter reloads its configuration.
    config: Callable[[], AppliedConfig]
    is_own_key_revoked: Callable[[], bool]
    relays: RelayClient
    store: EventStore
    registry: ContractRegistry
    source_set: SourceSet
    subscriptions: ResourceSubscriptions
    requests: RequestHandler
    outbound: Outbound
    listener: McpListener
    announcer: Announcer
    pages: WellKnownPages
    audit: AuditLog
    metrics: AdapterMetrics

    def announce_payload(self) -> dict[str, Json]:
        """XP 6.3: the public description. A source that never answered is named, with no tools."""
        config = self.config()
        wrapped = [
            WrappedSource(
                name=source.name,
                transport=source.settings.transport,
                namespace=source.settings.namespace,
                publication=self.registry.publication(source.name) or _NO_PUBLICATION,
                url=source.settings.url,
            )
            for source in self.source_set.sources.values()
        ]
        payload = announce_payload(
            display_name=config.settings.identity.display_name,
            adapter_version=self.registry.adapter_version,
            mcp_sources=wrapped,
            xprotocol_sources=self.outbound.mirrored(),
            parent_key=config.parent_key,
        )
        proofs = [
            {**each.covered, "id": each.event.id, "signature": each.event.signature}
            for each in config.delegations
        ]
        if proofs and len(encode(proofs)) <= MAX_DELEGATION_BYTES:
            payload["delegations"] = list(proofs)
        return payload

    def discovery_document(self, base: str) -> dict[str, Json]:
        """XP 7.3: what `/.well-known/xprotocol-endpoint` serves to whoever reached us at `base`."""
        settings = self.config().settings
        return discovery_document(
            endpoint=self.relays.url or settings.relay.urls[0],
            public_key=self.identity.key.text,
            encryption_key=self.identity.enc_key.text,
            schema_url=base + SCHEMAS_PATH,
            mcp_sources=list(self.source_set.sources),
            xprotocol_sources=[each.name for each in settings.xprotocol_sources],
        )

    def health(self) -> dict[str, Json]:
        """`ok`, or `degraded` and why; names of sources, no addresses."""
        problems: list[Json] = []
        if self.is_own_key_revoked():
            problems.append("the adapter's own key has been revoked")
        if self.relays.url is None:
            problems.append("no relay can be reached")
        elif self.announcer.trouble:
            problems.append(f"not announced: {self.announcer.trouble}")
        problems += [
            f"{source.name}: {count} entries of {method} are left out: a list has at most {MAX_LISTED}"
            for source in self.source_set.sources.values()
            for method, count in source.left_out.items()
        ]
        if not self.audit.accepts_calls:
            problems.append("the audit log cannot be written: calls are refused")
        problems += [
            f"source {source.name} is {source.state}"
            for source in self.source_set.sources.values()
            if source.state != "up"
        ]
        # Of ours; an endpoint of somebody else that fails keeps nobody from calling us.
        is_ready = not problems
        problems += [
            f"endpoint {source.name} is {source.state}"
            for source in self.outbound.sources
            if source.state in ("failed", "revoked")
        ]
        return {
            "status": "degraded" if problems else "ok",
            "ready": is_ready,
            "version": __version__,
            "problems": problems,
            "contracts": len(self.registry.catalog),
            "search": self.registry.vectors.status().mode,
            "uptime_seconds": int(time.monotonic() - self.started_at),
        }

    def status(self) -> dict[str, Json]:
        """Everything that an operator needs; nothing secret."""
        config, announced = self.config(), self.announcer.event
        settings = config.settings
        return {
            **self.health(),
            "pid": os.getpid(),
            "display_name": settings.identity.display_name,
            "key": self.identity.key.text,
            "encryption_key": self.identity.enc_key.text,
            "chain": list(config.chain.keys) if config.chain is not None else [],
            "config": str(settings.file) if settings.file is not None else None,
            "store": str(settings.store),
            "relay": self.relays.url,
            "relays": list(settings.relay.urls),
            "well_known": self.pages.own_address,
            "mcp": self.listener.url,
            # With the reason, which may name a file.
            "search": self.registry.vectors.status().as_json(),
            "sources": [self._source_status(name) for name in self.source_set.sources],
            "xprotocol_sources": self.outbound.health(),
            "announced": {
                "event": announced.event.id,
                "at": announced.event.timestamp,
                "count": self.announcer.count,
            }
            if announced is not None
            else None,
            "schemas_digest": self.registry.digest,
            "calls": {"in_progress": self.requests.in_progress, **self.metrics.calls},
            "events": dict(self.metrics.events),
            "subscriptions": len(self.subscriptions),
        }

    def register_gauges(self) -> None:
        """Register the gauges whose values are read at each scrape."""
        registry = self.metrics.registry
        adapter_metrics.CALLS_IN_PROGRESS.of(registry).read = lambda: self.requests.in_progress
        adapter_metrics.SUBSCRIPTIONS.of(registry).read = lambda: len(self.subscriptions)
        adapter_metrics.CONTRACTS.of(registry).read = lambda: len(self.registry.catalog)
        adapter_metrics.RELAY_CONNECTED.of(registry).read = lambda: self.relays.url is not None
        adapter_metrics.SOURCES.of(registry).read = lambda: len(self.source_set.sources)
        adapter_metrics.SOURCES_UP.of(registry).read = lambda: self.source_set.up_count
        adapter_metrics.SEEN_EVENTS.of(registry).read = lambda: len(self.store.seen_ids)
        adapter_metrics.AUDIT_WRITABLE.of(registry).read = lambda: self.audit.accepts_calls
        lost = adapter_metrics.AUDIT_LOST_REFUSALS.of(registry)
        lost.read = lambda: self.audit.lost_refusals

    def _source_status(self, name: str) -> dict[str, Json]:
        source = self.source_set.sources[name]
        publication = self.registry.publication(name)
        contracts = publication.contracts if publication is not None else ()
        origins = [each.source for each in contracts if each.source is not None]
        server_info = source.server_info
        return {
            "name": name,
            "transport": source.settings.transport,
            "namespace": source.settings.namespace,
            "state": source.state,
            "trouble": source.trouble or self.source_set.refresher.troubles.get(name, ""),
            "stderr": list(source.stderr_lines),
            "era": server_info.era if server_info is not None else None,
            "starts": source.starts,
            "tools": sum(origin.mcp_tool is not None for origin in origins),
            "prompts": sum(origin.mcp_prompt is not None for origin in origins),
            "kinds": [each.kind for each in contracts],
            "refused": [f"{each.name}: {each.message}" for each in publication.refused]
            if publication
            else [],
            "withheld": sorted(source.pins.changes) if source.pins is not None else [],
            "left_out": dict(source.left_out),
        }
