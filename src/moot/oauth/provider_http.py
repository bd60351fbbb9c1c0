"""Requests to providers whose addresses somebody else wrote: checked, bounded, JSON only, no redirects."""

from __future__ import annotations

import json
import socket
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from moot.errors import Unreachable
from moot.net.address_check import ForbiddenAddress, connect_checked, is_loopback
from moot.net.http_client import HttpClient, HttpResponse
from moot.oauth.oauth_settings import SignInFailed

# One request to a provider.
REQUEST_SECONDS: Final = 10.0
# A document or an answer of a provider: they are a few KiB.
MAX_RESPONSE_BYTES: Final = 256 << 10

JsonDocument = Mapping[str, Any]


class ProviderHttp:
    """Sends requests to whatever a server names as its provider, and to nothing else in our network."""

    def __init__(self, server_url: str, *, allow_private: bool) -> None:
        """The provider of a server on this machine may be on this machine too, and without TLS."""
        self._client = HttpClient(
            timeout_seconds=REQUEST_SECONDS,
            max_bytes=MAX_RESPONSE_BYTES,
            open_socket=self._open_socket,
        )
        self._is_local = is_local_host(urlsplit(server_url).hostname or "")
        self._allow_private = allow_private

    def check_url(self, url: str, what: str) -> str:
        """The address as it is; raises SignInFailed unless a secret can be sent there."""
        parts = parts_of(url)
        is_secure = parts is not None and parts.scheme == "https"
        is_on_this_machine = (
            parts is not None and parts.scheme == "http" and is_local_host(parts.hostname or "")
        )
        if not is_secure and not (is_on_this_machine and self._is_local):
            raise SignInFailed(f"{what} has to be at an https:// address, and {shown(url)} is none")
        return url

    async def get(self, url: str, what: str) -> JsonDocument | None:
        """A JSON document; None where there is none. Raises SignInFailed."""
        self.check_url(url, what)
        answer = await self._explained(what, url, self._client.get(url))
        return _document(answer.body) if answer.status == 200 else None

    async def post_form(
        self, url: str, form: Mapping[str, str], what: str, headers: Mapping[str, str] | None = None
    ) -> tuple[int, JsonDocument]:
        """The status and what came with it; raises SignInFailed when there is no answer."""
        self.check_url(url, what)
        client = replace(self._client, headers=headers or {})
        answer = await self._explained(what, url, client.post_form(url, form))
        return answer.status, _document(answer.body) or {}

    async def post_json(self, url: str, body: JsonDocument, what: str) -> tuple[int, JsonDocument]:
        self.check_url(url, what)
        headers = {"Content-Type": "application/json"}
        sent = self._client.post(url, json.dumps(body).encode(), headers)
        answer = await self._explained(what, url, sent)
        return answer.status, _document(answer.body) or {}

    async def _explained(self, what: str, url: str, answer: Awaitable[HttpResponse]) -> HttpResponse:
        try:
            return await answer
        except ForbiddenAddress:
            raise SignInFailed(
                f"{what} ({shown(url)}) is at an address that is not public. If it is in your own network,"
                " set allow_private_addresses"
            ) from None
        except Unreachable as fault:
            raise SignInFailed(f"{what} cannot be reached: {fault}") from None

    async def _open_socket(self, host: str, port: int) -> socket.socket:
        return await connect_checked(
            host,
            port,
            timeout_seconds=REQUEST_SECONDS,
            # A server on this machine vouches for this machine, and not for others behind our firewall.
            allow_private=self._allow_private or (self._is_local and is_local_host(host)),
        )


def parts_of(url: str) -> SplitResult | None:
    """The parts of a usable HTTP address; None for anything else."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    usable = parts.scheme in ("http", "https") and parts.hostname and parts.username is None
    is_plain = url.isascii() and url.isprintable() and " " not in url
    return parts if usable and is_plain and not parts.fragment else None


def origin_of(url: str) -> tuple[str, str, int] | None:
    """Scheme, host and port; None for what is no address."""
    parts = parts_of(url)
    if parts is None:
        return None
    return (
        parts.scheme,
        (parts.hostname or "").lower(),
        parts.port or (443 if parts.scheme == "https" else 80),
    )


def is_local_host(host: str) -> bool:
    return host.lower() == "localhost" or is_loopback(host)


def shown(url: str) -> str:
    """An address for people: without query, and not long."""
    return "".join(each if each.isprintable() else "?" for each in url.partition("?")[0])[:200]


def why_refused(answer: JsonDocument, *secrets: str | None) -> str:
    """What a provider says about a refusal, for people; without the secrets that it may repeat."""
    said = str(answer.get("error_description") or answer.get("error") or "it gives no reason")
    for each in secrets:
        if each:
            said = said.replace(each, "…")
    return "".join(each if each.isprintable() else "?" for each in said)[:200]


def _document(body: bytes) -> JsonDocument | None:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
