"""The settings of sources: MCP servers (XP 3.1 `mcp_sources`) and XProtocol endpoints.

All values are resolved: command lines are split, short capabilities written out, secrets read from the
environment. Secrets are `Secret`s or hidden from every repr; no field of these structs may be published.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from moot.config.gateway_config import Positive, Seconds, Text
from moot.config.secrets.secret import Secret
from moot.errors import UsageError
from moot.mcp.stdio_child import Command
from moot.mcp.upstream.server_settings import HttpServer, Server, StdioServer
from moot.protocol.operation import Json
from moot.xprotocol.contracts.source_overrides import SourceSettings

SourceTransport = Literal["stdio", "sse", "http"]

# XP 7.2.
REFRESH_SECONDS: Final = 300.0
# 0 is never; at most a year.
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
    """`auth: {type: client_certificate, cert_file: …, key_file: …}` (XP 8.2): a TLS client certificate.

    Both are PEM files; `password` decrypts the key, if it is encrypted.
    """

    cert_file: Path
    key_file: Path
    password: Secret | None = None


Auth = BearerAuth | ApiKeyAuth | CertificateAuth


class RateLimit(msgspec.Struct, frozen=True, kw_only=True):
    requests_per_minute: Positive


class McpSource(SourceSettings, frozen=True, kw_only=True):
    """One MCP server that becomes part of the endpoint (direction 1): one entry of `mcp_sources`."""

    # XP 3.1, D-73: `stdio` starts a process, `sse` takes Streamable HTTP or what it replaced, `http` only the
    # former.
    transport: SourceTransport
    # For stdio: the program and arguments; split like a shell command, but no shell runs it (D-72).
    command: tuple[str, ...] | None = None
    # Further arguments, not split.
    args: tuple[str, ...] = ()
    # Environment variables for the process, besides what every child inherits.
    env: Mapping[str, str] = msgspec.field(default_factory=dict)
    # *Addition*: names of variables that the process gets from the adapter's environment, such as secrets.
    pass_env: Mapping[str, str] = msgspec.field(default_factory=dict)
    # Working directory of the process; None: the adapter's.
    cwd: Path | None = None
    # For sse and http.
    url: str | None = None
    # `{type: bearer | api_key | client_certificate, …}` (XP 8.2); secrets by `token_env` alone.
    auth: Auth | None = None
    # PEM file of the certificate authorities for the server; None: the system's.
    ca_file: Path | None = None
    # Tools that are never exposed, whatever the allow-list says.
    tool_denylist: tuple[str, ...] = ()
    # `{requests_per_minute: N}` for each key that calls (XP 8.4); None: no limit besides `limits`.
    rate_limit: RateLimit | None = None
    # D-72: 0: only at the start and on `xp.schema.refresh`. By default as at the top of the file.
    schema_refresh_interval_seconds: Interval = REFRESH_SECONDS
    # D-87: a tool whose definition changes is withheld until the operator accepts it. Off here, unlike in a
    # space: XP 7.2 wants changes published, under a new version.
    pin: bool = False

    @property
    def argv(self) -> tuple[str, ...]:
        """Program and arguments; empty for a server that is not started here."""
        return (*(self.command or ()), *self.args)

    @property
    def variables(self) -> dict[str, str]:
        """What its process finds in its environment, secrets included."""
        return {**self.env, **self.pass_env}

    @property
    def requests_per_minute(self) -> int | None:
        return None if self.rate_limit is None else self.rate_limit.requests_per_minute

    def remove_denied(self, tools: Iterable[Json]) -> list[Json]:
        """The tools that are not denied; translation applies the allow-list."""
        return [
            tool for tool in tools if not (isinstance(tool, dict) and tool.get("name") in self.tool_denylist)
        ]

    def server(self, inherited: Mapping[str, str]) -> Server:
        """How to connect to this source; `inherited` is the environment that children get a part of."""
        if self.url is None:
            return StdioServer(
                command=Command(
                    argv=self.argv, env=self.variables, cwd=None if self.cwd is None else str(self.cwd)
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
        """The TLS context for a client certificate or other authorities; None: the default.

        Raises UsageError when a file of it cannot be used.
        """
        auth = self.auth if isinstance(self.auth, CertificateAuth) else None
        if auth is None and self.ca_file is None:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if auth is not None:
                password_secret = auth.password
                # Always pass a password: without one, OpenSSL would prompt on the terminal.
                password = password_secret.reveal() if password_secret is not None else ""
                context.load_cert_chain(auth.cert_file, auth.key_file, password)
        except OSError as fault:
            # OpenSSL's message names neither file nor secret.
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
    # A relay of that endpoint, tried before our own.
    relay: str | None = None
    # D-68: prefix for the names of tools that do not begin with it.
    mcp_tool_prefix: str = ""
    # Kinds that become tools; empty: all.
    schema_filter: tuple[Text, ...] = ()
    # How often its catalog is fetched again; 0 is never. By default as at the top of the file.
    schema_refresh_interval_seconds: Interval = REFRESH_SECONDS
    # Timeout of a call.
    call_timeout_seconds: Seconds = 60.0
    # Whether discovery may lead to loopback and private addresses, for endpoints in your own network.
    allow_private_addresses: bool = False
    # XP 6.4: the file with the chain of delegations by which the adapter acts for somebody else.
    delegation_event: Path | None = None
    # Files with `xp.capability.grant` events that are sent with calls (D-59).
    proofs: tuple[Path, ...] = ()

    @property
    def address(self) -> str:
        """The source's name for people: its endpoint, or its key."""
        return self.endpoint or self.key or ""
