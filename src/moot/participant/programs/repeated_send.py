"""Sending one envelope until it is delivered, for members that speak for somebody outside of the space."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from moot.errors import (
    ConnectionClosed,
    ConnectionLost,
    DuplicateId,
    MootError,
    ParticipantPaused,
    Paused,
    RateLimited,
    TimedOut,
)
from moot.participant.connection.envelope_writer import new_id
from moot.participant.joined_space import JoinedSpace
from moot.protocol.operation import Json

log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 1.0


async def deliver(
    space: JoinedSpace, kind: str, payload: Mapping[str, Json], *, id: str = "", **where: Any
) -> bool:
    """Send one envelope, exactly once, however often the connection is lost; False if it is refused.

    It waits for the end of a pause, of a lost connection and of a rate limit. Whoever gives the `id` of an
    envelope that was delivered before, in an earlier run perhaps, sends nothing.
    """
    id = id or new_id()
    given = {name: value for name, value in where.items() if value}
    while space.close_reason is None:
        try:
            await space.send(kind, payload, confirm=True, id=id, **given)
        except DuplicateId:
            return True
        except (ConnectionLost, ParticipantPaused, Paused, RateLimited, TimedOut):
            await wait_able(space)
            continue
        except ConnectionClosed:
            return False
        except MootError as fault:
            log.warning("not sent", extra={"kind": kind, "why": str(fault)})
            return False
        return True
    return False


async def wait_able(space: JoinedSpace) -> None:
    """Wait for the end of a pause or for the connection."""
    if space.state == "joined" and space.paused is None:
        await asyncio.sleep(_RETRY_SECONDS)
        return
    with suppress(MootError):
        await space.ready()
