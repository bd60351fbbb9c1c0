"""As which client we are known to a provider, and what its token endpoint gives to that client."""

from __future__ import annotations

import base64
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from moot.config.configuration import McpSignInConfig
from moot.oauth.credential_store import CredentialStore, StoredClient, StoredCredential
from moot.oauth.discovery import ProtectedResource, ProviderInfo, scopes_of
from moot.oauth.oauth_settings import REDIRECT_PATH, SignInFailed
from moot.oauth.provider_http import ProviderHttp, shown, why_refused

# What is sent in a form and must not be seen.
_SECRETS: Final = ("code", "code_verifier", "refresh_token", "subject_token", "client_secret")


class TokenRefused(SignInFailed):
    """The provider gives nothing for this grant any more, as opposed to not being there."""


@dataclass(frozen=True, slots=True)
class OAuthClient:
    """As whom we speak to one provider."""

    client_id: str
    secret: str | None = None

    def __repr__(self) -> str:
        return f"OAuthClient({self.client_id!r})"


async def client_for(
    provider: ProviderInfo,
    settings: McpSignInConfig,
    *,
    server: str,
    scopes: Sequence[str],
    store: CredentialStore,
    http: ProviderHttp,
) -> OAuthClient:
    """One registered by hand, else our metadata document, else one that we register. Raises SignInFailed."""
    if settings.client_id is not None:
        return OAuthClient(settings.client_id, settings.client_secret)
    if settings.client_metadata_url is not None and provider.reads_client_metadata:
        return OAuthClient(settings.client_metadata_url)
    kept = store.client(server, provider.issuer)
    if kept is not None:
        return OAuthClient(kept.client_id, kept.client_secret)
    if provider.registration_endpoint is None:
        raise SignInFailed(
            f"{shown(provider.issuer)} knows no client of ours, and clients cannot register themselves there:"
            " register one by hand, and set client_id"
        )
    redirects = [f"http://{host}{REDIRECT_PATH}" for host in ("127.0.0.1", "localhost")]
    asked: dict[str, Any] = {
        "client_name": "Moot",
        "application_type": "native",
        "redirect_uris": redirects,
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    }
    if scopes:
        asked["scope"] = " ".join(scopes)
    status, answer = await http.post_json(
        provider.registration_endpoint, asked, "the registration of clients"
    )
    client_id, secret = answer.get("client_id"), answer.get("client_secret")
    if status not in (200, 201) or not isinstance(client_id, str) or not client_id:
        raise SignInFailed(f"{shown(provider.issuer)} does not register us: {why_refused(answer)}")
    secret = secret if isinstance(secret, str) and secret else None
    store.keep_client(server, StoredClient(issuer=provider.issuer, client_id=client_id, client_secret=secret))
    return OAuthClient(client_id, secret)


async def request_token(
    form: Mapping[str, str],
    *,
    http: ProviderHttp,
    target: ProtectedResource,
    client: OAuthClient,
    server: str,
    owner: str | None,
    previous: StoredCredential | None = None,
) -> StoredCredential:
    """What the provider gives; raises TokenRefused, and SignInFailed when it does not answer properly."""
    provider = target.provider
    sent = {**form, "resource": target.resource} if target.resource else dict(form)
    headers: dict[str, str] = {}
    if client.secret is None or "client_secret_basic" not in provider.auth_methods:
        sent["client_id"] = client.client_id
        if client.secret is not None:
            sent["client_secret"] = client.secret
    else:
        # RFC 6749, 2.3.1: both are encoded as in a form before they are joined.
        pair = f"{quote(client.client_id, safe='')}:{quote(client.secret, safe='')}"
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    asked_at = time.time()
    status, answer = await http.post_form(provider.token_endpoint, sent, "the token endpoint", headers)
    if 400 <= status < 500 and status != 429:
        secrets = [sent.get(name) for name in _SECRETS] + [client.secret]
        raise TokenRefused(f"{shown(provider.issuer)} gives no token: {why_refused(answer, *secrets)}")
    token, kind, seconds = (answer.get(each) for each in ("access_token", "token_type", "expires_in"))
    if status != 200 or not isinstance(token, str) or not _is_header_text(token):
        raise SignInFailed(f"{shown(provider.issuer)} gave no token (HTTP {status})")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise SignInFailed(f"{shown(provider.issuer)} gave a token of another kind than Bearer")
    refresh = answer.get("refresh_token")
    granted = answer.get("scope")
    scopes = (
        scopes_of(granted.split()) if isinstance(granted, str) else scopes_of(form.get("scope", "").split())
    )
    refresh = refresh if isinstance(refresh, str) else None
    if refresh is None and previous is not None:
        # RFC 6749, 6: the old one stays.
        refresh = previous.refresh_token
    return StoredCredential(
        server=server,
        owner=owner,
        access_token=token,
        expires_at=asked_at + seconds if isinstance(seconds, int | float) else None,
        refresh_token=refresh,
        issuer=provider.issuer,
        token_endpoint=provider.token_endpoint,
        client_id=client.client_id,
        resource=target.resource,
        scopes=scopes or (() if previous is None else previous.scopes),
    )


def _is_header_text(text: str) -> bool:
    return bool(text) and text.isascii() and text.isprintable() and " " not in text
