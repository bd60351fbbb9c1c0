"""Rights given at run time, and the chains that hold them up (MEW 3.6.1, 3.6.8, D-16 to D-18).

Every granted right must be supported: a static right of somebody covers it, directly or through grants
that are supported themselves. Support is computed from the static rights upwards, so two members
can never keep each other's grants alive. When a support falls, everything that rested on it falls.

A grant may end by itself, at a time or after a number of uses (`grant_limits`). Such a grant supports
nothing: whoever may call once must not let others call as often as they like.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from moot.protocol.operation import Json
from moot.protocol.patterns import Capability, covered_by
from moot.space.config import Name
from moot.space.members.member import load_capabilities, save_capability


class GrantRecord(msgspec.Struct, frozen=True):
    """Capabilities that one member gave another; `id` is the grant envelope's (or the invite's) id."""

    id: str
    granter: Name
    recipient: Name
    capabilities: tuple[Capability, ...]
    at: float
    reason: str | None = None
    # By the space's clock: when it ends; None: when it is revoked.
    expires: float | None = None
    # How many messages it still allows; None: any number.
    uses_left: int | None = None

    @property
    def is_limited(self) -> bool:
        """Whether it ends by itself."""
        return self.expires is not None or self.uses_left is not None

    def is_over(self, now: float) -> bool:
        return self.expires is not None and self.expires <= now


Held = Callable[[Name], Sequence[Capability]]


class GrantTable:
    """All living grants, oldest first."""

    def __init__(self) -> None:
        self.by_id: dict[str, GrantRecord] = {}
        # When the first of them ends; infinity: none ends at a time.
        self.earliest_end = math.inf
        # Who holds some with a number of uses.
        self.counted: frozenset[Name] = frozenset()

    def to(self, recipient: Name) -> list[GrantRecord]:
        return [grant for grant in self.by_id.values() if grant.recipient == recipient]

    def held(self, recipient: Name) -> list[Capability]:
        return [capability for grant in self.to(recipient) for capability in grant.capabilities]

    def lasting(self, recipient: Name) -> list[Capability]:
        """What is held until it is revoked."""
        return [c for grant in self.to(recipient) if not grant.is_limited for c in grant.capabilities]

    def add(self, grant: GrantRecord) -> None:
        """Add a grant, or put it in place of the one with its id."""
        self.by_id[grant.id] = grant
        self._note_limits()

    def remove(self, id: str) -> None:
        del self.by_id[id]
        self._note_limits()

    def _note_limits(self) -> None:
        grants = self.by_id.values()
        self.earliest_end = min((g.expires for g in grants if g.expires is not None), default=math.inf)
        self.counted = frozenset(grant.recipient for grant in grants if grant.uses_left is not None)

    def keep(self, id: str, capabilities: Iterable[Capability]) -> None:
        """Leave a grant only these of its capabilities; none left: it is gone."""
        left = tuple(capabilities)
        if left:
            self.by_id[id] = msgspec.structs.replace(self.by_id[id], capabilities=left)
        else:
            self.remove(id)

    def ancestors(self, grant: GrantRecord, right: Capability) -> set[Name]:
        """The granter, and everyone on whose grants this right of the granter rests."""
        found: set[Name] = set()
        waiting = [grant.granter]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += [
                    support.granter
                    for support in self.to(name)
                    if not support.is_limited and covered_by(right, support.capabilities)
                ]
        return found

    def drop_unsupported(self, static: Held) -> list[GrantRecord]:
        """Remove every granted capability without a chain to a static right; returns what fell, as grants.

        Support spreads from the static rights: whoever gains some may support what they granted. Each right
        is held against each of its granter's rights once.
        """
        pending: dict[Name, list[tuple[str, Capability]]] = {}
        for grant in self.by_id.values():
            waiting = pending.setdefault(grant.granter, [])
            waiting += [(grant.id, capability) for capability in grant.capabilities]
        supported: dict[str, list[Capability]] = {id: [] for id in self.by_id}
        gained = deque((name, list(static(name))) for name in pending)
        while gained:
            name, rights = gained.popleft()
            equal, still_waiting = set(rights), []
            passed_on: dict[Name, list[Capability]] = {}
            for id, capability in pending.get(name, ()):
                if capability in equal or covered_by(capability, rights):
                    supported[id].append(capability)
                    if not self.by_id[id].is_limited:
                        passed_on.setdefault(self.by_id[id].recipient, []).append(capability)
                else:
                    still_waiting.append((id, capability))
            pending[name] = still_waiting
            gained += passed_on.items()
        fallen: dict[str, list[Capability]] = {}
        for lost in pending.values():
            for id, capability in lost:
                fallen.setdefault(id, []).append(capability)
        dropped = [
            msgspec.structs.replace(grant, capabilities=tuple(fallen[grant.id]))
            for grant in self.by_id.values()
            if grant.id in fallen
        ]
        for grant in dropped:
            self.keep(grant.id, [c for c in self.by_id[grant.id].capabilities if c in supported[grant.id]])
        return dropped

    def save(self) -> list[Json]:
        return [
            {
                "id": grant.id,
                "granter": grant.granter,
                "recipient": grant.recipient,
                "capabilities": [save_capability(capability) for capability in grant.capabilities],
                "at": grant.at,
                "reason": grant.reason,
                # Only where it has them: an older version does not open what it would not keep.
                **({} if grant.expires is None else {"expires": grant.expires}),
                **({} if grant.uses_left is None else {"uses_left": grant.uses_left}),
            }
            for grant in self.by_id.values()
        ]

    @classmethod
    def load(cls, saved: list[dict[str, Any]]) -> GrantTable:
        grants = cls()
        for row in saved:
            grants.add(GrantRecord(**(row | {"capabilities": load_capabilities(row["capabilities"])})))
        return grants
