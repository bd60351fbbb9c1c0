"""Who may use the HTTP server: which hosts and origins (D-84), with which token, and how large a body.

A web page can make a browser post to localhost. It cannot choose the Host header of a name that it rebinds,
and cannot hide its Origin, so both are compared with exact lists.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256

from moot.errors import McpError
from moot.mcp.downstream.response_streams import JSON_TYPE, Receive
from moot.mcp.downstream.rpc import error_of
from moot.protocol import strict_json
from moot.protocol.rpc_codes import INVALID_REQUEST
from moot.resilience.refused_body import discard_body

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class HttpAccessDenied(Exception):
    """Refused before the body was read: an HTTP status, and a text that says what to do."""

    def __init__(self, status: int, message: str, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(message)
        self.status = status
        self.headers = (JSON_TYPE, *headers)
        self.body = strict_json.encode(error_of(None, McpError(INVALID_REQUEST, message)))


@dataclass(frozen=True, slots=True)
class HttpAccessPolicy:
    """The exact lists. `token_hash` None: whoever reaches the port may call, which is for loopback only."""

    hosts: frozenset[str]
    origins: frozenset[str]
    token_hash: bytes | None = None
    # How the operator adds to the lists of hosts and of origins, for the text of a refusal.
    options: tuple[str, str] = ("--allow-host", "--allow-origin")

    @classmethod
    def of(
        cls,
        port: int,
        *,
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
        token: str | None = None,
    ) -> HttpAccessPolicy:
        """The loopback names at this port, and the given ones."""
        names = {f"{name}:{port}" for name in _LOOPBACK} | {name.lower() for name in hosts}
        own = {f"{scheme}://{name}" for scheme in ("http", "https") for name in names} | {
            origin.lower() for origin in origins
        }
        return cls(frozenset(names), frozenset(own), token_hash=_hash(token) if token else None)

    def check(self, headers: dict[str, str]) -> None:
        """Raises HttpAccessDenied for an unknown host or origin, or a wrong token."""
        if headers.get("host", "").lower() not in self.hosts:
            raise HttpAccessDenied(421, "this Host is not served here; name it with " + self.options[0])
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in self.origins:
            raise HttpAccessDenied(403, "pages of this Origin may not call; name it with " + self.options[1])
        if self.token_hash is not None:
            scheme, _, token = headers.get("authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not hmac.compare_digest(_hash(token.strip()), self.token_hash):
                raise HttpAccessDenied(
                    401, "a token is needed: send Authorization: Bearer …", (b"www-authenticate", b"Bearer")
                )


def _hash(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogateescape")).digest()


def check_json(headers: dict[str, str]) -> None:
    """A browser's form can post anything but this type without asking first."""
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HttpAccessDenied(415, "Content-Type must be application/json")


def check_accept(headers: dict[str, str], *wanted: str) -> None:
    """MCP: a client says that it takes JSON and event streams alike."""
    accepted = {part.partition(";")[0].strip().lower() for part in headers.get("accept", "").split(",")}
    for kind in wanted:
        if not accepted & {kind, "*/*", f"{kind.partition('/')[0]}/*"}:
            raise HttpAccessDenied(406, f"Accept must list {' and '.join(wanted)}")


async def read_body(receive: Receive, headers: dict[str, str], limit: int) -> bytes:
    """The whole body; raises HttpAccessDenied when it is larger than the limit."""
    too_large = HttpAccessDenied(413, f"a body has at most {limit} bytes")
    if (length := headers.get("content-length", "")).isdecimal() and int(length) > limit:
        await discard_body(receive, headers)
        raise too_large
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise HttpAccessDenied(400, "disconnected before the end of the body")
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            if message.get("more_body"):
                await discard_body(receive)
            raise too_large
        parts.append(part)
        if not message.get("more_body"):
            return b"".join(parts)
