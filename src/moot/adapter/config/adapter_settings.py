"""The adapter's configuration as values (XP 3.1): every setting with its default and the reason for it.

`loading` makes these from a file. Whatever is not in the document is an addition of ours and marked
*addition*: who may call (`access`, `trust`, `revoked`), where things are kept (`store`, `control`, `audit`)
and every bound (`limits`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from moot.adapter.config.source_settings import REFRESH_SECONDS, McpSource, XProtocolSource
from moot.config.gateway_config import Count, File, LogFormat, Port, Positive, Seconds, Secret, Text
from moot.offers.search_settings import SearchSettings
from moot.xprotocol.capability_names import Scopes
from moot.xprotocol.events import DEFAULT_TTL_SECONDS, MAX_LIFETIME_SECONDS

# XP 3.1: warn is the document's word, warning is what others call it.
LogLevel = Literal["debug", "info", "warn", "warning", "error"]
ListenerTransport = Literal["stdio", "sse", "http", "none"]
Lifetime = Annotated[int, msgspec.Meta(ge=1, le=MAX_LIFETIME_SECONDS)]

KEY_FILE: Final = Path("~/.xprotocol/adapter.key")
# The document's name for the file, where a command is told none.
CONFIG_NAMES: Final = ("xprotocol-mcp-adapter.yml", "xprotocol-mcp-adapter.yaml")


class IdentitySettings(msgspec.Struct, frozen=True, kw_only=True):
    """`identity:`: who the adapter is, and who stands above it."""

    # Made on first use where there is none; `~` is the home folder.
    key_file: Path = KEY_FILE
    # Published in the announce.
    display_name: Text = "XProtocol MCP Adapter"
    # The key above this one in its organisation: its delegations and revocations count here.
    parent_key: str | None = None
    # The chain of delegations that ends at this adapter, as `register` writes it.
    parent_delegation_event: Path | None = None


class RelaySection(msgspec.Struct, frozen=True, kw_only=True):
    """`relay:`: where events travel."""

    # The first is preferred, the others are fallen back on.
    urls: tuple[str, ...]
    # Between two rounds of trying all of them.
    reconnect_interval_seconds: Seconds = 5.0
    # How long an event of ours may travel: a day at most.
    event_ttl_seconds: Lifetime = DEFAULT_TTL_SECONDS


class McpServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`mcp_server:`: how MCP clients connect to this adapter."""

    # `stdio` for a client that starts the adapter, `sse` for HTTP with both of MCP's transports (D-73);
    # *additions*: `http` for Streamable HTTP alone, `none` for no listener at all.
    transport: ListenerTransport = "stdio"
    # Only for sse and http; `start --port` overrides it. 0 takes a free one.
    sse_port: Port = 8765
    # This machine alone.
    sse_host: Text = "127.0.0.1"
    # *Addition*: the environment variable with the token that HTTP clients have to show. Without one, whoever
    # reaches the port calls with this adapter's rights.
    token_env: str | None = None
    # What that variable holds; not a setting.
    token: Secret | None = None
    # *Addition*: values of Host that are answered besides the loopback names and `sse_host`.
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
    # This machine alone, unlike in the document's example: a proxy with TLS stands in front of it.
    well_known_host: Text = "127.0.0.1"
    # *Addition*: the host in `xp://host` under which this endpoint is found.
    domain: str | None = None
    # *Addition*: where others reach the well-known address, if that is not where it is served.
    public_url: str | None = None
    # *Addition*: `/metrics` there: counts, no keys.
    metrics: bool = True

    @property
    def address(self) -> str | None:
        """What others put before /.well-known/…; None: nobody has said."""
        if self.public_url is not None:
            return self.public_url.rstrip("/")
        return None if self.domain is None else f"https://{self.domain}"


class LoggingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`logging:`: ids and sizes, never payloads, tokens or keys' secrets."""

    level: LogLevel = "info"
    # `json` for machines, one object a line; `text` for people.
    format: LogFormat = "json"
    # `stdout`, `stderr` or a file. With a stdio listener, stdout is MCP's, and lines go to stderr (D-72).
    output: Text = "stdout"

    @property
    def severity(self) -> Literal["debug", "info", "warning", "error"]:
        """The level in the words of `moot.logs`."""
        return "warning" if self.level == "warn" else self.level


class AuditSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`audit:` (*addition*; XP 8.6): who called what, when, with what outcome: one JSON object a line."""

    # None: `audit.jsonl` in the store.
    file: File = None
    enabled: bool = True
    # Whether arguments and results stand there, too. Then the file needs as much care as what it is about.
    plaintext: bool = False
    # 16 MiB: an editor still opens it.
    file_bytes: Positive = 16 << 20
    # Older files kept beside the current one: 336 MiB in all.
    max_old_files: Count = 20


class AdapterLimits(msgspec.Struct, frozen=True, kw_only=True):
    """`limits:` (*addition*): every bound that can be set; a refusal names the one it met."""

    # Of one key over all sources, describes and refreshes included: 10 a second; 0: any number (XP 8.4).
    requests_per_minute: Count = 600
    # Keys whose rate is remembered; the one that was quiet longest is forgotten first.
    senders_counted: Positive = 50_000
    # Calls of all senders in progress at once, and of one sender.
    calls: Positive = 256
    calls_per_sender: Positive = 32
    # An MCP server's answer, without any sign of progress.
    upstream_call_seconds: Seconds = 60.0
    # An MCP server's start: `npx` may have to fetch it first.
    upstream_start_seconds: Seconds = 60.0
    # Resources subscribed to at once, by all and by one sender (XP 4.5).
    subscriptions: Positive = 1_024
    subscriptions_per_sender: Positive = 64
    # D-71: changes of schemas within it make one announce.
    announce_debounce_seconds: Seconds = 1.0
    # An announce is repeated so often, since events expire.
    announce_interval_seconds: Seconds = 1_800.0
    # Between two refreshes asked for by `xp.schema.refresh`: asking costs a server its whole list.
    refresh_seconds: Seconds = 5.0
    # A relay's OK to an answer of ours; relays may be away for a while. Then it is given up, says the log.
    answer_seconds: Seconds = 300.0
    # How often a resource is read whose server does not tell of changes (XP 4.5).
    resource_poll_seconds: Seconds = 30.0
    # Ids of events kept until these expire; when full, events are refused (xp1, Replay).
    seen_events: Positive = 1_000_000
    # Answers to `xp.schema.describe`.
    described: Positive = 100
    # Discovery of one endpoint: name, well-known document, catalog.
    discovery_seconds: Seconds = 15.0
    discovery_bytes: Positive = 8 << 20
    # Tools that one XProtocol endpoint may bring; MCP clients show them all to their model.
    tools_per_endpoint: Positive = 1_000
    # Calls to XProtocol endpoints in progress at once.
    outward_calls: Positive = 256
    # How long what is in progress may take to end when the adapter stops.
    stop_seconds: Seconds = 5.0


class AdapterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that an adapter is told. Paths are absolute, keys are checked, capabilities are in full."""

    identity: IdentitySettings
    relay: RelaySection
    mcp_sources: tuple[McpSource, ...] = ()
    xprotocol_sources: tuple[XProtocolSource, ...] = ()
    # None: the file has no `mcp_server:` and nothing to show to MCP clients.
    mcp_server: McpServerSettings | None = None
    discovery: DiscoverySettings = DiscoverySettings()
    logging: LoggingSettings = LoggingSettings()
    # D-72: how often a source's lists are fetched again where it does not say itself.
    schema_refresh_interval_seconds: float = REFRESH_SECONDS
    # *Addition* (D-59): key → capabilities that it has here.
    access: Mapping[str, Scopes] = msgspec.field(default_factory=dict)
    # *Addition*: keys whose delegations and revocations count here, beside `parent_key`.
    trust: frozenset[str] = frozenset()
    # *Addition*: keys that are void here whatever anybody says.
    revoked: frozenset[str] = frozenset()
    audit: AuditSettings = AuditSettings()
    # *Addition*: data folder: versions of schemas, seen events, pins, audit. Default: beside the key file,
    # with `.data` in place of its ending, since all of it belongs to that key.
    store: Path
    # *Addition*: the socket by which `status` and others on this machine reach the running adapter.
    control: Path
    search: SearchSettings = SearchSettings()
    limits: AdapterLimits = AdapterLimits()
    # The file all this came from; None: from nowhere.
    file: Path | None = None
    # What was read but may not be what was meant; no secrets.
    notes: tuple[str, ...] = ()

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Of all MCP sources, each once."""
        return tuple(dict.fromkeys(source.namespace for source in self.mcp_sources))

    @property
    def anchors(self) -> frozenset[str]:
        """Keys that are trusted by configuration: `trust:` and the parent's."""
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

    def source(self, name: str) -> McpSource | None:
        """The MCP source of that name."""
        return next((source for source in self.mcp_sources if source.name == name), None)
