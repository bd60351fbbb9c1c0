"""Where to join, as whom and how: one value for every part that needs some of it."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

import orjson

from moot.errors import MalformedEnvelope, UsageError
from moot.net.http_client import HttpClient
from moot.net.outbound import OpenSocket
from moot.net.websocket_client import websocket_url
from moot.participant.limits import DEFAULT_LIMITS, ParticipantLimits
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import DialectName, Envelope
from moot.protocol.operation import Json

# D-02, what of our own comes back to us: everything, nothing, or what nobody answers: all but requests that
# refer to nothing and belong to no context, whose answer or refusal says enough.
Echo = bool | Literal["unanswered"]
Hears = Literal["all", "mine"]


@dataclass(frozen=True, slots=True)
class ConnectOptions:
    """The options of `connect`, checked. Raises UsageError for what cannot be right."""

    # Several, separated by commas, for the gateways of a cluster.
    url: str
    space: str = ""
    # Asked each time where it is a function: a token that ends is replaced while we are connected.
    token_source: str | Callable[[], str] | None = field(default=None, repr=False)
    dialect: DialectName = "mew"
    participant: str | None = None
    # Ours, for gateways that do not know it from the token.
    name: str | None = None
    limits: ParticipantLimits = DEFAULT_LIMITS
    reconnect: bool = True
    passive: bool = False
    echo: Echo = True
    hears: Hears = "all"
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    open_socket: OpenSocket | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.dialect not in DIALECTS:
            raise UsageError(f"a space speaks {', '.join(DIALECTS)}; not {self.dialect!r}")
        if not self.urls:
            raise UsageError("the address of a gateway is missing")
        for url in self.urls:
            self.websocket_url(url)
        if isinstance(self.token_source, str):
            self.headers()

    @property
    def token(self) -> str | None:
        token = self.token_source() if callable(self.token_source) else self.token_source
        if token is not None and not token.isprintable():
            # A line break would begin another header.
            raise UsageError(
                "the token has a line break or another character that cannot be sent: look where it is from"
            )
        return token

    @property
    def urls(self) -> tuple[str, ...]:
        """The addresses of the gateways of a cluster, one for a gateway that is alone."""
        return tuple(each for url in self.url.split(",") if (each := url.strip()))

    def websocket_url(self, url: str) -> str:
        """MEW connects with `?space=`, the older dialects with `?topic=`; frames are asked for there."""
        query: dict[str, str] = {}
        if self.dialect == "mew":
            if self.space:
                query["space"] = self.space
        else:
            query = {"topic": self.space, "dialect": self.dialect, "streams": "1"}
        if self.echo is not True:
            query["echo"] = self.echo or "0"
        if self.hears != "all":
            query["hears"] = self.hears
        if self.passive:
            query["answers"] = "0"
        return websocket_url(url, "/ws", query)

    def decode(self, raw: bytes) -> Envelope | None:
        """What the gateway kept of an envelope; None where it is none."""
        try:
            return DIALECTS[self.dialect].decode(raw)
        except MalformedEnvelope:
            return None

    def history_url(self, url: str, participant: str, since: float) -> str:
        """Where the gateway at `url` lists what a participant was sent since then (seconds since 1970)."""
        query = {"since": repr(since), "dialect": self.dialect}
        if self.space:
            query["space"] = self.space
        return self.http_url(url, f"/participants/{quote(participant, safe='')}/messages", query)

    def journal_url(self, url: str, space: str, before: int | None) -> str:
        """Where the gateway at `url` lists what was said in a space before a place, or up to now."""
        query = {"dialect": self.dialect} | ({} if before is None else {"before": str(before)})
        return self.http_url(url, f"/spaces/{quote(space, safe='')}/history", query)

    def proposal_url(self, url: str, space: str, id: str) -> str:
        """Where the gateway at `url` tells one proposal whole."""
        path = f"/spaces/{quote(space, safe='')}/proposals/{quote(id, safe='')}"
        return self.http_url(url, path, {"dialect": self.dialect})

    def http_url(self, url: str, path: str, query: Mapping[str, str] | None = None) -> str:
        """An address of the gateway at `url` for HTTP."""
        parts = urlsplit(url)
        scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
        prefix = parts.path.rstrip("/").removesuffix("/ws")
        return urlunsplit((scheme, parts.netloc, f"{prefix}{path}", urlencode(query or {}), ""))

    def http_client(self, *, timeout_seconds: float, max_bytes: int) -> HttpClient:
        """For requests to the gateway, with the token that is valid now."""
        token = self.token
        return HttpClient(
            timeout_seconds=timeout_seconds,
            max_bytes=max_bytes,
            headers={} if token is None else {"Authorization": f"Bearer {token}"},
            tls=self.tls,
            open_socket=self.open_socket,
        )

    def headers(self) -> dict[str, str]:
        if self.token is None or self.participant is not None:
            return {}
        return {"Authorization": f"Bearer {self.token}"}

    def join_frame(self) -> bytes | None:
        """The first frame (D-20). Only it can ask for a runtime id (D-19).

        Beside a header it changes nothing, but the reference implementation's gateway looks at it alone, and
        takes the name that it gives. The older dialects have no such frame.
        """
        join: dict[str, Json] = {"type": "join"}
        if self.participant is not None:
            join["participantId"] = self.participant
        elif self.dialect != "mew" or self.token is None:
            return None
        elif self.name is not None:
            join["participantId"] = self.name
        if self.space:
            join["space"] = self.space
        if self.token is not None:
            join["token"] = self.token
        return orjson.dumps(join)
