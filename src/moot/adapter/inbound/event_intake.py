"""Events from whichever relay is in use, one after the other, and others have their turn."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from moot.endpoint.relay_client import RelayClient
from moot.endpoint.relay_subscriptions import RelayRefused
from moot.protocol.operation import Json

log = logging.getLogger(__name__)

# Events taken in a row before others have their turn: some 2 ms.
EVENTS_IN_A_ROW: Final = 8
# After a relay said that it will never tell us of these: the next one may.
RESUBSCRIBE_SECONDS: Final = 5.0


async def consume_events(
    relays: RelayClient, wanted: Mapping[str, Json], receive: Callable[[bytes], None]
) -> None:
    """Hand over every event that matches a filter, now and after every break, until cancelled.

    `receive` must not wait. If it raises, that is our own fault: it is told of, and the next event comes.
    """
    while True:
        try:
            async with relays.subscribe([wanted]) as events:
                count = 0
                async for raw in events:
                    try:
                        receive(raw)
                    except Exception:
                        # A connection's task: whatever one event does to us, the others are heard.
                        log.exception("an event could not be taken")
                    count += 1
                    if count % EVENTS_IN_A_ROW == 0:
                        await asyncio.sleep(0)
            return
        except RelayRefused as refusal:
            log.error("a relay will not tell us of events", extra={"reason": str(refusal)})
            await asyncio.sleep(RESUBSCRIBE_SECONDS)
