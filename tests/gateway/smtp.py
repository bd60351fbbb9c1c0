"""A small real mail server on loopback: it keeps what it is sent."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage


@dataclass
class Mailbox:
    """What came in: envelopes, messages, log-ins, and every byte of every conversation."""

    port: int = 0
    senders: list[str] = field(default_factory=list)
    recipients: list[list[str]] = field(default_factory=list)
    messages: list[EmailMessage] = field(default_factory=list)
    logins: list[str] = field(default_factory=list)
    received: bytes = b""
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    # With it, STARTTLS is offered.
    tls: ssl.SSLContext | None = None

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        recipients: list[str] = []

        def say(line: str) -> None:
            writer.write(line.encode() + b"\r\n")

        say("220 mail.test ready")
        while raw := await reader.readline():
            self.received += raw
            line = raw.decode("utf-8", "replace").strip()
            word = line.upper().split(" ", 1)[0]
            if word == "EHLO":
                say(
                    "250-mail.test\r\n250-STARTTLS\r\n250 AUTH PLAIN"
                    if self.tls
                    else "250-mail.test\r\n250 AUTH PLAIN"
                )
            elif word == "STARTTLS" and self.tls is not None:
                say("220 go on")
                try:
                    await writer.start_tls(self.tls)
                except OSError:
                    # The other side did not trust the certificate.
                    break
            elif word == "AUTH":
                self.logins.append(base64.b64decode(line.split(" ")[2]).decode().replace("\0", " ").strip())
                say("235 welcome")
            elif word == "MAIL":
                self.senders.append(line.split(":", 1)[1].split(" ")[0].strip("<>"))
                say("250 ok")
            elif word == "RCPT":
                recipients.append(line.split(":", 1)[1].strip("<>"))
                say("250 ok")
            elif word == "DATA":
                say("354 go on")
                text = await reader.readuntil(b"\r\n.\r\n")
                self.received += text
                self.recipients.append(recipients)
                self.messages.append(message_from_bytes(text[:-5], policy=policy.default))
                recipients = []
                self.arrived.set()
                say("250 kept")
            elif word == "QUIT":
                say("221 bye")
                break
            else:
                say("502 not here")
        writer.close()


@asynccontextmanager
async def mail_server(tls: ssl.SSLContext | None = None) -> AsyncIterator[Mailbox]:
    mailbox = Mailbox(tls=tls)
    server = await asyncio.start_server(mailbox._talk, "127.0.0.1", 0)
    mailbox.port = server.sockets[0].getsockname()[1]
    async with server:
        yield mailbox
