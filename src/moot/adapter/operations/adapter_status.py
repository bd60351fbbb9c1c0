"""How an adapter stands: for `status`, for `/health`, and for everybody in the announce (XP 6.3)."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final

from moot import __version__
from moot.adapter.inbound.well_known import SCHEMAS_PATH
from moot.adapter.operations import adapter_metrics
from moot.protocol.operation import Json
from moot.protocol.strict_json import encode
from moot.xprotocol.announcement import WrappedSource, announce_payload, discovery_document
from moot.xprotocol.publication import Publication
from moot.xprotocol.versions import EMPTY

if TYPE_CHECKING:
    from moot.adapter.adapter import Adapter

_NOTHING: Final = Publication((), (), (), (), EMPTY, ())
# Of an announce, which has 128 KiB in all: eight delegations with a few dozen capabilities each.
MAX_DELEGATION_BYTES: Final = 16 * 1024


def announced_payload(adapter: Adapter) -> dict[str, Json]:
    """XP 6.3: what is said to everybody. A source that never answered is named, with no tools."""
    settings = adapter.settings
    wrapped = [
        WrappedSource(
            name=source.name,
            transport=source.settings.transport,
            namespace=source.settings.namespace,
            publication=adapter.registry.publication(source.name) or _NOTHING,
            url=source.settings.url,
        )
        for source in adapter.sources.values()
    ]
    payload = announce_payload(
        display_name=settings.identity.display_name,
        adapter_version=adapter.registry.adapter_version,
        mcp_sources=wrapped,
        xprotocol_sources=adapter.outward.mirrored(),
        parent_key=settings.identity.parent_key,
    )
    proofs = [
        {**each.covered, "id": each.event.id, "signature": each.event.signature}
        for each in adapter.delegations
    ]
    if proofs and len(encode(proofs)) <= MAX_DELEGATION_BYTES:
        payload["delegations"] = list(proofs)
    return payload


def document_of(adapter: Adapter, base: str) -> dict[str, Json]:
    """XP 7.3: what `/.well-known/xprotocol-endpoint` serves to whoever reached us at `base`."""
    return discovery_document(
        endpoint=adapter.relays.url or adapter.settings.relay.urls[0],
        public_key=adapter.key,
        encryption_key=adapter.identity.enc_key.text,
        schema_url=base + SCHEMAS_PATH,
        mcp_sources=list(adapter.sources),
        xprotocol_sources=[each.name for each in adapter.settings.xprotocol_sources],
    )


def health_of(adapter: Adapter) -> dict[str, Json]:
    """`ok`, or `degraded` and why; names of sources, no addresses."""
    problems: list[Json] = []
    if adapter.own_key_revoked:
        problems.append("the adapter's own key has been revoked")
    if adapter.relays.url is None:
        problems.append("no relay can be reached")
    elif adapter.announcer.trouble:
        problems.append(f"not announced: {adapter.announcer.trouble}")
    if not adapter.audit.able:
        problems.append("the audit log cannot be written: calls are refused")
    problems += [
        f"source {source.name} is {source.state}"
        for source in adapter.sources.values()
        if source.state != "up"
    ]
    return {
        "status": "degraded" if problems else "ok",
        "version": __version__,
        "problems": problems,
        "contracts": len(adapter.registry.catalog),
        "search": adapter.registry.vectors.status().mode,
        "uptime_seconds": int(time.time() - adapter.started_at),
    }


def status_of(adapter: Adapter) -> dict[str, Json]:
    """Everything that an operator asks; nothing secret."""
    settings, announced = adapter.settings, adapter.announcer.event
    return {
        **health_of(adapter),
        "pid": os.getpid(),
        "display_name": settings.identity.display_name,
        "key": adapter.key,
        "encryption_key": adapter.identity.enc_key.text,
        "chain": list(adapter.chain.keys) if adapter.chain is not None else [],
        "config": str(settings.file) if settings.file is not None else None,
        "store": str(settings.store),
        "relay": adapter.relays.url,
        "relays": list(settings.relay.urls),
        "well_known": adapter.address,
        "mcp": adapter.listener.url,
        # Why it is that, too, which may name a file.
        "search": adapter.registry.vectors.status().as_json(),
        "sources": [_source(adapter, name) for name in adapter.sources],
        "xprotocol_sources": adapter.outward.health(),
        "announced": {
            "event": announced.event.id,
            "at": announced.event.timestamp,
            "count": adapter.announcer.count,
        }
        if announced is not None
        else None,
        "schemas_digest": adapter.registry.digest,
        "calls": {"in_progress": adapter.inbound.in_progress, **adapter.measures.calls},
        "events": dict(adapter.measures.events),
        "subscriptions": len(adapter.subscriptions),
    }


def measure(adapter: Adapter) -> None:
    """Gauges that are read when somebody asks."""
    registry = adapter.measures.registry
    adapter_metrics.CALLS_IN_PROGRESS.gauge(registry).read = lambda: adapter.inbound.in_progress
    adapter_metrics.SUBSCRIPTIONS.gauge(registry).read = lambda: len(adapter.subscriptions)
    adapter_metrics.CONTRACTS.gauge(registry).read = lambda: len(adapter.registry.catalog)
    adapter_metrics.RELAY_CONNECTED.gauge(registry).read = lambda: adapter.relays.url is not None
    adapter_metrics.SOURCES.gauge(registry).read = lambda: len(adapter.sources)
    adapter_metrics.SOURCES_UP.gauge(registry).read = lambda: adapter.wrapping.up
    adapter_metrics.SEEN_EVENTS.gauge(registry).read = lambda: len(adapter.store.seen_ids)
    adapter_metrics.AUDIT_WRITABLE.gauge(registry).read = lambda: adapter.audit.able


def _source(adapter: Adapter, name: str) -> dict[str, Json]:
    source = adapter.sources[name]
    publication = adapter.registry.publication(name)
    contracts = publication.contracts if publication is not None else ()
    greeting = source.greeting
    return {
        "name": name,
        "transport": source.settings.transport,
        "namespace": source.settings.namespace,
        "state": source.state,
        "trouble": source.trouble or adapter.wrapping.refresher.troubles.get(name, ""),
        "stderr": list(source.stderr_lines),
        "era": greeting.era if greeting is not None else None,
        "starts": source.starts,
        "tools": sum(each.source is not None and each.source.mcp_tool is not None for each in contracts),
        "prompts": sum(each.source is not None and each.source.mcp_prompt is not None for each in contracts),
        "kinds": [each.kind for each in contracts],
        "refused": [f"{each.name}: {each.message}" for each in publication.refused] if publication else [],
        "withheld": sorted(source.pins.changes) if source.pins is not None else [],
    }
