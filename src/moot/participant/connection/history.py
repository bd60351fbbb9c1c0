"""The gateway's message history, fetched over HTTP."""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from moot.errors import MalformedEnvelope, MootError
from moot.participant.connection.connect_options import ConnectOptions
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import Envelope

# The history that is fetched after a reconnect: from how long before the loss, as clocks differ, and how
# much.
HISTORY_MARGIN_SECONDS: Final = 60.0
MAX_HISTORY_BYTES: Final = 16 << 20

log = logging.getLogger(__name__)


class _HistoryPage(msgspec.Struct):
    messages: list[msgspec.Raw]


_page_decoder = msgspec.json.Decoder(_HistoryPage)


async def fetch_history(options: ConnectOptions, url: str, me: str, since: float) -> list[Envelope] | None:
    """What the gateway at `url` sent us since then (seconds since 1970), oldest first; None without any."""
    if options.token is None:
        return None
    try:
        client = options.http_client(
            timeout_seconds=options.limits.answer_seconds, max_bytes=MAX_HISTORY_BYTES
        )
        status, body = await client.get(options.history_url(url, me, since))
        if status != 200:
            log.debug("no history", extra={"status": status})
            return None
        messages = _page_decoder.decode(body).messages
    except (MootError, msgspec.DecodeError) as fault:
        log.debug("no history", extra={"why": str(fault)})
        return None
    decoded = [_decode(options, bytes(raw)) for raw in messages]
    return [envelope for envelope in decoded if envelope is not None]


def _decode(options: ConnectOptions, raw: bytes) -> Envelope | None:
    try:
        return DIALECTS[options.dialect].decode(raw)
    except MalformedEnvelope:
        return None
