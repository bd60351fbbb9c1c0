"""Signs the cards of published members, with a key that the service keeps in its state folder (A2A 8.4).

The public key is at `/.well-known/jwks.json` below the public address, where the signature says (`jku`).
ES256, as in the protocol's own examples: verifiers everywhere know it.
"""

from __future__ import annotations

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from a2a.types import AgentCard
from a2a.utils.signing import create_agent_card_signer
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from moot.errors import UsageError
from moot.private_files import open_private, read_secret
from moot.protocol import base64url

KEYS_PATH: Final = "/.well-known/jwks.json"
_FILE: Final = "card-key.pem"
_MAX_FILE_BYTES: Final = 16 << 10


class CardSigner:
    """One key, and where callers find its public half."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, keys_url: str) -> None:
        jwk: dict[str, str] = json.loads(ECAlgorithm.to_jwk(key.public_key()))
        # RFC 7638.
        members = {name: jwk[name] for name in ("crv", "kty", "x", "y")}
        canonical = json.dumps(members, sort_keys=True, separators=(",", ":"))
        self.key_id = base64url.encode(sha256(canonical.encode()).digest())
        self.key_set: dict[str, Any] = {
            "keys": [{**members, "kid": self.key_id, "use": "sig", "alg": "ES256"}]
        }
        header: Any = {"alg": "ES256", "typ": "JOSE", "kid": self.key_id, "jku": keys_url}
        self._sign = create_agent_card_signer(key, header)  # type: ignore[arg-type]  # PyJWT takes it as it is

    def sign(self, card: AgentCard) -> AgentCard:
        """A copy of the card with a signature."""
        copied = AgentCard()
        copied.CopyFrom(card)
        return self._sign(copied)


def card_signer(folder: Path, public_url: str) -> CardSigner:
    """The signer with the key of this folder, which is made if there is none; raises UsageError."""
    path = folder / _FILE
    try:
        _make_key(path)
        key = serialization.load_pem_private_key(
            read_secret(path, max_bytes=_MAX_FILE_BYTES, what="the key that signs cards"), password=None
        )
    except (OSError, ValueError, TypeError) as fault:
        why = fault.strerror if isinstance(fault, OSError) else "it is no private key"
        raise UsageError(f"{path}, the key that signs cards, cannot be used: {why}") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise UsageError(f"{path}, the key that signs cards, has to be a P-256 key")
    return CardSigner(key, f"{public_url.rstrip('/')}{KEYS_PATH}")


def _make_key(path: Path) -> None:
    if path.exists():
        return
    pem = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    # Whole before it has its name, and the one that was there first stays.
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    with open(unfinished, "wb", opener=open_private) as opened:
        opened.write(pem)
        opened.flush()
        os.fsync(opened.fileno())
    try:
        os.link(unfinished, path)
    except FileExistsError:
        pass
    finally:
        unfinished.unlink()
