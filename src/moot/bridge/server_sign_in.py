"""Signing in at the server behind a bridge: credentials, requests of members, the notice in the space."""

from __future__ import annotations

import logging
from collections.abc import Callable

from moot.bridge.call_identity import CredentialsOf
from moot.bridge.personal_calls import PersonalCalls, PersonCredential
from moot.bridge.sign_in_notice import SignInNotice
from moot.bridge.sign_in_requests import OWN, SignInRequests
from moot.errors import McpError, UsageError
from moot.mcp.eras import JsonObject
from moot.mcp.upstream import HttpServer, UpstreamOptions
from moot.oauth.credential_store import CredentialStore
from moot.oauth.exchanged_credential import ExchangedCredential
from moot.oauth.oauth_settings import OAuthSettings
from moot.oauth.server_credential import ServerCredential
from moot.participant import IncomingRequest, JoinedSpace
from moot.protocol.rpc_codes import INVALID_REQUEST

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
        if settings.grant == "token_exchange" and (credentials == "server" or not settings.issuer):
            raise UsageError("token_exchange needs an issuer, and credentials of requesters or approvers")
        self._settings = settings
        self._space = space
        self._url = server.url
        self._store = CredentialStore(settings.folder, settings.key)
        log.info("how credentials are kept", extra={"server": server.label, "kept": self._store.place})
        # Participants of one name are not the same in every space.
        self._key = f"{space} {server.url}"
        self.credential = ServerCredential(server.url, settings, self._store, server=self._key)
        self.notice = SignInNotice(self.credential, server.label, port=settings.redirect_port)
        self._requests = SignInRequests(self._credential_of, settings.limits, self._store.place)
        # Calls with people's own accounts; None: the bridge calls with its own.
        self.personal: PersonalCalls | None = None
        if credentials != "server":
            self.personal = PersonalCalls(
                server,
                options,
                self._call_credential,
                whose=credentials,
                max_connections=settings.limits.max_person_connections,
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
        if self._settings.grant != "token_exchange":
            return kept
        return ExchangedCredential(kept, self._settings.limits, self.credential.challenge)

    def _person_credential(self, person: str) -> ServerCredential:
        """What a member has signed in with."""
        is_subject = self._settings.grant == "token_exchange"
        try:
            return ServerCredential(
                self._url,
                self._settings,
                self._store,
                server=f"{self._space} at {self._settings.issuer}" if is_subject else self._key,
                owner=person,
                challenge=self.credential.challenge,
                is_subject=is_subject,
            )
        except UsageError as fault:
            log.warning("a credential cannot be read", extra={"participant": person, "why": str(fault)})
            raise McpError(INVALID_REQUEST, "the bridge cannot read its sign-ins") from None
