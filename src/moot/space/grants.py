"""Rights given at run time, and the chains that hold them up (MEW 3.6.1, 3.6.8, D-16 to D-18).

Every granted right must be supported: a static right of somebody covers it, directly or through grants
that are supported themselves. Support is computed from the static rights upwards, so two members
can never keep each other's grants alive. When a support falls, everything that rested on it falls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from moot.protocol.operation import Json
from moot.protocol.patterns import Capability, covered_by
from moot.space.config import Name
from moot.space.roster import load_capabilities, save_capability


class Grant(msgspec.Struct, frozen=True):
    """Capabilities that one member gave another; `id` is the grant envelope's (or the invite's) id."""

    id: str
    granter: Name
    recipient: Name
    capabilities: tuple[Capability, ...]
    at: float
    reason: str | None = None


Held = Callable[[Name], Sequence[Capability]]


class Grants:
    """All living grants, oldest first."""

    def __init__(self) -> None:
        self.by_id: dict[str, Grant] = {}

    def to(self, recipient: Name) -> list[Grant]:
        return [grant for grant in self.by_id.values() if grant.recipient == recipient]

    def held(self, recipient: Name) -> list[Capability]:
        return [capability for grant in self.to(recipient) for capability in grant.capabilities]

    def add(self, grant: Grant) -> None:
        self.by_id[grant.id] = grant

    def remove(self, id: str) -> None:
        del self.by_id[id]

    def keep(self, id: str, capabilities: Iterable[Capability]) -> None:
        """Leave a grant only these of its capabilities; none left: it is gone."""
        left = tuple(capabilities)
        if left:
            self.by_id[id] = msgspec.structs.replace(self.by_id[id], capabilities=left)
        else:
            del self.by_id[id]

    def ancestors(self, grant: Grant, right: Capability) -> set[Name]:
        """The granter, and everyone on whose grants this right of the granter rests."""
        found: set[Name] = set()
        waiting = [grant.granter]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += [
                    support.granter for support in self.to(name) if covered_by(right, support.capabilities)
                ]
        return found

    def drop_unsupported(self, static: Held) -> list[Grant]:
        """Remove every granted capability without a chain to a static right; returns what fell, as grants."""
        supported: dict[str, list[Capability]] = {id: [] for id in self.by_id}
        pending = {id: list(grant.capabilities) for id, grant in self.by_id.items()}
        known: dict[Name, list[Capability]] = {}
        progress = True
        while progress:
            progress = False
            for id, capabilities in pending.items():
                grant = self.by_id[id]
                holds = known.setdefault(grant.granter, list(static(grant.granter)))
                for capability in [c for c in capabilities if covered_by(c, holds)]:
                    capabilities.remove(capability)
                    supported[id].append(capability)
                    known.setdefault(grant.recipient, list(static(grant.recipient))).append(capability)
                    progress = True
        fallen = [
            msgspec.structs.replace(self.by_id[id], capabilities=tuple(lost))
            for id, lost in pending.items()
            if lost
        ]
        for grant in fallen:
            self.keep(grant.id, [c for c in self.by_id[grant.id].capabilities if c in supported[grant.id]])
        return fallen

    def save(self) -> list[Json]:
        return [
            {
                "id": grant.id,
                "granter": grant.granter,
                "recipient": grant.recipient,
                "capabilities": [save_capability(capability) for capability in grant.capabilities],
                "at": grant.at,
                "reason": grant.reason,
            }
            for grant in self.by_id.values()
        ]

    @classmethod
    def load(cls, saved: list[dict[str, Any]]) -> Grants:
        grants = cls()
        for row in saved:
            grants.add(Grant(**(row | {"capabilities": load_capabilities(row["capabilities"])})))
        return grants
