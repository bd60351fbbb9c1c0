"""The credential for one MCP server: sent with every request, renewed once for all, asked for when missing.

How it works. A request takes the token there is. Where the server refuses it (401), whoever noticed first
looks for the provider and renews the token; the others wait for the same renewal and try again with its
result, once. Nothing is locked while requests run. Where nothing can be renewed, the credential `waits_for` a
sign-in: requests fail at once, and `finish` or `bring` ends the wait. A provider that cannot be reached is no
reason to sign in again: that is a `problem`, and the next request tries again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from moot.config.configuration import McpSignInConfig
from moot.errors import UsageError
from moot.oauth.credential_store import CredentialStore, StoredCredential
from moot.oauth.discovery import BearerChallenge, ProtectedResource, find_resource, read_challenge
from moot.oauth.oauth_settings import SignInFailed
from moot.oauth.pending_sign_in import PendingSignIn
from moot.oauth.provider_http import ProviderHttp, shown
from moot.oauth.token_endpoint import OAuthClient, TokenRefused, client_for, request_token

# A token with less than this left is renewed before it is used.
RENEW_BEFORE_SECONDS: Final = 30.0
# Between two attempts to renew or to find the provider after one has failed.
RETRY_SECONDS: Final = 5.0
# Scopes that are asked for, whatever a server demands.
MAX_SCOPES: Final = 64

log = logging.getLogger(__name__)

_OFFLINE: Final = "offline_access"


def _ignore() -> None:
    """Nobody wants to know."""


class ServerCredential:
    """What one owner is known by at one MCP server. Without an owner: what the server is called with."""

    def __init__(
        self,
        server_url: str,
        settings: McpSignInConfig,
        store: CredentialStore,
        *,
        server: str,
        owner: str | None = None,
        challenge: BearerChallenge | None = None,
        is_subject: bool = False,
    ) -> None:
        """`server` names it in the store; `challenge` is what the server said to somebody else.

        A subject is never sent to the server: it is exchanged for what is.
        Raises UsageError when the store cannot be read.
        """
        self.owner = owner
        # Called when what is waited for has changed.
        self.on_change: Callable[[], None] = _ignore
        # Why nothing works though nobody has to sign in; None if there is nothing.
        self.problem: str | None = None
        self._url = server_url
        self._settings = settings
        self._store = store
        self._server = server
        self._http = ProviderHttp(server_url, allow_private=settings.allow_private_addresses)
        self._credential = store.credential(server, owner)
        self._target: ProtectedResource | None = None
        self._challenge = challenge or BearerChallenge()
        self._wanted_scopes: tuple[str, ...] = ()
        self._waits_for: str | None = None
        self._ready = asyncio.Event()
        self._ready.set()
        self._renewing = store.lock_for(server, owner)
        self._is_subject = is_subject
        self._obtained_at: float | None = None
        self._failed_at: float | None = None

    # For requests

    @property
    def is_there(self) -> bool:
        """Whether there is something to send."""
        return self._credential is not None

    @property
    def waits_for(self) -> str | None:
        """What has to happen before anything can be sent, as the end of a sentence; None: nothing."""
        return self._waits_for

    async def wait_until_ready(self) -> None:
        """Wait until somebody has signed in, if that is waited for."""
        await self._ready.wait()

    async def authorization(self) -> str | None:
        """The value of the header; None while there is none. Raises nothing."""
        kept = self._credential
        if kept is not None and self._ends_soon(kept):
            await self._renew(kept.access_token)
        return self._value()

    async def on_unauthorized(self, sent: str | None, challenge: str) -> str | None:
        """The server refused what was sent; another value to try once, or None. Raises nothing."""
        self._challenge = read_challenge(challenge)
        if sent is not None and sent == self._value() and self._is_fresh():
            # Another one would be refused as well, and every request would ask for one.
            self.problem = "the MCP server refuses the token that was just issued for it"
            self.on_change()
            return None
        await self._renew(None if sent is None else sent.removeprefix("Bearer "))
        value = self._value()
        return None if value == sent or self._waits_for is not None else value

    def on_forbidden(self, challenge: str) -> None:
        """The server wants more scopes: the next sign-in asks for them too."""
        read = read_challenge(challenge)
        if read.error == "insufficient_scope" and read.scopes:
            self._wanted_scopes = tuple(dict.fromkeys([*self._wanted_scopes, *read.scopes]))
            self.problem = f"some calls need a wider sign-in ({' '.join(read.scopes)})"
            self.on_change()

    @property
    def challenge(self) -> BearerChallenge:
        """What the server last said about where to sign in."""
        return self._challenge

    # Signing in

    async def begin(self, redirect_uri: str) -> PendingSignIn:
        """A sign-in whose code comes back to this address; raises SignInFailed."""
        target = await self._find_target()
        scopes = self._scopes(target)
        client = await self._client(target, scopes)
        # OpenID Connect 11: without consent there is no refresh token.
        prompt = "consent" if _OFFLINE in scopes else None
        return PendingSignIn(
            target=target, client=client, redirect_uri=redirect_uri, scopes=scopes, prompt=prompt
        )

    async def finish(self, pending: PendingSignIn, answer: Mapping[str, str]) -> None:
        """Take the code that came back; raises SignInFailed."""
        form = pending.token_form(pending.code_of(answer))
        # What is renewed at this moment must not be kept after it.
        async with self._renewing:
            self._keep(await self._request(form, pending.target, pending.client))

    async def bring(self, token: str) -> None:
        """Use a token that its owner got elsewhere. It is sent as it is, and nobody can renew it."""
        async with self._renewing:
            self._keep(StoredCredential(server=self._server, owner=self.owner, access_token=token))

    async def forget(self) -> None:
        """Forget the credential, here and on disk."""
        async with self._renewing:
            self._forget()

    async def renew(self, refused: str) -> None:
        """The provider refused this token of ours: get a newer one, or wait for a sign-in."""
        await self._renew(refused)

    async def exchange(self, token: str, challenge: BearerChallenge) -> StoredCredential:
        """A token for the server in exchange for this one (RFC 8693); raises TokenRefused, SignInFailed."""
        found = await find_resource(self._http, self._url, challenge, issuer=self._settings.issuer)
        form = {
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "subject_token": token,
            "subject_token_type": "urn:ietf:params:oauth:token-type:access_token",
            "requested_token_type": "urn:ietf:params:oauth:token-type:access_token",
        }
        wanted = challenge.scopes or found.scopes
        if wanted:
            form["scope"] = " ".join(wanted[:MAX_SCOPES])
        return await self._request(form, found, await self._client(found, wanted))

    # Inside

    @property
    def _calls_as_client(self) -> bool:
        # What the client itself is given is nobody's account.
        return self._settings.grant == "client_credentials" and self.owner is None

    def _value(self) -> str | None:
        return None if self._credential is None else f"Bearer {self._credential.access_token}"

    async def _renew(self, refused: str | None) -> None:
        """Get a newer token than the one refused, unless another request just did."""
        async with self._renewing:
            try:
                # Somebody else may have renewed it.
                kept = self._credential = self._store.credential(self._server, self.owner)
                if (None if kept is None else kept.access_token) != refused:
                    return
                if self._waits_for is not None or self._is_too_soon():
                    return
                await self._renew_or_wait(kept)
            except (SignInFailed, UsageError) as fault:
                self._failed_at = time.monotonic()
                self.problem = str(fault)
                log.warning("credential not renewed", extra={"server": self._server, "why": str(fault)})
                self.on_change()

    async def _renew_or_wait(self, kept: StoredCredential | None) -> None:
        target = await self._find_target()
        if self._calls_as_client:
            form = {"grant_type": "client_credentials"}
            if scopes := self._scopes(target):
                form["scope"] = " ".join(each for each in scopes if each != _OFFLINE)
            self._keep(await self._request(form, target, await self._client(target, scopes)))
            return
        if kept is not None and kept.refresh_token is not None and kept.issuer == target.provider.issuer:
            form = {"grant_type": "refresh_token", "refresh_token": kept.refresh_token}
            client = await self._client(target, kept.scopes)
            if client.client_id == kept.client_id:
                try:
                    self._keep(await self._request(form, target, client, previous=kept))
                    return
                except TokenRefused as refusal:
                    log.info("sign-in has ended", extra={"server": self._server, "why": str(refusal)})
        if kept is not None:
            self._forget()
        self._wait_for_sign_in(target)

    def _forget(self) -> None:
        self._store.forget_credential(self._server, self.owner)
        self._credential = None

    def _wait_for_sign_in(self, target: ProtectedResource) -> None:
        if self._waits_for is None:
            self._waits_for = f"a sign-in at {shown(target.provider.issuer)}"
            self._ready.clear()
            self.problem = None
            self.on_change()

    def _ends_soon(self, kept: StoredCredential) -> bool:
        """Whether it should be renewed before the server refuses it, and can be."""
        can_renew = kept.refresh_token is not None or self._calls_as_client
        if kept.expires_at is None or self._target is None or not can_renew or self._is_fresh():
            return False
        return kept.expires_at - time.time() < RENEW_BEFORE_SECONDS

    def _is_fresh(self) -> bool:
        obtained_at = self._obtained_at
        return obtained_at is not None and time.monotonic() - obtained_at < RETRY_SECONDS

    def _is_too_soon(self) -> bool:
        return self._failed_at is not None and time.monotonic() - self._failed_at < RETRY_SECONDS

    async def _find_target(self) -> ProtectedResource:
        """Found anew each time: a server may have changed its provider."""
        self._http.check_url(self._url, "an MCP server that we sign in at")
        found = await find_resource(self._http, self._url, self._challenge, issuer=self._settings.issuer)
        self._target = replace(found, resource="") if self._is_subject else found
        return self._target

    def _scopes(self, target: ProtectedResource) -> tuple[str, ...]:
        asked = self._settings.scopes or self._challenge.scopes or target.scopes
        had = () if self._credential is None else self._credential.scopes
        offline = (_OFFLINE,) if _OFFLINE in target.provider.scopes else ()
        wanted = dict.fromkeys([*asked, *had, *self._wanted_scopes, *offline])
        return tuple(wanted)[:MAX_SCOPES]

    async def _client(self, target: ProtectedResource, scopes: tuple[str, ...]) -> OAuthClient:
        return await client_for(
            target.provider,
            self._settings,
            server=self._server,
            # A client may ask for no more than it was registered for.
            scopes=tuple(dict.fromkeys([*scopes, *target.scopes])),
            store=self._store,
            http=self._http,
        )

    async def _request(
        self,
        form: Mapping[str, str],
        target: ProtectedResource,
        client: OAuthClient,
        previous: StoredCredential | None = None,
    ) -> StoredCredential:
        return await request_token(
            form,
            http=self._http,
            target=target,
            client=client,
            server=self._server,
            owner=self.owner,
            previous=previous,
        )

    def _keep(self, credential: StoredCredential) -> None:
        # First on disk: a refresh token that was used once is worth nothing any more.
        self._store.keep_credential(credential)
        self._credential = credential
        self._obtained_at = time.monotonic()
        self._failed_at = self.problem = self._waits_for = None
        self._ready.set()
        self.on_change()
