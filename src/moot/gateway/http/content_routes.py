"""`POST /spaces/{space}/content`, `GET /spaces/{space}/content/{sha256}`: values too large for an envelope.

Every member sees every message of its space, so every member may fetch what a message names. Whoever may join
may send: only the file is kept, and it says nothing to anybody until a message names it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse

from moot.config.gateway_config import GatewayConfig
from moot.errors import ResourceLimit
from moot.gateway.access import AccessDenied, TokenIdentity
from moot.gateway.hosting.content_store import find_content, keep_content
from moot.gateway.hosting.space_host import SpaceHost
from moot.gateway.http.http_replies import announces_more, body_of, denied, json_response
from moot.gateway.http.request_identity import RequestIdentity
from moot.protocol import large_content
from moot.resilience.rate_limits import RateLimits, token_buckets

if TYPE_CHECKING:
    from moot.gateway.cluster.nats.shared_content import SharedContent

log = logging.getLogger(__name__)

# Values that one member may send: a tool with a large result once a second.
_PER_SECOND: Final = 1.0
_BURST: Final = 64.0
# And fetch: each member fetches what all others send.
_FETCHES_PER_SECOND: Final = 20.0
_FETCH_BURST: Final = 640.0
_MAX_KEYS: Final = 10_000
# Bodies that are read at once: each is in memory until it is on disk.
_MAX_BODIES: Final = 4
_MEDIA_TYPE: Final = "application/octet-stream"
_HEADERS: Final = {"x-content-type-options": "nosniff", "content-security-policy": "sandbox"}


class ContentRoutes:
    """Keeps and tells large values."""

    def __init__(
        self,
        identity: RequestIdentity,
        config: GatewayConfig,
        *,
        shared: SharedContent | None,
    ) -> None:
        """`shared`: where the gateways of a cluster keep them; without one, beside the space's journal."""
        self._identity = identity
        self._config = config
        self._shared = shared
        self._rates = token_buckets(_PER_SECOND, _BURST, max_keys=_MAX_KEYS)
        self._fetches = token_buckets(_FETCHES_PER_SECOND, _FETCH_BURST, max_keys=_MAX_KEYS)
        self._bodies = asyncio.Semaphore(_MAX_BODIES)

    async def add(self, request: Request) -> Response:
        """Keep a value; answers with its hash."""
        identity = await self._identity.reader(request)
        most = large_content.MAX_CONTENT_BYTES
        too_large = AccessDenied(413, f"a value has at most {most} bytes")
        if await announces_more(request, most):
            return denied(too_large)
        if (busy := _count_request(self._rates, identity)) is not None:
            return denied(busy)
        async with self._bodies:
            body = await body_of(request, most)
            if body is None:
                return denied(too_large)
            # It may have taken a while: a token that is void by now sends nothing.
            await self._identity.reader(request)
            try:
                digest = await self._keep(identity.host, body)
            except ResourceLimit as full:
                return denied(AccessDenied(507, full.message))
            except OSError as fault:
                log.warning("a large value was not kept", extra={"why": fault.strerror})
                return denied(AccessDenied(507, "the gateway's disk takes no large values now"))
        return json_response(201, {"sha256": digest, "bytes": len(body)})

    async def _keep(self, host: SpaceHost, body: bytes) -> str:
        most = self._config.max_space_content_bytes
        if self._shared is not None:
            return await self._shared.keep(host.name, body, max_total_bytes=most)
        return await asyncio.to_thread(keep_content, host.content_folder, body, max_total_bytes=most)

    async def get(self, request: Request) -> Response:
        """A value, as it was sent."""
        identity = await self._identity.reader(request)
        if (busy := _count_request(self._fetches, identity)) is not None:
            return denied(busy)
        digest = request.path_params["sha256"]
        gone = AccessDenied(404, "no value with this hash is kept here (any more)")
        if self._shared is not None:
            value = await self._shared.find(identity.host.name, digest)
            if value is None:
                return denied(gone)
            headers = _HEADERS | {"content-length": str(value.size)}
            return StreamingResponse(value.parts, media_type=_MEDIA_TYPE, headers=headers)
        path = await asyncio.to_thread(find_content, identity.host.content_folder, digest)
        if path is None:
            return denied(gone)
        return FileResponse(path, media_type=_MEDIA_TYPE, headers=_HEADERS)


def _count_request(rates: RateLimits, identity: TokenIdentity) -> AccessDenied | None:
    wait = rates.take((identity.host.name, identity.name), time.monotonic())
    return AccessDenied(429, "too many large values at once", retry_after=wait) if wait else None
