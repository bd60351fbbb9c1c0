"""What is signed with a passkey, and whether it was (WebAuthn level 2).

An approval is confirmed over exactly one call: the challenge that the authenticator signs is the SHA-256 of

    moot decision 1 ⏎ space ⏎ proposal ⏎ when it was proposed ⏎ who decides ⏎ decision ⏎ fingerprint ⏎ nonce
    ⏎ expires

each line as JSON. Whoever has the approval and the public key can compute it again, and needs nothing of us.
Everything is checked here, from the space's own tables: no gateway remembers a challenge, so that every one
of a cluster comes to the same verdict.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final, Literal, NamedTuple, Protocol
from urllib.parse import urlsplit

import msgspec

from moot.errors import PasskeyInvalid
from moot.protocol import base64url
from moot.protocol.operation import Json, JsonValue
from moot.space.config import Name

Decision = Literal["approve", "reject"]

# From the moment when the page asks until the decision is here: somebody has to find their security key.
CHALLENGE_SECONDS: Final = 300.0
# A signature and a page's address; keys of some kinds have longer signatures.
_MAX_CHARS: Final = 4_096
# A hash, a byte of flags and a counter.
_LEAST_BYTES: Final = 37


class Assertion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an authenticator signed, each part in base64url as a browser gives it."""

    credential_id: str
    client_data_json: str
    authenticator_data: str
    signature: str
    # Of a decision: what the challenge was made of, beside the proposal.
    nonce: str = ""
    expires: float = 0.0


class DecidedOn(Protocol):
    """A proposal, as far as a signature is over it."""

    @property
    def id(self) -> str: ...
    @property
    def proposed_at(self) -> float: ...
    @property
    def fingerprint(self) -> str: ...


class VerificationKey(NamedTuple):
    """With what an assertion is checked."""

    public_key: bytes
    rp_id: str
    origin: str
    sign_count: int


def read_assertion(value: JsonValue) -> Assertion:
    """Raises PasskeyInvalid for what no browser sent."""
    try:
        found = msgspec.convert(value, Assertion)
    except msgspec.ValidationError as fault:
        raise PasskeyInvalid(f"payload.passkey: {fault}") from None
    if any(isinstance(each, str) and len(each) > _MAX_CHARS for each in msgspec.structs.astuple(found)):
        raise PasskeyInvalid(f"payload.passkey: no part of it has more than {_MAX_CHARS} characters")
    try:
        for part in (found.credential_id, found.client_data_json, found.signature):
            base64url.decode(part)
        is_whole = len(base64url.decode(found.authenticator_data)) >= _LEAST_BYTES
    except ValueError:
        is_whole = False
    if not is_whole:
        raise PasskeyInvalid("payload.passkey: its parts are base64url, as a browser gives them")
    return found


def decision_challenge(
    space: str, proposal: DecidedOn, who: Name, decision: Decision, *, nonce: str, expires: float
) -> bytes:
    """What this member signs to decide on this proposal."""
    parts: list[Json] = [
        "moot decision 1",
        space,
        proposal.id,
        proposal.proposed_at,
        who,
        decision,
        proposal.fingerprint,
        nonce,
        expires,
    ]
    return hashlib.sha256("\n".join(json.dumps(each) for each in parts).encode()).digest()


def challenge_key(challenge: bytes) -> str:
    """By what a challenge is remembered."""
    return challenge.hex()


def verify_assertion(key: VerificationKey, assertion: Assertion, challenge: bytes) -> int:
    """How often the key has signed by its own count. Raises PasskeyInvalid, which says what is wrong."""
    # Only here: it takes a third of a second to load, and most spaces never need it.
    from webauthn import verify_authentication_response
    from webauthn.helpers.exceptions import WebAuthnException

    credential = {
        "id": assertion.credential_id,
        "rawId": assertion.credential_id,
        "type": "public-key",
        "response": {
            "clientDataJSON": assertion.client_data_json,
            "authenticatorData": assertion.authenticator_data,
            "signature": assertion.signature,
        },
    }
    try:
        verified = verify_authentication_response(
            credential=credential,
            expected_challenge=challenge,
            expected_rp_id=key.rp_id,
            expected_origin=_expected_origins(key.origin, assertion),
            credential_public_key=key.public_key,
            credential_current_sign_count=key.sign_count,
            require_user_verification=True,
        )
    except WebAuthnException as fault:
        raise PasskeyInvalid(f"the passkey does not confirm this: {_plain(str(fault))}") from None
    except (ValueError, TypeError, KeyError, IndexError):
        # What the library does not expect in the bytes of a stranger.
        raise PasskeyInvalid("the passkey does not confirm this: it cannot be read") from None
    return verified.new_sign_count


def _expected_origins(origin: str, assertion: Assertion) -> list[str]:
    """Where the key was made; on localhost at any port, since programs there seldom keep theirs."""
    said = _client_data(assertion)
    if said.get("crossOrigin") is True:
        raise PasskeyInvalid("the passkey does not confirm this: it was asked for by a frame in another page")
    found = said.get("origin")
    if isinstance(found, str) and _is_same_localhost(found, origin):
        return [found]
    return [origin]


def _client_data(assertion: Assertion) -> dict[str, Any]:
    try:
        found = json.loads(base64url.decode(assertion.client_data_json))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise PasskeyInvalid("the passkey does not confirm this: clientDataJSON cannot be read")
    return found


def _is_same_localhost(one: str, other: str) -> bool:
    try:
        first, second = urlsplit(one), urlsplit(other)
    except ValueError:
        return False
    return (
        first.scheme == second.scheme
        and first.hostname == second.hostname
        and is_localhost(first.hostname or "")
        and one == f"{first.scheme}://{first.netloc}"
    )


def is_localhost(host: str) -> bool:
    return host == "localhost" or host.endswith(".localhost")


# The library's words, in ours; others are passed on as they are, they hold nothing secret.
_WORDS: Final = (
    ("challenge", "it was made for another decision or another call"),
    ("origin", "it was made on a page at another address"),
    ("RP ID", "it was made for another address"),
    ("User verification", "the authenticator did not check who you are (fingerprint, face or PIN)"),
    ("not present", "nobody touched the authenticator"),
    ("sign count", "its counter went back, so that the key may have been copied"),
    ("signature", "its signature is not by your key"),
)


def _plain(text: str) -> str:
    return next((words for sign, words in _WORDS if sign.lower() in text.lower()), "it cannot be read")
