"""The adapter's configuration as values (XP 3.1): every setting with its default and the reason for it.

`config_loader` makes these from a file. Settings that the specification does not have are marked *addition*:
who may call (`access`, `trust`, `revoked`), where data is kept (`store`, `control`, `audit`) and every limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from moot.config.gateway_config import Count, File, LogFormat, Port, Positive, Seconds, Text
from moot.config.secrets.secret import Secret
from moot.xprotocol.adapter.config.source_settings import REFRESH_SECONDS, McpSource, XProtocolSource
from moot.xprotocol.contracts.capabilities import Scopes
from moot.xprotocol.events.events import DEFAULT_TTL_SECONDS, MAX_LIFETIME_SECONDS

# XP 3.1: warn is the document's word, warning is what others call it.
LogLevel = Literal["debug", "info", "warn", "warning", "error"]
ListenerTransport = Literal["stdio", "sse", "http", "none"]
Lifetime = Annotated[int, msgspec.Meta(ge=1, le=MAX_LIFETIME_SECONDS)]

KEY_FILE: Final = Path("~/.xprotocol/adapter.key")
# File names that commands look for when no file is given.
CONFIG_NAMES: Final = ("xprotocol-mcp-adapter.yml", "xprotocol-mcp-adapter.yaml")
# D-71: schema changes within it make one announce.
ANNOUNCE_DEBOUNCE_SECONDS: Final = 1.0


class IdentitySettings(msgspec.Struct, frozen=True, kw_only=True):
    """`identity:`: the adapter's key, and the key above it."""

    # Made on first use where there is none; `~` is the home folder.
    key_file: Path = KEY_FILE
    # Published in the announce.
    display_name: Text = "XProtocol MCP Adapter"
    # The key above this one in its organisation: its delegations and revocations are accepted.
    parent_key: str | None = None
    # The chain of delegations that ends at this adapter, as `register` writes it.
    parent_delegation_event: Path | None = None


class RelaySection(msgspec.Struct, frozen=True, kw_only=True):
    """`relay:`: the relays that carry events."""

    # The first is preferred, the others are fallbacks.
    urls: tuple[str, ...]
    # Wait after all of them have failed.
    reconnect_interval_seconds: Seconds = 5.0
    # Lifetime of published events: a day at most.
    event_ttl_seconds: Lifetime = DEFAULT_TTL_SECONDS


class McpServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`mcp_server:`: how MCP clients connect to this adapter."""

    # `stdio` for a client that starts the adapter, `sse` for HTTP with both of MCP's transports (D-73);
    # *additions*: `http` for Streamable HTTP alone, `none` for no listener at all.
    transport: ListenerTransport = "stdio"
    # Only for sse and http; `start --port` overrides it. 0 takes a free one.
    sse_port: Port = 8765
    # Loopback by default.
    sse_host: Text = "127.0.0.1"
    # *Addition*: the environment variable with the token that HTTP clients have to send. Without one, anyone
    # who reaches the port calls with this adapter's rights.
    token_env: str | None = None
    # The value of that variable; not a setting.
    token: Secret | None = None
    # *Addition*: values of Host that are accepted besides the loopback names and `sse_host`.
    allowed_hosts: tuple[str, ...] = ()
    # *Addition*: values of Origin of web pages that may connect; none by default.
    allowed_origins: tuple[str, ...] = ()

    @property
    def over_http(self) -> bool:
        return self.transport in ("sse", "http")


class DiscoverySettings(msgspec.Struct, frozen=True, kw_only=True):
    """`discovery:`: how others find the endpoint."""

    # Prints the DNS TXT record to publish when the adapter starts.
    publish_dns: bool = False
    # Where `/.well-known/xprotocol-endpoint`, `/xp/schemas` and `/health` are served; 0 takes a free one.
    well_known_port: Port = 8766
    # Loopback, unlike in the specification's example: put a proxy with TLS in front of it.
    well_known_host: Text = "127.0.0.1"
    # *Addition*: the host in `xp://host` of this endpoint.
    domain: str | None = None
    # *Addition*: the public URL of the well-known pages, if it differs from where they are served.
    public_url: str | None = None
    # *Addition*: `/metrics` there: counts, no keys.
    metrics: bool = True

    @property
    def address(self) -> str | None:
        """The public base address of /.well-known/…; None: not configured."""
        if self.public_url is not None:
            return self.public_url.rstrip("/")
        return None if self.domain is None else f"https://{self.domain}"


class LoggingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`logging:`: ids and sizes, never payloads, tokens or keys' secrets."""

    level: LogLevel = "info"
    # `json` for machines, one object a line; `text` for people.
    format: LogFormat = "json"
    # `stdout`, `stderr` or a file. With a stdio listener, stdout is for MCP: lines go to stderr (D-72).
    output: Text = "stdout"

    @property
    def severity(self) -> Literal["debug", "info", "warning", "error"]:
        """The level as `moot.logs` names it."""
        return "warning" if self.level == "warn" else self.level


class AuditSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`audit:` (*addition*; XP 8.6): who called what, when, with what outcome; one JSON object per line."""

    # None: `audit.jsonl` in the store.
    file: File = None
    enabled: bool = True
    # Whether arguments and results are logged, too. Then the file is as sensitive as they are.
    plaintext: bool = False


class AdapterLimits(msgspec.Struct, frozen=True, kw_only=True):
    """`limits:` (*addition*): every limit that can be set; a refusal names the one it met."""

    # Requests of one key over all sources, describe and refresh included: 10 a second; 0: no limit (XP 8.4).
    requests_per_minute: Count = 600
    # Concurrent calls of all senders, and of one sender.
    max_calls: Positive = 256
    max_calls_per_sender: Positive = 32
    # Timeout of a call to an MCP server without progress.
    upstream_call_seconds: Seconds = 60.0
    # Timeout of an MCP server's start: `npx` may have to download it first.
    upstream_start_seconds: Seconds = 60.0


class AdapterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The whole configuration. Paths are absolute, keys are checked, capabilities are written in full."""

    identity: IdentitySettings
    relay: RelaySection
    mcp_sources: tuple[McpSource, ...] = ()
    xprotocol_sources: tuple[XProtocolSource, ...] = ()
    # None: no listener for MCP clients.
    mcp_server: McpServerSettings | None = None
    discovery: DiscoverySettings = DiscoverySettings()
    logging: LoggingSettings = LoggingSettings()
    # D-72: how often a source's lists are fetched again, unless the source has its own interval.
    schema_refresh_interval_seconds: float = REFRESH_SECONDS
    # *Addition* (D-59): key → capabilities of that key.
    access: Mapping[str, Scopes] = msgspec.field(default_factory=dict)
    # *Addition*: keys whose delegations and revocations are accepted, besides `parent_key`.
    trust: frozenset[str] = frozenset()
    # *Addition*: revoked keys.
    revoked: frozenset[str] = frozenset()
    audit: AuditSettings = AuditSettings()
    # *Addition*: data folder: versions of schemas, seen events, pins, audit. Default: next to the key file,
    # with the suffix `.data`, since all of it belongs to that key.
    store: Path
    # *Addition*: the Unix socket by which `status` and other commands reach the running adapter.
    control: Path
    limits: AdapterLimits = AdapterLimits()
    # The file that was read; None: there is none.
    file: Path | None = None
    # Warnings about settings that may not be what was meant; no secrets.
    notes: tuple[str, ...] = ()

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Of all MCP sources, each once."""
        return tuple(dict.fromkeys(source.namespace for source in self.mcp_sources))

    @property
    def anchors(self) -> frozenset[str]:
        """Keys that the configuration trusts: `trust:` and the parent's."""
        parent = self.identity.parent_key
        return self.trust if parent is None else self.trust | {parent}

    @property
    def uses_stdout(self) -> bool:
        """Whether stdout belongs to an MCP client (D-72)."""
        return self.mcp_server is not None and self.mcp_server.transport == "stdio"

    @property
    def audit_file(self) -> Path | None:
        """Where the audit log is written; None: nowhere."""
        if not self.audit.enabled:
            return None
        return self.audit.file or self.store / "audit.jsonl"
