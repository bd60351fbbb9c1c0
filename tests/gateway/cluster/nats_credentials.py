"""An operator, an account and a user of NATS, as `nsc` makes them, with a .creds file."""

from __future__ import annotations

import base64
import json
import secrets
import time
from pathlib import Path
from typing import Any

import nkeys  # type: ignore[import-untyped]

_UNLIMITED = dict.fromkeys(("subs", "data", "payload"), -1)
_ACCOUNT = _UNLIMITED | dict.fromkeys(
    ("imports", "exports", "conn", "leaf", "mem_storage", "disk_storage", "streams", "consumer"), -1
)


class NatsAccount:
    """`server_lines` for a server that trusts the operator."""

    def __init__(self) -> None:
        self._operator = _key(nkeys.PREFIX_BYTE_OPERATOR)
        self._account = _key(nkeys.PREFIX_BYTE_ACCOUNT)
        system = _key(nkeys.PREFIX_BYTE_ACCOUNT)
        of_account = {"type": "account", "limits": _ACCOUNT | {"wildcards": True}}
        of_system = {"type": "account", "limits": _UNLIMITED | {"conn": -1, "imports": -1, "exports": -1}}
        known = {
            _name(self._account): _signed(self._operator, self._account, of_account),
            _name(system): _signed(self._operator, system, of_system),
        }
        preload = "\n".join(f"{name}: {token}" for name, token in known.items())
        self.server_lines = "\n".join(
            [
                f"operator: {_signed(self._operator, self._operator, {'type': 'operator'})}",
                f"system_account: {_name(system)}",
                "resolver: MEMORY",
                f"resolver_preload: {{\n{preload}\n}}",
            ]
        )

    def write_user(self, file: Path) -> Path:
        """The .creds file of a new user."""
        user = _key(nkeys.PREFIX_BYTE_USER)
        token = _signed(self._account, user, {"type": "user", "pub": {}, "sub": {}} | _UNLIMITED)
        file.write_text(
            f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{bytes(user.seed).decode()}\n------END USER NKEY SEED------\n"
        )
        file.chmod(0o600)
        return file


def _key(prefix: int) -> nkeys.KeyPair:
    return nkeys.from_seed(nkeys.encode_seed(secrets.token_bytes(32), prefix))


def _name(key: nkeys.KeyPair) -> str:
    return bytes(key.public_key).decode()


def _signed(issuer: nkeys.KeyPair, subject: nkeys.KeyPair, facts: dict[str, Any]) -> str:
    claims = {"jti": secrets.token_hex(8), "iat": int(time.time()), "iss": _name(issuer), "name": "moot"}
    claims |= {"sub": _name(subject), "nats": facts | {"version": 2}}
    signed = f"{_base64({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{_base64(claims)}"
    return f"{signed}.{_text(issuer.sign(signed.encode()))}"


def _base64(value: dict[str, Any]) -> str:
    return _text(json.dumps(value).encode())


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
