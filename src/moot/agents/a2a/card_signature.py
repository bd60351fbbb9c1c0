"""Whether a card is signed by a key that we trust.

A key that the operator has given (`--card-keys`) says that the card is the one its owner signed. A key that
the card itself names (`jku`) is only taken from the card's own server: it says no more than TLS does, but a
card that does not fit it was changed on the way. Symmetric algorithms are no signatures.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

import jwt
from a2a.types import AgentCard
from a2a.utils.signing import SignatureVerificationError, create_signature_verifier
from jwt import PyJWK, PyJWKSet

from moot.agents.a2a.join_settings import JoinSettings
from moot.errors import MootError, UsageError
from moot.net.http_client import HttpClient

ALGORITHMS: Final = ("ES256", "ES384", "ES512", "EdDSA", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_MAX_SIGNATURES: Final = 16
_MAX_KEYS_BYTES: Final = 256 << 10

Keys = Mapping[str, PyJWK]


async def check_signature(card: AgentCard, card_url: str, settings: JoinSettings) -> str:
    """What is known of the card's signature, in a sentence; raises UsageError for a wrong or missing one."""
    if len(card.signatures) > _MAX_SIGNATURES:
        raise UsageError(f"the agent card has more than {_MAX_SIGNATURES} signatures")
    if settings.card_keys is not None:
        if not card.signatures:
            raise UsageError("the agent card is not signed, and --card-keys says that it has to be")
        keys = _read_keys(settings)
        _verify(card, keys, "by none of the keys in --card-keys")
        return "signed, and checked with a key that was given here"
    if settings.require_signature:
        raise UsageError("--require-signature needs the keys that sign the card: --card-keys FILE")
    if not card.signatures:
        return "not signed"
    keys = await _fetch_keys(card, card_url, settings)
    if not keys:
        return "signed, but not checked: no key was given (--card-keys)"
    _verify(card, keys, "not by the key that it names")
    return "signed, and checked with a key of its own server"


def _verify(card: AgentCard, keys: Keys, otherwise: str) -> None:
    def key_of(kid: str | None, jku: str | None) -> PyJWK:  # noqa: ARG001
        if kid is not None and kid in keys:
            return keys[kid]
        if len(keys) == 1 and kid is None:
            return next(iter(keys.values()))
        raise jwt.InvalidKeyError("no such key")

    try:
        create_signature_verifier(key_of, list(ALGORITHMS))(card)
    except SignatureVerificationError:
        raise UsageError(
            f"the signature of the agent card is wrong: it is signed {otherwise}. The card was changed, or "
            "the keys are old: ask the agent's owner"
        ) from None


def _read_keys(settings: JoinSettings) -> Keys:
    path = settings.card_keys
    assert path is not None  # noqa: S101  # looked at before
    try:
        with path.open("rb") as opened:
            return _keys_of(json.loads(opened.read(_MAX_KEYS_BYTES)))
    except (OSError, ValueError, jwt.PyJWTError) as fault:
        raise UsageError(f"--card-keys: {path} holds no JWK or JWK set: {fault}") from None


def _keys_of(fields: Any) -> Keys:
    """Public keys by their ids; raises ValueError or PyJWTError."""
    if not isinstance(fields, dict):
        raise ValueError("no object")
    given = PyJWKSet.from_dict(fields).keys if "keys" in fields else [PyJWK.from_dict(fields)]
    return {each.key_id or "": each for each in given if each.key_type != "oct"}


async def _fetch_keys(card: AgentCard, card_url: str, settings: JoinSettings) -> Keys:
    """The keys that the card names, if they are on the card's own server; nothing otherwise."""
    for each in card.signatures:
        with suppress(binascii.Error, ValueError, MootError, jwt.PyJWTError, AttributeError):
            padded = each.protected + "=" * (-len(each.protected) % 4)
            jku = json.loads(base64.urlsafe_b64decode(padded)).get("jku")
            if not isinstance(jku, str) or _authority(jku) != _authority(card_url):
                continue
            client = HttpClient(timeout_seconds=settings.limits.card_seconds, max_bytes=_MAX_KEYS_BYTES)
            response = await client.get(jku)
            if response.status == 200:
                return _keys_of(json.loads(response.body))
    return {}


def _authority(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.lower()
