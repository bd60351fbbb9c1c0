"""The file that keeps an identity: a JWK Set (RFC 7517, RFC 8037) that only its owner can read.

    {"keys": [{"kty": "OKP", "crv": "Ed25519", "use": "sig", "kid": "ed25519:…", "x": "…", "d": "…"},
              {"kty": "OKP", "crv": "X25519",  "use": "enc", "kid": "x25519:…",  "x": "…", "d": "…"},
              {"kty": "OKP", "crv": "X25519",  "use": "enc", …, "retired_at": 1780000000}]}

The X25519 key without `retired_at` is the current one; the others only open what was sealed before. A key
that is lost cannot be had again, so nothing is overwritten unless that is asked for, what replaces a file
replaces it whole, and file and folder are on the disk before anybody learns of the key.

No error shows anything of the content of the file.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import shlex
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from moot.errors import KeyFileError, UsageError
from moot.private_files import sync_folder
from moot.protocol import base64url
from moot.xprotocol.identity.keys import Identity, OpeningKey, RetiredKey, SigningKey

# The largest file of ours has 18 keys in under 6 KiB.
MAX_FILE_BYTES: Final = 64 << 10
# Peers may go on sealing for a key that they pinned; events live for a day, so 16 rotations are years of it.
MAX_RETIRED_KEYS: Final = 16

_FILE_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700
_OPEN_TO_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


def create(path: Path, identity: Identity, *, force: bool = False) -> None:
    """Write a new key file; raises KeyFileError when there is one already, unless `force` replaces it.

    Missing folders are made for their owner alone. When this returns, the file outlives a power cut. It gets
    its name when it is whole, so that nobody who starts meanwhile reads half of it.
    """
    with _explain_faults(path):
        _make_folder(path.parent)
        _check_folder(path.parent)
        with _lock(path.parent):
            if not force and os.path.lexists(path):
                raise KeyFileError(
                    f"{path} exists already and is not overwritten: its key would be lost; "
                    "choose another path, or use --force if that is meant"
                )
            _replace(path, _encode(identity))
            sync_folder(path.parent)


def load(path: Path) -> Identity:
    """The identity in a key file; raises KeyFileError when it is missing, damaged or open to others."""
    with _explain_faults(path):
        _check_folder(path.parent)
        return _decode(_read(path), path)


def load_or_create(path: Path, random: Callable[[int], bytes] = os.urandom) -> Identity:
    """The identity in a key file, made first where there is none (XP 3.1)."""
    if not os.path.lexists(path):
        try:
            create(path, Identity.generate(random))
        except KeyFileError:
            # Another process may have been quicker: then its key counts.
            if not os.path.lexists(path):
                raise
    return load(path)


def rotate(path: Path, now: int, random: Callable[[int], bytes] = os.urandom) -> Identity:
    """Give the identity in a key file a new X25519 key; the one it had only opens from now on.

    The Ed25519 key, which is who the holder is, stays. Two processes that rotate at once take turns. Of more
    than MAX_RETIRED_KEYS older keys, the oldest go.
    """
    with _explain_faults(path), _lock(path.parent):
        _check_folder(path.parent)
        old = _decode(_read(path), path)
        retired = (RetiredKey(old.opening, now), *old.retired)[:MAX_RETIRED_KEYS]
        new = Identity(old.signing, OpeningKey.generate(random), retired)
        _replace(path, _encode(new))
        sync_folder(path.parent)
    return new


def _encode(identity: Identity) -> bytes:
    keys: list[dict[str, Any]] = [
        _jwk("Ed25519", identity.key.text, identity.key.raw, identity.signing.secret()) | {"use": "sig"},
        _sealing_jwk(identity.opening),
    ]
    keys += [_sealing_jwk(older.opening) | {"retired_at": older.retired_at} for older in identity.retired]
    return json.dumps({"keys": keys}, indent=1).encode("ascii") + b"\n"


def _sealing_jwk(key: OpeningKey) -> dict[str, Any]:
    return _jwk("X25519", key.public.text, key.public.raw, key.secret()) | {"use": "enc"}


def _jwk(curve: str, text: str, public: bytes, secret: bytes) -> dict[str, Any]:
    x, d = base64url.encode(public), base64url.encode(secret)
    return {"kty": "OKP", "crv": curve, "kid": text, "x": x, "d": d}


def _decode(text: bytes, path: Path) -> Identity:
    try:
        jwks = json.loads(text, object_pairs_hook=_unique_members)
    except (ValueError, RecursionError):
        # Not the parser's own words: they can show a piece of the file.
        raise KeyFileError(f"{path} is no JWK Set: not JSON, or it has a member twice") from None
    keys = jwks.get("keys") if isinstance(jwks, dict) else None
    if not isinstance(keys, list) or not all(isinstance(key, dict) for key in keys):
        raise KeyFileError(f'{path} is no JWK Set: expected {{"keys": [...]}}')
    signing = [_read_secret(key, path) for key in keys if key.get("crv") == "Ed25519"]
    sealing = [key for key in keys if key.get("crv") == "X25519"]
    current = [key for key in sealing if "retired_at" not in key]
    older = [key for key in sealing if "retired_at" in key]
    if len(signing) != 1 or len(current) != 1 or len(keys) != 2 + len(older):
        raise KeyFileError(
            f"{path} must hold one Ed25519 key, one X25519 key without retired_at, and nothing else but "
            "older X25519 keys"
        )
    if len(older) > MAX_RETIRED_KEYS:
        raise KeyFileError(f"{path} holds more than {MAX_RETIRED_KEYS} older X25519 keys; remove the oldest")
    retired = [RetiredKey(OpeningKey(_read_secret(key, path)), _read_time(key, path)) for key in older]
    try:
        identity = Identity(
            SigningKey(signing[0]), OpeningKey(_read_secret(current[0], path)), tuple(retired)
        )
    except UsageError as fault:
        raise KeyFileError(f"{path}: {fault}") from None
    return identity


def _read_secret(key: dict[str, Any], path: Path) -> bytes:
    """The secret of one key that is whole: for the right use, and its public part belongs to it."""
    curve = key["crv"]
    use = "sig" if curve == "Ed25519" else "enc"
    if key.get("kty") != "OKP" or key.get("use", use) != use:
        raise KeyFileError(f"{path}: an {curve} key has kty OKP and use {use}")
    if not isinstance(key.get("d"), str):
        raise KeyFileError(f"{path}: the {curve} key has no d: only its public part is here")
    try:
        secret = base64url.decode(key["d"])
        public = (SigningKey(secret) if use == "sig" else OpeningKey(secret)).public.raw
    except (ValueError, UsageError):
        raise KeyFileError(f"{path}: d of the {curve} key is not 32 bytes in base64url") from None
    if key.get("x") != base64url.encode(public):
        raise KeyFileError(f"{path}: x of the {curve} key does not belong to its d; restore the file")
    return secret


def _read_time(key: dict[str, Any], path: Path) -> int:
    moment = key["retired_at"]
    if type(moment) is not int or moment < 0:
        raise KeyFileError(f"{path}: retired_at is a time in whole seconds since 1970")
    return moment


def _unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError
    return members


def _make_folder(folder: Path) -> None:
    for missing in reversed([each for each in (folder, *folder.parents) if not each.exists()]):
        missing.mkdir(mode=_FOLDER_MODE, exist_ok=True)
        # The folder's own entry must be on the disk, too.
        sync_folder(missing.parent)


def _check_folder(folder: Path) -> None:
    found = folder.stat()
    # A sticky folder such as /tmp lets others add files, but not replace ours.
    if found.st_mode & _WRITABLE_BY_OTHERS and not found.st_mode & stat.S_ISVTX:
        raise KeyFileError(
            f"the folder {folder} can be written by its group or by everybody, who could replace the key:"
            f" run `chmod go-w {shlex.quote(str(folder))}`, or choose another folder"
        )
    if found.st_uid not in (os.geteuid(), 0):
        raise KeyFileError(f"the folder {folder} belongs to another user, who could replace the key")


def _write_new(path: Path, text: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, _FILE_MODE)
    try:
        with open(handle, "wb") as opened:
            # Whatever the umask: not more than this, and not less, or it could not be read again.
            os.fchmod(opened.fileno(), _FILE_MODE)
            opened.write(text)
            opened.flush()
            os.fsync(opened.fileno())
    except BaseException:
        os.unlink(path)
        raise


def _replace(path: Path, text: bytes) -> None:
    # A symbolic link in the way is replaced itself; what it points to is left alone.
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    _write_new(beside, text)
    try:
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # On the folder: the file itself is another one after each rotation.
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _read(path: Path) -> bytes:
    # Without O_NONBLOCK, opening a pipe that somebody put there would wait for ever.
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:
        found = os.fstat(opened.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise KeyFileError(f"{path} is not a file")
        if found.st_mode & _OPEN_TO_OTHERS:
            raise KeyFileError(
                f"others may use {path} (mode {stat.S_IMODE(found.st_mode):04o}); run chmod 600 on it, and "
                "make a new key if others have been on this machine"
            )
        if found.st_uid != os.geteuid():
            raise KeyFileError(f"{path} belongs to another user (uid {found.st_uid}), who knows the key")
        text = opened.read(MAX_FILE_BYTES + 1)
    if len(text) > MAX_FILE_BYTES:
        raise KeyFileError(f"{path} is larger than {MAX_FILE_BYTES} bytes: no key file")
    return text


@contextmanager
def _explain_faults(path: Path) -> Iterator[None]:
    """Turns errors of the system into a KeyFileError with the path and what to do."""
    try:
        yield
    except FileNotFoundError:
        raise KeyFileError(f"there is no key file {path}; make one with keygen --output {path}") from None
    except OSError as fault:
        if fault.errno == errno.ELOOP:
            raise KeyFileError(f"{path} is a symbolic link; put the file itself there") from None
        raise KeyFileError(f"the key file {path}: {fault.strerror}") from None
