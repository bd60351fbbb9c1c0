"""How a message gets to a browser: sealed for it, signed by the gateway, through its push service.

A participant chose the address, so it is checked like everything that strangers name: the name is resolved
once, every address has to be public, and the connection goes to one of those. Redirects are not followed.
"""

from __future__ import annotations

import os
import ssl
import time
from functools import partial
from typing import Final

import orjson
from cryptography.hazmat.primitives.asymmetric import ec

from moot.config.notification_config import PushConfig
from moot.gateway.notifications.channels import DeliveryFailed, Poster, ReceiverGone
from moot.gateway.notifications.chat_bodies import cut_bytes
from moot.gateway.notifications.message import Message, lines_of, title_of
from moot.gateway.notifications.push.encryption import MAX_MESSAGE_BYTES, SALT_BYTES, seal
from moot.gateway.notifications.push.subscription import Subscription
from moot.gateway.notifications.push.vapid_key import VapidKey
from moot.net.address_check import connect_checked
from moot.protocol.operation import Json

# A push service keeps a message for a device that is off for so long, or until the proposal expires.
KEEP_SECONDS: Final = 86_400
_TITLE_CHARS: Final = 200
_BODY_BYTES: Final = 1_500
_PATH_CHARS: Final = 1_000
# RFC 8030: this subscription is over. Nothing else ends one.
_GONE: Final = (404, 410)
# A topic has at most 32 characters of base64url; a service keeps the newest message of a topic.
_TOPIC_CHARS: Final = 32


class PushChannel:
    """Messages to one browser."""

    def __init__(
        self,
        subscription: Subscription,
        key: VapidKey,
        config: PushConfig,
        *,
        contact: str,
        timeout_seconds: float,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._subscription = subscription
        self._key = key
        self._config = config
        self._contact = contact
        self._browser = subscription.browser_keys
        open_socket = partial(
            connect_checked, timeout_seconds=timeout_seconds, allow_private=config.allow_private_addresses
        )
        self._poster = Poster(subscription.endpoint, timeout_seconds, tls=tls, open_socket=open_socket)

    async def send(self, message: Message) -> None:
        """Raises DeliveryFailed, and ReceiverGone when the browser does not want to be told any more."""
        open_until = max((each.expires for each in message.entries), default=0.0)
        await self.push(push_body(message), topic=message.delivery, open_until=open_until or None)

    async def push(self, body: bytes, *, topic: str, open_until: float | None = None) -> None:
        """Send one message; a push service keeps it for a browser that is off, while it is open."""
        now = time.time()
        keep = KEEP_SECONDS
        left = keep if open_until is None else min(keep, max(0.0, open_until - now))
        sealed = seal(
            body, self._browser, own_key=ec.generate_private_key(ec.SECP256R1()), salt=os.urandom(SALT_BYTES)
        )
        headers = {
            "Authorization": self._key.authorization(self._subscription.endpoint, self._contact, now),
            "Content-Encoding": "aes128gcm",
            "Content-Type": "application/octet-stream",
            "TTL": str(int(left)),
            "Topic": topic[-_TOPIC_CHARS:],
            # Somebody waits for an answer: a phone that sleeps is woken.
            "Urgency": "high",
        }
        try:
            await self._poster.send(sealed, headers)
        except DeliveryFailed as fault:
            if fault.status in _GONE:
                raise ReceiverGone from None
            raise


def push_body(message: Message) -> bytes:
    """What the service worker reads. The path is below its own page, so that it leads nowhere else."""
    lines = lines_of(message)
    path = (message.link or "").lstrip("/")
    fields: dict[str, Json] = {
        "title": title_of(message)[:_TITLE_CHARS],
        "body": cut_bytes("\n".join(lines if message.is_summary else lines[1:]), _BODY_BYTES),
        "path": path if len(path) <= _PATH_CHARS else "",
        "tag": message.delivery,
    }
    body = orjson.dumps(fields)
    if len(body) > MAX_MESSAGE_BYTES:
        # Quotes and the like take more bytes in JSON than in the text.
        body = orjson.dumps(fields | {"body": "", "path": ""})
    return body


def first_body(participant: str) -> bytes:
    """What a browser is shown when notifications are turned on."""
    fields: dict[str, Json] = {
        "title": "Notifications are on",
        "body": f"This device tells {participant} what waits for a decision.",
        "path": "",
        "tag": "moot-first",
    }
    return orjson.dumps(fields)


def last_body() -> bytes:
    """What a browser is shown when its person has to sign in again to be told further."""
    fields: dict[str, Json] = {
        "title": "Notifications have ended",
        "body": "You were signed out, or have not been here for a while. Sign in to turn them on again.",
        "path": "",
        "tag": "moot-first",
    }
    return orjson.dumps(fields)
