"""Which gateway of a cluster a member goes to first: it asks one of them for the number of the space's shard.

A welcome would tell it too late: whoever moves after it has joined, left and joined for everybody to see.
"""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from moot.errors import MootError
from moot.net.address_order import order_addresses
from moot.net.http_client import HttpClient
from moot.net.probes import READY_PATH
from moot.participant.connection.connect_options import ConnectOptions

log = logging.getLogger(__name__)

_MAX_ANSWER_BYTES: Final = 4_096


class _Readiness(msgspec.Struct):
    # None from a gateway that is alone, or whose cluster has only one.
    shard: int | None = None


async def order_gateways(options: ConnectOptions, seconds: float) -> list[str]:
    """The addresses of the gateways in the order in which to try them; those that did not answer come last.

    Each is given so many seconds. As given where no gateway tells.
    """
    given = list(options.urls)
    if len(given) == 1 or not options.space:
        return given
    # Without the token: nobody needs one for this.
    client = HttpClient(
        timeout_seconds=seconds,
        max_bytes=_MAX_ANSWER_BYTES,
        tls=options.tls,
        open_socket=options.open_socket,
    )
    silent: list[str] = []
    for url in given:
        try:
            answer = await client.get(options.http_url(url, READY_PATH, {"space": options.space}))
            shard = msgspec.json.decode(answer.body, type=_Readiness).shard
        except (MootError, msgspec.DecodeError) as fault:
            log.debug("a gateway does not tell the shard", extra={"url": url, "why": str(fault)})
            silent.append(url)
            continue
        ordered = given if shard is None else order_addresses(given, shard)
        return sorted(ordered, key=silent.__contains__)
    return given
