"""Reads events from the relay in use and hands each to a function."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from moot.protocol.operation import Json
from moot.xprotocol.endpoint.relay_client import RelayClient
from moot.xprotocol.endpoint.relay_subscriptions import RelayRefused

log = logging.getLogger(__name__)

# Events handled before the loop may run other tasks: some 2 ms.
EVENTS_PER_TURN: Final = 8
# After a relay refused the subscription: the next one may accept it.
RESUBSCRIBE_SECONDS: Final = 5.0


async def consume_events(
    relays: RelayClient,
    event_filter: Mapping[str, Json],
    receive: Callable[[bytes], None],
    receive_stored: Callable[[bytes], Awaitable[None]] | None = None,
) -> None:
    """Hand over every event that matches a filter, now and after every break, until cancelled.

    `receive` must not block. If it raises, that is a bug of ours: it is logged, and the next event is read.
    `receive_stored` gets those that a relay had stored, if it is given, and may wait.
    """
    while True:
        try:
            async with relays.subscribe([event_filter]) as events:
                count = 0
                async for raw in events:
                    try:
                        if receive_stored is not None and events.is_stored:
                            await receive_stored(raw)
                        else:
                            receive(raw)
                    except Exception:
                        # A connection's task: a fault with one event must not stop the others.
                        log.exception("an event could not be processed")
                    count += 1
                    if count % EVENTS_PER_TURN == 0:
                        await asyncio.sleep(0)
            return
        except RelayRefused as refusal:
            log.error("a relay refused the subscription", extra={"reason": str(refusal)})
            await asyncio.sleep(RESUBSCRIBE_SECONDS)
