"""Where credentials for MCP servers are kept: one private file for each person at each server.

A file belongs to one server and one owner, and holds what one provider gave: what was got from one provider
is never shown to another. Other users of the machine can neither read nor replace the files. With a key they
are encrypted, each for its own name: without that key, a copy of the folder opens nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from moot.config.secrets.sign_in_key import SignInKey
from moot.errors import UsageError
from moot.private_files import check_folder, read_secret, use_folder
from moot.resilience.atomic_file import write_atomically

_MARK: Final = b"moot sealed 1\n"
_NONCE_BYTES: Final = 12


class CannotOpen(Exception):
    """The key is another one, or somebody changed the file."""


def is_sealed(data: bytes) -> bool:
    return data.startswith(_MARK)


def seal_file(key: bytes, data: bytes, name: str) -> bytes:
    """What to write to the file of this name; under another name it cannot be opened."""
    nonce = os.urandom(_NONCE_BYTES)
    return _MARK + nonce + ChaCha20Poly1305(key).encrypt(nonce, data, _MARK + name.encode())


def open_file(key: bytes, data: bytes, name: str) -> bytes:
    """What was sealed; raises CannotOpen."""
    rest = data[len(_MARK) :]
    try:
        cipher = ChaCha20Poly1305(key)
        return cipher.decrypt(rest[:_NONCE_BYTES], rest[_NONCE_BYTES:], _MARK + name.encode())
    except (InvalidTag, ValueError):
        raise CannotOpen from None


log = logging.getLogger(__name__)

_MAX_BYTES: Final = 256 << 10
_WHAT: Final = "the folder for sign-ins"
_OPTION: Final = "--sign-ins DIR"


class StoredCredential(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider gave to one owner for one server; or a token that its owner brought, without issuer."""

    server: str
    # The participant whose it is; None: the server is called with it for everybody.
    owner: str | None
    access_token: str
    # By the wall clock; None: it is not known.
    expires_at: float | None = None
    refresh_token: str | None = None
    issuer: str | None = None
    token_endpoint: str | None = None
    client_id: str | None = None
    resource: str | None = None
    scopes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"StoredCredential(server={self.server!r}, owner={self.owner!r})"


class StoredClient(msgspec.Struct, frozen=True, kw_only=True):
    """What one provider registered us as."""

    issuer: str
    client_id: str
    client_secret: str | None = None

    def __repr__(self) -> str:
        return f"StoredClient(issuer={self.issuer!r})"


Stored = TypeVar("Stored", StoredCredential, StoredClient)


# Of credentials that are renewed, by their file: bridges of one process may share one.
_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()


class CredentialStore:
    """Credentials by server and owner, and registrations by provider."""

    def __init__(self, folder: Path | None, key: SignInKey | None = None) -> None:
        """Without a folder, everything is forgotten at the end. Raises UsageError if it cannot be used."""
        self._folder = folder
        self._key = key
        self._kept: dict[str, Any] = {}
        if folder is not None:
            use_folder(folder, what=_WHAT, option=_OPTION)

    @property
    def place(self) -> str:
        """For people: how credentials are kept."""
        if self._folder is None:
            return "in memory"
        if self._key is None:
            return "in a private file, not encrypted"
        return f"encrypted, with a key in {self._key.place}"

    def lock_for(self, server: str, owner: str | None) -> asyncio.Lock:
        """Who renews a credential holds it: a refresh token that is used twice is taken for stolen."""
        if self._folder is None:
            return asyncio.Lock()
        path = str(self._folder.resolve() / _name("credential", [server, owner]))
        lock = _locks.get(path)
        if lock is None:
            lock = _locks[path] = asyncio.Lock()
        return lock

    def credential(self, server: str, owner: str | None) -> StoredCredential | None:
        """Raises UsageError when others may read the file."""
        found = self._load(_name("credential", [server, owner]), StoredCredential)
        # The name of the file is a hash: what is in it decides.
        return found if found is not None and (found.server, found.owner) == (server, owner) else None

    def keep_credential(self, credential: StoredCredential) -> None:
        self._save(_name("credential", [credential.server, credential.owner]), credential)

    def forget_credential(self, server: str, owner: str | None) -> None:
        name = _name("credential", [server, owner])
        self._kept.pop(name, None)
        if self._folder is not None:
            (self._folder / name).unlink(missing_ok=True)

    def client(self, server: str, issuer: str) -> StoredClient | None:
        found = self._load(_name("client", [server, issuer]), StoredClient)
        return found if found is not None and found.issuer == issuer else None

    def keep_client(self, server: str, client: StoredClient) -> None:
        self._save(_name("client", [server, client.issuer]), client)

    def _load(self, name: str, type: type[Stored]) -> Stored | None:
        if name in self._kept:
            found: Stored = self._kept[name]
            return found
        if self._folder is None:
            return None
        check_folder(self._folder, what=_WHAT, option=_OPTION)
        try:
            data = read_secret(self._folder / name, max_bytes=_MAX_BYTES, what="a credential")
        except FileNotFoundError:
            return None
        except OSError as fault:
            raise UsageError(f"{self._folder / name}: cannot be read: {fault.strerror}") from None
        try:
            found = msgspec.json.decode(self._opened(data, name), type=type)
        except (msgspec.MsgspecError, CannotOpen):
            # Half of it, of another version, or of another key: whoever it belongs to signs in again.
            log.warning("a credential cannot be read", extra={"file": name})
            return None
        if self._key is not None and not is_sealed(data):
            # Of before there was a key.
            self._save(name, found)
        return found

    def _opened(self, data: bytes, name: str) -> bytes:
        if not is_sealed(data):
            return data
        if self._key is None:
            raise UsageError(
                f"{self._folder}: credentials are encrypted, and their key is not here: start the bridge with"
                " the keyring, or the MOOT_SIGN_INS_KEY_FILE, that it had before"
            )
        return open_file(self._key.key, data, name)

    def _save(self, name: str, stored: StoredCredential | StoredClient) -> None:
        if self._folder is None:
            self._kept[name] = stored
            return
        data = msgspec.json.encode(stored)
        if self._key is not None:
            data = seal_file(self._key.key, data, name)
        try:
            write_atomically(self._folder / name, data)
        except OSError as fault:
            raise UsageError(f"{self._folder / name} cannot be written: {fault.strerror}") from None


def _name(kind: str, key: Sequence[str | None]) -> str:
    return f"{kind}-{sha256(msgspec.json.encode(key)).hexdigest()[:40]}.json"
