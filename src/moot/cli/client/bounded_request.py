"""One HTTP request of a command, whose answer is read up to a bound, whoever answers."""

from __future__ import annotations

from typing import Any, Final

import httpx2

from moot.errors import Unreachable

# What a gateway or a provider tells a command has some KiB; the status of a large cluster has more.
MAX_BYTES: Final = 4 << 20


def request_bounded(method: str, url: str, *, seconds: float, **more: Any) -> httpx2.Response:
    """The whole answer; raises Unreachable for a larger one, and httpx2.HTTPError as httpx2 does."""
    # Packed, a small answer can be a large one.
    headers = {"Accept-Encoding": "identity", **more.pop("headers", {})}
    body = bytearray()
    with httpx2.stream(method, url, timeout=seconds, headers=headers, **more) as answer:
        for piece in answer.iter_raw():
            body += piece
            if len(body) > MAX_BYTES:
                where = url.partition("?")[0]
                raise Unreachable(f"{where} answers with more than {MAX_BYTES >> 20} MiB. Check the address")
    kind = {"content-type": answer.headers.get("content-type", "")}
    return httpx2.Response(answer.status_code, headers=kind, content=bytes(body))
