"""Loaded into the pytest of A2A's compatibility kit: what the kit leaves out of its requests.

- A card is asked for with the version, as every request has to be.
- The kit of 1.0 knows no tokens: each request gets one (`MOOT_KIT_TOKEN`).
- It tells its agents what to do by the id of a message. A member sees the text of a message alone, so the id
  is added to the text. It also uses one id for many messages, which are one message with us, as A2A allows:
  each gets a number.
"""

from __future__ import annotations

import itertools
import json
import os
from typing import Any

import httpx
import requests

URL = os.environ["MOOT_KIT_URL"]
TOKEN = os.environ.get("MOOT_KIT_TOKEN", "")
NUMBERS = itertools.count()
CARD = "/.well-known/agent-card.json"


def more_headers(url: str) -> dict[str, str]:
    if not url.startswith(URL):
        return {}
    if url.endswith(CARD):
        return {"A2A-Version": "1.0"}
    return {"Authorization": f"Bearer {TOKEN}"} if TOKEN else {}


def with_own_id(body: bytes) -> bytes:
    try:
        fields = json.loads(body)
        message = fields.get("params", fields)["message"]
        message["messageId"] += f"-{next(NUMBERS)}"
        if "text" in message["parts"][0]:
            message["parts"].append({"text": message["messageId"]})
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        return body
    return json.dumps(fields).encode()


def changed(request: httpx.Request) -> httpx.Request:
    for name, value in more_headers(str(request.url)).items():
        request.headers.setdefault(name, value)
    if TOKEN and request.method == "POST":
        body = with_own_id(request.read())
        headers = {name: value for name, value in request.headers.items() if name != "content-length"}
        return httpx.Request(
            request.method, request.url, headers=headers, content=body, extensions=request.extensions
        )
    return request


_send, _send_async, _request = httpx.Client.send, httpx.AsyncClient.send, requests.Session.request


def send(self: httpx.Client, request: httpx.Request, **more: Any) -> httpx.Response:
    return _send(self, changed(request), **more)


async def send_async(self: httpx.AsyncClient, request: httpx.Request, **more: Any) -> httpx.Response:
    return await _send_async(self, changed(request), **more)


def request(self: requests.Session, method: str, url: str, **more: Any) -> requests.Response:
    more["headers"] = more_headers(url) | dict(more.get("headers") or {})
    return _request(self, method, url, **more)


httpx.Client.send, httpx.AsyncClient.send = send, send_async  # type: ignore[method-assign]
requests.Session.request = request  # type: ignore[assignment, method-assign]
