"""A sign-in with a code that has begun: a link for a person, and the check of what comes back.

The link holds no secret. The verifier of PKCE (RFC 7636) stays here, so nobody else can use the code; `state`
and `iss` (RFC 9207) show that what comes back belongs to this link and comes from its provider.
"""

from __future__ import annotations

import hmac
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from urllib.parse import urlencode

from moot.oauth.discovery import ProtectedResource
from moot.oauth.oauth_settings import SignInFailed
from moot.oauth.provider_http import shown, why_refused
from moot.oauth.token_endpoint import OAuthClient


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingSignIn:
    """One sign-in between its link and its code."""

    target: ProtectedResource
    client: OAuthClient
    redirect_uri: str
    scopes: tuple[str, ...]
    # What the provider is to ask its person for, such as `consent`.
    prompt: str | None = None
    state: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(48), repr=False)

    def __post_init__(self) -> None:
        provider = self.target.provider
        if provider.authorization_endpoint is None:
            raise SignInFailed(f"{shown(provider.issuer)} has no page to sign in at")
        if not provider.has_s256:
            raise SignInFailed(f"{shown(provider.issuer)} does not offer PKCE with S256, so no code is safe")

    @property
    def link(self) -> str:
        digest = sha256(self.verifier.encode()).digest()
        asked = {
            "response_type": "code",
            "client_id": self.client.client_id,
            "redirect_uri": self.redirect_uri,
            "state": self.state,
            "code_challenge": urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
        }
        if self.target.resource:
            asked["resource"] = self.target.resource
        if self.scopes:
            asked["scope"] = " ".join(self.scopes)
        if self.prompt is not None:
            asked["prompt"] = self.prompt
        endpoint = self.target.provider.authorization_endpoint or ""
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(asked)}"

    def code_of(self, answer: Mapping[str, str]) -> str:
        """The code in what came back; raises SignInFailed unless it is the answer to this link."""
        if not hmac.compare_digest(answer.get("state", "").encode(), self.state.encode()):
            raise SignInFailed("what came back does not belong to this sign-in: begin again")
        issuer = answer.get("iss")
        # RFC 9207: before anything else is believed, errors included.
        if issuer != self.target.provider.issuer and (
            issuer is not None or self.target.provider.names_itself
        ):
            raise SignInFailed("what came back is from another provider than the one that was asked")
        if "error" in answer:
            raise SignInFailed(f"nobody was signed in: {why_refused(answer)}")
        code = answer.get("code")
        if not code:
            raise SignInFailed("what came back holds no code")
        return code

    def token_form(self, code: str) -> dict[str, str]:
        """What the token endpoint is asked with it."""
        return {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.redirect_uri,
            "code_verifier": self.verifier,
        }
