"""The one HTTP address that Slack sends events and acts to, as an ASGI application."""

from __future__ import annotations

import time
from typing import Final

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from moot.chat.slack import SlackPlatform

# An act with its whole message; Slack's own are a tenth of it.
MAX_REQUEST_BYTES: Final = 256 << 10


def slack_app(platform: SlackPlatform) -> Starlette:
    async def take_request(request: Request) -> Response:
        body = b""
        try:
            async for piece in request.stream():
                body += piece
                if len(body) > MAX_REQUEST_BYTES:
                    return Response(b"too large", 413)
        except ClientDisconnect:
            return Response(status_code=400)
        status, answer = platform.handle_request(request.headers, body, time.time())
        return Response(answer, status, media_type="text/plain")

    return Starlette(routes=[Route("/slack", take_request, methods=["POST"])])
