"""Which MCP server to talk to, who we say we are, and every bound on talking to it."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path, PurePath
from typing import Final, Literal, Protocol, cast
from urllib.parse import urlsplit

from moot import __version__
from moot.errors import McpError, UsageError
from moot.mcp.eras import Era, JsonObject
from moot.mcp.stdio_child import Command
from moot.mcp.upstream.connection import Listener
from moot.protocol.operation import Json
from moot.protocol.strict_json import encode

# Nested arrays and objects in one message: a space takes 64 levels, its own two included.
MAX_DEPTH: Final = 60
CLIENT_INFO: Final[JsonObject] = {"name": "moot", "version": __version__}
# A client that takes every kind of request: what a caller cannot answer, it declines itself.
ALL_CAPABILITIES: Final[JsonObject] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}},
    "roots": {},
}


# What stands between callers and a server: it gets what they do not write, and they do not read it.

# Method, params, owner, listener, timeout.
SendRequest = Callable[[str, JsonObject | None, str, Listener | None, float | None], Awaitable[JsonObject]]


class CallFilter(Protocol):
    """Changes what a server is sent and what it answers, where nobody else sees it: no log and no trace."""

    async def fill_call(self, params: JsonObject) -> JsonObject:
        """The params of a call as the server gets them; raises McpError."""

    def mask(self, value: Json) -> Json:
        """What came from the server as others may read it."""


async def send_filtered(
    call_filter: CallFilter,
    send: SendRequest,
    method: str,
    params: JsonObject | None,
    owner: str,
    listener: Listener | None,
    timeout: float | None,
) -> JsonObject:
    """Send a request as the server gets it; its answer as others may read it. Raises McpError."""
    mask = call_filter.mask

    def masked(name: str, about: JsonObject) -> None:
        if listener is not None:
            listener(name, cast("JsonObject", mask(about)))

    if method == "tools/call" and params is not None:
        params = await call_filter.fill_call(params)
    try:
        result = await send(method, params, owner, None if listener is None else masked, timeout)
    except McpError as fault:
        raise McpError(fault.code, str(mask(fault.message)), mask(fault.data)) from None
    return cast("JsonObject", mask(result))


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamLimits:
    """Every bound on one connection to an MCP server."""

    # `npx` may have to fetch the server first.
    start_seconds: float = 60.0
    # A server that has not answered `server/discover` by then is asked to `initialize` as well.
    probe_seconds: float = 3.0
    # A call without any progress notification; each one starts this time anew.
    call_seconds: float = 300.0
    # A call in all, whatever progress it reports: as long as a space waits for an answer.
    max_call_seconds: float = 3_600.0
    # How long a caller waits for a server that is being started or restarted.
    reconnect_wait_seconds: float = 10.0
    # How long the health check after a timed-out call may take; new calls wait for its result.
    health_seconds: float = 5.0
    # Calls in progress at once: more than that is a loop.
    max_calls: int = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamOptions:
    """How to talk to a server, whichever it is."""

    limits: UpstreamLimits = field(default_factory=UpstreamLimits)
    client_info: JsonObject = field(default_factory=lambda: CLIENT_INFO)
    capabilities: JsonObject = field(default_factory=lambda: ALL_CAPABILITIES)
    # The answer to a server that asks for roots outside of any call. Inside a call its caller is asked,
    # unless there are roots here.
    roots: tuple[JsonObject, ...] = ()
    # The only era of MCP to use; None: both over HTTP, and over stdio the handshake where the server has it.
    era: Era | None = None
    # Between callers and the server.
    call_filter: CallFilter | None = None


DEFAULT_OPTIONS: Final = UpstreamOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class StdioServer:
    """A server that is started as a child process and reached over its stdin and stdout."""

    command: Command
    # Our environment; an allow-list decides which of it the child inherits.
    inherited: Mapping[str, str] = field(default_factory=dict)
    # Where its stderr is kept, besides in memory.
    stderr_file: Path | None = None
    # Takes what nobody may read out of a line of it.
    mask_stderr: Callable[[bytes], bytes] | None = field(default=None, compare=False, repr=False)

    @property
    def label(self) -> str:
        """A name for people and files: what runs, without arguments that may hold keys."""
        digest = sha256(encode(list(self.command.argv))).hexdigest()[:12]
        return f"{PurePath(self.command.argv[0]).name}#{digest}" if self.command.argv else "nothing"


class RequestAuth(Protocol):
    """What signs requests to a server that asks who calls. Nothing here raises."""

    @property
    def waits_for(self) -> str | None:
        """What has to happen before anything can be sent, as the end of a sentence; None: nothing."""

    @property
    def problem(self) -> str | None:
        """Why requests are refused though nothing is waited for."""

    async def wait_until_ready(self) -> None:
        """Wait until nothing is waited for."""

    async def authorization(self) -> str | None:
        """The value of the header `Authorization`; None: send none."""

    async def on_unauthorized(self, sent: str | None, challenge: str) -> str | None:
        """A request was refused with 401; another value to try once, or None."""

    def on_forbidden(self, challenge: str) -> None:
        """A request was refused with 403."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpServer:
    """A server that is reached over Streamable HTTP, or HTTP with SSE."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    # `auto` takes Streamable HTTP, and SSE where that is refused or the path ends in /sse.
    transport: Literal["auto", "http", "sse"] = "auto"
    # With https: a client certificate, or other authorities than the system's.
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    # What signs requests, where a fixed header is not enough.
    auth: RequestAuth | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise UsageError(
                f"{self.url!r} is not the URL of an MCP server: it has to start with http:// or https://"
            )

    @property
    def label(self) -> str:
        """A name for people and files: the address without user, query and fragment."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    def __repr__(self) -> str:
        return f"HttpServer({self.label!r}, headers={sorted(self.headers)!r})"


Server = StdioServer | HttpServer
