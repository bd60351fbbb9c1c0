"""Notifications on a device over HTTP: `/push-subscriptions`."""

from __future__ import annotations

import time
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from moot.config import hash_token
from moot.config.notification_config import PushConfig
from moot.gateway.access import AccessDenied
from moot.gateway.http.http_replies import RequestRefused, check_json, json_response, object_of
from moot.gateway.http.request_identity import RequestIdentity, token_of
from moot.gateway.notifications.channels import DeliveryFailed, ReceiverGone
from moot.gateway.notifications.push.device_owners import TokenPlace, account_of, describe_place
from moot.gateway.notifications.push.devices import PushDevices, PushUnavailable
from moot.gateway.notifications.push.subscription import ProviderAccount, read_subscription
from moot.protocol.envelope import rfc3339
from moot.protocol.operation import Json
from moot.resilience.rate_limits import sliding_windows

# How often one participant can turn notifications on: each time a message is sent to the device.
SUBSCRIBES_PER_MINUTE: Final = 10
# An endpoint, two keys and quiet hours.
_MAX_BODY_BYTES: Final = 4_096
_MAX_TOKENS: Final = 10_000

_ENDS_BY_ITSELF: Final = (
    "this sign-in ends by itself, and notifications would end with it unnoticed: sign in with"
    " a token of your own to turn them on, or ask for a receiver in the configuration"
)


class DeviceCaller(msgspec.Struct, frozen=True):
    """Whose devices a request is about."""

    # The hash of a token, or an account.
    owner: str
    account: ProviderAccount | None = None
    # Why no device can be added.
    refused: str | None = None


class PushRoutes:
    """Turning notifications on and off, for whoever has a token."""

    def __init__(
        self,
        identity: RequestIdentity,
        config: PushConfig,
        devices: PushDevices,
    ) -> None:
        self._identity = identity
        self._config = config
        self._devices = devices
        identity.spaces.answer("push", describe_place)
        self._subscribes = sliding_windows(SUBSCRIBES_PER_MINUTE, 60.0, max_keys=_MAX_TOKENS)

    async def list(self, request: Request) -> Response:
        """The gateway's public key, the caller's devices, and why none can be added.

        A page says the reason before it asks a person for the browser's permission.
        """
        caller = await self._caller(request)
        devices = self._devices
        try:
            key = await devices.open_key()
        except PushUnavailable as fault:
            return _unavailable(str(fault))
        if caller.account is not None:
            await devices.note_seen(caller.account)
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
            for each in await devices.devices_of(caller.owner)
        ]
        ends_after = None if caller.account is None else self._config.max_seconds_since_sign_in
        body: dict[str, Json] = {"key": key.public, "subscriptions": found, "refused": caller.refused}
        return json_response(200, body | {"ends_after_seconds": ends_after})

    async def add(self, request: Request) -> Response:
        """Turn notifications on for a device, which is sent a first one before this answers."""
        caller = await self._caller(request)
        devices = self._devices
        if caller.refused is not None:
            raise RequestRefused(AccessDenied(403, caller.refused))
        check_json(request)
        body = await object_of(request, _MAX_BODY_BYTES)
        wait = self._subscribes.take(caller.owner, time.monotonic())
        if wait:
            raise RequestRefused(
                AccessDenied(429, "notifications were turned on too often: try again later", retry_after=wait)
            )
        try:
            key = await devices.open_key()
            subscription = read_subscription(
                body,
                self._config,
                owner=caller.owner,
                account=caller.account,
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
        owner, id = (await self._caller(request)).owner, request.path_params["id"]
        body: dict[str, Json] = {"id": id, "removed": True}
        try:
            if not await self._devices.turn_off(owner, id):
                raise RequestRefused(AccessDenied(404, "notifications are not on for this device"))
        except PushUnavailable as fault:
            return _unavailable(str(fault))
        except OSError:
            return json_response(202, body | {"on_disk": False})
        return json_response(200, body)

    async def _caller(self, request: Request) -> DeviceCaller:
        """Raises RequestRefused, or Unavailable."""
        rows = await self._identity.describe_everywhere(request, "push")
        places = [msgspec.convert(row, TokenPlace) for row in rows if row is not None]
        if not places:
            raise RequestRefused(self._identity.refuse_token(AccessDenied(401, "unknown token"), request))
        if not self._config.enabled:
            raise RequestRefused(AccessDenied(404, "this gateway sends no push notifications"))
        if all(each.token is None for each in places):
            return DeviceCaller(hash_token(token_of(request)))
        account = account_of(places, time.time()) if self._config.max_seconds_since_sign_in else None
        if account is None:
            # It would be on for an hour, and then silently off.
            return DeviceCaller(hash_token(token_of(request)), refused=_ENDS_BY_ITSELF)
        return DeviceCaller(account.owner, account)


def _failed(message: str) -> Response:
    return json_response(502, {"error": "push_failed", "message": message})


def _unavailable(message: str) -> Response:
    return json_response(503, {"error": "unavailable", "message": message})
