"""The keys with which a provider signs: fetched in the background, kept, rotated, never waited for.

A key that is not known is looked for at once, at most every RETRY_SECONDS; whoever brought it is asked
to try again in a moment. A key that is still unknown after that is a wrong one. When the provider cannot be
reached its keys stay valid for MAX_AGE_SECONDS; then nobody new signs in. It is asked again after a
while that grows to a minute, and sooner if somebody wants to sign in: at most every RETRY_SECONDS.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Container, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from moot.config.gateway_config import is_loopback
from moot.config.oidc_config import OidcConfig
from moot.errors import MootError, Unreachable
from moot.net.http_client import HttpClient
from moot.protocol.latest_dict import LatestDict

log = logging.getLogger(__name__)

_FETCH_SECONDS: Final = 10.0
# Providers have two or three keys, and documents of some KiB.
_MAX_BYTES: Final = 256 << 10
_MAX_KEYS: Final = 64
_USES: Final = ("sig",)
# In a bundle of SPIFFE; those for X.509 are for nothing else.
_SPIFFE_USES: Final = ("sig", "jwt-svid")
_MIN_RSA_BITS: Final = 2_048
# Made-up key ids are remembered, so that each is looked for once.
_MAX_UNKNOWN: Final = 1_000
_FIRST_RETRY_SECONDS: Final = 1.0
_MAX_RETRY_SECONDS: Final = 60.0


# How often the provider's keys are fetched again.
REFRESH_SECONDS: Final = 300
# A key that is not known yet is looked for at most so often.
RETRY_SECONDS: Final = 10
# So long keys are believed of a provider that cannot be reached; then nobody new signs in.
MAX_AGE_SECONDS: Final = 86_400
OnWithdrawn = Callable[[str, frozenset[str | None]], Awaitable[None]]


class KeysUnavailable(Exception):
    """The key cannot be told for now; `retry_after` seconds later it can."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after = retry_after


class ProviderKey(NamedTuple):
    """A public key, and the algorithm that it is for, if the provider says so."""

    key: Any
    algorithm: str | None


