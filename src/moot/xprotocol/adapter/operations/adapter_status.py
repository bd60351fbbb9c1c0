"""The state of a running adapter: for `status`, for `/health`, for gauges, and for the announce (XP 6.3)."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final

from moot import __version__
from moot.protocol.operation import Json
from moot.protocol.strict_json import encode
from moot.xprotocol.adapter.discovery.well_known import SCHEMAS_PATH
from moot.xprotocol.adapter.inbound.mcp_source import MAX_LISTED
from moot.xprotocol.adapter.telemetry import adapter_metrics
from moot.xprotocol.contracts.versions import EMPTY
from moot.xprotocol.translation.announcement import WrappedSource, announce_payload, discovery_document
from moot.xprotocol.translation.publication import Publication

if TYPE_CHECKING:
    from moot.xprotocol.adapter.adapter import Adapter

_NO_PUBLICATION: Final = Publication((), (), (), (), EMPTY, ())
# Of an announce, which has 128 KiB in all: eight delegations with a few dozen capabilities each.
MAX_DELEGATION_BYTES: Final = 16 * 1024


class AdapterStatus:
    """Reads the state of an adapter from its parts, which it has by the time that anybody asks."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter

    def announce_payload(self) -> dict[str, Json]:
        """XP 6.3: the public description. A source that never answered is named, with no tools."""
        config = self._adapter.config
        wrapped = [
            WrappedSource(
                name=source.name,
                transport=source.settings.transport,
                namespace=source.settings.namespace,
                publication=self._adapter.registry.publication(source.name) or _NO_PUBLICATION,
                url=source.settings.url,
            )
            for source in self._adapter.source_set.sources.values()
        ]
        payload = announce_payload(
            display_name=config.settings.identity.display_name,
            adapter_version=self._adapter.registry.adapter_version,
            mcp_sources=wrapped,
            xprotocol_sources=self._adapter.outbound.mirrored(),
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
        settings = self._adapter.config.settings
        return discovery_document(
            endpoint=self._adapter.relays.url or settings.relay.urls[0],
            public_key=self._adapter.identity.key.text,
            encryption_key=self._adapter.identity.enc_key.text,
            schema_url=base + SCHEMAS_PATH,
            mcp_sources=list(self._adapter.source_set.sources),
            xprotocol_sources=[each.name for each in settings.xprotocol_sources],
        )

    def health(self) -> dict[str, Json]:
        """`ok`, or `degraded` and why; names of sources, no addresses."""
        problems: list[Json] = []
        if self._adapter.is_own_key_revoked:
            problems.append("the adapter's own key has been revoked")
        if self._adapter.relays.url is None:
            problems.append("no relay can be reached")
        elif self._adapter.announcer.trouble:
            problems.append(f"not announced: {self._adapter.announcer.trouble}")
        problems += [
            f"{source.name}: {count} entries of {method} are left out: a list has at most {MAX_LISTED}"
            for source in self._adapter.source_set.sources.values()
            for method, count in source.left_out.items()
        ]
        if not self._adapter.audit.accepts_calls:
            problems.append("the audit log cannot be written: calls are refused")
        problems += [
            f"source {source.name} is {source.state}"
            for source in self._adapter.source_set.sources.values()
            if source.state != "up"
        ]
        # Of ours; an endpoint of somebody else that fails keeps nobody from calling us.
        is_ready = not problems
        problems += [
            f"endpoint {source.name} is {source.state}"
            for source in self._adapter.outbound.sources
            if source.state in ("failed", "revoked")
        ]
        return {
            "status": "degraded" if problems else "ok",
            "ready": is_ready,
            "version": __version__,
            "problems": problems,
            "contracts": len(self._adapter.registry.catalog),
            "uptime_seconds": int(time.monotonic() - self._adapter.started_at),
        }

    def status(self) -> dict[str, Json]:
        """Everything that an operator needs; nothing secret."""
        config, announced = self._adapter.config, self._adapter.announcer.event
        settings = config.settings
        return {
            **self.health(),
            "pid": os.getpid(),
            "display_name": settings.identity.display_name,
            "key": self._adapter.identity.key.text,
            "encryption_key": self._adapter.identity.enc_key.text,
            "chain": list(config.chain.keys) if config.chain is not None else [],
            "config": str(settings.file) if settings.file is not None else None,
            "store": str(settings.store),
            "relay": self._adapter.relays.url,
            "relays": list(settings.relay.urls),
            "well_known": self._adapter.pages.own_address,
            "mcp": self._adapter.listener.url,
            "sources": [self._source_status(name) for name in self._adapter.source_set.sources],
            "xprotocol_sources": self._adapter.outbound.health(),
            "announced": {
                "event": announced.event.id,
                "at": announced.event.timestamp,
                "count": self._adapter.announcer.count,
            }
            if announced is not None
            else None,
            "schemas_digest": self._adapter.registry.digest,
            "calls": {"in_progress": self._adapter.requests.in_progress, **self._adapter.metrics.calls},
            "events": dict(self._adapter.metrics.events),
            "subscriptions": len(self._adapter.subscriptions),
        }

    def register_gauges(self) -> None:
        """Register the gauges whose values are read at each scrape."""
        registry = self._adapter.metrics.registry
        adapter_metrics.CALLS_IN_PROGRESS.of(registry).read = lambda: self._adapter.requests.in_progress
        adapter_metrics.SUBSCRIPTIONS.of(registry).read = lambda: len(self._adapter.subscriptions)
        adapter_metrics.CONTRACTS.of(registry).read = lambda: len(self._adapter.registry.catalog)
        adapter_metrics.RELAY_CONNECTED.of(registry).read = lambda: self._adapter.relays.url is not None
        adapter_metrics.SOURCES.of(registry).read = lambda: len(self._adapter.source_set.sources)
        adapter_metrics.SOURCES_UP.of(registry).read = lambda: self._adapter.source_set.up_count
        adapter_metrics.SEEN_EVENTS.of(registry).read = lambda: len(self._adapter.store.seen_ids)
        adapter_metrics.AUDIT_WRITABLE.of(registry).read = lambda: self._adapter.audit.accepts_calls
        lost = adapter_metrics.AUDIT_LOST_REFUSALS.of(registry)
        lost.read = lambda: self._adapter.audit.lost_refusals

    def _source_status(self, name: str) -> dict[str, Json]:
        source = self._adapter.source_set.sources[name]
        publication = self._adapter.registry.publication(name)
        contracts = publication.contracts if publication is not None else ()
        origins = [each.source for each in contracts if each.source is not None]
        server_info = source.server_info
        return {
            "name": name,
            "transport": source.settings.transport,
            "namespace": source.settings.namespace,
            "state": source.state,
            "trouble": source.trouble or self._adapter.source_set.refresher.troubles.get(name, ""),
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
