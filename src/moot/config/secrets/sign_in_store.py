"""Where a person's sign-ins are kept, by gateway: the system's keyring, or a file for that person alone.

A refresh token is used once: whoever renews holds the lock, so that two commands at a time do not use the
same one, which providers take for a theft.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from moot.errors import UsageError
from moot.private_files import check_folder, lock_file, read_secret, use_folder
from moot.resilience.atomic_file import write_atomically

_SERVICE: Final = "moot sign-ins"
_MAX_BYTES: Final = 1 << 20


class StoredSignIn(msgspec.Struct, frozen=True, kw_only=True):
    """One sign-in at a provider, for one gateway."""

    issuer: str
    client_id: str
    token_endpoint: str
    access_token: str
    # By the wall clock.
    expires_at: float
    refresh_token: str | None = None
    resource: str | None = None

    def __repr__(self) -> str:
        return f"StoredSignIn(issuer={self.issuer!r})"


class SignInStore:
    """The sign-ins of one person on one machine."""

    def __init__(self, folder: Path, *, keyring: Any = None) -> None:
        """`keyring` is the module of that name with a usable backend, or None for the file."""
        self.folder = folder
        self._keyring = keyring

    @property
    def place(self) -> str:
        """For people: where it is kept."""
        return "the system's keyring" if self._keyring is not None else str(self._file)

    @property
    def _file(self) -> Path:
        return self.folder / "sign-ins.json"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold it while a token is renewed. Raises UsageError when the folder cannot be used."""
        use_folder(self.folder, what="the folder for sign-ins", option="XDG_CONFIG_HOME")
        with lock_file(self._file):
            yield

    def key_of(self, gateway: str) -> str:
        """The addresses under which a sign-in is kept that was made for this gateway, or all of these.

        One for several gateways of a cluster is used with any of them, and with no other.
        """
        entries, asked = self._entries(), set(gateway.split(","))
        if gateway in entries:
            return gateway
        return next((key for key in entries if asked <= set(key.split(","))), gateway)

    def load(self, gateway: str) -> StoredSignIn | None:
        found = self._entries().get(gateway)
        if found is None:
            return None
        try:
            return msgspec.convert(found, StoredSignIn)
        except msgspec.ValidationError:
            return None

    def save(self, gateway: str, sign_in: StoredSignIn | None) -> None:
        """Keep a sign-in, or forget it. Raises UsageError."""
        entries = dict(self._entries())
        if sign_in is None:
            entries.pop(gateway, None)
        else:
            entries[gateway] = msgspec.to_builtins(sign_in)
        text = json.dumps(entries)
        if self._keyring is not None:
            self._keyring.set_password(_SERVICE, _user(), text)
            return
        try:
            write_atomically(self._file, text.encode())
        except OSError as fault:
            raise UsageError(f"{self._file}: cannot be written: {fault.strerror}") from None

    def _entries(self) -> Mapping[str, Any]:
        if self._keyring is not None:
            text = self._keyring.get_password(_SERVICE, _user()) or "{}"
        else:
            try:
                check_folder(self.folder, what="the folder for sign-ins", option="XDG_CONFIG_HOME")
                text = read_secret(self._file, max_bytes=_MAX_BYTES).decode("utf-8", "replace")
            except FileNotFoundError:
                return {}
            except OSError as fault:
                raise UsageError(f"{self._file}: cannot be read: {fault.strerror}") from None
        try:
            found = json.loads(text)
        except ValueError:
            raise UsageError(f"{self.place} holds no sign-ins: remove it, and sign in again") from None
        return found if isinstance(found, dict) else {}


def open_sign_ins(environ: Mapping[str, str]) -> SignInStore:
    """The store of whoever runs this. `MOOT_SIGN_INS=file` takes the file also where there is a keyring."""
    home = environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    wants_file = environ.get("MOOT_SIGN_INS") == "file"
    return SignInStore(Path(home) / "moot", keyring=None if wants_file else usable_keyring())


def usable_keyring() -> Any:
    """The module `keyring`, if it is installed and the system has one; else None."""
    try:
        import keyring
        from keyring.backends.fail import Keyring as Missing
    except ImportError:
        return None
    return None if isinstance(keyring.get_keyring(), Missing) else keyring


def _user() -> str:
    return str(os.getuid())
