"""The keys that a gateway signs its logs with, in one file of its data folder (`log-keys.json`, 0600).

One key for all its logs, each under the log's origin as its name. One that was replaced stays as a verifier:
what it signed holds. Cosignatures for the logs of others are made with a key of their own, as C2SP wants it.
"""

from __future__ import annotations

import secrets
import time
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Final, Protocol

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from moot.errors import UsageError
from moot.evidence.signed_note import COSIGNATURE, ED25519, SignerKey, VerifierKey
from moot.private_files import lock_file, read_secret
from moot.resilience.atomic_file import write_atomically

KEYS_FILE: Final = "log-keys.json"
_MAX_BYTES: Final = 1 << 20


class FormerKey(msgspec.Struct, frozen=True):
    public: str
    until: float


class LogKeys(msgspec.Struct, frozen=True, kw_only=True):
    """Private keys are in base64."""

    name: str  # of the gateway, for origins where it has no public address
    private: str = msgspec.field(name="log")
    cosigning: str = msgspec.field(name="witness")
    former: tuple[FormerKey, ...] = ()

    def __repr__(self) -> str:
        return f"LogKeys({self.name!r})"

    def origin(self, space: str, public_url: str | None) -> str:
        """The name of a space's log: where it is found, without the scheme."""
        where = (public_url or "").partition("://")[2].rstrip("/") or self.name
        return f"{where}/spaces/{space}/log"

    def signer(self, origin: str) -> SignerKey:
        return SignerKey(origin, _private(self.private))

    def witness(self) -> SignerKey:
        return SignerKey(f"{self.name}/witness", _private(self.cosigning), COSIGNATURE)

    def verifiers(self, origin: str) -> list[VerifierKey]:
        """The key of now, and those before it."""
        former = [VerifierKey(origin, ED25519, b64decode(each.public)) for each in self.former]
        return [self.signer(origin).verifier, *reversed(former)]


def read_keys(data: Path) -> LogKeys | None:
    """The keys in a data folder, None if there are none; raises UsageError when others may know them."""
    file = data / KEYS_FILE
    try:
        keys = msgspec.json.decode(read_secret(file, max_bytes=_MAX_BYTES, what="keys"), type=LogKeys)
        # Now, and not when something is to be signed.
        _private(keys.cosigning)
        keys.verifiers(keys.origin("any", None))
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, ValueError) as fault:
        raise UsageError(f"{file} is damaged ({fault}): restore it from a copy") from None
    return keys


def use_keys(data: Path) -> LogKeys:
    """The keys in a data folder; they are made at the first time."""
    found = read_keys(data)
    if found is not None:
        return found
    with lock_file(data / KEYS_FILE):
        if (found := read_keys(data)) is None:
            found = LogKeys(
                name=f"moot-{secrets.token_hex(8)}", private=_new_private(), cosigning=_new_private()
            )
            _write(data, found)
    return found


class KeyExchange(Protocol):
    """Where gateways of a cluster have their keys in common."""

    async def share_keys(self, own: bytes) -> bytes: ...
    async def replace_keys(self, keys: bytes) -> None: ...


async def share_keys(data: Path, exchange: KeyExchange) -> LogKeys:
    """The keys of this gateway with the log's key of its cluster, which is in its file from now on.

    A key that was rotated here becomes the cluster's. Raises Unavailable.
    """
    own = use_keys(data)
    raw = await exchange.share_keys(msgspec.json.encode(msgspec.structs.replace(own, cosigning="")))
    shared = msgspec.json.decode(raw, type=LogKeys)
    if _public(shared.private) in (each.public for each in own.former):
        await exchange.replace_keys(msgspec.json.encode(msgspec.structs.replace(own, cosigning="")))
        return own
    former = {each.public: each for each in (*shared.former, *own.former)}
    if own.private != shared.private:
        former[_public(own.private)] = FormerKey(_public(own.private), time.time())
    former.pop(_public(shared.private), None)
    merged = LogKeys(
        name=shared.name, private=shared.private, cosigning=own.cosigning, former=tuple(former.values())
    )
    if merged != own:
        with lock_file(data / KEYS_FILE):
            _write(data, merged)
    return merged


def rotate_key(data: Path) -> LogKeys:
    """Sign with a new key from now on, and keep the public half of the one before."""
    with lock_file(data / KEYS_FILE):
        before = read_keys(data)
        if before is None:
            raise UsageError(f"no keys in {data}: a gateway makes them when it starts the first time")
        former = (*before.former, FormerKey(_public(before.private), time.time()))
        after = msgspec.structs.replace(before, private=_new_private(), former=former)
        _write(data, after)
        return after


def _write(data: Path, keys: LogKeys) -> None:
    write_atomically(data / KEYS_FILE, msgspec.json.encode(keys))


def _new_private() -> str:
    return b64encode(Ed25519PrivateKey.generate().private_bytes_raw()).decode()


def _public(private: str) -> str:
    return b64encode(_private(private).public_key().public_bytes_raw()).decode()


def _private(text: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(b64decode(text))
