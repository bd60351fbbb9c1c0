"""The body of a request that is refused for its size: read and thrown away, for a while.

A server that closes a connection while its client still sends makes many clients lose the answer with it. So
the rest of the body is taken first, within bounds; whoever sends even more may lose the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final

# At most this much, and for this long: 128 MiB on a line of 100 Mbit/s.
MAX_BYTES: Final = 128 << 20
MAX_SECONDS: Final = 10.0


async def discard_body(receive: Callable[[], Awaitable[Any]], headers: Mapping[str, str] = {}) -> None:
    """Read what is left of a body. Raises nothing. `headers`: of a request of whose body nothing was read."""
    if headers.get("expect", "").lower() == "100-continue":
        # It is not sent before it is asked for.
        return
    size = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(MAX_SECONDS):
            while size < MAX_BYTES:
                message = await receive()
                size += len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body"):
                    return
