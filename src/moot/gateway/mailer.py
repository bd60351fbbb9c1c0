"""Invitations by e-mail (MEW 3.6.5). The token is in that mail and in the invite-ack, nowhere else.

Mails go out one after the other, in a thread of their own: a mail server that does not answer must not use up
the threads in which the history is read and token files are written. Whoever may invite could otherwise mail
the whole world in the operator's name, so each has a rate. What is not mailed is logged; the inviter has the
token all the same.
"""

from __future__ import annotations

import asyncio
import logging
import smtplib
import ssl
import time
from email.message import EmailMessage
from typing import Final

from moot.config.gateway_config import SmtpConfig
from moot.resilience.rate_limits import sliding_windows
from moot.space.effects import Mail
from moot.store.worker_thread import DaemonExecutor

log = logging.getLogger(__name__)

# Invitations that wait for the mail server; a server that is this far behind is down.
_MAX_WAITING: Final = 100
# A mail server that takes longer is down as far as the inviter is concerned.
TIMEOUT_SECONDS: Final = 15.0
# Invitations of one member that are mailed: of more, the inviter has the tokens.
MAX_INVITATIONS_PER_MINUTE: Final = 10
# Inviters whose rate is remembered.
_MAX_KEYS: Final = 10_000


class Mailer:
    """Sends in a thread; a mail server that does not answer holds up nobody."""

    def __init__(
        self,
        settings: SmtpConfig | None,
    ) -> None:
        self._settings = settings
        most = 0 if settings is None else MAX_INVITATIONS_PER_MINUTE
        self._rates = sliding_windows(most, 60.0, max_keys=_MAX_KEYS)
        self._sending: set[asyncio.Task[None]] = set()
        self._thread: DaemonExecutor | None = None

    def send(self, mail: Mail, space: str) -> None:
        """Start sending one invitation; what goes wrong is logged without the token."""
        if self._settings is None:
            log.warning(
                "no smtp is configured: the invitation was not mailed",
                extra={"participant": mail.participant},
            )
            return
        why = None
        if self._rates.take((space, mail.invited_by), time.monotonic()):
            why = f"more than {MAX_INVITATIONS_PER_MINUTE} a minute"
        elif len(self._sending) >= _MAX_WAITING:
            why = "too many wait for the mail server"
        if why is not None:
            log.warning(
                "invitation not mailed",
                extra={"participant": mail.participant, "inviter": mail.invited_by, "why": why},
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

    async def _deliver(self, settings: SmtpConfig, message: EmailMessage, participant: str) -> None:
        if self._thread is None:
            self._thread = DaemonExecutor("invitations by mail")
        try:
            await asyncio.get_running_loop().run_in_executor(
                self._thread, lambda: send_now(settings, message)
            )
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
        if self._thread is not None:
            self._thread.shutdown()


def send_now(settings: SmtpConfig, message: EmailMessage) -> None:
    """Send one mail, and block meanwhile. Raises OSError and SMTPException.

    The server's certificate is verified: a mail may hold a token. SSL_CERT_FILE names a private authority.
    """
    with smtplib.SMTP(settings.host, settings.port, timeout=TIMEOUT_SECONDS) as server:
        if settings.starttls:
            server.starttls(context=ssl.create_default_context())
        if settings.user is not None and settings.password is not None:
            server.login(settings.user, settings.password.reveal())
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
