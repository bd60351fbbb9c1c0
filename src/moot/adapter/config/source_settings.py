"""What an adapter is told about its sources: MCP servers (XP 3.1 `mcp_sources`) and XProtocol endpoints.

Everything is resolved here: command lines are split, short capabilities written out, secrets fetched from the
environment. Secrets are `Secret`s or hidden from every repr; no field of these structs may be published.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from moot.config.gateway_config import Secret
from moot.errors import UsageError
from moot.mcp.stdio_child import Command
from moot.mcp.upstream.server_settings import HttpServer, Server, StdioServer
from moot.protocol.operation import Json
from moot.xprotocol.source_overrides import SourceSettings

SourceTransport = Literal["stdio", "sse", "http"]

# XP 7.2.
REFRESH_SECONDS: Final = 300.0
# 0 is never; a year bounds the rest.
Interval = Annotated[float, msgspec.Meta(ge=0, le=31_536_000)]
API_KEY_HEADER: Final = "X-API-Key"


class BearerAuth(msgspec.Struct, frozen=True, kw_only=True):
    """`auth: {type: bearer, token_env: NAME}`: an Authorization header."""

    token: Secret


class ApiKeyAuth(msgspec.Struct, frozen=True, kw_only=True):
    """`auth: {type: api_key, header: X-API-Key, token_env: NAME}` (XP 8.2): a header of its own."""

    key: Secret
    header: str = API_KEY_HEADER


class CertificateAuth(msgspec.Struct, frozen=True, kw_only=True):
    """`auth: {type: client_certificate, cert_file: …, key_file: …}` (XP 8.2): TLS with a certificate of ours.

    Both are PEM files; `password` opens the key, if it is locked.
    """

    cert_file: Path
    key_file: Path
    password: Secret | None = None


Auth = BearerAuth | ApiKeyAuth | CertificateAuth


class McpSource(msgspec.Struct, frozen=True, kw_only=True):
    """One MCP server that becomes part of the endpoint (direction 1)."""

    # Unique among all sources; shown in the announce.
    name: str
    # XP 3.1, D-73: `stdio` starts a process, `sse` takes Streamable HTTP or what it replaced, `http` only the
    # former.
    transport: SourceTransport
    # Namespace, capabilities, allow-list, overrides, quality, what is exposed: all that translation needs.
    translation: SourceSettings
    # Program and arguments, for stdio (D-72).
    argv: tuple[str, ...] = ()
    # All that the process gets beside what every child inherits; `pass_env` is in it.
    env: Mapping[str, str] = msgspec.field(default_factory=dict)
    # Where the process runs; None: where the adapter does.
    cwd: Path | None = None
    # For sse and http.
    url: str | None = None
    auth: Auth | None = None
    # PEM file of the authorities that may vouch for the server; None: those that the system trusts.
    ca_file: Path | None = None
    # Tools that are never exposed, whatever the allow-list says.
    tool_denylist: frozenset[str] = frozenset()
    # XP 8.4: calls that one key may make of this source in a minute; None: as `limits` say.
    requests_per_minute: int | None = None
    # D-72: 0 is never, beside start and `xp.schema.refresh`.
    schema_refresh_interval_seconds: float = REFRESH_SECONDS
    # D-87: a tool whose definition changes is held back until somebody consents. Off here, unlike in a space:
    # XP 7.2 wants changes published, and a version tells of them.
    pin: bool = False

    @property
    def namespace(self) -> str:
        return self.translation.namespace

    def exposed(self, tools: Iterable[Json]) -> list[Json]:
        """The tools of a list that are not denied; the allow-list is translation's."""
        return [
            tool for tool in tools if not (isinstance(tool, dict) and tool.get("name") in self.tool_denylist)
        ]

    def server(self, inherited: Mapping[str, str]) -> Server:
        """How this source is reached; `inherited` is the environment that children get a little of."""
        if self.url is None:
            return StdioServer(
                command=Command(
                    argv=self.argv, env=self.env, cwd=None if self.cwd is None else str(self.cwd)
                ),
                inherited=inherited,
            )
        headers: dict[str, str] = {}
        match self.auth:
            case BearerAuth(token=token):
                headers["Authorization"] = f"Bearer {token.reveal()}"
            case ApiKeyAuth(key=key, header=header):
                headers[header] = key.reveal()
            case CertificateAuth() | None:
                pass
        transport: Literal["auto", "http"] = "http" if self.transport == "http" else "auto"
        return HttpServer(url=self.url, headers=headers, transport=transport, tls=self.tls())

    def tls(self) -> ssl.SSLContext | None:
        """What TLS needs beyond the system's own: our certificate, or other authorities; None: nothing.

        Raises UsageError when a file of it cannot be used.
        """
        auth = self.auth if isinstance(self.auth, CertificateAuth) else None
        if auth is None and self.ca_file is None:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if auth is not None:
                locked = auth.password
                # A password in any case: without one, OpenSSL would ask for it on the terminal.
                password = locked.reveal() if locked is not None else ""
                context.load_cert_chain(auth.cert_file, auth.key_file, password)
        except OSError as fault:
            # OpenSSL's words name neither file nor secret.
            raise UsageError(f"the certificate files cannot be used: {fault.strerror}") from None
        return context

    def __repr__(self) -> str:
        # Arguments and variables may hold keys.
        return f"McpSource({self.name!r}, {self.transport!r}, {self.namespace!r})"


class XProtocolSource(msgspec.Struct, frozen=True, kw_only=True):
    """One XProtocol endpoint that becomes MCP tools (direction 2): `endpoint`, or `key` and `relay`."""

    # Unique among all sources; shown in the announce.
    name: str
    # `xp://host`, or `xp://host:port`.
    endpoint: str | None = None
    # The endpoint's ed25519 key, where it is not to be discovered.
    key: str | None = None
    # A relay where that key is reached, tried before our own.
    relay: str | None = None
    # D-68: put before the names of tools that do not begin with it.
    mcp_tool_prefix: str = ""
    # Kinds that become tools; empty: all.
    schema_filter: tuple[str, ...] = ()
    # How often its catalog is fetched again; 0 is never.
    schema_refresh_interval_seconds: float = REFRESH_SECONDS
    # How long an answer may take.
    call_timeout_seconds: float = 60.0
    # Whether discovery may lead to loopback and private addresses; for networks of one's own.
    allow_private_addresses: bool = False
    # XP 6.4: the file with the chain of delegations by which the adapter acts for somebody else here.
    delegation_event: Path | None = None
    # Files with `xp.capability.grant` events that are sent along with calls (D-59).
    proofs: tuple[Path, ...] = ()

    @property
    def address(self) -> str:
        """How the source is named to people: its endpoint, or its key."""
        return self.endpoint or self.key or ""

    def shows(self, kind: str) -> bool:
        """XP 3.1: whether a schema becomes a tool."""
        return not self.schema_filter or kind in self.schema_filter
