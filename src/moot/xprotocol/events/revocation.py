"""Keys that are void for good (`xp.key.revoke`).

Whoever holds a key may revoke it, and so may whoever stands above it. But standing above is claimed easily:
anybody can sign a delegation to anybody's key, and a malicious link in one chain could so void a key that
others rely on. So a revocation by somebody else is kept with its signer and counts only where that signer
does stand above: in the chains that run through it, and, if it has authority over this endpoint, everywhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from moot.errors import EndpointUnavailable
from moot.xprotocol.events.event_composer import publish
from moot.xprotocol.events.events import REVOKE, SignedPublic
from moot.xprotocol.events.key_statements import KeyRevocation
from moot.xprotocol.identity.keys import Identity, signing_point

# Strangers can revoke keys of their own by the million; 100,000 take some 20 MB.
MAX_REVOCATIONS: Final = 100_000


def revoke(identity: Identity, key: str, *, now: float) -> SignedPublic:
    """The event that voids a key: our own, or one below us. There is no way back. Raises InvalidKey."""
    signing_point(key)
    return publish(identity, REVOKE, {"revoked_key": key}, now=now)


class Revocations:
    """All revocations that were heard of, and the keys that the configuration revokes."""

    def __init__(
        self, revoked: Iterable[str] = (), *, heeded: Collection[str] = (), limit: int = MAX_REVOCATIONS
    ) -> None:
        """`heeded`: keys whose revocations are kept however many there are (anchors, who has access)."""
        self._void = set(revoked)
        self._signers: dict[str, set[str]] = {}
        self._heeded = heeded
        self._limit = limit
        self._strangers = 0

    def add(self, revocation: KeyRevocation) -> None:
        """Keep a revocation; raises EndpointUnavailable when strangers have filled the room for theirs."""
        signer, key = revocation.signer, revocation.revoked_key
        if key in self._void or signer in self._signers.get(key, ()):
            return
        if signer not in self._heeded:
            if self._strangers >= self._limit:
                raise EndpointUnavailable(f"{self._limit} revocations by strangers are kept, and no more")
            self._strangers += 1
        if signer == key:
            self._void.add(key)
        else:
            self._signers.setdefault(key, set()).add(signer)

    def mentions(self, key: str) -> bool:
        """Whether anybody at all has revoked a key; mostly nobody has, and nothing more need be asked."""
        return key in self._void or key in self._signers

    def signers(self, key: str) -> frozenset[str]:
        """Everybody who revoked a key, whether they may or not."""
        return frozenset(self._signers.get(key, ())) | ({key} if key in self._void else frozenset())

    def is_revoked(self, key: str, above: Collection[str] = ()) -> bool:
        """Whether a key is void where the keys in `above` stand above it."""
        if key in self._void:
            return True
        signers = self._signers.get(key)
        return signers is not None and not signers.isdisjoint(above)
