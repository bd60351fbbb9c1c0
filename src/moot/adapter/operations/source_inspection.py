"""The MCP servers of a configuration, started once and looked at: for `schemas`, `test-mcp` and `validate`.

Nothing is announced and nothing is kept: versions are those that a start would publish now.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from moot import __version__
from moot.adapter.config.adapter_settings import AdapterLimits
from moot.adapter.config.source_settings import McpSource
from moot.adapter.inbound.contract_registry import VERSIONS_FILE
from moot.adapter.inbound.mcp_source import McpServerSource, SourceFault, secrets_of
from moot.errors import UsageError
from moot.mcp.upstream import ServerInfo
from moot.xprotocol.faults import scrub
from moot.xprotocol.publication import Publication, ServerOffer, kinds_of, publish
from moot.xprotocol.versions import EMPTY, VersionRegistry, load_registry

_NOTHING: Final = ServerOffer()


@dataclass(frozen=True, slots=True)
class SourceInspection:
    """What one source showed of itself."""

    source: McpSource
    seconds: float
    # Why it could not be asked; None: it could.
    fault: str | None = None
    # The end of its stderr, when it did not come up. Written by the server: for a terminal, escape it.
    last_words: tuple[str, ...] = ()
    greeting: ServerInfo | None = None
    offer: ServerOffer = _NOTHING
    publication: Publication | None = None

    @property
    def tools(self) -> int:
        """How many tools the server lists, the denied ones left out."""
        return len(self.offer.tools)


async def inspect(
    sources: Sequence[McpSource],
    *,
    limits: AdapterLimits,
    environ: Mapping[str, str],
    store: Path | None = None,
) -> list[SourceInspection]:
    """Start each source, list what it offers, end it; in the order given. Raises UsageError for bad settings.

    `store` is where earlier versions stand; nothing is written there.
    """
    versions = _versions(store)
    seen = await asyncio.gather(*(_look(source, limits, environ) for source in sources))
    found: list[SourceInspection] = []
    taken: frozenset[str] = frozenset()
    for each in seen:
        if each.fault is not None:
            found.append(each)
            continue
        publication = await asyncio.to_thread(
            publish,
            each.offer,
            each.source.translation,
            adapter_version=__version__,
            registry=versions,
            taken=taken,
        )
        taken |= kinds_of(publication.contracts)
        found.append(
            SourceInspection(
                each.source,
                each.seconds,
                greeting=each.greeting,
                offer=each.offer,
                publication=publication,
            )
        )
    return found


async def _look(settings: McpSource, limits: AdapterLimits, environ: Mapping[str, str]) -> SourceInspection:
    began = time.monotonic()
    source = McpServerSource(settings, limits, environ=environ)
    await source.open()
    try:
        await source.ready()
        offer = await source.offer()
        return SourceInspection(settings, time.monotonic() - began, greeting=source.greeting, offer=offer)
    except SourceFault as fault:
        secrets = secrets_of(settings)
        return SourceInspection(
            settings,
            time.monotonic() - began,
            fault=str(fault),
            last_words=tuple(scrub(line, secrets) for line in fault.last_words),
        )
    finally:
        await source.close()


def _versions(store: Path | None) -> VersionRegistry:
    if store is None:
        return EMPTY
    file = store / VERSIONS_FILE
    try:
        return load_registry(file.read_bytes())
    except FileNotFoundError:
        return EMPTY
    except OSError as fault:
        raise UsageError(f"{file}: cannot be read: {fault.strerror}") from None
