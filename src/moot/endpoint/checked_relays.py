"""A relay client for untrusted relay addresses: each connection goes to an address that was checked.

`RelayClient` dials what an operator configured. Addresses from discovery may lead anywhere, now or at any
reconnect, so here the name is resolved, checked and connected to in one step (`address_check`).
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from moot.endpoint.address_check import ForbiddenAddress, connect_checked
from moot.endpoint.document_fetch import FetchPolicy
from moot.endpoint.relay_client import DEFAULT_SETTINGS, RelayClient
from moot.endpoint.relay_session import RelaySession, SessionFrameListener
from moot.endpoint.relay_settings import RelayClientSettings
from moot.errors import ConnectionLost, TimedOut, Unreachable
from moot.net.websocket_client import ClientSocket, UpgradeRefused, dial

if TYPE_CHECKING:
    import socket

    from moot.identity.keys import Identity

log = logging.getLogger(__name__)


class CheckedRelays(RelayClient):
    """`RelayClient` within a `FetchPolicy`."""

    def __init__(
        self,
        urls: Sequence[str],
        identity: Identity,
        fetch_policy: FetchPolicy,
        settings: RelayClientSettings = DEFAULT_SETTINGS,
        *,
        on_change: Callable[[str | None], None] = lambda _url: None,
    ) -> None:
        super().__init__(urls, identity, settings, on_change=on_change)
        self.fetch_policy = fetch_policy

    async def _open_session(self, url: str) -> RelaySession | None:
        try:
            return await _CheckedSession.open(url, self._identity, self, self._settings)
        except (Unreachable, UpgradeRefused, TimedOut, ConnectionLost, ForbiddenAddress) as fault:
            self.last_fault = fault
            log.info("a relay is unavailable", extra={"relay": url, "fault": str(fault)})
            return None


class _CheckedSession(RelaySession):
    async def _dial(self, *, is_subscriber: bool) -> ClientSocket:
        relays, limits = self._listener, self._settings.dial
        assert isinstance(relays, CheckedRelays)  # noqa: S101  # made in `_opened` above, nowhere else
        fetch_policy = relays.fetch_policy

        async def open_socket(host: str, port: int) -> socket.socket:
            return await connect_checked(
                host,
                port,
                timeout_seconds=limits.connect_seconds,
                allow_private=fetch_policy.allow_private,
                resolve=fetch_policy.resolve,
            )

        return await dial(
            self.url,
            SessionFrameListener(self, is_subscriber=is_subscriber),
            headers={},
            limits=limits,
            open_socket=open_socket,
            tls=None
            if fetch_policy.ca_file is None
            else ssl.create_default_context(cafile=str(fetch_policy.ca_file)),
        )
