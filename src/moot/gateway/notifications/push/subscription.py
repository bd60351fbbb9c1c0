"""A browser that wants to be told: where, with which keys, for whose token, and when not. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from moot.config.gateway_config import is_loopback
from moot.config.notification_config import PushConfig
from moot.errors import InvalidRequest
from moot.gateway.notifications.push.encryption import BrowserKeys, read_browser_keys
from moot.gateway.notifications.schedule import QuietTimes
from moot.protocol import base64url

# Those of all vendors are shorter than 600.
_MAX_ENDPOINT_CHARS: Final = 1_024
_ENDPOINT: Final = re.compile(r"https?://[!-~]+", re.ASCII | re.IGNORECASE)
_TIME: Final = re.compile(r"([01]\d|2[0-3]):[0-5]\d", re.ASCII)
_MAX_ZONE_CHARS: Final = 64


class QuietPart(msgspec.Struct, frozen=True, kw_only=True):
    """When this device is not told: a part of every day, by the clock of a time zone."""

    start: str = msgspec.field(name="from")
    end: str = msgspec.field(name="to")
    time_zone: str

    def times(self) -> QuietTimes | None:
        """None where this machine does not know the time zone."""
        try:
            return QuietTimes(self.start, self.end, ZoneInfo(self.time_zone))
        except (ValueError, OSError, ZoneInfoNotFoundError):
            return None


class ProviderAccount(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who signs in with a provider of identities or a passkey, when they were last here."""

    # As in their tokens: hashes of issuer and subject, and of issuer and session.
    keys: tuple[str, ...]
    # When the provider issued the token with which notifications were turned on.
    issued_at: float
    # Space → who they are there.
    participants: dict[str, str]
    # Seconds since 1970.
    seen_at: float
    # The id of the passkey that they sign in with.
    passkey: str = ""

    @property
    def owner(self) -> str:
        return f"account {self.keys[0]}"


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of it. Whoever knows `endpoint` and the key of the gateway can wake the browser."""

    endpoint: str
    # The browser's public key and secret, in base64url as it gives them.
    p256dh: str
    auth: str
    # Whose it is: SHA-256 of the token with which it was made, without which it ends; or an account.
    owner: str = msgspec.field(name="token")
    # Of whoever signed in with a provider.
    account: ProviderAccount | None = None
    # The public key of the gateway for which it was made.
    key: str
    # The page's own address, whom the push service may ask if nothing better is known.
    origin: str | None = None
    # Seconds since 1970.
    since: float
    quiet_hours: QuietPart | None = None

    @property
    def id(self) -> str:
        """What it is called: a page computes the same from its own endpoint."""
        return base64url.encode(hashlib.sha256(self.endpoint.encode()).digest())

    @property
    def name(self) -> str:
        """One word for logs and files that tells nothing about the endpoint."""
        identity = f"{self.owner} {self.endpoint}".encode()
        return f"push-{hashlib.sha256(identity).hexdigest()[:32]}"

    @property
    def browser_keys(self) -> BrowserKeys:
        return read_browser_keys(base64url.decode(self.p256dh), base64url.decode(self.auth))


def read_subscription(
    body: Mapping[str, object],
    config: PushConfig,
    *,
    owner: str,
    account: ProviderAccount | None,
    key: str,
    origin: str | None,
    since: float,
) -> Subscription:
    """What a page sends: the browser's subscription as JSON, and `quiet_hours`. Raises InvalidRequest."""
    keys = body.get("keys")
    endpoint, found = body.get("endpoint"), keys if isinstance(keys, dict) else {}
    p256dh, auth = found.get("p256dh"), found.get("auth")
    if not isinstance(endpoint, str) or not isinstance(p256dh, str) or not isinstance(auth, str):
        raise InvalidRequest(
            "endpoint, keys.p256dh and keys.auth are missing: send the subscription as it is"
        )
    check_endpoint(endpoint, config)
    try:
        read_browser_keys(base64url.decode(p256dh), base64url.decode(auth))
    except ValueError:
        raise InvalidRequest(
            "keys are no keys of a push subscription: send them as the browser gives them"
        ) from None
    return Subscription(
        endpoint=endpoint,
        p256dh=p256dh,
        auth=auth,
        owner=owner,
        account=account,
        key=key,
        origin=origin,
        since=since,
        quiet_hours=_quiet_hours(body.get("quiet_hours")),
    )


def check_endpoint(endpoint: str, config: PushConfig) -> None:
    """Raises InvalidRequest unless this can be an address of a push service that is allowed here."""
    if len(endpoint) > _MAX_ENDPOINT_CHARS or _ENDPOINT.fullmatch(endpoint) is None:
        raise InvalidRequest(f"endpoint is an https address of {_MAX_ENDPOINT_CHARS} characters at most")
    try:
        parts = urlsplit(endpoint)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise InvalidRequest("endpoint is no address") from None
    if not host or port == 0 or parts.username is not None or parts.password is not None or parts.fragment:
        raise InvalidRequest("endpoint has to name a host, and neither a user nor a fragment")
    is_plain = parts.scheme.lower() == "http"
    if is_plain and not (config.allow_private_addresses and is_loopback(host)):
        raise InvalidRequest("endpoint has to begin with https://")
    if not _is_allowed(host, config.allowed_hosts):
        raise InvalidRequest(
            "this gateway sends to no push service of that name: its operator can add it to"
            " gateway.notifications.push.allowed_hosts"
        )


def _is_allowed(host: str, allowed: Iterable[str]) -> bool:
    host = host.lower().rstrip(".")
    return any(
        each == "*" or (host.endswith(each[1:]) if each.startswith("*.") else host == each)
        for each in map(str.lower, allowed)
    )


def _quiet_hours(value: object) -> QuietPart | None:
    if value is None:
        return None
    try:
        quiet = msgspec.convert(value, QuietPart)
        if len(quiet.time_zone) > _MAX_ZONE_CHARS:
            raise ValueError("too long")
        ZoneInfo(quiet.time_zone)
    except (ValueError, OSError, ZoneInfoNotFoundError):
        raise InvalidRequest(
            'quiet_hours are {"from": "22:00", "to": "07:00", "time_zone": "Europe/Berlin"}'
        ) from None
    if not _TIME.fullmatch(quiet.start) or not _TIME.fullmatch(quiet.end) or quiet.start == quiet.end:
        raise InvalidRequest('quiet_hours go from one time of day to another one, as "22:00"')
    return quiet
