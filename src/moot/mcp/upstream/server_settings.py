"""Which MCP server to talk to, and every bound on talking to it."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path, PurePath
from typing import Final, Literal
from urllib.parse import urlsplit

from moot.errors import UsageError
from moot.mcp.child_process import ChildLimits, Command
from moot.mcp.eras import JsonObject
from moot.protocol.strict_json import encode

# A client that can be asked anything: what cannot be answered is declined, by whoever is asked.
ALL_CAPABILITIES: Final[JsonObject] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}},
    "roots": {},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamLimits:
    """Every bound on one connection to an MCP server."""

    child: ChildLimits = field(default_factory=ChildLimits)
    # `npx` may have to fetch the server first.
    start_seconds: float = 60.0
    # A server that has not answered `server/discover` by then is asked to `initialize` as well.
    probe_seconds: float = 3.0
    # A call without any sign of progress; every sign starts it anew.
    call_seconds: float = 300.0
    # A call in all, whatever it reports: what a space allows an answer to be owed.
    call_seconds_at_most: float = 3_600.0
    # How long a caller waits for a server that is being started or restarted.
    patience_seconds: float = 10.0
    # Whether a server that let a call time out still lives is found out so quickly; callers wait for it.
    health_seconds: float = 5.0
    # Calls in progress at once: more than that is a loop.
    calls: int = 256
    # Calls that wait for input, and for how long: a person reads and types.
    parked: int = 64
    input_seconds: float = 300.0
    # Questions of one call in all; the SDKs give up after ten rounds.
    asks_per_call: int = 32
    # Messages that nobody asked for, in a second, before reading from the server pauses.
    unsolicited_per_second: float = 500.0
    # Containers inside each other in one message: a space takes 64, its own two included.
    depth: int = 60
    # Watched resources in all.
    watched: int = 1_024
    # Pages of one list: a server that always has another page ends here.
    pages: int = 100
    # Messages waiting to be posted over HTTP.
    queued: int = 1_024
    # Between two attempts to start: doubled each time, back to the first after a minute of service.
    backoff_seconds: float = 0.5
    backoff_seconds_at_most: float = 30.0
    steady_seconds: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StdioServer:
    """A server that is started as a child and spoken to over its stdin and stdout."""

    command: Command
    # What may be inherited of it is decided by the child's allow-list.
    inherited: Mapping[str, str] = field(default_factory=dict)
    # Where its stderr is kept besides in memory.
    stderr_file: Path | None = None

    @property
    def label(self) -> str:
        """A name for people and files: what runs, without arguments that may hold keys."""
        digest = sha256(encode(list(self.command.argv))).hexdigest()[:12]
        return f"{PurePath(self.command.argv[0]).name}#{digest}" if self.command.argv else "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpServer:
    """A server that is reached over Streamable HTTP, or HTTP with SSE."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    # `auto` takes Streamable HTTP, and SSE where that is refused or the path ends in /sse.
    transport: Literal["auto", "http", "sse"] = "auto"
    # With https: a certificate of ours, or other authorities than the system's.
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise UsageError(f"{self.url!r} is no URL of an MCP server: it starts with http:// or https://")

    @property
    def label(self) -> str:
        """A name for people and files: the address without user, query and fragment."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    def __repr__(self) -> str:
        return f"HttpServer({self.label!r}, headers={sorted(self.headers)!r})"


Server = StdioServer | HttpServer
