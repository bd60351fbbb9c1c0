"""Readers of single values: keys, names, addresses, files. Each raises UsageError with its path."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from moot.config.section_reader import Reader, at, checked, mapping, read_plain
from moot.errors import InvalidKey, UsageError
from moot.protocol.operation import Json
from moot.xprotocol.contracts.source_overrides import check_namespace
from moot.xprotocol.events.relay_auth import relay_address
from moot.xprotocol.identity.keys import VerifyKey

# Placeholders in examples.
_PLACEHOLDERS: Final = ("...", "…", "<", "abc123")
# Names are used in file names, logs and commands.
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_VARIABLE: Final = re.compile(r"[^=\0]+")


def read_key(value: Json, path: str) -> str:
    """An `ed25519:` key after the full check; raises UsageError that says what is wrong."""
    if not isinstance(value, str):
        raise UsageError(f"{path}: must be a key: text that begins with ed25519:")
    try:
        return VerifyKey.parse(value).text
    except InvalidKey as fault:
        # A public key may be shown; any other text may be a secret in the wrong place.
        if value.startswith("ed25519:") and any(word in value for word in _PLACEHOLDERS):
            raise UsageError(
                f"{path}: a placeholder, not a key ({fault}); use the key that `keygen` printed"
            ) from None
        raise UsageError(f"{path}: {fault}") from None


def resolve_path(value: Json, folder: Path, path: str) -> Path:
    """A path: `~` is the home folder, relative ones start in `folder`; raises UsageError."""
    try:
        found: Path = folder / read_plain(Path, value, path)
        os.fsencode(found)
        found.lstat()
    except RuntimeError:
        raise UsageError(f"{path}: no such home folder") from None
    except (OSError, UnicodeError) as fault:
        if isinstance(fault, OSError) and fault.errno != errno.ENAMETOOLONG:
            # It does not exist yet, or is not readable: reported when it is used.
            return found
        raise UsageError(f"{path}: not a valid file name") from None
    return found


def read_path(folder: Path) -> Reader:
    """A reader of paths."""

    def read(value: Json, path: str) -> Path | None:
        return None if value is None else resolve_path(value, folder, path)

    return read


def read_existing(folder: Path) -> Reader:
    """A reader of paths of files that have to exist."""

    def read(value: Json, path: str) -> Path | None:
        if value is None:
            return None
        found = resolve_path(value, folder, path)
        if not found.is_file():
            raise UsageError(f"{path}: there is no file {found}")
        return found

    return read


def read_name(value: Json, path: str) -> str:
    name: str = checked(value, str, "text", path)
    if not _NAME.fullmatch(name):
        raise UsageError(f"{path}: write a name of letters, digits, ., _ and -, at most 64 characters")
    return name


def read_namespace(value: Json, path: str) -> str:
    namespace: str = checked(value, str, "text such as com.example.files", path)
    try:
        check_namespace(namespace)
    except UsageError as fault:
        raise UsageError(f"{path}: {fault}") from None
    return namespace


def read_relay(value: Json, path: str) -> str:
    """A relay's address as written."""
    url: str = checked(value, str, "an address such as wss://relay.example", path)
    try:
        relay_address(url)
    except UsageError as fault:
        raise UsageError(f"{path}: {fault}") from None
    return url


def read_url(value: Json, path: str) -> str:
    url: str = checked(value, str, "an address such as https://mcp.example.com/mcp", path)
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https"):
        raise UsageError(f"{path}: must begin with http:// or https:// and name a host")
    if parts.username is not None or parts.password is not None:
        raise UsageError(f"{path}: contains a user or password; use auth, with token_env")
    return url


def read_variables(value: Json, path: str) -> dict[str, str]:
    """Variables for a process. Numbers and booleans have to be quoted."""
    found: dict[str, str] = {}
    for name, content in mapping({} if value is None else value, path).items():
        if not _VARIABLE.fullmatch(name):
            raise UsageError(f"{at(path, name)}: is not the name of an environment variable")
        if not isinstance(content, str) or "\0" in content:
            raise UsageError(f"{at(path, name)}: must be text; put it in quotes")
        found[name] = content
    return found
