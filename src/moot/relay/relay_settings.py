"""What a relay may be asked to carry: each limit with its name and its number.

A refusal names the limit, so that whoever meets one knows which to raise.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from moot.errors import UsageError
from moot.net.http_protocol import ConnectionLimits
from moot.net.outbox import OutboxLimits
from moot.net.websocket_server import SocketLimits
from moot.store.event_store import StoreLimits
from moot.xprotocol.events import MAX_EVENT_BYTES
from moot.xprotocol.relay_auth import relay_address

# Where devserver and documentation expect a relay.
DEFAULT_PORT = 8765
DEFAULT_STORE = StoreLimits()
DEFAULT_DOOR = ConnectionLimits(max_connections=10_000)
# Four of the largest events behind, or ten seconds without taking any.
DEFAULT_OUTBOX = OutboxLimits(bytes=4 << 20, messages=8_192, seconds=10.0)
# Room for the words around the largest event.
DEFAULT_SOCKETS = SocketLimits(message_bytes=MAX_EVENT_BYTES + 1_024)
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayLimits:
    """What one connection and one sender may do."""

    # Verifying takes some 100 µs: a connection at this rate takes a twentieth of a core. 0: any number.
    events_per_second: float = 500.0
    events_burst: int = 2_000
    # Of one key, over all its connections. 0: any number.
    sender_events_per_second: float = 500.0
    sender_events_burst: int = 2_000
    # Keys whose rate is remembered; the one that was quiet longest is forgotten first.
    senders_counted: int = 50_000
    # Events of one connection that wait for their commit.
    unconfirmed_events: int = 4_096
    # REQ, CLOSE and AUTH.
    requests_per_second: float = 20.0
    requests_burst: int = 100
    # Messages that are none, events that do not verify, proofs that fail; then 1008.
    faults_per_second: float = 5.0
    faults_burst: int = 50
    subscriptions: int = 32
    subscription_id_chars: int = 64
    filters: int = 8
    # In one list of a filter.
    filter_values: int = 256
    # Keys that one connection may prove.
    keys: int = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaySettings:
    """Everything that a relay needs to know."""

    data: Path
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    # Addresses under which clients reach it, when that is not where it listens (a proxy, a public name).
    urls: tuple[str, ...] = ()
    limits: RelayLimits = RelayLimits()
    store: StoreLimits = DEFAULT_STORE
    door: ConnectionLimits = DEFAULT_DOOR
    outbox: OutboxLimits = DEFAULT_OUTBOX
    sockets: SocketLimits = DEFAULT_SOCKETS
    prune_seconds: float = 60.0

    @property
    def is_local(self) -> bool:
        """Whether nobody but this machine is meant to reach it: no proxy stands before it either."""
        return self.host in LOOPBACK and not self.urls

    def addresses(self, port: int) -> tuple[str, ...]:
        """How this relay is known, for the proofs of its clients; raises UsageError when nobody has said."""
        if self.urls:
            return tuple(dict.fromkeys(relay_address(url) for url in self.urls))
        if self.host in LOOPBACK:
            return tuple(f"ws://{'[::1]' if name == '::1' else name}:{port}" for name in LOOPBACK)
        if self.host in ("0.0.0.0", "::", ""):  # noqa: S104  # compared, not bound
            raise UsageError(
                f"a relay on {self.host or 'any address'} must know how clients reach it: give its address, "
                "for example --url wss://relay.example.org"
            )
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (relay_address(f"ws://{host}:{port}"),)
