"""Whether a JWT is one of a provider that is believed, for this gateway, now. Told the time; fetches nothing.

The provider is chosen by the exact `iss` of the token, and only its own keys are tried: a token of one
provider is never checked with the key of another. The algorithm has to be one of the configured ones and fit
the key; none of them has a shared secret.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from moot.config.oidc_config import SPIFFE, OidcConfig
from moot.gateway.access import AccessDenied
from moot.gateway.sign_in.provider_keys import KeysUnavailable, ProviderKeys

# How tokens may be signed. None with a shared secret: who may check such a token could make one.
ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
# How far the clocks of a provider and of this machine may be apart: both are set by NTP, or nearly so.
SKEW_SECONDS: Final = 30.0
# Half of what all headers may have.
_MAX_TOKEN_CHARS: Final = 8_192
_REQUIRED: Final = ("iss", "sub", "aud", "exp", "iat")
# A JWT-SVID has no issuer; `iat` is what sign-outs go by.
_SPIFFE_REQUIRED: Final = ("sub", "aud", "exp", "iat")
# What only ID tokens have (OpenID Connect Core 2, 3.1.3.6), and only logout tokens.
_ID_TOKEN_CLAIMS: Final = ("nonce", "at_hash", "c_hash", "s_hash")
_LOGOUT_EVENT: Final = "http://schemas.openid.net/event/backchannel-logout"
# How Keycloak names what is no access token.
_OTHER_TYPES: Final = ("ID", "Refresh", "Offline", "Logout")
_MAX_SUBJECT_CHARS: Final = 255
_SPIFFE_PATH: Final = re.compile(r"[A-Za-z0-9._/-]+")


# Provider → the audiences of which one has to be in a token.
AudienceOf = Callable[[OidcConfig], Sequence[str]]


class VerifiedToken(NamedTuple):
    """What a provider says about whoever holds a token."""

    provider: OidcConfig
    claims: Mapping[str, Any]
    expires: float
    issued: float
    # Which of the provider's keys has signed it.
    key_id: str | None = None


def looks_like_jwt(token: str) -> bool:
    """Three parts, the first a JSON object: none of our own tokens has a dot."""
    return token.count(".") == 2 and token.startswith("eyJ")


class TokenVerifier:
    """Checks tokens of several providers."""

    def __init__(self, providers: Sequence[ProviderKeys]) -> None:
        self._providers = {each.config.issuer: each for each in providers}

    def verify(
        self, token: str, now: float, audience_of: AudienceOf | None = None
    ) -> VerifiedToken | AccessDenied:
        """What the token says, if it is an access token for us; why it is not, otherwise.

        `audience_of` tells for whom tokens of a provider have to be, if not for the gateway itself.
        """
        found = self._verify_signature(token)
        if isinstance(found, AccessDenied):
            return found
        provider, header, claims = found
        config = provider.config
        if (fault := _why_no_access_token(header, claims, config)) is not None:
            return AccessDenied(401, fault)
        wanted = config.audience if audience_of is None else audience_of(config)
        if not wanted:
            return AccessDenied(401, "the token is of a provider that this server does not take tokens of")
        if not _is_for(claims["aud"], wanted):
            here = "gateway" if audience_of is None else "MCP server"
            return AccessDenied(401, f"the token is for somebody else: this {here} is {wanted[0]}")
        if not _names_account(claims.get(config.subject_claim)):
            return AccessDenied(401, f"the token does not name an account: it lacks {config.subject_claim}")
        if (fault := _why_not_now(claims, now, config)) is not None:
            return AccessDenied(401, fault)
        key_id = header.get("kid")
        return VerifiedToken(
            config,
            claims,
            float(claims["exp"]),
            float(claims["iat"]),
            key_id if isinstance(key_id, str) else None,
        )

    def verify_logout(self, token: str, now: float) -> VerifiedToken | AccessDenied:
        """OpenID Connect Back-Channel Logout 2.6: a logout token, with `sub` or `sid`. For whom it is is not
        looked at: see `is_for_us`."""
        found = self._verify_signature(token, required=("iss", "aud", "iat"))
        if isinstance(found, AccessDenied):
            return found
        provider, header, claims = found
        config = provider.config
        events = claims.get("events")
        is_logout = isinstance(events, dict) and _LOGOUT_EVENT in events and "nonce" not in claims
        # `typ` is new in that specification; without it the event alone tells.
        kind = _type_of(header)
        if not is_logout or kind not in ("logout+jwt", "jwt", "") or not _subject_and_session(claims):
            return AccessDenied(400, "that is no logout token")
        # An expiry is newer than many providers; an old one without is not believed for ever.
        expires = claims.get(
            "exp", claims["iat"] + config.max_token_seconds if _is_time(claims["iat"]) else 0
        )
        if not _is_time(claims["iat"]) or not _is_time(expires) or expires + SKEW_SECONDS <= now:
            return AccessDenied(400, "the logout token has expired")
        return VerifiedToken(config, claims, float(expires), float(claims["iat"]))

    def _verify_signature(
        self, token: str, *, required: Sequence[str] = _REQUIRED
    ) -> tuple[ProviderKeys, Mapping[str, Any], Mapping[str, Any]] | AccessDenied:
        if len(token) > _MAX_TOKEN_CHARS:
            return AccessDenied(401, f"a token has at most {_MAX_TOKEN_CHARS} characters")
        # Only here and in `provider_keys`, which has loaded it long before: no token waits for it.
        import jwt

        try:
            header = jwt.get_unverified_header(token)
            issuer = self._unverified_issuer(token)
        except (jwt.PyJWTError, ValueError, RecursionError):
            return AccessDenied(401, "the token is no JWT")
        provider = self._providers.get(issuer)
        if provider is None:
            return AccessDenied(401, "the token is of a provider that this gateway does not know")
        config, algorithm = provider.config, header.get("alg")
        if algorithm not in ALGORITHMS:
            return AccessDenied(401, f"the token has to be signed with one of {', '.join(ALGORITHMS)}")
        key_id = header.get("kid")
        try:
            key = provider.find(key_id if isinstance(key_id, str) else None)
        except KeysUnavailable as fault:
            return AccessDenied(503, fault.message, retry_after=fault.retry_after)
        if key is None or (key.algorithm is not None and key.algorithm != algorithm):
            return AccessDenied(401, "the token is signed with a key that the provider does not have")
        if config.is_spiffe:
            required = _SPIFFE_REQUIRED
        options: Any = {"require": list(required), "verify_aud": False, "verify_iss": False}
        # The times are checked below, by the clock that we are told.
        options |= {"verify_exp": False, "verify_nbf": False, "verify_iat": False}
        try:
            claims = jwt.decode(token, key.key, algorithms=[algorithm], options=options)
        except jwt.InvalidAudienceError:
            return AccessDenied(401, "the token is for somebody else")
        except jwt.MissingRequiredClaimError as fault:
            return AccessDenied(401, f"the token lacks the claim {fault.claim}")
        except (jwt.InvalidTokenError, jwt.PyJWTError, ValueError, TypeError, RecursionError):
            return AccessDenied(401, "the token is not signed by its provider")
        # What was believed to choose the key has to be what is signed.
        if config.is_spiffe:
            if _trust_domain(claims.get("sub")) != issuer:
                return AccessDenied(401, "the token names nobody of its trust domain")
            claims = {**claims, "iss": issuer}
        elif claims.get("iss") != issuer:
            return AccessDenied(401, "the token is not signed by its provider")
        return provider, header, claims

    def _unverified_issuer(self, token: str) -> str:
        """Only to choose whose keys decide. A JWT-SVID is known by its `sub`, and may have any `iss`."""
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        if not isinstance(claims, dict):
            return ""
        issuer, domain = claims.get("iss"), _trust_domain(claims.get("sub"))
        if isinstance(issuer, str) and issuer in self._providers and not issuer.startswith(SPIFFE):
            return issuer
        return domain if domain in self._providers else str(issuer)


def _trust_domain(subject: Any) -> str:
    """The trust domain of a SPIFFE ID, as it is configured; empty for anything else."""
    if not isinstance(subject, str) or not subject.startswith(SPIFFE):
        return ""
    name, slash, path = subject.removeprefix(SPIFFE).partition("/")
    # SPIFFE-ID 2.2: no empty segments, no dots, no slash at the end.
    is_path = bool(slash) and all(part not in ("", ".", "..") for part in path.split("/"))
    return f"{SPIFFE}{name}" if is_path and _SPIFFE_PATH.fullmatch(path) else ""


def _type_of(header: Mapping[str, Any]) -> str:
    kind = header.get("typ", "")
    return kind.lower().removeprefix("application/") if isinstance(kind, str) else "?"


def _why_no_access_token(
    header: Mapping[str, Any], claims: Mapping[str, Any], config: OidcConfig
) -> str | None:
    if config.accept_id_tokens:
        if "events" in claims:
            return "that is a logout token"
        # OpenID Connect Core 3.1.3.7: an ID token for several is for the client that `azp` names.
        clients = config.audience if config.client_id is None else (config.client_id,)
        is_others = "azp" in claims and claims["azp"] not in clients
        return "the token was issued to another client" if is_others else None
    kind = _type_of(header)
    # JWT-SVID 2.3: it may be there, and then is one of two.
    types = ("", "JWT", "JOSE") if config.is_spiffe else config.token_types
    allowed = {each.lower() for each in types}
    if "jwt" in allowed:
        # RFC 7519, 5.1: it says no more than its absence.
        allowed.add("")
    if kind not in allowed:
        expected = " or ".join(filter(None, types))
        return f"the token is no access token: its typ has to be {expected}"
    is_other = claims.get("typ") in _OTHER_TYPES or "events" in claims
    if is_other or any(name in claims for name in _ID_TOKEN_CLAIMS):
        return "the token is no access token, but one of another kind"
    return None


def _why_not_now(claims: Mapping[str, Any], now: float, config: OidcConfig) -> str | None:
    expires, issued, begins = claims["exp"], claims["iat"], claims.get("nbf", 0)
    if not (_is_time(expires) and _is_time(issued) and _is_time(begins)):
        return "the token has a time that is none"
    if not _names_account(claims["sub"]):
        return "the token names nobody"
    skew = SKEW_SECONDS
    if expires + skew <= now:
        return "the token has expired: sign in again"
    if issued - skew > now or begins - skew > now:
        return "the token is not valid yet: compare the clocks of this machine and of the provider"
    if expires - now > config.max_token_seconds + skew:
        return f"the token is valid for longer than max_token_seconds {config.max_token_seconds:g} allows"
    return None


def _names_account(subject: Any) -> bool:
    return isinstance(subject, str) and 0 < len(subject) <= _MAX_SUBJECT_CHARS


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e12


def _is_for(audience: Any, wanted: Sequence[str]) -> bool:
    return any(each in wanted for each in audiences_of(audience))


def is_for_us(logout: VerifiedToken) -> bool:
    """Whether a logout token is for this gateway itself, and not for a program that people sign in with."""
    config = logout.provider
    ours = (*config.audience, *([config.client_id] if config.client_id else []))
    return any(each in ours for each in audiences_of(logout.claims["aud"]))


def audiences_of(audience: Any) -> list[str]:
    listed = [audience] if isinstance(audience, str) else audience
    return [each for each in listed if isinstance(each, str)] if isinstance(listed, list) else []


def _subject_and_session(claims: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name, claims[name]) for name in ("sub", "sid") if isinstance(claims.get(name), str)]
