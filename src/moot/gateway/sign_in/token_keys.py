"""By which names a sign-out finds a token of a provider; hashes, so that they say nothing of a person."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from moot.gateway.sign_in.token_verifier import VerifiedToken

# Of tokens that do not say of which session at the provider they are.
_NO_SESSION: Final = "no session"


def keys_of(verified: VerifiedToken) -> list[str]:
    """By what a sign-out finds a token: whose it is, of which session at the provider, which one it is."""
    claims, subjects = verified.claims, subjects_of(verified)
    has_session = isinstance(claims.get("sid"), str)
    keys = subjects + ([key_of("sid", claims, "sid")] if has_session else [*map(without_session, subjects)])
    if isinstance(claims.get("jti"), str):
        keys.append(key_of("jti", claims, "jti"))
    else:
        # Nothing names it: it is what it says, or all of the person's would end with it.
        said = json.dumps(claims, sort_keys=True)
        keys.append(hashlib.sha256(f"claims\0{said}".encode()).hexdigest())
    return keys


def subjects_of(verified: VerifiedToken) -> list[str]:
    """The account, and behind it `sub` where that is something else: a logout token has no other name."""
    names = dict.fromkeys((verified.provider.subject_claim, "sub"))
    return [key_of(name, verified.claims, name) for name in names]


def without_session(subject: str) -> str:
    """Those tokens of a person that do not say of which session at the provider they are."""
    return hashlib.sha256(f"{_NO_SESSION}\0{subject}".encode()).hexdigest()


def key_of(kind: str, claims: Mapping[str, Any], name: str) -> str:
    text = "\0".join((kind, str(claims["iss"]), str(claims[name])))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def client_of(claims: Mapping[str, Any]) -> str:
    """With which program somebody signed in; where the provider does not say, for whom the token is."""
    audience = claims.get("aud", ())
    named = named_client(claims)
    return (
        named
        if named is not None
        else "for " + " ".join(sorted({audience} if isinstance(audience, str) else audience))
    )


def named_client(claims: Mapping[str, Any]) -> str | None:
    """As RFC 9068, OpenID Connect, Entra and Okta call it."""
    found = (claims.get(name) for name in ("client_id", "azp", "appid", "cid"))
    return next((client for client in found if isinstance(client, str) and client), None)
