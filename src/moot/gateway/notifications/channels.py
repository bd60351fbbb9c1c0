"""How a message leaves: one POST in the form that its receiver reads, or one mail.

Redirects are not followed, certificates are verified, and no error names the address: it often is a secret.
"""

from __future__ import annotations

import asyncio
import email.utils
import smtplib
import ssl
import time
from collections.abc import Callable
from typing import Final, Literal, Protocol

from moot.config.gateway_config import SmtpConfig
from moot.config.notification_config import ReceiverConfig
from moot.config.secret import Secret
from moot.errors import Unreachable, UsageError
from moot.gateway.mailer import send_now
from moot.gateway.notifications.chat_bodies import mail_of, ntfy_body, slack_body
from moot.gateway.notifications.message import Message
from moot.gateway.notifications.webhook import sign, webhook_body
from moot.net.address_check import ForbiddenAddress
from moot.net.http_client import HttpClient, PostResponse
from moot.net.outbound import OpenSocket
from moot.store.worker_thread import DaemonExecutor

Outcome = Literal["sent", "refused", "unreachable"]
OUTCOMES: Final[tuple[Outcome, ...]] = ("sent", "refused", "unreachable")

_USER_AGENT: Final = "moot"


class DeliveryFailed(Exception):
    """A receiver did not take a message; `why` names no address and no secret."""

    def __init__(
        self,
        outcome: Literal["refused", "unreachable"],
        why: str,
        retry_after_seconds: float = 0.0,
        status: int | None = None,
    ) -> None:
        super().__init__(why)
        self.outcome: Outcome = outcome
        self.why = why
        self.retry_after_seconds = retry_after_seconds
        # Of HTTP, if there was an answer.
        self.status = status


class ReceiverGone(Exception):
    """A receiver is told nothing any more, ever: it says so itself, or nobody is behind it."""


class Channel(Protocol):
    """Sends messages to one receiver."""

    async def send(self, message: Message) -> None:
        """Raises DeliveryFailed, and ReceiverGone."""


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


class NtfyChannel:
    """A topic of ntfy: the last part of its URL."""

    def __init__(self, url: str, token: str | None, timeout_seconds: float) -> None:
        root, _, self._topic = url.rpartition("/")
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._poster = Poster(f"{root}/", timeout_seconds)

    async def send(self, message: Message) -> None:
        await self._poster.send(ntfy_body(message, self._topic), self._headers)


class SlackChannel:
    """An incoming webhook of Slack, or of what takes after it."""

    def __init__(self, url: str, timeout_seconds: float) -> None:
        self._poster = Poster(url, timeout_seconds)

    async def send(self, message: Message) -> None:
        await self._poster.send(slack_body(message), {})


class MailChannel:
    """Mail to one address, sent in a thread of its own: a mail server that hangs holds up nobody else."""

    def __init__(self, settings: SmtpConfig, address: str) -> None:
        self._settings = settings
        self._address = address

    async def send(self, message: Message) -> None:
        mail = mail_of(message, sender=self._settings.sender, address=self._address, now=time.time())
        thread = DaemonExecutor("a notification by mail")
        try:
            await asyncio.get_running_loop().run_in_executor(thread, lambda: send_now(self._settings, mail))
        except smtplib.SMTPResponseException as fault:
            # Its text is the server's, and may hold the address.
            raise DeliveryFailed("refused", f"SMTP {fault.smtp_code}") from None
        except smtplib.SMTPRecipientsRefused:
            raise DeliveryFailed("refused", "the address is refused") from None
        except (OSError, smtplib.SMTPException) as fault:
            raise DeliveryFailed("unreachable", type(fault).__name__) from None
        finally:
            thread.shutdown()


class Poster:
    """Posts to one URL, JSON unless the headers say otherwise."""

    def __init__(
        self,
        url: str,
        timeout_seconds: float,
        *,
        tls: ssl.SSLContext | None = None,
        open_socket: OpenSocket | None = None,
    ) -> None:
        """`open_socket` connects in place of the system, for an address that has to be checked first."""
        self._url = url
        # Made once: it reads all certificates of the system.
        tls = tls or (ssl.create_default_context() if url.lower().startswith("https:") else None)
        headers = {"Content-Type": "application/json", "User-Agent": _USER_AGENT}
        self._client = HttpClient(
            timeout_seconds=timeout_seconds, headers=headers, tls=tls, open_socket=open_socket
        )

    async def send(self, body: bytes, headers: dict[str, str]) -> None:
        """Raises DeliveryFailed unless the answer is 2xx."""
        try:
            answer = await self._client.post_unread(self._url, body, headers)
        except ForbiddenAddress:
            raise DeliveryFailed("refused", "its address is not public") from None
        except Unreachable as fault:
            # The class of the cause and not its text, which names the host.
            cause = type(fault.__cause__).__name__ if fault.__cause__ is not None else "no answer"
            raise DeliveryFailed("unreachable", cause) from None
        if not 200 <= answer.status < 300:
            hint = " (redirects are not followed)" if 300 <= answer.status < 400 else ""
            why = f"status {answer.status}{hint}"
            raise DeliveryFailed("refused", why, _retry_after(answer), answer.status)


def open_channel(
    receiver: ReceiverConfig,
    timeout_seconds: float,
    mail: SmtpConfig | None,
) -> Channel:
    """The channel of a receiver; raises UsageError for a configuration that was not checked."""
    match receiver:
        case ReceiverConfig(type="webhook", url=Secret() as url, secret=Secret() as secret):
            return WebhookChannel(url.reveal(), secret.reveal(), timeout_seconds)
        case ReceiverConfig(type="ntfy", url=Secret() as url, token=token):
            return NtfyChannel(url.reveal(), None if token is None else token.reveal(), timeout_seconds)
        case ReceiverConfig(type="slack", url=Secret() as url):
            return SlackChannel(url.reveal(), timeout_seconds)
        case ReceiverConfig(type="email", address=str() as address) if mail is not None:
            return MailChannel(mail, address)
    raise UsageError(f"a receiver of the type {receiver.type} lacks what it needs")


def _retry_after(answer: PostResponse) -> float:
    """How many seconds a receiver asks to be left alone: a number, or a date (RFC 9110)."""
    text = answer.headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return 0.0
