"""The key with which a bridge encrypts the credentials that it keeps: in the system's keyring, or in a file.

Without either there is none, and credentials are in private files as they are. A key beside the files that it
opens would only look safe, so none is made there.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec

from moot.config.secrets.sign_in_store import usable_keyring
from moot.errors import UsageError
from moot.private_files import read_secret

_SERVICE: Final = "moot sign-ins of bridges"
_MIN_CHARS: Final = 32
KEY_FILE_VARIABLE: Final = "MOOT_SIGN_INS_KEY_FILE"


class SignInKey(msgspec.Struct, frozen=True):
    """32 bytes, and where they are kept, for people."""

    key: bytes
    place: str

    def __repr__(self) -> str:
        return f"SignInKey({self.place!r})"


def find_sign_in_key(environ: Mapping[str, str], *, keyring: Any = None) -> SignInKey | None:
    """The key, made where the keyring has none yet; None if there is no place for one. Raises UsageError.

    May take as long as a person takes to unlock a keyring. `keyring` is for tests.
    """
    named = environ.get(KEY_FILE_VARIABLE)
    if named:
        return SignInKey(_read(Path(named)), "a file")
    if environ.get("MOOT_SIGN_INS") == "file":
        return None
    found = usable_keyring() if keyring is None else keyring
    if found is None:
        return None
    user = str(os.getuid())
    try:
        kept = found.get_password(_SERVICE, user)
        if not kept:
            # What was set is what counts: another program may have been quicker.
            found.set_password(_SERVICE, user, secrets.token_urlsafe(32))
            kept = found.get_password(_SERVICE, user)
    except Exception as fault:  # noqa: BLE001  # each keyring has errors of its own
        raise UsageError(
            f"the system's keyring does not answer ({type(fault).__name__}): unlock it, or set"
            " MOOT_SIGN_INS=file to keep credentials unencrypted"
        ) from None
    if not kept:
        raise UsageError("the system's keyring keeps nothing: set MOOT_SIGN_INS=file to do without it")
    return SignInKey(_digest(kept), "the system's keyring")


def _read(file: Path) -> bytes:
    try:
        text = read_secret(file, what="a key").decode("utf-8", "replace").strip()
    except OSError as fault:
        raise UsageError(f"{KEY_FILE_VARIABLE}: {file} cannot be read: {fault.strerror}") from None
    if len(text) < _MIN_CHARS:
        raise UsageError(
            f"{KEY_FILE_VARIABLE}: {file} has fewer than {_MIN_CHARS} characters; make one with"
            " `openssl rand -hex 32`"
        )
    return _digest(text)


def _digest(text: str) -> bytes:
    # The text is random, so one hash is enough.
    return sha256(b"moot sign-ins 1\0" + text.encode()).digest()
