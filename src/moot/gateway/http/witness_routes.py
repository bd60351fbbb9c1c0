"""`/witness/…`: checkpoints of other logs, for us to cosign (c2sp.org/tlog-witness).

Needs no token: whoever has a log's key may ask, and the answer is nobody's secret.
"""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from moot.evidence.witness import MAX_REQUEST_BYTES
from moot.gateway.access import AccessDenied
from moot.gateway.evidence.witness_service import WitnessService
from moot.gateway.http.http_replies import HEADERS, denied

_TEXT = "text/plain; charset=utf-8"


class WitnessRoutes:
    def __init__(self, witness: WitnessService) -> None:
        self._witness = witness

    async def add_checkpoint(self, request: Request) -> Response:
        raw = b""
        async for piece in request.stream():
            raw += piece
            if len(raw) > MAX_REQUEST_BYTES:
                return Response(f"at most {MAX_REQUEST_BYTES} bytes\n", 413, HEADERS, _TEXT)
        answer = await self._witness.add_checkpoint(raw)
        return Response(answer.body, answer.status, HEADERS | {"Content-Type": answer.content_type})

    async def checkpoint(self, request: Request) -> Response:
        found = await asyncio.to_thread(self._witness.newest, request.path_params["hash"])
        if found is None:
            return denied(AccessDenied(404, "no checkpoint of such a log was seen here"))
        return Response(found, headers=HEADERS, media_type=_TEXT)
