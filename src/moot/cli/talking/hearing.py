"""Everything that is said since we joined, our own words included: in order, nothing twice, nothing lost.

A feed is open from the first step in the block of `connect`, but the welcome came a moment before. What was
said in that moment is in the gateway's memory, and the SDK knows its ids: `split` finds it there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from moot.participant import Gap, JoinedSpace
from moot.participant.listening import Feed
from moot.protocol.envelope import Envelope

# Ten seconds of a very busy space; whoever prints slower than that finds a Gap.
_ITEMS: Final = 10_000


@asynccontextmanager
async def heard_in(space: JoinedSpace) -> AsyncIterator[Feed[Envelope]]:
    """A feed that is open from here on, and ends when the connection has ended for good."""
    feed: Feed[Envelope] = Feed(_ITEMS, space.counts)
    space.on("*", own=True)(feed.put)
    space.on_rejoined(lambda: feed.put(Gap("reconnected")))

    async def end() -> None:
        await space.stay()
        feed.end()

    ending = asyncio.create_task(end())
    try:
        yield feed
    finally:
        ending.cancel()
        await asyncio.wait([ending])


def split(space: JoinedSpace, past: list[Envelope]) -> tuple[list[Envelope], list[Envelope]]:
    """The gateway's memory in two parts: what was said before we joined, and what we were sent since."""
    before = [envelope for envelope in past if space.lineage.get(envelope.id) is None]
    since = [envelope for envelope in past if space.lineage.get(envelope.id) is not None]
    return before, since


async def without(feed: Feed[Envelope], shown: list[Envelope]) -> AsyncIterator[Envelope | Gap]:
    """What a feed holds, but for what was shown already."""
    known = {envelope.id for envelope in shown}
    async for item in feed:
        if isinstance(item, Gap) or item.id not in known:
            yield item
