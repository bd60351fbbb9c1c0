"""Standing by: an exclusive member that a newer process has replaced returns when that one is gone.

It asks a gateway whether somebody is connected under its name, and joins only when nobody is: joining at once
would throw the newer process out, and the two would take turns. Of two that stand by, the one that joins last
stays, and the other stands by again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from moot.bridges.server.bridge_settings import BridgeSettings
from moot.errors import MootError
from moot.participant.connection.connect_options import ConnectOptions
from moot.resilience.restart_loop import Backoff

log = logging.getLogger(__name__)

# A process that was restarted is back within a second or two; after a while, four questions a minute.
FIRST_SECONDS: Final = 2.0
MAX_SECONDS: Final = 15.0
_MAX_ANSWER_BYTES: Final = 1 << 20


class _SpaceEntry(msgspec.Struct):
    name: str
    # None from a gateway that does not tell.
    connected: bool | None = None


class _SpaceList(msgspec.Struct):
    spaces: list[_SpaceEntry]


_decoder = msgspec.json.Decoder(_SpaceList)


async def wait_for_turn(
    settings: BridgeSettings,
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Wait until nobody is connected under this name, or the token is not valid any more: joining says so."""
    options = ConnectOptions(settings.gateway, settings.space, settings.token)
    backoff = Backoff(FIRST_SECONDS, MAX_SECONDS)
    while True:
        await sleep(backoff.next_delay())
        for url in options.urls:
            is_connected = await _is_connected(options, url)
            if is_connected is False:
                return
            if is_connected:
                break


async def is_absent(settings: BridgeSettings) -> bool:
    """Whether a gateway says that nobody is connected under this name."""
    options = ConnectOptions(settings.gateway, settings.space, settings.token)
    for url in options.urls:
        is_connected = await _is_connected(options, url)
        if is_connected is not None:
            return not is_connected
    return False


async def _is_connected(options: ConnectOptions, url: str) -> bool | None:
    """None when this gateway does not say."""
    try:
        client = options.http_client(
            timeout_seconds=options.limits.answer_seconds, max_bytes=_MAX_ANSWER_BYTES
        )
        status, body = await client.get(options.http_url(url, "/spaces"))
        if status in (401, 403):
            return False
        if status != 200:
            return None
        found = _decoder.decode(body).spaces
    except (MootError, msgspec.DecodeError) as fault:
        log.debug("not known who is connected", extra={"why": str(fault)})
        return None
    told = [each.connected for each in found if each.name == options.space or not options.space]
    return None if None in told else any(told)
