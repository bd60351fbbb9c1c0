"""What an adapter says about itself before anybody trusts it (XP 6.3, 7.3, 4.6): announce and discovery.

Both are public, so nothing here may hold a credential: addresses are shown without user, query and fragment.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import msgspec

from moot.protocol import strict_json
from moot.protocol.operation import Json
from moot.xprotocol.contracts.contracts import Contract, digest
from moot.xprotocol.translation.publication import Publication

DISCOVERY_VERSION: Final = "xp1"
# An announce is a public event of at most 128 KiB, and these are the two lists that strangers can make long.
MAX_LIST_BYTES: Final = 48 * 1024


@dataclass(frozen=True, slots=True)
class WrappedSource:
    """One MCP server behind the adapter, and what is published of it."""

    name: str
    transport: str
    namespace: str
    publication: Publication
    # Of remote servers only.
    url: str | None = None

    @property
    def tool_count(self) -> int:
        """Tools that can be called; prompts and resources are not tools."""
        return sum(
            contract.source is not None and contract.source.mcp_tool is not None
            for contract in self.publication.contracts
        )


@dataclass(frozen=True, slots=True)
class MirroredSource:
    """One XProtocol endpoint that the adapter shows to MCP clients."""

    name: str
    endpoint: str
    tool_count: int


def announce_payload(
    *,
    display_name: str,
    adapter_version: str,
    mcp_sources: Sequence[WrappedSource] = (),
    xprotocol_sources: Sequence[MirroredSource] = (),
    parent_key: str | None = None,
) -> dict[str, Json]:
    """XP 6.3: the payload of `xp.endpoint.announce`.

    `warnings` are names that contradict what the tool says of itself (D-64). `schemas_digest` differs when
    a contract does, so that a client knows when to fetch the catalog again (D-71). The two lists that
    servers can make long are cut at a fixed size, the worst kept, and `…_omitted` says by how much.
    """
    publications = [source.publication for source in mcp_sources]
    payload: dict[str, Json] = {
        "display_name": display_name,
        "adapter_version": adapter_version,
        "mcp_sources": [_wrapped(source) for source in mcp_sources],
        "xprotocol_sources": [
            {"name": source.name, "endpoint": source.endpoint, "tool_count": source.tool_count}
            for source in xprotocol_sources
        ],
        **_listed("low_quality_schemas", _low_quality(publications)),
        **_listed("warnings", _contradictions(publications)),
        "schemas_digest": schemas_digest(c for publication in publications for c in publication.contracts),
        # Calls may say in which trace they are made; whoever does not say so might refuse the member.
        "trace_context": True,
    }
    return payload if parent_key is None else payload | {"parent_key": parent_key}


def discovery_document(
    *,
    endpoint: str,
    public_key: str,
    encryption_key: str,
    schema_url: str,
    mcp_sources: Iterable[str] = (),
    xprotocol_sources: Iterable[str] = (),
) -> dict[str, Json]:
    """XP 7.3: what `/.well-known/xprotocol-endpoint` serves. `encryption_key` is our profile's addition."""
    return {
        "version": DISCOVERY_VERSION,
        "endpoint": endpoint,
        "public_key": public_key,
        "encryption_key": encryption_key,
        "schema_url": schema_url,
        "adapter": True,
        "mcp_sources": list(mcp_sources),
        "xprotocol_sources": list(xprotocol_sources),
    }


def schemas_digest(contracts: Iterable[Contract]) -> str:
    """SHA-256 over all kinds and versions."""
    return digest(sorted([contract.kind, contract.version] for contract in contracts))


def public_address(url: str) -> str:
    """An address without what may be a credential in it."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def _wrapped(source: WrappedSource) -> dict[str, Json]:
    shown: dict[str, Json] = {"name": source.name, "transport": source.transport}
    if source.url is not None:
        shown["url"] = public_address(source.url)
    return shown | {"namespace": source.namespace, "tool_count": source.tool_count}


def _low_quality(publications: Iterable[Publication]) -> list[Json]:
    flagged = sorted(
        (low for publication in publications for low in publication.low_quality),
        key=lambda low: (low.description_quality_score, low.kind),
    )
    return [msgspec.to_builtins(low) for low in flagged]


def _contradictions(publications: Iterable[Publication]) -> list[Json]:
    notices = [notice for publication in publications for notice in publication.warnings]
    return [{"kind": n.about, "warning": n.message} for n in notices if n.code == "contradiction"]


def _listed(name: str, entries: list[Json]) -> dict[str, Json]:
    room = MAX_LIST_BYTES
    for count, entry in enumerate(entries):
        room -= len(strict_json.encode(entry)) + 1
        if room < 0:
            return {name: entries[:count], f"{name}_omitted": len(entries) - count}
    return {name: entries}
