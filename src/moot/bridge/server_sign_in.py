"""Signing in at the server behind a bridge: credentials, requests of members, the notice in the space."""

from __future__ import annotations

from collections.abc import Callable

from moot.bridge.sign_in_notice import SignInNotice
from moot.bridge.sign_in_requests import SignInRequests
from moot.errors import McpError
from moot.mcp.eras import JsonObject
from moot.mcp.upstream import HttpServer
from moot.oauth.credential_store import CredentialStore
from moot.oauth.oauth_settings import OAuthSettings
from moot.oauth.server_credential import ServerCredential
from moot.participant import IncomingRequest, JoinedSpace
from moot.protocol.rpc_codes import INVALID_REQUEST


class ServerSignIn:
    """Everything about signing in at one server."""

    def __init__(self, server: HttpServer, settings: OAuthSettings, *, space: str) -> None:
        """Raises UsageError when credentials cannot be kept."""
        self._store = CredentialStore(settings.folder)
        # Participants of one name are not the same in every space.
        self._key = f"{space} {server.url}"
        self.credential = ServerCredential(server.url, settings, self._store, server=self._key)
        self.notice = SignInNotice(self.credential, server.label, port=settings.redirect_port)
        self._requests = SignInRequests(self._credential_of, settings.limits)
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
        return await self._requests.handle(request.method, request.params, member.name)

    def _credential_of(self, person: str | None) -> ServerCredential:
        if person is not None:
            text = "this server is called with one sign-in for everybody: `moot sign-in NAME --server`"
            raise McpError(INVALID_REQUEST, text)
        return self.credential
