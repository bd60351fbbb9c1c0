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
from moot.adapter.registry import VERSIONS_FILE
from moot.adapter.settings import AdapterLimits
from moot.adapter.source_settings import McpSource
from moot.adapter.sources import Source, SourceFault, secrets_of
from moot.errors import UsageError
from moot.mcp.upstream import Greeting
from moot.xprotocol.faults import scrub
from moot.xprotocol.publishing import Offer, Publication, kinds_of, publish
from moot.xprotocol.versions import EMPTY, VersionRegistry, load_registry

_NOTHING: Final = Offer()


@dataclass(frozen=True, slots=True)
class Inspection:
    """What one source showed of itself."""

    source: McpSource
    seconds: float
    # Why it could not be asked; None: it could.
    fault: str | None = None
    # The end of its stderr, when it did not come up. Written by the server: for a terminal, escape it.
    last_words: tuple[str, ...] = ()
    greeting: Greeting | None = None
    offer: Offer = _NOTHING
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
) -> list[Inspection]:
    """Start each source, list what it offers, end it; in the order given. Raises UsageError for bad settings.

    `store` is where earlier versions stand; nothing is written there.
    """
    versions = _versions(store)
    seen = await asyncio.gather(*(_look(source, limits, environ) for source in sources))
    found: list[Inspection] = []
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
            Inspection(
                each.source,
                each.seconds,
                greeting=each.greeting,
                offer=each.offer,
                publication=publication,
            )
        )
    return found


async def _look(settings: McpSource, limits: AdapterLimits, environ: Mapping[str, str]) -> Inspection:
    began = time.monotonic()
    source = Source(settings, limits, environ=environ)
    await source.open()
    try:
        await source.ready()
        offer = await source.offer()
        return Inspection(settings, time.monotonic() - began, greeting=source.greeting, offer=offer)
    except SourceFault as fault:
        secrets = secrets_of(settings)
        return Inspection(
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
