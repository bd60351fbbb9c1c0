"""Broken builds for the rounds of `cluster_soak`: a check that does not see these proves nothing.

Each is planted into gateways by MOOT_TEST_PLANTED, and the check has to say what it is.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import NamedTuple

from moot.gateway.cluster.nats.shared_log import SharedLog
from moot.gateway.hosting.durability import CarriedOut
from moot.gateway.hosting.space_host import SpaceHost
from moot.protocol.envelope import DialectName
from moot.space.effects import Reply
from moot.space.members.member import Options
from moot.space.proposals.proposal_ledger import ProposalLedger

VARIABLE = "MOOT_TEST_PLANTED"
# Often enough for a few rounds.
_EACH = 10


class PlantedFault(NamedTuple):
    plant: Callable[[], None]
    # What the check says of it.
    seen_as: str


def _lose() -> None:
    """A post is acknowledged and not written."""
    post, posts = SpaceHost.post, itertools.count(1)

    async def lossy(
        self: SpaceHost, who: str, dialect: DialectName, body: bytes, options: Options
    ) -> CarriedOut | Reply:
        if b'"chat"' in body and next(posts) % _EACH == 0:
            return CarriedOut([], on_disk=True)
        return await post(self, who, dialect, body, options)

    SpaceHost.post = lossy  # type: ignore[method-assign]


def _swap() -> None:
    """A gateway applies a message of the log before the one that it follows; each does so at other places."""
    take, held = SharedLog._take, list[tuple[int, int, bytes]]()

    def swapped(self: SharedLog, sequence: int, nanoseconds: int, data: bytes) -> None:
        if not held and b'"post"' in data and random.random() < 1 / _EACH:
            held.append((sequence, nanoseconds, data))
            return
        take(self, sequence, nanoseconds, data)
        if held and b'"post"' in data:
            take(self, *held.pop())

    SharedLog._take = swapped  # type: ignore[method-assign]


def _carry_out_twice() -> None:
    """A proposal that was carried out stays open."""
    ProposalLedger._close = lambda *_: None  # type: ignore[method-assign]


PLANTED = {
    "lost": PlantedFault(_lose, "lost: chat-"),
    "swapped": PlantedFault(_swap, "in another order"),
    "carried out twice": PlantedFault(_carry_out_twice, "carried out "),
}
