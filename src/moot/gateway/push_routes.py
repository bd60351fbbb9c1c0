"""Notifications on a device over HTTP: `/push-subscriptions`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from moot.config import hash_token
from moot.config.notification_config import PushConfig
from moot.gateway.access import AccessDenied, SpaceDirectory
from moot.gateway.http_replies import RequestRefused, check_json, json_response, object_of
from moot.gateway.notifications.channels import DeliveryFailed, ReceiverGone
from moot.gateway.notifications.push.devices import PushDevices, PushUnavailable, TokenHolder
from moot.gateway.notifications.push.subscription import read_subscription
from moot.gateway.request_identity import token_of
from moot.protocol.envelope import rfc3339
from moot.protocol.operation import Json
from moot.resilience.rate_limits import sliding_windows

# An endpoint, two keys and quiet hours.
_MAX_BODY_BYTES: Final = 4_096
_MAX_TOKENS: Final = 10_000

RefuseToken = Callable[[AccessDenied, Request], AccessDenied]

_ENDS_BY_ITSELF: Final = (
    "this sign-in ends by itself, and notifications would end with it unnoticed: sign in with"
    " a token of your own to turn them on, or ask for a receiver in the configuration"
)


class PushRoutes:
    """Turning notifications on and off, for whoever has a token."""

    def __init__(
        self,
        directory: SpaceDirectory,
        config: PushConfig,
        devices: PushDevices,
        refuse_token: RefuseToken,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory
        self._config = config
        self._devices = devices
        self._refuse_token = refuse_token
        self._clock = clock
        self._subscribes = sliding_windows(config.max_subscribes_per_minute, 60.0, max_keys=_MAX_TOKENS)

    async def list(self, request: Request) -> Response:
        """The gateway's public key, the caller's devices, and why none can be added.

        A page says the reason before it asks a person for the browser's permission.
        """
        token, devices = self._caller(request)
        try:
            key = await devices.open_key()
        except PushUnavailable as fault:
            return _unavailable(str(fault))
        found = [
            {
                "id": each.id,
                "since": rfc3339(each.since),
                "quiet_hours": None
                if each.quiet_hours is None
                else {
                    "from": each.quiet_hours.start,
                    "to": each.quiet_hours.end,
                    "time_zone": each.quiet_hours.time_zone,
                },
            }
            for each in devices.devices_of(token)
        ]
        refused = _ENDS_BY_ITSELF if TokenHolder(self._directory, token).ends_by_itself() else None
        return json_response(200, {"key": key.public, "subscriptions": found, "refused": refused})

    async def add(self, request: Request) -> Response:
        """Turn notifications on for a device, which is sent a first one before this answers."""
        token, devices = self._caller(request)
        if TokenHolder(self._directory, token).ends_by_itself():
            # It would be on for an hour, and then silently off.
            raise RequestRefused(AccessDenied(403, _ENDS_BY_ITSELF))
        check_json(request)
        body = await object_of(request, _MAX_BODY_BYTES)
        wait = self._subscribes.take(token, self._clock())
        if wait:
            raise RequestRefused(
                AccessDenied(429, "notifications were turned on too often: try again later", retry_after=wait)
            )
        try:
            key = await devices.open_key()
            subscription = read_subscription(
                body,
                self._config,
                token=token,
                key=key.public,
                # One of the origins that this gateway answers to: others were refused before.
                origin=request.headers.get("origin"),
                since=time.time(),
            )
            await devices.add(subscription)
        except PushUnavailable as fault:
            return _unavailable(str(fault))
        except ReceiverGone:
            return _failed("the push service does not know this subscription: turn notifications on again")
        except DeliveryFailed as fault:
            done = "does not take messages from" if fault.outcome == "refused" else "cannot be reached by"
            return _failed(f"the browser's push service {done} this gateway ({fault.why})")
        except OSError:
            return _unavailable("the gateway cannot write its data folder: its log says why")
        return json_response(201, {"id": subscription.id})

    async def remove(self, request: Request) -> Response:
        """Turn them off for one of the caller's devices."""
        token, devices = self._caller(request)
        id = request.path_params["id"]
        found = [each for each in devices.devices_of(token) if each.id == id]
        if not found:
            raise RequestRefused(AccessDenied(404, "notifications are not on for this device"))
        body: dict[str, Json] = {"id": id, "removed": True}
        try:
            await devices.remove(found, "turned off")
        except OSError:
            return json_response(202, body | {"on_disk": False})
        return json_response(200, body)

    def _caller(self, request: Request) -> tuple[str, PushDevices]:
        """The hash of the caller's token; raises RequestRefused."""
        token = token_of(request)
        hashed = hash_token(token)
        if not TokenHolder(self._directory, hashed).spaces():
            raise RequestRefused(self._refuse_token(AccessDenied(401, "unknown token"), request))
        if not self._config.enabled:
            raise RequestRefused(AccessDenied(404, "this gateway sends no push notifications"))
        return hashed, self._devices


def _failed(message: str) -> Response:
    return json_response(502, {"error": "push_failed", "message": message})


def _unavailable(message: str) -> Response:
    return json_response(503, {"error": "unavailable", "message": message})
