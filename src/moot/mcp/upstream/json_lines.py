"""HTTP responses that are JSON messages line by line, read as the event stream that MCP wants instead.

Some servers write several messages into one `application/json` response, each on a line, and keep it open for
more. The SDK's transport waits for the end of such a response, and then cannot read it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import httpx2

from moot.errors import InvalidJson
from moot.mcp.upstream.lost_answers import TOO_LONG, lost_answer
from moot.protocol.rpc_codes import PARSE_ERROR
from moot.protocol.strict_json import encode, parse_any_depth

_BREAKS: Final = bytes.maketrans(b"\r\n", b"  ")


def may_be_lines(response: httpx2.Response) -> bool:
    """Whether a response is JSON of which nobody said how long it is."""
    headers = response.headers
    return (
        response.status_code == httpx2.codes.OK
        and headers.get("content-type", "").lower().startswith("application/json")
        and "content-length" not in headers
        and "content-encoding" not in headers
    )


def as_events(
    request: httpx2.Request, response: httpx2.Response, body: httpx2.AsyncByteStream, max_bytes: int
) -> None:
    """Turn each line into an event as soon as it is there, and a body that is one JSON value into one."""
    response.headers["content-type"] = "text/event-stream"
    response.stream = _JsonLines(request, body, max_bytes)


class _JsonLines(httpx2.AsyncByteStream):
    def __init__(self, request: httpx2.Request, body: httpx2.AsyncByteStream, max_bytes: int) -> None:
        self._request = request
        self._body = body
        self._max_bytes = max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        held = b""
        # False once a line was no JSON by itself: the whole body is one value then, on many lines.
        by_line = True
        async for chunk in self._body:
            held += chunk
            while by_line and b"\n" in held:
                line, _, rest = held.partition(b"\n")
                if line.strip():
                    by_line = _is_json(line)
                    if not by_line:
                        break
                    yield _event(line)
                held = rest
            if len(held) > self._max_bytes:
                yield _event(self._refusal())
                return
        if held.strip():
            yield _event(held)

    async def aclose(self) -> None:
        await self._body.aclose()

    def _refusal(self) -> bytes:
        """The answer to the request instead of one that is too long."""
        message = parse_any_depth(self._request.content)
        error = lost_answer(PARSE_ERROR, f"{TOO_LONG}{self._max_bytes} bytes")
        fields = {"code": error.code, "message": error.message, "data": error.data}
        return encode({"jsonrpc": "2.0", "id": message.get("id"), "error": fields})


def _is_json(line: bytes) -> bool:
    try:
        parse_any_depth(line)
    except InvalidJson:
        return False
    return True


def _event(text: bytes) -> bytes:
    # A JSON text has line breaks between its parts only, where a blank means the same.
    return b"data: " + text.translate(_BREAKS) + b"\n\n"