class ProviderKeys:
    """The keys of one provider, and what its discovery document says."""

    def __init__(self, config: OidcConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self.config = config
        # What the discovery document says; empty before it was read.
        self.discovered: Mapping[str, Any] = {}
        self._clock = clock
        self._keys: dict[str | None, ProviderKey] = {}
        self._fetched_at: float | None = None
        self._began_at = 0.0
        self._looked_at = -float("inf")
        # When the last fetch began, or was asked for.
        self._tried_at = -float("inf")
        self._unknown: LatestDict[str | None, float] = LatestDict(_MAX_UNKNOWN)
        self._wanted = asyncio.Event()
        # Told the ids of keys that the provider has no more: whatever they signed is not believed any longer.
        self.on_withdrawn: OnWithdrawn | None = None
        # Of which it could not be told yet.
        self._untold: frozenset[str | None] = frozenset()

    def find(self, key_id: str | None) -> ProviderKey | None:
        """The key of that id; None for one that the provider does not have. Raises KeysUnavailable."""
        now, config = self._clock(), self.config
        if self._fetched_at is None or now - self._fetched_at > MAX_AGE_SECONDS:
            if now - self._tried_at >= RETRY_SECONDS:
                # The provider may be back: nobody should wait for the whole pause.
                self._tried_at = now
                self._wanted.set()
            raise KeysUnavailable(
                f"the keys of {config.issuer} cannot be fetched: try again in a moment", _FIRST_RETRY_SECONDS
            )
        if key_id is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        found = self._keys.get(key_id)
        if found is None and self._is_looked_for(key_id, now):
            raise KeysUnavailable(f"looking for a new key of {config.issuer}: try again in a moment", 1.0)
        return found

    def _is_looked_for(self, key_id: str | None, now: float) -> bool:
        """Whether somebody who brings an unknown key should try again."""
        seen = self._unknown.get(key_id)
        # A fetch after that did not bring it. It is looked for again, and wrong until it is there: whoever
        # comes seldom would be asked to try again each time.
        is_missing = seen is not None and self._began_at >= seen
        # Strangers do not make us ask the provider again and again.
        if now - self._looked_at >= RETRY_SECONDS:
            self._look_for(key_id, now)
        return not is_missing

    def _look_for(self, key_id: str | None, now: float) -> None:
        self._unknown[key_id] = self._looked_at = now
        self._wanted.set()

    @property
    def key_ids(self) -> list[str | None]:
        return list(self._keys)

    async def fetch_once(self) -> None:
        """Ask the provider now; raises Unreachable or ValueError."""
        began = self._clock()
        self._keys = await self._fetch_keys()
        self._fetched_at, self._began_at = self._clock(), began

    async def run(self) -> None:
        """Keep the keys current, until cancelled."""
        wait = _FIRST_RETRY_SECONDS
        while True:
            # Before the fetch: whoever asks while it runs may want a key that is newer than its answer.
            self._wanted.clear()
            is_fetched = await self._refresh()
            wait = REFRESH_SECONDS if is_fetched else min(2 * wait, _MAX_RETRY_SECONDS)
            try:
                async with asyncio.timeout(wait):
                    await self._wanted.wait()
            except TimeoutError:
                continue

    async def _refresh(self) -> bool:
        began = self._tried_at = self._clock()
        try:
            keys = await self._fetch_keys()
        except (Unreachable, ValueError, RecursionError) as fault:
            log.warning("keys not fetched", extra={"issuer": self.config.issuer, "why": str(fault)})
            return False
        if set(keys) != set(self._keys):
            log.info("keys fetched", extra={"issuer": self.config.issuer, "keys": len(keys)})
        self._untold |= {each for each, key in self._keys.items() if keys.get(each) != key}
        self._keys, self._fetched_at, self._began_at = keys, self._clock(), began
        return await self._tell_withdrawn()

    async def _tell_withdrawn(self) -> bool:
        if self._untold and self.on_withdrawn is not None:
            try:
                await self.on_withdrawn(self.config.issuer, self._untold)
            except MootError as fault:
                log.warning("not signed out", extra={"issuer": self.config.issuer, "why": str(fault)})
                return False
        self._untold = frozenset()
        return True

    async def _fetch_keys(self) -> dict[str | None, ProviderKey]:
        config = self.config
        if not self.discovered:
            self.discovered = await self._discover()
        address = config.jwks_url or str(self.discovered.get("jwks_uri", ""))
        check_same_security(config.issuer, address)
        document = await _fetch_json(address)
        listed = document.get("keys")
        if not isinstance(listed, list) or len(listed) > _MAX_KEYS:
            raise ValueError(f"{address} is no list of keys")
        return read_keys(listed, uses=_SPIFFE_USES if config.is_spiffe else _USES)

    async def _discover(self) -> Mapping[str, Any]:
        """OpenID Connect Discovery 4: the document has to call itself exactly what we call the issuer."""
        issuer = self.config.issuer
        if self.config.is_spiffe:
            return {}
        try:
            document = await _fetch_json(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        except (Unreachable, ValueError, RecursionError):
            if self.config.jwks_url is not None:
                return {}
            raise
        if document.get("issuer") != issuer:
            raise ValueError("the discovery document is of another issuer")
        return document


def read_keys(listed: list[Any], *, uses: Container[Any] = _USES) -> dict[str | None, ProviderKey]:
    """The public keys for signatures in a JWKS; what cannot be used is left out."""
    # Only here and in `token_verifier`: a gateway without a provider needs none of it.
    from jwt import PyJWK
    from jwt.exceptions import PyJWTError

    keys: dict[str | None, ProviderKey] = {}
    for entry in listed:
        if not isinstance(entry, dict) or entry.get("use", "sig") not in uses or entry.get("kty") == "oct":
            continue
        if "d" in entry:
            # The private part, for everybody to read: anybody could sign with it.
            continue
        try:
            key = PyJWK(entry).key
        except (PyJWTError, ValueError, TypeError, KeyError, NotImplementedError):
            continue
        if entry.get("kty") == "RSA" and key.key_size < _MIN_RSA_BITS:
            continue
        algorithm, key_id = entry.get("alg"), entry.get("kid")
        keys[key_id if isinstance(key_id, str) else None] = ProviderKey(
            key, algorithm if isinstance(algorithm, str) else None
        )
    return keys


def check_same_security(issuer: str, address: str) -> None:
    """Raises ValueError for an address that is less secure than the issuer's own."""
    parts = urlsplit(address)
    # The keys of a trust domain are where the operator says, which may be this machine.
    is_local = urlsplit(issuer).scheme in ("http", "spiffe") and is_loopback(parts.hostname or "")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_local):
        raise ValueError("an address of the provider does not begin with https://")


async def _fetch_json(address: str) -> dict[str, Any]:
    answer = await HttpClient(timeout_seconds=_FETCH_SECONDS, max_bytes=_MAX_BYTES).get(address)
    if answer.status != 200:
        raise ValueError(f"{urlsplit(address).netloc} answered {answer.status}")
    document = json.loads(answer.body)
    if not isinstance(document, dict):
        raise ValueError(f"{urlsplit(address).netloc} answered with no JSON object")
    return document
