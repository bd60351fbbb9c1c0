"""Settings and limits of a relay.

A refusal names the limit that was met.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from moot.errors import UsageError
from moot.net.server_tls import TlsFiles
from moot.xprotocol.event_store.event_store import StoreLimits
from moot.xprotocol.events.events import MAX_EVENT_BYTES
from moot.xprotocol.events.relay_auth import relay_address

# The default of devserver and documentation.
# Beside the adapter: its MCP clients connect to 8765, and its pages are on 8766.
DEFAULT_PORT = 8764
DEFAULT_STORE = StoreLimits()
MAX_CONNECTIONS: Final = 10_000
CONNECTIONS_PER_ADDRESS: Final = 64
# Four of the largest events.
OUTBOX_BYTES: Final = 4 << 20
OUTBOX_MESSAGES: Final = 8_192
# Room for the message around the largest event.
MAX_MESSAGE_BYTES: Final = MAX_EVENT_BYTES + 1_024
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayLimits:
    """What one connection and one sender may do."""

    # Verifying takes some 100 µs: a connection at this rate uses a twentieth of a core. 0: no limit.
    events_per_second: float = 500.0
    max_burst_events: int = 2_000
    # Of one key, over all its connections. 0: no limit.
    sender_events_per_second: float = 500.0
    max_sender_burst_events: int = 2_000
    # Keys whose rate is tracked; the one that was idle longest is dropped first.
    max_senders: int = 50_000
    # Events of one connection that are not committed yet.
    max_unconfirmed_events: int = 4_096
    # REQ, CLOSE and AUTH.
    requests_per_second: float = 20.0
    max_burst_requests: int = 100
    # Invalid messages, events and proofs; beyond it the connection is closed with 1008.
    faults_per_second: float = 5.0
    max_burst_faults: int = 50
    max_subscriptions: int = 32
    max_subscription_id_chars: int = 64
    max_filters: int = 8
    # In one list of a filter.
    max_filter_values: int = 256
    # Keys that one connection may authenticate.
    max_keys: int = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaySettings:
    """All settings of a relay."""

    data: Path
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    # Public addresses, if they differ from where it listens (a proxy, a public name).
    urls: tuple[str, ...] = ()
    limits: RelayLimits = RelayLimits()
    store: StoreLimits = DEFAULT_STORE
    prune_interval_seconds: float = 60.0
    # With it, wss:// and https:// on the port.
    tls: TlsFiles | None = None

    @property
    def is_local(self) -> bool:
        """Whether it is only for this machine: it listens on loopback, and no proxy is configured."""
        return self.host in LOOPBACK and not self.urls

    @property
    def scheme(self) -> str:
        return "ws" if self.tls is None else "wss"

    def addresses(self, port: int) -> tuple[str, ...]:
        """The addresses of this relay in its clients' proofs; raises UsageError when they are unknown."""
        if self.urls:
            return tuple(dict.fromkeys(relay_address(url) for url in self.urls))
        if self.host in LOOPBACK:
            names = ("[::1]" if name == "::1" else name for name in LOOPBACK)
            return tuple(f"{self.scheme}://{name}:{port}" for name in names)
        if self.host in ("0.0.0.0", "::", ""):  # noqa: S104  # compared, not bound
            raise UsageError(
                f"a relay on {self.host or 'any address'} must know its public address: give it, "
                "for example --url wss://relay.example.org"
            )
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (relay_address(f"{self.scheme}://{host}:{port}"),)
