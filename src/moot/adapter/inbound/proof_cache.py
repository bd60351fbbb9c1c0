"""What proofs may cost (xp1: `proofs` inside the payload): bounded bytes, each read and verified once.

Anybody may send proofs, and each has to be written canonically and its signature checked before it can be
told from rubbish: half a microsecond a byte, on the loop. An event has room for 700 KiB of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Final, TypeVar

from moot.errors import AuthorizationInsufficient
from moot.protocol.operation import Json
from moot.protocol.strict_json import encode
from moot.xprotocol.access_rights import Access
from moot.xprotocol.delegation import DelegationChain
from moot.xprotocol.key_statements import KeyGrant

# A chain of eight and eight grants, with a few dozen capabilities each: some 16 ms at worst.
MAX_PROOF_BYTES: Final = 32 * 1024

_Read = TypeVar("_Read")


def check_proof_bytes(proofs: Sequence[Json]) -> None:
    """Raises AuthorizationInsufficient before anything in them is looked at."""
    size = len(encode(list(proofs))) if proofs else 0
    if size > MAX_PROOF_BYTES:
        raise AuthorizationInsufficient(f"{size} bytes of proofs; {MAX_PROOF_BYTES} are the most")


@dataclass(frozen=True, kw_only=True)
class CachedAccess(Access):
    """`Access` for the many capabilities of one event: its proofs are read the first time only.

    Never for two events: what it remembers belongs to the proofs that it was asked with first.
    """

    _read: dict[str, object] = field(default_factory=dict)

    @classmethod
    def of(cls, access: Access) -> CachedAccess:
        return cls(**{each.name: getattr(access, each.name) for each in fields(access)})

    def _grants(self, proofs: Sequence[Json]) -> list[KeyGrant]:
        return self._once("grants", lambda: Access._grants(self, proofs))

    def _chain(self, leaf: str, proofs: Sequence[Json]) -> DelegationChain:
        return self._once(leaf, lambda: Access._chain(self, leaf, proofs))

    def _once(self, what: str, read: Callable[[], _Read]) -> _Read:
        if what not in self._read:
            try:
                self._read[what] = read()
            except AuthorizationInsufficient as refusal:
                self._read[what] = refusal
        found = self._read[what]
        if isinstance(found, AuthorizationInsufficient):
            raise found
        return found  # type: ignore[return-value]
