"""Settings of a relay."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from moot.errors import UsageError
from moot.net.server_tls import TlsFiles
from moot.xprotocol.event_store.event_store import MAX_EVENTS
from moot.xprotocol.events.events import MAX_EVENT_BYTES
from moot.xprotocol.events.relay_auth import relay_address

# The default of devserver and documentation.
# Beside the adapter: its MCP clients connect to 8765, and its pages are on 8766.
DEFAULT_PORT = 8764
MAX_CONNECTIONS: Final = 10_000
CONNECTIONS_PER_ADDRESS: Final = 64
# Four of the largest events.
OUTBOX_BYTES: Final = 4 << 20
OUTBOX_MESSAGES: Final = 8_192
# Room for the message around the largest event.
MAX_MESSAGE_BYTES: Final = MAX_EVENT_BYTES + 1_024
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaySettings:
    """All settings of a relay."""

    data: Path
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    # Public addresses, if they differ from where it listens (a proxy, a public name).
    urls: tuple[str, ...] = ()
    # Whether connections and senders have rates; False for closed networks and benchmarks.
    has_rate_limits: bool = True
    # Kept before new ones are refused.
    max_events: int = MAX_EVENTS
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
