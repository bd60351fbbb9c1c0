"""Where somebody else's chain of trust is found: at a relay, and at the host that is said to be the key's."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from moot.adapter.trust_chain.chain_walk import MAX_EVENTS, ChainEvidence
from moot.endpoint.discovery import Disagreement, discover
from moot.endpoint.dns_records import Lookup
from moot.endpoint.document_fetch import FetchPolicy
from moot.endpoint.relay_client import RelayClient
from moot.errors import InvalidJson, MootError, TimedOut
from moot.identity.keys import Identity
from moot.protocol.operation import Json
from moot.protocol.strict_json import parse
from moot.xprotocol.delegation import MAX_LINKS
from moot.xprotocol.events import ANNOUNCE, DELEGATE, REVOKE

RELAY_SECONDS: Final = 20.0
# Of one answer of a relay: a thousand delegations are some 2 MiB.
MAX_BYTES: Final = 32 << 20
# A filter of a relay takes so many ids or keys.
_FILTER_VALUES: Final = 256
# Of a relay's delegations, looked through for a key that announces nothing: the newest.
_SCANNED: Final = 1_000


async def gather(
    evidence: ChainEvidence,
    key: str,
    relay_urls: Sequence[str],
    *,
    anchors: Sequence[str] = (),
    within: float = RELAY_SECONDS,
) -> str:
    """Take in everything that a relay knows of a key's chain; which relay that was.

    Raises Unreachable, TimedOut and RelayRefused. The asker has a key of its own for the occasion.
    """
    try:
        async with asyncio.timeout(within), RelayClient(relay_urls, Identity.generate()) as relays:
            # Half of it, so that a relay that is not there is told as such.
            url = await relays.connected(within / 2)
            await _ask(relays, evidence, [{"kinds": [ANNOUNCE], "senders": [key]}])
            await _climb(relays, evidence)
            if not any(link.delegated_key == key for link in evidence.delegations.values()):
                wanted: list[dict[str, Json]] = [{"kinds": [DELEGATE], "limit": _SCANNED}]
                if anchors:
                    wanted.append({"kinds": [DELEGATE], "senders": list(anchors)[:_FILTER_VALUES]})
                await _ask(relays, evidence, wanted)
                await _climb(relays, evidence)
            above = evidence.keys_above(key)[:_FILTER_VALUES]
            await _ask(
                relays, evidence, [{"kinds": [REVOKE], "senders": [*above, *anchors][:_FILTER_VALUES]}]
            )
            return url
    except TimeoutError:
        raise TimedOut(f"no relay said what it has of {key} within {within:g} s") from None


async def _climb(relays: RelayClient, evidence: ChainEvidence) -> None:
    """Fetch the delegations above those that are known, link by link."""
    for _ in range(MAX_LINKS):
        missing = evidence.missing()[:_FILTER_VALUES]
        if not missing:
            return
        before = len(evidence.delegations)
        await _ask(relays, evidence, [{"ids": missing}])
        if len(evidence.delegations) == before:
            return


async def _ask(relays: RelayClient, evidence: ChainEvidence, filters: Sequence[Mapping[str, Json]]) -> None:
    for raw in await stored_events(relays, filters):
        try:
            evidence.add(parse(raw), relays.url or "a relay")
        except InvalidJson as fault:
            evidence.refused.append(f"a relay: {fault.message}")


async def stored_events(relays: RelayClient, filters: Sequence[Mapping[str, Json]]) -> list[bytes]:
    """What a relay has stored of something, as far as it says so before it says that this was all."""
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

        # Both at once: a relay does not come to the end while nobody takes what it sends.
        taking = asyncio.ensure_future(take())
        try:
            ended = asyncio.ensure_future(subscription.stored())
            try:
                await asyncio.wait({taking, ended}, return_when=asyncio.FIRST_COMPLETED)
                if ended.done():
                    await ended
                    # What was heard before the end is queued by now; one round of the loop takes it.
                    await asyncio.sleep(0)
            finally:
                ended.cancel()
        finally:
            taking.cancel()
            await asyncio.wait({taking})
    return found


@dataclass(frozen=True, slots=True)
class EvidenceChannel:
    """One place that says whose key somebody has (XP 8.1), and what it said."""

    name: str
    # None: it could not be asked.
    agrees: bool | None
    words: str


async def channels(
    endpoint: str, key: str | None, reach: FetchPolicy, lookup: Lookup
) -> tuple[str | None, list[EvidenceChannel], list[str]]:
    """What the well-known address and DNS of a host say about a key: the key, what each said, its relays.

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
    words = f"names {'this' if agrees else 'another'} key: {found.key}"
    told = [EvidenceChannel("well-known", agrees, f"{found.name} {words}")]
    record = f"_xprotocol.{found.name.host}"
    if found.has_record:
        told.append(EvidenceChannel("dns", agrees, f"{record} {words}"))
    else:
        told.append(EvidenceChannel("dns", None, f"{record} has no record"))
    return wanted, told, list(found.relays)
