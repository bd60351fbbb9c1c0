"""Says in the space that a bridged server waits for a sign-in, to those who may do something about it.

Everybody in a space sees every message, so the message holds no link of a provider: it names a page of this
bridge, on its own machine, and the command for everywhere else. The page gives out the provider's link.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Mapping
from typing import Final

from moot.bridge.sign_in_requests import FOR_SERVER
from moot.errors import MootError, UsageError
from moot.oauth.loopback_receiver import LoopbackReceiver, open_receiver
from moot.oauth.oauth_settings import SignInFailed
from moot.oauth.pending_sign_in import PendingSignIn
from moot.oauth.server_credential import ServerCredential
from moot.participant import JoinedSpace, PresenceEvent

log = logging.getLogger(__name__)

_START: Final = "/sign-in/"


class SignInNotice:
    """Tells members about the credential of one server. `run` does it until cancelled."""

    def __init__(self, credential: ServerCredential, server: str, *, port: int = 0) -> None:
        """`server` is a name for people; `port` is where codes come back to, 0: any."""
        self._credential = credential
        self._server = server
        self._port = port
        self._changed = asyncio.Event()
        self._pending: PendingSignIn | None = None
        self._receiver: LoopbackReceiver | None = None
        # Who was told about the present wait.
        self._told: set[str] = set()
        self._changed.set()

    def refresh(self) -> None:
        """What the credential waits for may have changed."""
        self._changed.set()

    async def run(self, space: JoinedSpace) -> None:
        """Tell who may sign in, now and as they join, whenever somebody has to."""

        async def on_presence(event: PresenceEvent) -> None:
            if event.event in ("join", "refreshed"):
                await self._tell(space)

        space.roster.on_change(on_presence)
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._credential.waits_for is not None:
                await self._wait_for_sign_in(space)

    async def _wait_for_sign_in(self, space: JoinedSpace) -> None:
        # The path is known to who reads the space: other users of this machine do not find the page.
        text = f"{space.name} in {space.space} wants to use {self._server} with your account."
        start = (_START + secrets.token_urlsafe(12), text, self._begin)
        receiver = LoopbackReceiver(self._finish, start=start)
        try:
            async with open_receiver(receiver, self._port):
                self._receiver = receiver
                await self._tell(space)
                while self._credential.waits_for is not None:
                    await self._changed.wait()
                    self._changed.clear()
        except UsageError as fault:
            # The command works without the page.
            log.warning("no page to sign in at", extra={"why": str(fault)})
            await self._tell(space)
        finally:
            self._receiver = self._pending = None
            self._told.clear()

    async def _begin(self) -> str:
        assert self._receiver is not None  # noqa: S101  # its page was asked for
        self._pending = await self._credential.begin(self._receiver.redirect_uri)
        return self._pending.link

    async def _finish(self, answer: Mapping[str, str]) -> str:
        pending, self._pending = self._pending, None
        if pending is None:
            raise SignInFailed("no sign-in was begun here, or it has ended: begin again")
        await self._credential.finish(pending, answer)
        return f"Signed in: {self._server} can be used now. You can close this page."

    async def _tell(self, space: JoinedSpace) -> None:
        waits_for = self._credential.waits_for
        if waits_for is None:
            return
        # The right to sign a server in is the right to send this request to its bridge.
        may = [
            member.id
            for member in space.roster.values()
            if member.id not in self._told and member.may("mcp/request", {"method": FOR_SERVER}, [space.name])
        ]
        if not may:
            return
        self._told.update(may)
        link = None if self._receiver is None else self._receiver.start_link
        here = "" if link is None else f" On the machine of this bridge, open {link} to sign in."
        text = f"{self._server} waits for {waits_for}.{here} Anywhere: `moot sign-in {space.name} --server`."
        try:
            if space.may("chat", {"text": text}, may):
                await space.send("chat", {"text": text}, to=may)
        except MootError as fault:
            log.debug("sign-in not announced", extra={"reason": type(fault).__name__})
