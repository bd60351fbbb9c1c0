"""The `gateway:` section: every setting of the gateway with its default and the reason for it.

The reference page is written from this file: the comment above a field is what it says there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from moot.config.cluster_config import ClusterConfig
from moot.config.notification_config import NotificationsConfig
from moot.config.oidc_config import OidcConfig
from moot.config.secrets.kept_secret import InEnvironment


class McpEndpointConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`gateway.mcp`: MCP at a path of the gateway, for all members, each by their own token; or a list."""

    # The participant that learns for all of them what the space offers: it may request lists.
    server: Text
    # The space; it can be left out where there is only one.
    space: str = ""
    # Where it is served: /mcp, or something below it.
    path: str = "/mcp"
    # Members at the same time; one with two clients, or with two tokens, counts twice.
    max_people: Positive = 1_000
    # How long a call waits for a decision before it answers PENDING. Clients give up after a minute.
    decision_seconds: Seconds = 20


Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]
# A day bounds every wait.
Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]
Rate = Annotated[float, msgspec.Meta(gt=0, le=1_000_000)]
Text = Annotated[str, msgspec.Meta(min_length=1)]
File = Path | None
Names = tuple[str, ...] | None

JournalMode = Literal["strict", "on", "off"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["json", "text"]

# D-84: by these names a gateway is reached from its own machine.
LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")
# Clients leave these out of Host and Origin.
_HTTP_PORT: Final = 80
_HTTPS_PORT: Final = 443


class JournalConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`gateway.journal`: what is kept, and when it counts as kept (D-41). One word alone is the mode."""

    # `on` delivers at once and syncs behind; `strict` delivers only what is on disk; `off` keeps no journal.
    mode: JournalMode = "on"
    # Closed segments of 64 MiB kept for each space; 0 keeps all: what may be forgotten, the operator decides.
    retain_segments: Count = 0
    # Remove records that are older, by whole days; 0 keeps them. A space may have its own number.
    retain_days: Count = 0
    # Keep a signed log of hashes beside each journal, so that others can tell whether it was changed later.
    log: bool = True
    # Who is to sign the log's checkpoints, and how many of them: a policy (c2sp.org/tlog-policy) with URLs.
    witnesses: File = None
    # Public keys of other logs whose checkpoints this gateway signs when asked: it is their witness.
    witness_for: tuple[Text, ...] = ()
    # A file, better on another machine's disk, that gets a checkpoint of each log every ten minutes.
    anchor: File = None


class SmtpConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`gateway.smtp`: invitations by e-mail (MEW 3.6.5). Without this section none are sent."""

    # The mail server.
    host: Text
    # The sender's address.
    sender: Text = msgspec.field(name="from")
    # Submission (RFC 6409).
    port: Port = 587
    # A mail holds a token, so it does not travel in the clear unless this is turned off.
    starttls: bool = True
    # Who logs in; without one nobody does.
    user: str | None = None
    # The environment variable that holds the password. The password itself never stands in a file.
    password: InEnvironment | None = None


class LogConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`gateway.log`: ids and sizes, never payloads or tokens."""

    # `info` tells who joined, left, was refused or was slow; `debug` tells of every envelope.
    level: LogLevel = "info"
    # `text` is for people, `json` for machines: one object a line.
    format: LogFormat = "text"
    # Where lines go; without a file, to stderr. Five older files of 16 MiB are kept beside it.
    file: File = None


class HttpConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`gateway.http`: which endpoints there are besides the WebSocket and /health."""

    # MEW 5.3: POST /participants/{id}/messages.
    inject: bool = True
    # D-40: GET /participants/{id}/messages?since=.
    poll: bool = True
    # D-55: /admin/…, for those in admin_tokens and for whom a rule of `oidc` makes administrators.
    admin: bool = True
    # GET /metrics: counts, no names of participants.
    metrics: bool = True
    # The web console at /; without it a plain status page.
    console: bool = True


class TlsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`gateway.tls`: https and wss on the gateway's port. Without this section it speaks plain HTTP."""

    # The certificate in PEM, with those that lead to its authority behind it; relative to the file's folder.
    certificate: Path
    # Its private key in PEM, without a password and for this user alone.
    key: Path
    # Authorities of client certificates, in PEM; with it, whoever has none of theirs is not connected.
    client_ca: Path | None = None
    # Plain HTTP for programs on this machine, on 127.0.0.1 alone, such as those of `moot up`; 0: a free one.
    local_port: Port = 0


class GatewayConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`gateway:`. Everything has a default; an empty section is a gateway on this machine alone."""

    # This machine alone; who wants others in says so.
    host: Text = "127.0.0.1"
    # Where clients of the reference implementation look; 0 takes any free port.
    port: Port = 8080
    # Journal, snapshots and generated tokens; relative to the folder of the configuration file.
    data: Path = Path(".moot")
    # D-55: administrator → {token_env: NAME}, {token: …} or {} to have one generated; here as SHA-256.
    admin_tokens: Mapping[str, str] = msgspec.field(default_factory=dict)
    # Where people open the console, as https://moot.example.org: links in notifications and the sign-in link
    # of `moot up` begin with it.
    public_url: str | None = None
    # D-84: values of Host that are answered; by default the loopback names and `host`, with the port.
    # Commands in the folder and members of `moot up` need `localhost` here; it includes `127.0.0.1` and
    # `[::1]`.
    allowed_hosts: Names = None
    # D-84: values of Origin that are answered; by default the pages of this gateway itself.
    allowed_origins: Names = None
    # D-20: a token in a URL ends up in logs and histories.
    allow_query_token: bool = False
    # https and wss, for who comes from other machines.
    tls: TlsConfig | None = None
    # People sign in at a provider of identities: one section, or a list of them.
    oidc: tuple[OidcConfig, ...] = ()
    # MCP at a path of the gateway, such as /mcp: one section, or a list of them. Off without.
    mcp: tuple[McpEndpointConfig, ...] = ()

    # The longest life of a token of `moot member token`: a day unless you allow more, a year at most.
    max_minted_token_seconds: Annotated[float, msgspec.Meta(gt=0, le=366 * 86_400)] = 86_400
    # Eight members with eight windows each behind one address; 0 lifts it, as a proxy in front needs.
    max_connections_per_address: Count = 64
    # Twice what the benchmark holds; at 32 KiB each, 640 MiB.
    max_connections: Positive = 20_000

    # Large values of calls, such as files, of one space in all: those that nobody used for longest make room.
    max_space_content_bytes: Positive = 1 << 30

    # D-22: the space after which others are made when one of its members joins them; `true`: the default one.
    auto_create_spaces: bool | str = False

    # What is kept of everything that happens.
    journal: JournalConfig = JournalConfig()
    # Invitations by e-mail; none without it.
    smtp: SmtpConfig | None = None
    # Who is told outside of Moot that a proposal waits.
    notifications: NotificationsConfig = NotificationsConfig()
    # Several gateways for the same spaces; none without it.
    cluster: ClusterConfig | None = None
    # What the gateway tells its operator.
    log: LogConfig = LogConfig()
    # Which endpoints there are.
    http: HttpConfig = HttpConfig()

    def hosts(self, port: int) -> frozenset[str]:
        """The values of Host that are answered on the port that was bound, in lower case.

        An entry of `allowed_hosts` without a port stands for itself and for itself with this port.
        `localhost` also stands for the loopback addresses: rebinding takes a name, so no page of
        others sends those.
        """
        own = self.allowed_hosts is None
        names = self._own_names() if self.allowed_hosts is None else _with_addresses(self.allowed_hosts)
        bare_too = not own or port == self._default_port
        answered = {name.lower() if _has_port(name) else f"{name.lower()}:{port}" for name in names}
        answered |= {name.lower() for name in names} if bare_too else set()
        return frozenset(answered if self.cluster is None else answered | self.cluster.hosts)

    def origins(self, port: int) -> frozenset[str]:
        """The values of Origin that are answered on the port that was bound, in lower case.

        In a cluster, the pages of the other gateways are among them.
        """
        return self._own_origins(port) | (frozenset() if self.cluster is None else self.cluster.origins)

    def _own_origins(self, port: int) -> frozenset[str]:
        if self.allowed_origins is not None:
            return frozenset(origin.lower().rstrip("/") for origin in self.allowed_origins)
        shown = "" if port == self._default_port else f":{port}"
        if self.tls is None:
            return frozenset(f"http://{name.lower()}{shown}" for name in self._own_names())
        # Under TLS a name that is answered is ours: the certificate has to name it.
        names = {*self._own_names(), *(self.allowed_hosts or ())}
        return frozenset(f"https://{name.lower()}{'' if _has_port(name) else shown}" for name in names)

    @property
    def scheme(self) -> str:
        return "http" if self.tls is None else "https"

    @property
    def _default_port(self) -> int:
        return _HTTP_PORT if self.tls is None else _HTTPS_PORT

    def _own_names(self) -> Collection[str]:
        return {*LOOPBACK, *(() if is_wildcard(self.host) else (bracketed(self.host),))}


def local_hosts(port: int) -> frozenset[str]:
    """The values of Host by which programs on this machine reach a port on loopback."""
    return frozenset(f"{name}:{port}" for name in LOOPBACK)


def is_wildcard(host: str) -> bool:
    """Whether a host to listen on means every address of the machine."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_local(host: str) -> bool:
    """Whether an address with this host leads other machines nowhere."""
    return is_loopback(host) or is_wildcard(host)


def bracketed(host: str) -> str:
    """A host as it stands in a URL."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _with_addresses(names: Collection[str]) -> frozenset[str]:
    """These names, with the loopback addresses beside `localhost`, at the same port if it has one."""
    listed = {name.lower() for name in names}
    ports = [name.removeprefix("localhost") for name in listed if name.partition(":")[0] == "localhost"]
    return frozenset(listed | {f"{loopback}{port}" for port in ports for loopback in LOOPBACK})


def _has_port(name: str) -> bool:
    _, colon, port = name.rpartition("]")[2].rpartition(":")
    return bool(colon) and port.isdigit()
