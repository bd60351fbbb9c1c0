"""What a member is known by at an MCP server, got in exchange for a sign-in at its provider (RFC 8693).

The sign-in (the subject) is for all servers of the provider and is sent to none of them. What is got for it
is for one server, is kept in memory alone, and ends with the subject.
"""

from __future__ import annotations

import asyncio
import logging
import time

from moot.oauth.credential_store import StoredCredential
from moot.oauth.discovery import BearerChallenge, read_challenge
from moot.oauth.oauth_settings import SignInFailed
from moot.oauth.server_credential import ServerCredential
from moot.oauth.token_endpoint import TokenRefused

log = logging.getLogger(__name__)


class ExchangedCredential:
    """Signs requests with what the subject is exchanged for. Nothing here raises."""

    def __init__(
        self,
        subject: ServerCredential,
        challenge: BearerChallenge,
    ) -> None:
        self.problem: str | None = None
        self._subject = subject
        self._challenge = challenge
        self._token: StoredCredential | None = None
        self._exchanging = asyncio.Lock()

    @property
    def is_there(self) -> bool:
        return self._subject.is_there

    @property
    def waits_for(self) -> str | None:
        return self._subject.waits_for

    async def wait_until_ready(self) -> None:
        await self._subject.wait_until_ready()

    async def authorization(self) -> str | None:
        async with self._exchanging:
            if self._token is None or self._has_ended(self._token):
                await self._exchange()
        return self._value()

    async def on_unauthorized(self, sent: str | None, challenge: str) -> str | None:
        self._challenge = read_challenge(challenge)
        async with self._exchanging:
            if self._value() == sent:
                await self._exchange()
        value = self._value()
        return None if value == sent else value

    def on_forbidden(self, challenge: str) -> None:
        read = read_challenge(challenge)
        if read.error == "insufficient_scope":
            # The next token is asked for with these.
            self._challenge = read
            self._token = None

    def _has_ended(self, token: StoredCredential) -> bool:
        return token.expires_at is not None and token.expires_at <= time.time()

    def _value(self) -> str | None:
        return None if self._token is None else f"Bearer {self._token.access_token}"

    async def _exchange(self) -> None:
        """Get another token; a subject that is refused is renewed once."""
        self._token = None
        for is_last in (False, True):
            sent = await self._subject.authorization()
            if sent is None:
                return
            token = sent.removeprefix("Bearer ")
            try:
                self._token = await self._subject.exchange(token, self._challenge)
                self.problem = None
                return
            except TokenRefused as refusal:
                self.problem = str(refusal)
                if not is_last:
                    await self._subject.renew(token)
            except SignInFailed as fault:
                self.problem = str(fault)
                return
