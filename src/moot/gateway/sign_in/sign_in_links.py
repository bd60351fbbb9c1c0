"""One-time links that sign a person in on another device: nobody types 43 characters on a phone.

Whoever has a token asks for a link and gets a code. Whoever redeems the code, once and in time, gets the
token. What is kept of a link is its token, encrypted with the code, under a hash of the code: whoever reads
the store has neither. A gateway that is alone keeps that in memory, so a restart voids all links; those of a
cluster share it, so that any of them redeems what another one has made. The code stands behind the `#` of an
address, so no server and no proxy sees it before it is redeemed, and it is worthless afterwards.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from typing import Final, Literal, NamedTuple, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

# 128 random bits: 22 characters, which a phone's camera reads easily.
_CODE_BYTES: Final = 16
_NONCE_BYTES: Final = 12
# A person who lost the first dialog asks again; the oldest of theirs is then void.
MAX_LINKS_PER_TOKEN: Final = 4
# Ten minutes: long enough to find the other device.
VALID_SECONDS: Final = 600.0
# Links that wait to be redeemed; of more, the oldest become void.
MAX_LINKS: Final = 256

# What a code is for: signing in, or binding a chat account.
LinkUse = Literal["", "chat "]


class LinkStore(Protocol):
    """Where links are. All raise Unavailable when it cannot be reached."""

    async def add(self, key: str, value: bytes) -> None: ...

    async def read(self, key: str) -> bytes | None: ...

    async def take_out(self, key: str) -> bytes | None:
        """What was added, to the first who asks; None to all others."""
        ...


class MemoryLinks:
    """The links of a gateway that is alone."""

    def __init__(self) -> None:
        self._links: dict[str, bytes] = {}

    async def add(self, key: str, value: bytes) -> None:
        self._links[key] = value

    async def read(self, key: str) -> bytes | None:
        return self._links.get(key)

    async def take_out(self, key: str) -> bytes | None:
        return self._links.pop(key, None)


class _Made(NamedTuple):
    # SHA-256 of the token.
    owner: bytes
    expires: float


class SignInLinks:
    """Makes links, and redeems them. `clock` is the same for all gateways that share a store."""

    def __init__(self, clock: Callable[[], float], store: LinkStore) -> None:
        self._clock = clock
        self._store = store
        # What was made here and may not be redeemed yet, by key, oldest first.
        self._made: dict[str, _Made] = {}

    async def create(self, token: str, use: LinkUse = "") -> str:
        """A new code for the holder of this token. Of too many links of this gateway, the oldest are void.

        A code of one use is unknown where another one is redeemed.
        """
        now, owner = self._clock(), hashlib.sha256(token.encode()).digest()
        own = [key for key, made in self._made.items() if made.owner == owner and made.expires > now]
        void = [key for key, made in self._made.items() if made.expires <= now]
        void += own[: max(0, len(own) + 1 - MAX_LINKS_PER_TOKEN)]
        left = [key for key in self._made if key not in void]
        void += left[: max(0, len(left) + 1 - MAX_LINKS)]
        for key in void:
            # First: a link is not valid for longer because the store does not answer.
            await self._store.take_out(key)
            self._made.pop(key, None)
        code = secrets.token_urlsafe(_CODE_BYTES)
        key, nonce, expires = _key_of(code, use), secrets.token_bytes(_NONCE_BYTES), now + VALID_SECONDS
        link = f"{expires!r} {token}".encode()
        self._made[key] = _Made(owner, expires)
        await self._store.add(key, nonce + _cipher_of(code, use).encrypt(nonce, link, None))
        return code

    async def read(self, code: str, use: LinkUse = "") -> str | None:
        """What `redeem` would give now. The code stays valid: for whatever can fail before it is used up."""
        return self._open(code, use, await self._store.read(_key_of(code, use)))

    async def redeem(self, code: str, use: LinkUse = "") -> str | None:
        """The token, the first time in time; None for every other code."""
        key = _key_of(code, use)
        found = await self._store.take_out(key)
        self._made.pop(key, None)
        return self._open(code, use, found)

    def _open(self, code: str, use: LinkUse, found: bytes | None) -> str | None:
        if found is None:
            return None
        try:
            link = _cipher_of(code, use).decrypt(found[:_NONCE_BYTES], found[_NONCE_BYTES:], None).decode()
        except InvalidTag:
            # Somebody else wrote it.
            return None
        expires, _, token = link.partition(" ")
        return token if float(expires) > self._clock() else None


def _key_of(code: str, use: LinkUse) -> str:
    """Comparing hashes tells nothing by how long it takes."""
    return _hash(f"{use}key", code).hex()


def _cipher_of(code: str, use: LinkUse) -> AESGCM:
    return AESGCM(_hash(f"{use}cipher", code))


def _hash(use: str, code: str) -> bytes:
    """Of 128 random bits: no slow hash is needed, and one use tells nothing of the other."""
    return hashlib.sha256(f"moot sign-in link {use} {code}".encode(errors="replace")).digest()


def qr_rows(text: str) -> list[str]:
    """A QR code as rows of 0 and 1, without a border."""
    # Only here: most gateways never draw one.
    import segno

    return ["".join(str(min(module, 1)) for module in row) for row in segno.make_qr(text, error="m").matrix]
