"""How a message leaves: one POST, in the form that its receiver reads.

Redirects are not followed, certificates are verified, and no error names the address: it often is a secret.
"""

from __future__ import annotations

import email.utils
import ssl
import time
from collections.abc import Callable
from typing import Final, Literal, Protocol

from moot.config.notification_config import ReceiverConfig
from moot.errors import Unreachable
from moot.gateway.notifications.message import Message
from moot.gateway.notifications.webhook import sign, webhook_body
from moot.net.http_client import PostResponse, post

Outcome = Literal["sent", "refused", "unreachable"]
OUTCOMES: Final[tuple[Outcome, ...]] = ("sent", "refused", "unreachable")

_USER_AGENT: Final = "moot"


class DeliveryFailed(Exception):
    """A receiver did not take a message; `why` names no address and no secret."""

    def __init__(
        self, outcome: Literal["refused", "unreachable"], why: str, retry_after_seconds: float = 0.0
    ) -> None:
        super().__init__(why)
        self.outcome: Outcome = outcome
        self.why = why
        self.retry_after_seconds = retry_after_seconds


class Channel(Protocol):
    """Sends messages to one receiver."""

    async def send(self, message: Message) -> None:
        """Raises DeliveryFailed."""


class WebhookChannel:
    """Signed JSON to a URL of the operator."""

    def __init__(
        self, url: str, secret: str, timeout_seconds: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._secret = secret
        self._poster = Poster(url, timeout_seconds)
        self._clock = clock

    async def send(self, message: Message) -> None:
        body = webhook_body(message)
        await self._poster.send(body, sign(self._secret, message.delivery, int(self._clock()), body))


class Poster:
    """Posts JSON to one URL."""

    def __init__(self, url: str, timeout_seconds: float) -> None:
        self._url = url
        self._timeout_seconds = timeout_seconds
        # Made once: it reads all certificates of the system.
        self._tls = ssl.create_default_context() if url.lower().startswith("https:") else None

    async def send(self, body: bytes, headers: dict[str, str]) -> None:
        """Raises DeliveryFailed unless the answer is 2xx."""
        headers = {"Content-Type": "application/json", "User-Agent": _USER_AGENT, **headers}
        try:
            answer = await post(
                self._url, body, headers=headers, timeout_seconds=self._timeout_seconds, tls=self._tls
            )
        except Unreachable as fault:
            # The class of the cause and not its text, which names the host.
            cause = type(fault.__cause__).__name__ if fault.__cause__ is not None else "no answer"
            raise DeliveryFailed("unreachable", cause) from None
        if not 200 <= answer.status < 300:
            hint = " (redirects are not followed)" if 300 <= answer.status < 400 else ""
            raise DeliveryFailed("refused", f"status {answer.status}{hint}", _retry_after(answer))


def open_channel(receiver: ReceiverConfig, timeout_seconds: float) -> Channel:
    """The channel of a receiver whose configuration has been checked."""
    url = "" if receiver.url is None else receiver.url.reveal()
    secret = "" if receiver.secret is None else receiver.secret.reveal()
    return WebhookChannel(url, secret, timeout_seconds)


def _retry_after(answer: PostResponse) -> float:
    """How many seconds a receiver asks to be left alone: a number, or a date (RFC 9110)."""
    text = answer.headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return 0.0
