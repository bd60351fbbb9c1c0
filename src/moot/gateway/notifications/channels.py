"""How a message leaves: one POST in the form that its receiver reads, or one mail.

Redirects are not followed, certificates are verified, and no error names the address: it often is a secret.
"""

from __future__ import annotations

import asyncio
import base64
import email.utils
import hmac
import smtplib
import ssl
import time
from typing import Final, Literal, Protocol

import orjson

from moot.config.gateway_config import SmtpConfig
from moot.config.notification_config import ReceiverConfig
from moot.config.secrets.secret import Secret
from moot.errors import Unreachable, UsageError
from moot.gateway.mailer import send_now
from moot.gateway.notifications.chat_bodies import mail_of, ntfy_body, slack_body
from moot.gateway.notifications.message import MAX_NAME_CHARS, Entry, Message, lines_of, title_of
from moot.net.address_check import ForbiddenAddress
from moot.net.http_client import HttpClient, PostResponse
from moot.net.outbound import OpenSocket
from moot.protocol.envelope import rfc3339
from moot.protocol.hidden_text import show_hidden
from moot.protocol.operation import Json
from moot.store.worker_thread import DaemonExecutor

Outcome = Literal["sent", "refused", "unreachable"]
OUTCOMES: Final[tuple[Outcome, ...]] = ("sent", "refused", "unreachable")

_USER_AGENT: Final = "moot"
# Standard Webhooks: behind it stands the key in base64.
_SECRET_PREFIX = "whsec_"
# A receiver that does not answer within this time is tried again.
TIMEOUT_SECONDS: Final = 10


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

    def __init__(self, url: str, secret: str, timeout_seconds: float) -> None:
        self._secret = secret
        self._poster = Poster(url, timeout_seconds)

    async def send(self, message: Message) -> None:
        body = webhook_body(message)
        await self._poster.send(body, sign(self._secret, message.delivery, int(time.time()), body))


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


def open_channel(receiver: ReceiverConfig, mail: SmtpConfig | None) -> Channel:
    """The channel of a receiver; raises UsageError for a configuration that was not checked."""
    timeout_seconds = TIMEOUT_SECONDS
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


# A message as a webhook: JSON, signed as Standard Webhooks says, so that its libraries verify it.
#
# The signature is HMAC-SHA256 over `ID.TIMESTAMP.BODY`, in base64 behind `v1,`, in the header
# `webhook-signature`; `webhook-id` and `webhook-timestamp` hold the other two. The id stays the same when a
# message is sent again.


def webhook_body(message: Message) -> bytes:
    """Names are as the proposer wrote them, cut; `title` and `text` can be shown as they are."""
    fields: dict[str, Json] = {
        "type": "summary" if message.is_summary else message.entries[0].subject.event,
        "participant": message.participant,
        "title": title_of(message),
        "text": "\n".join(lines_of(message)),
        "count": message.total,
        "proposals": [_entry(each) for each in message.entries],
    }
    if message.link is not None:
        fields["link"] = message.link
    return orjson.dumps(fields)


def sign(secret: str, delivery: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers that say who sent it; a secret `whsec_…` is base64, any other one is taken as it is."""
    encoded = secret.removeprefix(_SECRET_PREFIX)
    key = secret.encode() if encoded == secret else base64.b64decode(encoded)
    signed = hmac.digest(key, f"{delivery}.{timestamp}.".encode() + body, "sha256")
    return {
        "webhook-id": delivery,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{base64.b64encode(signed).decode()}",
    }


def _entry(entry: Entry) -> dict[str, Json]:
    is_open = entry.subject.event == "proposal.pending"
    fields: dict[str, Json] = {
        "type": entry.subject.event,
        "space": entry.subject.space,
        "proposal_id": entry.subject.id,
        "proposer": entry.proposer,
        "to": list(entry.hosts),
        "method": entry.method[:MAX_NAME_CHARS],
        "name": None if entry.name is None else entry.name[:MAX_NAME_CHARS],
        "since": rfc3339(entry.since),
        "rejected_by": list(entry.rejected_by),
    }
    if is_open:
        fields["expires_at"] = rfc3339(entry.expires)
        fields["approvals"], fields["approvals_needed"] = entry.approvals
        fields |= {"reminder": True} if entry.subject.is_reminder else {}
        fields |= {"assigned": True} if entry.subject.is_assigned else {}
    else:
        fields["reason"] = entry.reason
    if entry.link is not None:
        fields["link"] = entry.link
    if entry.arguments is not None:
        fields["arguments"] = entry.arguments
    if entry.why is not None:
        fields["why"] = show_hidden(entry.why)
    return fields
