"""Brings tokens of people to the gateway, with the server's own token: who they mean, and what to join with.

The gateway alone decides on them: its keys, its rules, its clock (RFC 8693). Nothing is verified here, and
the token of a person goes nowhere else.
"""

from __future__ import annotations

import asyncio
from typing import Final
from urllib.parse import urlencode

import msgspec

from moot.bridges.people.people_settings import (
    MAX_TOKEN_CHARS,
    GrantRefused,
    PersonGrant,
    ResourceDescription,
)
from moot.errors import NotAdmitted, Unreachable
from moot.net.connect_errors import UpgradeRefused, explain_not_admitted
from moot.net.http_client import HttpClient

# Tokens that are at the gateway at the same time, and how long one may take there.
MAX_EXCHANGES: Final = 32
EXCHANGE_SECONDS: Final = 10.0

_GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
_TOKEN_TYPE = "urn:ietf:params:oauth:token-type:access_token"
_MAX_BYTES = 64 << 10
_UNAVAILABLE_SECONDS = 2.0


class _Fault(msgspec.Struct):
    error: str = ""
    error_description: str = ""
    message: str = ""


_description_decoder = msgspec.json.Decoder(ResourceDescription)
_grant_decoder = msgspec.json.Decoder(PersonGrant)
_fault_decoder = msgspec.json.Decoder(_Fault)


class GatewayExchange:
    """Asks one gateway about the people of one space."""

    def __init__(self, url: str, space: str, token: str) -> None:
        """`token` is that of the server's own participant."""
        for named, plain in (("ws://", "http://"), ("wss://", "https://")):
            url = plain + url.removeprefix(named) if url.startswith(named) else url
        self._url = url.rstrip("/").removesuffix("/ws")
        self._query = f"?{urlencode({'space': space})}" if space else ""
        self._token = token
        self._client = HttpClient(
            timeout_seconds=EXCHANGE_SECONDS,
            max_bytes=_MAX_BYTES,
            headers={"Authorization": f"Bearer {token}"},
        )
        self._free = asyncio.Semaphore(MAX_EXCHANGES)

    async def describe(self) -> ResourceDescription:
        """What this server is; raises NotAdmitted if it is none for many people, and Unreachable."""
        status, body = await self._client.get(f"{self._url}/oidc/mcp{self._query}")
        if status >= 500 or status == 429:
            raise Unreachable(f"{self._url} is not ready: {_explain(body)}")
        if status == 401:
            raise explain_not_admitted(self._url, UpgradeRefused(401, body), self._token)
        if status != 200:
            raise NotAdmitted(f"{self._url} lets nobody in by this server: {_explain(body)}", status=status)
        try:
            return _description_decoder.decode(body)
        except msgspec.DecodeError:
            raise NotAdmitted(f"{self._url} does not say what this server is", status=status) from None

    async def exchange(self, token: str) -> PersonGrant | GrantRefused:
        """Who a token means; never raises because of the gateway."""
        if len(token) > MAX_TOKEN_CHARS or token.count(".") != 2:
            return GrantRefused(401, "the token is no JWT of a provider")
        form = {"grant_type": _GRANT, "subject_token": token, "subject_token_type": _TOKEN_TYPE}
        try:
            async with asyncio.timeout(EXCHANGE_SECONDS), self._free:
                status, body = await self._client.post_form(f"{self._url}/oidc/token{self._query}", form)
            if status == 200:
                return _grant_decoder.decode(body)
            fault = _fault_decoder.decode(body)
        except (Unreachable, TimeoutError, msgspec.DecodeError):
            return GrantRefused(503, "the gateway does not answer: try again", _UNAVAILABLE_SECONDS)
        match fault.error:
            case "invalid_grant":
                return GrantRefused(401, fault.error_description)
            case "access_denied":
                return GrantRefused(403, fault.error_description)
            case "temporarily_unavailable":
                return GrantRefused(503, fault.error_description, _UNAVAILABLE_SECONDS)
        # Ours: the server's own token is void, or the gateway has another configuration by now.
        return GrantRefused(503, "this MCP server is not let in by its gateway", _UNAVAILABLE_SECONDS)


def _explain(body: bytes) -> str:
    try:
        fault = _fault_decoder.decode(body)
    except msgspec.DecodeError:
        return "no reason given"
    return fault.message or fault.error_description or fault.error
