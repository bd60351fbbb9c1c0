"""Invitations by e-mail (MEW 3.6.5). The token is in that mail and in the invite-ack, nowhere else."""

from __future__ import annotations

import asyncio
import logging
import smtplib
import ssl
from email.message import EmailMessage
from typing import Protocol

import msgspec

from moot.space.effects import Mail

log = logging.getLogger(__name__)


class Password(Protocol):
    """A secret that shows itself only when asked to."""

    def reveal(self) -> str: ...


class MailSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where mail goes out."""

    host: str
    port: int
    sender: str
    starttls: bool = True
    user: str | None = None
    timeout_seconds: float = 15.0


class Mailer:
    """Sends in a thread; a mail server that does not answer holds up nobody."""

    def __init__(self, settings: MailSettings | None, password: Password | None) -> None:
        self._settings = settings
        self._password = password
        self._sending: set[asyncio.Task[None]] = set()

    def send(self, mail: Mail, space: str) -> None:
        """Start sending one invitation; what goes wrong is logged without the token."""
        if self._settings is None:
            log.warning(
                "no smtp is configured: the invitation was not mailed",
                extra={"participant": mail.participant},
            )
            return
        try:
            message = _compose(mail, space, self._settings.sender)
        except (ValueError, IndexError, TypeError, AttributeError):
            # The library's parser of addresses has many ways to say no.
            log.warning("no mail address", extra={"participant": mail.participant})
            return
        task = asyncio.get_running_loop().create_task(
            self._deliver(self._settings, message, mail.participant)
        )
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _deliver(self, settings: MailSettings, message: EmailMessage, participant: str) -> None:
        try:
            await asyncio.to_thread(send_now, settings, self._password, message)
        except (OSError, smtplib.SMTPException) as fault:
            log.warning(
                "invitation not mailed", extra={"participant": participant, "why": type(fault).__name__}
            )
        else:
            log.info("invitation mailed", extra={"participant": participant})

    async def close(self) -> None:
        """Wait for what is under way, briefly."""
        if self._sending:
            await asyncio.wait(self._sending, timeout=2.0)


def send_now(settings: MailSettings, password: Password | None, message: EmailMessage) -> None:
    """Send one mail, and block meanwhile. Raises OSError and SMTPException.

    The server's certificate is verified: a mail may hold a token. SSL_CERT_FILE names a private authority.
    """
    with smtplib.SMTP(settings.host, settings.port, timeout=settings.timeout_seconds) as server:
        if settings.starttls:
            server.starttls(context=ssl.create_default_context())
        if settings.user is not None and password is not None:
            server.login(settings.user, password.reveal())
        server.send_message(message)


def _compose(mail: Mail, space: str, sender: str) -> EmailMessage:
    message = EmailMessage()
    message["From"] = sender
    message["To"] = mail.address
    message["Subject"] = f"You are invited to the space {space}"
    where = f"Connect to: {mail.connection_url}\n" if mail.connection_url else ""
    message.set_content(
        f"{mail.invited_by} invites you to the space {space} as {mail.participant}.\n\n{where}"
        f"Your token: {mail.token.secret}\n\nKeep it to yourself: whoever holds it speaks as you.\n"
    )
    return message
