"""Looks up somebody else's chain of trust: at a relay, and at the host that claims the key."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from moot.errors import InvalidJson, MootError, TimedOut
from moot.protocol.operation import Json
from moot.protocol.strict_json import parse
from moot.resilience.task_set import end_tasks
from moot.xprotocol.adapter.trust_chain.chain_evidence import MAX_EVENTS, ChainEvidence
from moot.xprotocol.endpoint.discovery import Disagreement, discover
from moot.xprotocol.endpoint.dns_records import Lookup
from moot.xprotocol.endpoint.document_fetch import FetchPolicy
from moot.xprotocol.endpoint.relay_client import RelayClient
from moot.xprotocol.events.delegation import MAX_LINKS
from moot.xprotocol.events.events import ANNOUNCE, DELEGATE, REVOKE
from moot.xprotocol.identity.keys import Identity

RELAY_SECONDS: Final = 20.0
# Of one answer of a relay: a thousand delegations are some 2 MiB.
MAX_BYTES: Final = 32 << 20
# A filter of a relay takes so many ids or keys.
_FILTER_VALUES: Final = 256
# Of a relay's delegations, looked through for a key that announces nothing: the newest.
_SCANNED: Final = 1_000


async def gather_evidence(
    evidence: ChainEvidence,
    key: str,
    relay_urls: Sequence[str],
    *,
    anchors: Sequence[str] = (),
    within: float = RELAY_SECONDS,
) -> str:
    """Add everything that a relay knows of a key's chain to the evidence; returns which relay that was.

    Raises Unreachable, TimedOut and RelayRefused. The connection uses a new key.
    """
    try:
        async with asyncio.timeout(within), RelayClient(relay_urls, Identity.generate()) as relays:
            # Half of it, so that an unreachable relay is reported as such.
            url = await relays.wait_connected(within / 2)
            await _query(relays, evidence, [{"kinds": [ANNOUNCE], "senders": [key]}])
            await _fetch_parents(relays, evidence)
            if not any(link.delegated_key == key for link in evidence.delegations.values()):
                wanted: list[dict[str, Json]] = [{"kinds": [DELEGATE], "limit": _SCANNED}]
                if anchors:
                    wanted.append({"kinds": [DELEGATE], "senders": list(anchors)[:_FILTER_VALUES]})
                await _query(relays, evidence, wanted)
                await _fetch_parents(relays, evidence)
            above = evidence.keys_above(key)[:_FILTER_VALUES]
            await _query(
                relays, evidence, [{"kinds": [REVOKE], "senders": [*above, *anchors][:_FILTER_VALUES]}]
            )
            return url
    except TimeoutError:
        raise TimedOut(f"no relay answered for {key} within {within:g} s") from None


async def _fetch_parents(relays: RelayClient, evidence: ChainEvidence) -> None:
    """Fetch the delegations above those that are known, link by link."""
    for _ in range(MAX_LINKS):
        missing = evidence.missing()[:_FILTER_VALUES]
        if not missing:
            return
        before = len(evidence.delegations)
        await _query(relays, evidence, [{"ids": missing}])
        if len(evidence.delegations) == before:
            return


async def _query(relays: RelayClient, evidence: ChainEvidence, filters: Sequence[Mapping[str, Json]]) -> None:
    for raw in await stored_events(relays, filters):
        try:
            evidence.add(parse(raw), relays.url or "a relay")
        except InvalidJson as fault:
            evidence.refused.append(f"a relay: {fault.message}")


async def stored_events(relays: RelayClient, filters: Sequence[Mapping[str, Json]]) -> list[bytes]:
    """The events that a relay has stored for these filters, up to its end-of-stored-events message."""
    found: list[bytes] = []
    room = MAX_BYTES
    async with relays.subscribe(filters) as subscription:

        async def take() -> None:
            async for raw in subscription:
                nonlocal room
                found.append(raw)
                room -= len(raw)
                if len(found) >= MAX_EVENTS or room < 0:
                    return

        # Both at once: a relay does not reach the end while nobody reads what it sends.
        taking = asyncio.ensure_future(take())
        try:
            ended = asyncio.ensure_future(subscription.wait_stored())
            try:
                await asyncio.wait({taking, ended}, return_when=asyncio.FIRST_COMPLETED)
                if ended.done():
                    await ended
                    # Events before the end are queued by now; one round of the loop reads them.
                    await asyncio.sleep(0)
            finally:
                ended.cancel()
        finally:
            await end_tasks([taking])
    return found


@dataclass(frozen=True, slots=True)
class EvidenceChannel:
    """One independent channel that confirms a host's key (XP 8.1), and its result."""

    name: str
    # None: it could not be reached.
    agrees: bool | None
    message: str


async def check_channels(
    endpoint: str, key: str | None, reach: FetchPolicy, lookup: Lookup
) -> tuple[str | None, list[EvidenceChannel], list[str]]:
    """Check a key against the well-known address and DNS of a host: the key, each result, its relays.

    None as key asks for the host's own, whatever it is.
    """
    try:
        found = await discover(endpoint, reach, lookup)
    except Disagreement as fault:
        return key, [EvidenceChannel("well-known", False, str(fault))], []
    except MootError as fault:
        if key is None:
            raise
        return key, [EvidenceChannel("well-known", None, str(fault))], []
    wanted = found.key if key is None else key
    agrees = found.key == wanted
    message = f"names {'this' if agrees else 'another'} key: {found.key}"
    found_channels = [EvidenceChannel("well-known", agrees, f"{found.name} {message}")]
    record = f"_xprotocol.{found.name.host}"
    if found.has_record:
        found_channels.append(EvidenceChannel("dns", agrees, f"{record} {message}"))
    else:
        found_channels.append(EvidenceChannel("dns", None, f"{record} has no record"))
    return wanted, found_channels, list(found.relays)
