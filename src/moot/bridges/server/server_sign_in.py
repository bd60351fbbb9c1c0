"""Signing in at the server behind a bridge: credentials, requests of members, the notice in the space."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping
from typing import Final

from moot.bridges.server.call_identity import CredentialsOf
from moot.bridges.server.personal_calls import PersonalCalls, PersonCredential
from moot.bridges.server.sign_in_requests import FOR_SERVER, OWN, SignInRequests
from moot.errors import McpError, MootError, UsageError
from moot.mcp.eras import JsonObject
from moot.mcp.upstream import HttpServer, UpstreamOptions
from moot.oauth.credential_store import CredentialStore
from moot.oauth.exchanged_credential import ExchangedCredential
from moot.oauth.loopback_receiver import LoopbackReceiver, open_receiver
from moot.oauth.oauth_settings import OAuthSettings, SignInFailed
from moot.oauth.pending_sign_in import PendingSignIn
from moot.oauth.server_credential import ServerCredential
from moot.participant import IncomingRequest, JoinedSpace, PresenceEvent
from moot.protocol.rpc_codes import INVALID_REQUEST

# Connections to one server that are open for people, each with an account of their own.
MAX_PERSON_CONNECTIONS: Final = 64

_START: Final = "/sign-in/"


class SignInNotice:
    """Tells those who can sign in that one server waits for it. `run` does it until cancelled.

    Everybody in a space sees every message, so the message holds no link of a provider: it names a page of
    this bridge, on its own machine, and the command for everywhere else. The page gives out that link.
    """

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


log = logging.getLogger(__name__)


class ServerSignIn:
    """Everything about signing in at one server."""

    def __init__(
        self,
        server: HttpServer,
        settings: OAuthSettings,
        *,
        space: str,
        options: UpstreamOptions,
        credentials: CredentialsOf = "server",
    ) -> None:
        """Raises UsageError when credentials cannot be kept."""
        sign_in = self._sign_in = settings.sign_in
        if sign_in.grant == "token_exchange" and (credentials == "server" or not sign_in.issuer):
            raise UsageError("token_exchange needs an issuer, and credentials of requesters or approvers")
        self._space = space
        self._url = server.url
        self._store = CredentialStore(settings.folder, settings.key)
        log.info("how credentials are kept", extra={"server": server.label, "kept": self._store.place})
        # Participants of one name are not the same in every space.
        self._key = f"{space} {server.url}"
        self.credential = ServerCredential(server.url, sign_in, self._store, server=self._key)
        self.notice = SignInNotice(self.credential, server.label, port=sign_in.redirect_port)
        self._requests = SignInRequests(self._credential_of, self._store.place)
        # Calls with people's own accounts; None: the bridge calls with its own.
        self.personal: PersonalCalls | None = None
        if credentials != "server":
            self.personal = PersonalCalls(
                server,
                options,
                self._call_credential,
                whose=credentials,
                max_connections=MAX_PERSON_CONNECTIONS,
            )
        # Called when somebody has signed in for the server.
        self.on_signed_in: Callable[[], None] = lambda: None
        self._was_waiting = False
        self.credential.on_change = self._on_change

    def _on_change(self) -> None:
        was_waiting, self._was_waiting = self._was_waiting, self.credential.waits_for is not None
        self.notice.refresh()
        if was_waiting and not self._was_waiting:
            self.on_signed_in()

    async def handle(self, request: IncomingRequest, space: JoinedSpace) -> JsonObject:
        """A request of a member to sign in; raises McpError."""
        member = space.roster.get(space.roster.id_of(request.sender))
        if member is None or request.is_broadcast:
            raise McpError(INVALID_REQUEST, f"{request.method} is for members, and to one bridge")
        params = request.params
        if self.personal is None or request.method != OWN or not ("id" in params or "forget" in params):
            return await self._requests.handle(request.method, params, member.name)
        # Before, so that nothing of the old account is renewed and kept meanwhile.
        await self.personal.disconnect(member.name)
        try:
            return await self._requests.handle(request.method, params, member.name)
        finally:
            await self.personal.disconnect(member.name)

    def _credential_of(self, person: str | None) -> ServerCredential:
        if person is None:
            return self.credential
        if self.personal is None:
            text = "this server is called with one sign-in for everybody: `moot sign-in NAME --server`"
            raise McpError(INVALID_REQUEST, text)
        return self._person_credential(person)

    def _call_credential(self, person: str) -> PersonCredential:
        """What calls of a member are signed with."""
        kept = self._person_credential(person)
        if self._sign_in.grant != "token_exchange":
            return kept
        return ExchangedCredential(kept, self.credential.challenge)

    def _person_credential(self, person: str) -> ServerCredential:
        """What a member has signed in with."""
        is_subject = self._sign_in.grant == "token_exchange"
        try:
            return ServerCredential(
                self._url,
                self._sign_in,
                self._store,
                server=f"{self._space} at {self._sign_in.issuer}" if is_subject else self._key,
                owner=person,
                challenge=self.credential.challenge,
                is_subject=is_subject,
            )
        except UsageError as fault:
            log.warning("a credential cannot be read", extra={"participant": person, "why": str(fault)})
            raise McpError(INVALID_REQUEST, "the bridge cannot read its sign-ins") from None
