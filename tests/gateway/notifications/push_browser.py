"""A browser as the gateway knows it from Web Push: keys, a push service, and what it reads of a message.

Messages are opened by `http_ece`, the library of those who wrote the encoding down, and signatures are judged
by PyJWT: neither shares a line with the gateway.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from typing import Any
from urllib.parse import urlsplit

import http_ece
import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from moot.protocol.operation import Json
from tests.gateway.notifications.receivers import Received


def encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class PushBrowser:
    """One browser with one subscription."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.auth = os.urandom(16)
        self._key = ec.generate_private_key(ec.SECP256R1())

    @property
    def subscription(self) -> dict[str, Json]:
        """As `PushSubscription.toJSON()` gives it."""
        public = self._key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        keys: Json = {"p256dh": encoded(public), "auth": encoded(self.auth)}
        return {"endpoint": self.endpoint, "expirationTime": None, "keys": keys}

    @property
    def id(self) -> str:
        return encoded(hashlib.sha256(self.endpoint.encode()).digest())

    def read(self, request: Received, gateway_key: str) -> Any:
        """Open a message; fails unless it is signed with this key, for this push service."""
        assert request.headers["content-encoding"] == "aes128gcm"
        scheme, _, rest = request.headers["authorization"].partition(" ")
        assert scheme == "vapid"
        fields = dict(part.strip().split("=", 1) for part in rest.split(","))
        assert fields["k"] == gateway_key
        public = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), decoded(gateway_key))
        parts = urlsplit(self.endpoint)
        claims = jwt.decode(
            fields["t"],
            public,
            algorithms=["ES256"],
            audience=f"{parts.scheme}://{parts.netloc}",
            options={"require": ["aud", "exp", "sub"]},
        )
        assert claims["sub"].startswith(("mailto:", "https:"))
        assert len(request.body) <= 4_096
        opened = http_ece.decrypt(request.body, private_key=self._key, auth_secret=self.auth)
        return json.loads(opened)
