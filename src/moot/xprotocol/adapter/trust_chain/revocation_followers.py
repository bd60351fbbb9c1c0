"""Who obeys when a key is revoked: an adapter and its callers obey the keys that its announce names.

Anybody can sign that they stand above a key. So nobody obeys who only says so: an adapter knows its parent
from its own files, and its callers know it from the adapter's announce.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from moot.xprotocol.adapter.trust_chain.chain_evidence import ChainEvidence
from moot.xprotocol.adapter.trust_chain.chain_lookup import gather_evidence
from moot.xprotocol.events.events import PublicEvent

# An adapter announces a change within a second or two.
ANNOUNCE_SECONDS: Final = 15.0
_POLL_SECONDS: Final = 0.25
_LOOK_SECONDS: Final = 10.0


def keys_obeyed(announce: PublicEvent) -> set[str]:
    """Whose revocation the key of this announce obeys, and everybody who calls it."""
    proofs = announce.payload.get("delegations")
    senders = (
        [proof.get("sender") for proof in proofs if isinstance(proof, dict)]
        if isinstance(proofs, list)
        else []
    )
    named = (announce.payload.get("parent_key"), *senders)
    return {announce.sender, *(key for key in named if isinstance(key, str))}


async def who_is_obeyed(key: str, relay_urls: Sequence[str]) -> set[str] | None:
    """The keys that this one obeys, by its announce on a relay; None: it has announced nothing there.

    Raises Unreachable, TimedOut and RelayRefused.
    """
    evidence = ChainEvidence()
    await gather_evidence(evidence, key, relay_urls, within=_LOOK_SECONDS)
    announce = evidence.announces.get(key)
    return None if announce is None else keys_obeyed(announce)


async def wait_obeyed(key: str, parent: str, relay_urls: Sequence[str]) -> bool:
    """Wait until a key has announced that it obeys this parent; False when it has not within a time."""
    try:
        async with asyncio.timeout(ANNOUNCE_SECONDS):
            while parent not in (await who_is_obeyed(key, relay_urls) or ()):
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        return False
    return True
