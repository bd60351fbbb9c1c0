"""From which address a request came to the gateway that relays it: told to the next one, and signed.

The secret is in a bucket of NATS, which only gateways read. Whoever else writes such a header is not
believed: its request counts for the address that the connection comes from.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import secrets
from collections.abc import Callable
from ipaddress import ip_address
from typing import Final, Protocol

from moot.errors import Unavailable

log = logging.getLogger(__name__)

_KEY: Final = "relay-secret"
_SECRET_BYTES: Final = 32
_RETRY_SECONDS: Final = 1.0
# By the log's time, which all gateways have; two of them may have read it unequally far.
_VALID_SECONDS: Final = 30.0


class Values(Protocol):
    """Where the gateways of a cluster keep what they have in common."""

    async def create(self, key: str, value: bytes) -> bytes: ...


class RelayClaims:
    """Signs and reads them. `clock` is the log's time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._secret = b""

    @property
    def is_ready(self) -> bool:
        return bool(self._secret)

    async def load(self, values: Values) -> None:
        """Done when this gateway has the secret of its cluster, which whoever was first has made."""
        while not self._secret:
            try:
                self._secret = await values.create(_KEY, secrets.token_bytes(_SECRET_BYTES))
            except Unavailable as refusal:
                log.warning("the secret of relays cannot be read", extra={"why": refusal.message})
                await asyncio.sleep(_RETRY_SECONDS)

    def sign(self, address: str, method: str, target: bytes) -> bytes:
        at = f"{self._clock():.3f}"
        return f"{at} {address} {self._mac(at, address, method, target)}".encode()

    def read(self, method: str, target: bytes, claim: bytes) -> str | None:
        """The address; None if it was not signed by a gateway of this cluster, for this request, now."""
        try:
            at, address, mac = claim.decode("ascii").split(" ")
            age = abs(self._clock() - float(at))
            ip_address(address.partition("%")[0])
        except ValueError:
            return None
        is_signed = self.is_ready and hmac.compare_digest(mac, self._mac(at, address, method, target))
        return address if is_signed and age <= _VALID_SECONDS else None

    def _mac(self, at: str, address: str, method: str, target: bytes) -> str:
        signed = f"relay {at} {address} {method} ".encode() + target
        return hmac.new(self._secret, signed, hashlib.sha256).hexdigest()
