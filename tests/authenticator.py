"""An authenticator in software for tests, built on `fido2`, which also verifies what was accepted."""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from fido2 import cbor
from fido2.cose import CoseKey

from moot.protocol import base64url

ORIGIN = "http://localhost:8080"
PRESENT, VERIFIED, ATTESTED = 0x01, 0x04, 0x40


class SoftwareAuthenticator:
    """One key that signs what it is asked for, rightly or wrongly."""

    def __init__(self, id: bytes = b"key-1-of-a-test!", *, rp_id: str = "localhost") -> None:
        self.id = base64url.encode(id)
        self.rp_id = rp_id
        self.count = 0
        self._key = ec.generate_private_key(ec.SECP256R1())
        numbers = self._key.public_key().public_numbers()
        point = [each.to_bytes(32, "big") for each in (numbers.x, numbers.y)]
        # RFC 9053: EC2, ES256, P-256.
        self.cose = cbor.encode({1: 2, 3: -7, -1: 1, -2: point[0], -3: point[1]})

    @property
    def public_key(self) -> str:
        return base64url.encode(self.cose)

    def create(self, options: dict[str, Any], origin: str = ORIGIN) -> dict[str, Any]:
        """What `navigator.credentials.create` answers to these options."""
        client = _client_data("webauthn.create", base64url.decode(options["challenge"]), origin)
        id = base64url.decode(self.id)
        data = self._head(PRESENT | VERIFIED | ATTESTED) + bytes(16) + struct.pack(">H", len(id)) + id
        attested = cbor.encode({"fmt": "none", "attStmt": {}, "authData": data + self.cose})
        response = {
            "clientDataJSON": base64url.encode(client),
            "attestationObject": base64url.encode(attested),
        }
        return {"id": self.id, "rawId": self.id, "type": "public-key", "response": response}

    def sign(
        self,
        challenge: bytes,
        *,
        origin: str = ORIGIN,
        flags: int = PRESENT | VERIFIED,
        count: int | None = None,
        **client: Any,
    ) -> dict[str, Any]:
        """The parts of an assertion, as messages have them."""
        self.count = self.count + 1 if count is None else count
        said = _client_data(client.pop("type", "webauthn.get"), challenge, origin, **client)
        data = self._head(flags)
        signed = self._key.sign(data + hashlib.sha256(said).digest(), ec.ECDSA(hashes.SHA256()))
        return {
            "credential_id": self.id,
            "client_data_json": base64url.encode(said),
            "authenticator_data": base64url.encode(data),
            "signature": base64url.encode(signed),
        }

    def _head(self, flags: int) -> bytes:
        return hashlib.sha256(self.rp_id.encode()).digest() + struct.pack(">BI", flags, self.count)


def _client_data(type: str, challenge: bytes, origin: str, **more: Any) -> bytes:
    fields = {"type": type, "challenge": base64url.encode(challenge), "origin": origin, "crossOrigin": False}
    return json.dumps(fields | more).encode()


def verify_again(public_key: str, assertion: dict[str, Any], challenge: bytes) -> None:
    """Raises InvalidSignature or AssertionError unless another library agrees."""
    client = base64url.decode(assertion["client_data_json"])
    data = base64url.decode(assertion["authenticator_data"])
    assert base64url.decode(json.loads(client)["challenge"]) == challenge
    found = cbor.decode(base64url.decode(public_key))
    assert isinstance(found, dict)
    key = CoseKey.parse(found)
    key.verify(data + hashlib.sha256(client).digest(), base64url.decode(assertion["signature"]))
