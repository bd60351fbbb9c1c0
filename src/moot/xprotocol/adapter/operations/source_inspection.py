"""Starts MCP servers once and lists their offers: for `schemas`, `test-mcp` and `validate`.

Nothing is announced and nothing is stored: versions are those that a start would publish now.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from moot import __version__
from moot.mcp.upstream import ServerInfo
from moot.xprotocol.adapter.config.adapter_settings import AdapterLimits
from moot.xprotocol.adapter.config.source_settings import McpSource
from moot.xprotocol.adapter.inbound.contract_registry import VERSIONS_FILE, read_versions
from moot.xprotocol.adapter.inbound.mcp_source import McpServerSource, SourceFault, secrets_of
from moot.xprotocol.events.faults import scrub
from moot.xprotocol.translation.publication import Publication, ServerOffer, kinds_of, publish

_EMPTY_OFFER: Final = ServerOffer()


@dataclass(frozen=True, slots=True)
class SourceInspection:
    """The result of inspecting one source."""

    source: McpSource
    seconds: float
    # Why it could not be inspected; None: it could.
    fault: str | None = None
    # The end of its stderr, when it did not come up. Written by the server: for a terminal, escape it.
    stderr_tail: tuple[str, ...] = ()
    server_info: ServerInfo | None = None
    offer: ServerOffer = _EMPTY_OFFER
    publication: Publication | None = None

    @property
    def tools(self) -> int:
        """How many tools the server lists, the denied ones left out."""
        return len(self.offer.tools)


async def inspect_sources(
    sources: Sequence[McpSource],
    *,
    limits: AdapterLimits,
    environ: Mapping[str, str],
    store: Path | None = None,
) -> list[SourceInspection]:
    """Start each source, list what it offers, end it; in the order given. Raises UsageError for bad settings.

    `store` has the earlier versions; nothing is written there.
    """
    versions = read_versions(None if store is None else store / VERSIONS_FILE)
    seen = await asyncio.gather(*(_inspect_source(source, limits, environ) for source in sources))
    found: list[SourceInspection] = []
    taken: frozenset[str] = frozenset()
    for each in seen:
        if each.fault is not None:
            found.append(each)
            continue
        publication = await asyncio.to_thread(
            publish,
            each.offer,
            each.source,
            adapter_version=__version__,
            registry=versions,
            taken=taken,
        )
        taken |= kinds_of(publication.contracts)
        found.append(
            SourceInspection(
                each.source,
                each.seconds,
                server_info=each.server_info,
                offer=each.offer,
                publication=publication,
            )
        )
    return found


async def _inspect_source(
    settings: McpSource, limits: AdapterLimits, environ: Mapping[str, str]
) -> SourceInspection:
    began = time.monotonic()
    source = McpServerSource(settings, limits, environ=environ)
    await source.open()
    try:
        await source.ready()
        offer = await source.offer()
        return SourceInspection(
            settings, time.monotonic() - began, server_info=source.server_info, offer=offer
        )
    except SourceFault as fault:
        secrets = secrets_of(settings)
        return SourceInspection(
            settings,
            time.monotonic() - began,
            fault=str(fault),
            stderr_tail=tuple(scrub(line, secrets) for line in fault.stderr_tail),
        )
    finally:
        await source.close()
