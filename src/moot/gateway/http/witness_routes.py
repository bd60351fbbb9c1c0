"""`/witness/…`: checkpoints of other logs, for us to cosign (c2sp.org/tlog-witness).

Needs no token: whoever has a log's key may ask, and the answer is nobody's secret.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from moot.errors import UsageError
from moot.evidence.log_files import LogReader
from moot.evidence.tiles import parse_tile
from moot.evidence.witness import MAX_REQUEST_BYTES
from moot.gateway.access import AccessDenied
from moot.gateway.evidence.log_keeper import LogKeeper
from moot.gateway.evidence.witness_service import WitnessService
from moot.gateway.http.history_routes import HistoryRoutes
from moot.gateway.http.http_replies import HEADERS, denied

_TEXT = "text/plain; charset=utf-8"


# `GET /spaces/{space}/log/…`: the log of a space's journal (c2sp.org/tlog-tiles), for its members.
#
# Hashes tell nothing of what was said, but how many records there are and when they come is nobody else's
# business: whoever may read the history may read the log. For others an operator publishes its files.

log = logging.getLogger(__name__)


class LogRoutes:
    def __init__(self, history: HistoryRoutes, keeper: LogKeeper) -> None:
        self._history = history
        self._keeper = keeper

    async def get(self, request: Request) -> Response:
        """The newest checkpoint, or a tile."""
        identity = await self._history.identify(request)
        self._history.charge(identity)
        found = self._keeper.logs.get(identity.host.name)
        if found is None:
            return denied(self._keeper.why_none(identity.host))
        path = request.path_params["path"]
        try:
            body = await asyncio.to_thread(_read, found.folder, path)
        except (OSError, UsageError) as fault:
            # Where it lies is for the operator alone.
            log.warning("log not read", extra={"space": found.name, "why": str(fault)})
            return denied(
                AccessDenied(503, "the log cannot be read: the operator finds why in the gateway's log")
            )
        if body is None:
            return denied(
                AccessDenied(404, "the log has no such tile: ask for `checkpoint`, and what it has")
            )
        media_type = "text/plain; charset=utf-8" if path == "checkpoint" else "application/octet-stream"
        return Response(body, media_type=media_type, headers=HEADERS)


def _read(folder: Path, path: str) -> bytes | None:
    reader = LogReader(folder)
    checkpoint, note = reader.signed()
    if path == "checkpoint":
        return str(note).encode()
    tile = parse_tile(path)
    return None if tile is None else reader.tile(tile, checkpoint.size)


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
