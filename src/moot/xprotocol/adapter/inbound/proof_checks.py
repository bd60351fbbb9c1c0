"""Bounds the cost of proofs (xp1: `proofs` inside the payload): their size, and one verification each.

Anybody may send proofs, and each has to be written canonically and its signature checked before it can be
rejected: half a microsecond a byte, on the loop. An event has room for 700 KiB of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Final, TypeVar

from moot.errors import AuthorizationInsufficient
from moot.protocol.operation import Json
from moot.protocol.strict_json import encode
from moot.xprotocol.events.access_rights import Access
from moot.xprotocol.events.delegation import DelegationChain
from moot.xprotocol.events.key_statements import KeyGrant

# A chain of eight and eight grants, with a few dozen capabilities each: some 16 ms at worst.
MAX_PROOF_BYTES: Final = 32 * 1024

_Read = TypeVar("_Read")


def check_proof_bytes(proofs: Sequence[Json]) -> None:
    """Raises AuthorizationInsufficient when they are too large, before any of them is parsed."""
    size = len(encode(list(proofs))) if proofs else 0
    if size > MAX_PROOF_BYTES:
        raise AuthorizationInsufficient(f"{size} bytes of proofs; {MAX_PROOF_BYTES} are the most")


@dataclass(frozen=True, kw_only=True)
class CachedAccess(Access):
    """`Access` that reads the proofs of one event only once, for checks of many capabilities.

    Never use it for two events: the cache belongs to the proofs of the first check.
    """

    _cache: dict[str, object] = field(default_factory=dict)

    @classmethod
    def of(cls, access: Access) -> CachedAccess:
        return cls(**{each.name: getattr(access, each.name) for each in fields(access)})

    def _grants(self, proofs: Sequence[Json]) -> list[KeyGrant]:
        return self._cached("grants", lambda: Access._grants(self, proofs))

    def _chain(self, leaf: str, proofs: Sequence[Json]) -> DelegationChain:
        return self._cached(leaf, lambda: Access._chain(self, leaf, proofs))

    def _cached(self, what: str, read: Callable[[], _Read]) -> _Read:
        if what not in self._cache:
            try:
                self._cache[what] = read()
            except AuthorizationInsufficient as refusal:
                self._cache[what] = refusal
        found = self._cache[what]
        if isinstance(found, AuthorizationInsufficient):
            raise found
        return found  # type: ignore[return-value]
