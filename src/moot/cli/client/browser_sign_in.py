"""Signing in at a provider with the browser of this machine: a code with PKCE that comes back to 127.0.0.1.

As RFC 8252 has it for programs: any free port, and the provider's own page. The verifier never leaves this
process, so a code that somebody else sees opens nothing; `state` and `iss` show whose answer it is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

from moot.config.secrets.sign_in_store import StoredSignIn
from moot.oauth import oauth_settings
from moot.oauth.discovery import ProtectedResource, find_provider, scopes_of
from moot.oauth.loopback_receiver import LoopbackReceiver, open_receiver
from moot.oauth.oauth_settings import SignInFailed
from moot.oauth.pending_sign_in import PendingSignIn
from moot.oauth.provider_http import ProviderHttp
from moot.oauth.token_endpoint import OAuthClient, request_token


async def sign_in_with_browser(
    provider: Mapping[str, Any],
    show: Callable[[str], None],
    *,
    port: int = 0,
) -> StoredSignIn:
    """Sign in; `show` is told the address to open. Raises SignInFailed and UsageError."""
    issuer, resource = provider["issuer"], provider.get("resource")
    # Whoever runs the gateway chose the provider, which may be in one's own network.
    http = ProviderHttp(issuer, allow_private=True)
    found = await find_provider(http, issuer)
    if found.issuer != issuer:
        raise SignInFailed(f"{issuer} calls itself otherwise, so it is not the provider that is meant")
    target = ProtectedResource(resource=resource if isinstance(resource, str) else "", provider=found)
    client = OAuthClient(provider["client_id"])
    answered: asyncio.Future[StoredSignIn] = asyncio.get_running_loop().create_future()
    pending: PendingSignIn | None = None

    async def on_answer(answer: Mapping[str, str]) -> str:
        # What does not belong to this sign-in ends nothing: any page can send a browser here.
        if pending is None or answered.done() or answer.get("state") != pending.state:
            raise SignInFailed("This belongs to no sign-in that is under way.")
        try:
            form = pending.token_form(pending.code_of(answer))
            made = await request_token(
                form, http=http, target=target, client=client, server=issuer, owner=None
            )
        except SignInFailed as fault:
            if not answered.done():
                answered.set_exception(fault)
            raise SignInFailed("Nobody was signed in; the terminal says why.") from None
        if not answered.done():
            answered.set_result(
                StoredSignIn(
                    issuer=issuer,
                    client_id=client.client_id,
                    token_endpoint=found.token_endpoint,
                    access_token=made.access_token,
                    expires_at=time.time() + 60.0 if made.expires_at is None else made.expires_at,
                    refresh_token=made.refresh_token,
                    resource=target.resource or None,
                )
            )
        return "Signed in. You can close this page."

    async with open_receiver(LoopbackReceiver(on_answer), port) as receiver:
        pending = PendingSignIn(
            target=target,
            client=client,
            redirect_uri=receiver.redirect_uri,
            scopes=scopes_of(provider.get("scopes", ["openid"])),
            prompt=provider.get("prompt"),
        )
        show(pending.link)
        try:
            async with asyncio.timeout(oauth_settings.SIGN_IN_SECONDS):
                return await answered
        except TimeoutError:
            minutes = f"{oauth_settings.SIGN_IN_SECONDS / 60:g}"
            raise SignInFailed(f"nobody signed in within {minutes} minutes: try again") from None
