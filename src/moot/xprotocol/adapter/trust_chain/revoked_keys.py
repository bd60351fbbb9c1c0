"""Revoked keys (D-59): those of the configuration, and those that events revoked, also before a restart.

Relays keep revocations for good, but a relay may withhold one. So those that could change what is allowed
here, by keys that are trusted, have access, or stand above the adapter, are kept in its own store as well.
"""

from __future__ import annotations

import logging

from moot.xprotocol.adapter.config.adapter_settings import AdapterSettings
from moot.xprotocol.event_store.event_query import EventQuery
from moot.xprotocol.event_store.event_store import EventStore
from moot.xprotocol.events.delegation import DelegationChain
from moot.xprotocol.events.events import REVOKE, SignedPublic, decode
from moot.xprotocol.events.key_statements import KeyRevocation, read_revocation
from moot.xprotocol.events.revocation import Revocations

log = logging.getLogger(__name__)


class RevokedKeys:
    """The revocations of one adapter; `revocations` is shared with `Access`."""

    def __init__(self, own_key: str, store: EventStore) -> None:
        self._store = store
        # Shared with the revocations, and only ever grows: revoking is for good.
        self._authorities: set[str] = {own_key}
        self.revocations = Revocations(heeded=self._authorities)

    def configure(self, settings: AdapterSettings, chain: DelegationChain | None) -> None:
        """Accept revocations by the keys that this configuration trusts, and revoke the keys it lists."""
        above = chain.keys if chain is not None else ()
        self._authorities |= {*above, *settings.anchors, *settings.access, *settings.revoked}
        for key in settings.revoked:
            self.revocations.add(KeyRevocation("configuration", key, key))

    async def load(self) -> None:
        """Load the revocations stored before a restart."""
        async for stored in self._store.find(EventQuery(kinds=(REVOKE,), public_only=True)):
            signed = decode(stored.raw)
            if isinstance(signed, SignedPublic):
                self.revocations.add(read_revocation(signed))

    def is_relevant(self, signed: SignedPublic) -> bool:
        """Whether its sender may revoke more here than its own key."""
        return signed.event.sender in self._authorities

    async def save(self, signed: SignedPublic) -> None:
        """Store it for good."""
        if await self._store.put(signed) == "stored":
            log.warning("key revoked", extra={"key": str(signed.event.payload.get("revoked_key"))})
