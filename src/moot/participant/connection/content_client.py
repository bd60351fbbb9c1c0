"""Large values of calls, kept by the gateway: sent there over HTTP, and fetched from there by their hash."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Final
from urllib.parse import quote

from moot.errors import EnvelopeTooLarge, InvalidRequest, MootError, Unreachable
from moot.net.http_client import HttpClient, ResponseTooLarge
from moot.participant.connection.connect_options import ConnectOptions
from moot.participant.connection.gateway_reads import find_space
from moot.protocol.large_content import MAX_CONTENT_BYTES, parts_of, put_back, take_out
from moot.protocol.operation import Json

log = logging.getLogger(__name__)

_MAX_ANSWER_BYTES: Final = 64 << 10
# One value: 32 MiB in this time are 4 Mbit/s.
_TRANSFER_SECONDS: Final = 60.0
_ATTEMPTS: Final = 3
_RETRY_SECONDS: Final = 1.0
_MOST: Final = re.compile(r"at most (\d+) bytes")


class ContentClient:
    """Takes large values out of our messages, and puts those of others back."""

    def __init__(self, options: ConnectOptions, max_bytes: Callable[[], int]) -> None:
        self._options = options
        # Of an envelope.
        self._max_bytes = max_bytes
        # Where the gateway is that we are connected to.
        self.url: Callable[[], str] = lambda: options.urls[0]
        self._space: str | None = options.space or None

    async def take_out(self, body: Mapping[str, Json], *, is_result: bool) -> dict[str, Json]:
        """Params or a result as they fit into an envelope; what is too large for it is at the gateway then.

        Raises EnvelopeTooLarge when the gateway does not keep that much, or nothing at all.
        """
        # Half of it: the rest of the envelope takes some, and another dialect may take more.
        taken = take_out(body, is_result=is_result, max_bytes=self._max_bytes() // 2)
        for data in taken.values.values():
            await self._send(data)
        return taken.body

    async def put_back(self, body: dict[str, Json], *, is_result: bool) -> dict[str, Json]:
        """The whole params or result; raises InvalidRequest or Unreachable when a value cannot be had."""
        parts = parts_of(body)
        if not parts:
            return body
        sizes = {part.sha256: part.size for part in parts}
        total = sum(sizes.values())
        if total > MAX_CONTENT_BYTES:
            raise InvalidRequest(
                f"large values of {total} bytes in a message: at most {MAX_CONTENT_BYTES} pass"
            )
        values = {digest: await self._fetch(digest, size) for digest, size in sizes.items()}
        return put_back(body, values, is_result=is_result)

    async def fetch(self, digest: str) -> bytes:
        """A value by its hash; raises InvalidRequest or Unreachable when it cannot be had."""
        return await self._fetch(digest, MAX_CONTENT_BYTES)

    async def whole_result(self, result: dict[str, Json]) -> dict[str, Json]:
        """The whole result of a call; where a value cannot be had, the beginning stays and says so."""
        try:
            return await self.put_back(result, is_result=True)
        except MootError as fault:
            log.warning("a large result is not whole", extra={"why": str(fault)})
            return result

    async def _send(self, data: bytes) -> None:
        if len(data) > MAX_CONTENT_BYTES:
            raise EnvelopeTooLarge(len(data), MAX_CONTENT_BYTES)
        for attempt in range(_ATTEMPTS):
            try:
                address, headers = await self._address(), {"Content-Type": "application/octet-stream"}
                status, answer = await self._client(_MAX_ANSWER_BYTES).post(address, data, headers)
            except Unreachable:
                status, answer = 503, b""
            if status in (200, 201):
                return
            if status == 413:
                told = _MOST.search(answer.decode("utf-8", "replace"))
                raise EnvelopeTooLarge(len(data), int(told.group(1)) if told else self._max_bytes())
            if status not in (429, 503):
                break
            await asyncio.sleep(_RETRY_SECONDS * (attempt + 1))
        raise EnvelopeTooLarge(len(data), self._max_bytes())

    async def _fetch(self, digest: str, size: int) -> bytes:
        for attempt in range(_ATTEMPTS):
            try:
                client = self._client(size + _MAX_ANSWER_BYTES)
                status, data = await client.get(f"{await self._address()}/{digest}")
            except ResponseTooLarge:
                raise InvalidRequest("a large value of a message is larger than it says") from None
            except Unreachable:
                # Perhaps only this gateway: the next attempt asks the one that we are connected to by then.
                status, data = 503, b""
            if status == 200 and sha256(data).hexdigest() == digest:
                return data
            if status not in (429, 503):
                break
            await asyncio.sleep(_RETRY_SECONDS * (attempt + 1))
        raise InvalidRequest(f"the gateway has no value with the sha256 {digest} (any more)")

    async def _address(self) -> str:
        url = self.url()
        if self._space is None:
            self._space = await find_space(self._options, url)
        return self._options.http_url(url, f"/spaces/{quote(self._space, safe='')}/content")

    def _client(self, max_bytes: int) -> HttpClient:
        if self._options.token_source is None:
            raise MootError("large values need a token")
        return self._options.http_client(timeout_seconds=_TRANSFER_SECONDS, max_bytes=max_bytes)
