"""The HTTP client for a foreign agent: only to the servers that were allowed, bounded, without redirects.

A response is counted as it is read, and compression is refused: a small answer could become a large one.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator

import httpx


class BoundedTransport(httpx.AsyncBaseTransport):
    """Refuses other servers, and responses above `max_bytes`."""

    def __init__(self, allowed_origins: frozenset[str], max_bytes: int) -> None:
        self._allowed = allowed_origins
        self._max_bytes = max_bytes
        self._inner = httpx.AsyncHTTPTransport(verify=ssl.create_default_context(), trust_env=False)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        port = url.port or (443 if url.scheme == "https" else 80)
        if f"{url.scheme}://{url.host.lower()}:{port}" not in self._allowed:
            raise httpx.UnsupportedProtocol("the agent leads to a server that was not allowed")
        response = await self._inner.handle_async_request(request)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise httpx.DecodingError("the agent compressed its answer, which it was asked not to do")
        assert isinstance(response.stream, httpx.AsyncByteStream)  # noqa: S101  # of an async transport
        return httpx.Response(
            response.status_code,
            headers=response.headers,
            stream=_CountedStream(response.stream, self._max_bytes),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        await self._inner.aclose()


class _CountedStream(httpx.AsyncByteStream):
    def __init__(self, inner: httpx.AsyncByteStream, max_bytes: int) -> None:
        self._inner = inner
        self._max_bytes = max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = self._max_bytes
        async for piece in self._inner:
            left -= len(piece)
            if left < 0:
                raise httpx.ReadError(
                    f"an answer of the agent is larger than {self._max_bytes} bytes (max_response_bytes)"
                )
            yield piece

    async def aclose(self) -> None:
        await self._inner.aclose()
