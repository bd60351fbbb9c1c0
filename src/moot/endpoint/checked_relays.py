"""Relays that a stranger named: every connection goes to an address that was checked, each time anew.

`Relays` dials what an operator wrote down. What discovery found may lead anywhere, now or when it reconnects
tomorrow, so here the name is resolved, looked at and connected to in one step (`addresses`).
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from moot.endpoint.address_check import ForbiddenAddress, connect
from moot.endpoint.document_fetch import FetchPolicy
from moot.endpoint.relay_client import DEFAULT_SETTINGS, RelayClient
from moot.endpoint.relay_session import RelaySession, _RelayFrameListener
from moot.endpoint.relay_settings import RelaysSettings
from moot.errors import ConnectionLost, TimedOut, Unreachable
from moot.net.websocket_client import ClientSocket, UpgradeRefused, dial

if TYPE_CHECKING:
    import socket

    from moot.identity.keys import Identity

log = logging.getLogger(__name__)


class CheckedRelays(RelayClient):
    """`Relays`, within `reach`."""

    def __init__(
        self,
        urls: Sequence[str],
        identity: Identity,
        reach: FetchPolicy,
        settings: RelaysSettings = DEFAULT_SETTINGS,
        *,
        on_change: Callable[[str | None], None] = lambda _url: None,
    ) -> None:
        super().__init__(urls, identity, settings, on_change=on_change)
        self.reach = reach

    async def _opened(self, url: str) -> RelaySession | None:
        try:
            return await _CheckedSession.open(url, self._identity, self, self._settings)
        except (Unreachable, UpgradeRefused, TimedOut, ConnectionLost, ForbiddenAddress) as fault:
            self.last_fault = fault
            log.info("a relay cannot be used", extra={"relay": url, "fault": str(fault)})
            return None


class _CheckedSession(RelaySession):
    async def _dialled(self, *, listens: bool) -> ClientSocket:
        relays, limits = self._audience, self._settings.dial
        assert isinstance(relays, CheckedRelays)  # noqa: S101  # made in `_opened` above, nowhere else
        reach = relays.reach

        async def open_socket(host: str, port: int) -> socket.socket:
            return await connect(
                host,
                port,
                within=limits.connect_seconds,
                allow_private=reach.allow_private,
                resolve=reach.resolve,
            )

        return await dial(
            self.url,
            _RelayFrameListener(self, listens=listens),
            headers={},
            limits=limits,
            open_socket=open_socket,
            tls=None if reach.ca_file is None else ssl.create_default_context(cafile=str(reach.ca_file)),
        )
