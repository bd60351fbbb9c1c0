"""The card of a foreign agent: fetched within bounds, checked, and held to its own server.

The card is written by the agent's owner. It may not lead us elsewhere: the interface that is used has the
card's own origin, or one that the operator has named, so that neither our token nor our requests go to a
server that only the card knows.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import jwt
from a2a.client.card_resolver import parse_agent_card
from a2a.types import AgentCard, AgentInterface
from a2a.utils.signing import SignatureVerificationError, create_signature_verifier
from google.protobuf.json_format import ParseError
from jwt import PyJWK, PyJWKSet

from moot.agents.a2a.a2a_settings import JoinSettings
from moot.errors import InvalidJson, MootError, Unreachable, UsageError
from moot.net.address_check import is_loopback
from moot.net.http_client import HttpClient, ResponseTooLarge
from moot.protocol import strict_json

# The agent card: fetched in this time, and no larger than this.
CARD_SECONDS: Final = 15.0
MAX_CARD_BYTES: Final = 256 << 10

WELL_KNOWN: Final = "/.well-known/agent-card.json"
# Where it was before 0.3.
_OLD_WELL_KNOWN: Final = "/.well-known/agent.json"
_BINDINGS: Final = ("JSONRPC", "HTTP+JSON")
_MAX_DEPTH: Final = 50
ALGORITHMS: Final = ("ES256", "ES384", "ES512", "EdDSA", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_MAX_SIGNATURES: Final = 16
_MAX_KEYS_BYTES: Final = 256 << 10

Keys = Mapping[str, PyJWK]


@dataclass(frozen=True, slots=True)
class FoundCard:
    """A card that was accepted."""

    card: AgentCard
    # Where it was found, and what is known of its signature.
    url: str
    signature: str


async def find_card(settings: JoinSettings) -> FoundCard:
    """Fetch and check the card; raises UsageError or Unreachable with what to do."""
    origin_of(settings.url, settings)
    faults: list[Unreachable | UsageError] = []
    for url in _places(settings.url):
        fields = await _fetch_json(url, settings, faults)
        if fields is not None:
            break
    else:
        why = f"no agent card: {'; '.join(map(str, faults))}. Give the URL of the card itself"
        # A server that starts, or a proxy before it, may have a card later; whoever asks for it tries again.
        raise Unreachable(why) if any(isinstance(each, Unreachable) for each in faults) else UsageError(why)
    try:
        card = parse_agent_card(fields)
    except (ParseError, ValueError, TypeError, AttributeError, KeyError, RecursionError) as fault:
        raise UsageError(f"{url} is no agent card: {str(fault)[:300]}") from None
    allowed = {origin_of(url, settings), *(origin_of(each, settings) for each in settings.allowed_origins)}
    signature = await check_signature(card, url, settings)
    _keep_usable_interfaces(card, allowed, settings)
    return FoundCard(card, url, signature)


def origin_of(url: str, settings: JoinSettings) -> str:
    """Scheme, host and port; raises UsageError for what may not be called."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise UsageError(f"{url[:200]!r} is no URL") from None
    host = parts.hostname
    if parts.scheme not in ("http", "https") or not host or "@" in parts.netloc or not url.isprintable():
        raise UsageError(f"{url[:200]!r}: give a URL such as https://agent.example.com, without a user")
    is_local = host == "localhost" or is_loopback(host)
    if parts.scheme == "http" and not is_local and not settings.allow_plain_http:
        raise UsageError(
            f"{url[:200]!r} is not encrypted. Use https://, or --allow-plain-http in a network of your own"
        )
    return f"{parts.scheme}://{host.lower()}:{port or (443 if parts.scheme == 'https' else 80)}"


def _places(url: str) -> list[str]:
    parts = urlsplit(url)
    if parts.path.endswith(".json"):
        return [url]
    base, root = url.rstrip("/"), f"{parts.scheme}://{parts.netloc}"
    return list(dict.fromkeys((base + WELL_KNOWN, root + WELL_KNOWN, base + _OLD_WELL_KNOWN)))


async def _fetch_json(
    url: str, settings: JoinSettings, faults: list[Unreachable | UsageError]
) -> dict[str, Any] | None:
    headers = {"Authorization": f"Bearer {settings.agent_token}"} if settings.agent_token else {}
    client = HttpClient(timeout_seconds=CARD_SECONDS, max_bytes=MAX_CARD_BYTES, headers=headers)
    try:
        response = await client.get(url)
    except ResponseTooLarge:
        raise UsageError(f"{url} is larger than a card may be ({MAX_CARD_BYTES} bytes)") from None
    except Unreachable as fault:
        raise Unreachable(f"{fault}. Check the URL, and that the agent runs there") from fault
    if 300 <= response.status < 400:
        raise UsageError(f"{url} redirects, and redirects are not followed: give the final URL")
    if response.status != 200:
        is_passing = response.status == 429 or response.status >= 500
        fault_type = Unreachable if is_passing else UsageError
        faults.append(fault_type(f"{url} answers with HTTP {response.status}"))
        return None
    try:
        fields = strict_json.parse(response.body)
    except InvalidJson as fault:
        faults.append(Unreachable(f"{url} is not JSON: {fault.message}"))
        return None
    if not isinstance(fields, dict) or strict_json.nests_deeper(fields, _MAX_DEPTH):
        raise UsageError(f"{url} is no agent card: it has to be an object, at most {_MAX_DEPTH} levels deep")
    return fields


def _keep_usable_interfaces(card: AgentCard, allowed: set[str], settings: JoinSettings) -> None:
    """Leave only interfaces that we may and can use; raises UsageError if none is left."""
    usable: list[AgentInterface] = []
    elsewhere: list[str] = []
    for each in card.supported_interfaces:
        if each.protocol_binding not in _BINDINGS:
            continue
        try:
            origin = origin_of(each.url, settings)
        except UsageError as fault:
            elsewhere.append(str(fault))
            continue
        if origin in allowed:
            usable.append(each)
        else:
            elsewhere.append(f"{each.url[:200]} is on another server than the card: --allow-origin {origin}")
    if not usable:
        why = "; ".join(elsewhere[:3]) or f"it offers none of {', '.join(_BINDINGS)}"
        raise UsageError(f"the agent cannot be reached as its card says: {why}")
    copies = [AgentInterface.FromString(each.SerializeToString()) for each in usable]
    del card.supported_interfaces[:]
    card.supported_interfaces.extend(copies)


# Whether a card is signed by a key that we trust.
#
# A key that the operator has given (`--card-keys`) says that the card is the one its owner signed. A key that
# the card itself names (`jku`) is only taken from the card's own server: it says no more than TLS does, but a
# card that does not fit it was changed on the way. Symmetric algorithms are no signatures.


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
    keys = await _fetch_keys(card, card_url)
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


async def _fetch_keys(card: AgentCard, card_url: str) -> Keys:
    """The keys that the card names, if they are on the card's own server; nothing otherwise."""
    for each in card.signatures:
        with suppress(binascii.Error, ValueError, MootError, jwt.PyJWTError, AttributeError):
            padded = each.protected + "=" * (-len(each.protected) % 4)
            jku = json.loads(base64.urlsafe_b64decode(padded)).get("jku")
            if not isinstance(jku, str) or _authority(jku) != _authority(card_url):
                continue
            client = HttpClient(timeout_seconds=CARD_SECONDS, max_bytes=_MAX_KEYS_BYTES)
            response = await client.get(jku)
            if response.status == 200:
                return _keys_of(json.loads(response.body))
    return {}


def _authority(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.lower()
