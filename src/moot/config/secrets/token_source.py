"""Where tokens come from: the file, the environment, or made here and kept in a file of their own.

Only hashes leave this module, but for whoever asks for `secrets` because it has to hand tokens on: `moot up`
to the members that it starts, and a person's own command to the gateway. No error, note or repr holds one.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shlex
import stat
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

from moot.config.secrets.secret import Secret
from moot.config.section_reader import checked
from moot.errors import UsageError
from moot.private_files import FileToken, check_folder, sync_folder
from moot.protocol.operation import Json
from moot.resilience.atomic_file import write_atomically
from moot.resilience.disk_room import FREE_IT, is_disk_full

# 256 bits: nobody guesses one, and no stretching is needed when it is hashed.
TOKEN_BYTES: Final = 32
# An Authorization header carries visible ASCII; 1 KiB holds a JWT.
_SENDABLE = re.compile(r"[!-~]{1,1024}", re.ASCII)
# Shorter than what this module makes, unless it is plainly no token.
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,63}|[A-Za-z_][A-Za-z0-9_]{0,39}", re.ASCII)
_SHARED: Final = Path("tokens")
# A disk takes several at once in the time of one: with 8, 10,000 tokens took 3 s, one by one 30.
_MAKING_THREADS: Final = 8
# Which space the tokens are of that lie in that folder itself.
_OWNER_FILE: Final = _SHARED / ".space"
_READABLE_BY_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


def hash_token(token: str) -> str:
    """SHA-256 as hex: what is kept and compared in place of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


class VariableUnset(UsageError):
    """A variable that the configuration names is not in the environment."""


class TokenSource:
    """Hashes of tokens, from wherever the configuration says. `dry` makes none and writes nothing.

    Without `is_placed` the data folder is not known, as `data` has a mistake, and no file of it is looked at.
    `secrets` is filled with the tokens themselves, by their hashes. With `unset`, a variable that is not set
    is no fault: its token has a hash that nothing matches, under which `unset` says what is missing.
    """

    def __init__(
        self,
        data: Path,
        environ: Mapping[str, str],
        *,
        dry: bool = False,
        is_placed: bool = True,
        secrets: dict[str, Secret] | None = None,
        unset: dict[str, str] | None = None,
    ) -> None:
        self.data = data
        self.dry = dry
        # Whether nothing was left out because this is a dry run.
        self.is_whole = True
        self._is_placed = is_placed
        self._environ = environ
        self._secrets = secrets
        self._unset = unset
        # The only space, whose tokens are in `tokens` itself.
        self._owner: str | None = None

    def listed(self, value: Json, path: str) -> str:
        """The hash of a token that stands in the configuration."""
        return self._hashed(checked(value, str, "a token: text, in quotes", path), path)

    def named(self, variable: Json, path: str) -> str:
        """The hash of the token that an environment variable holds."""
        try:
            token = self.environment(variable, path)
        except VariableUnset as fault:
            if self._unset is None:
                raise
            hash = hash_token(secrets.token_hex(TOKEN_BYTES))
            self._unset[hash] = str(fault)
            return hash
        return self._hashed(token, path)

    def environment(self, variable: Json, path: str) -> str:
        """What an environment variable holds, which must not be nothing."""
        name: str = checked(variable, str, "the name of an environment variable", path)
        value = self._environ.get(name, "").strip()
        if not value:
            # The name was written by the operator, but may be a token that was put into the wrong place.
            shown = f"variable {name}" if _VARIABLE.fullmatch(name) else "variable of that name"
            raise VariableUnset(f"{path}: the environment {shown} is not set or empty")
        return value

    def make_missing(self, files: Iterable[Path]) -> None:
        """Make the tokens of many participants at once. `kept` makes what this could not, or says why not."""
        missing = [] if self.dry else [file for file in files if not os.path.lexists(self.data / file)]
        if len(missing) < 2:
            return
        with suppress(OSError), ThreadPoolExecutor(_MAKING_THREADS) as pool:
            if self.data.is_dir():
                check_folder(self.data)
            for _made in pool.map(lambda file: _make(self.data / file, self.data), missing):
                pass

    def kept(self, file: Path, path: str) -> str | None:
        """The hash of the token in a file under the data folder, made if there is none; None in a dry run."""
        if not self._is_placed:
            return None
        file = self.data / file
        try:
            if self.data.is_dir():
                # Whoever can write there could put a folder of tokens in the place of ours.
                check_folder(self.data)
            if not file.is_symlink() and not file.exists():
                if self.dry:
                    self.is_whole = False
                    return None
                _make(file, self.data)
            token = FileToken(_read(file, path), file)
            if file.parent == self.data / _SHARED:
                self._record_owner()
            return self._hashed(token, path)
        except OSError as fault:
            if is_disk_full(self.data, fault):
                raise UsageError(f"the disk of {file} is full: {FREE_IT}") from None
            raise UsageError(
                f"{path}: the token file {file} cannot be made or read: {fault.strerror}."
                f" The data folder {self.data} has to be one that you can write:"
                " correct its permissions, or name another one with --data DIR"
            ) from None

    def filed(self, file: Path, path: str) -> str:
        """The hash of the token in a file that somebody else made."""
        try:
            return self._hashed(FileToken(_read(file, path), file), path)
        except OSError as fault:
            raise UsageError(f"{path}: the token file {file} cannot be read: {fault.strerror}") from None

    def secret_in(self, file: Path, path: str) -> str:
        """What a file holds that is for its owner alone: a URL or a key, and no token of ours."""
        try:
            return _read(file, path, "file")
        except OSError as fault:
            raise UsageError(f"{path}: the file {file} cannot be read: {fault.strerror}") from None

    def folder_of(self, space: str, *, is_only: bool) -> Path:
        """Where a space's tokens are kept: in `tokens`, or in a folder below it if there are several spaces.

        A space stays where its tokens are when others are added or removed, or all its tokens would change.
        """
        shared, own = _SHARED, _SHARED / space
        if is_only and not os.path.isdir(self.data / own):
            self._owner = space
            return shared
        return shared if self._recorded_owner() == space else own

    def _recorded_owner(self) -> str | None:
        try:
            return (self.data / _OWNER_FILE).read_text("ascii").strip()
        except (OSError, ValueError):
            return None

    def _record_owner(self) -> None:
        if self._owner is None or self._recorded_owner() == self._owner:
            return
        if self.dry:
            self.is_whole = False
        else:
            write_atomically(self.data / _OWNER_FILE, f"{self._owner}\n".encode("ascii"))

    def _hashed(self, token: str, path: str) -> str:
        if _SENDABLE.fullmatch(token) is None:
            raise UsageError(f"{path}: a token has 1 to 1024 visible ASCII characters and no spaces")
        hash = hash_token(token)
        if self._secrets is not None:
            self._secrets[hash] = Secret(token)
        return hash


def replace_token_file(file: Path, token: str) -> bool:
    """Put another token into a file that was made here; readable by its owner alone from the first byte.

    Whenever the machine stops, the file holds the old token or the new one. If it cannot be written, it is
    removed, so that nobody takes a void token from it, and this returns False; raises OSError if not even
    that is possible.
    """
    try:
        write_atomically(file, f"{token}\n".encode("ascii"))
        # Or the old one could be back after a power cut, and be void.
        sync_folder(file.parent)
    except OSError:
        file.unlink(missing_ok=True)
        return False
    return True


def _make(file: Path, data: Path) -> None:
    for folder in reversed([file.parent, *file.parent.parents]):
        if folder == data or folder.is_relative_to(data):
            folder.mkdir(mode=0o700, exist_ok=True)
        elif not folder.exists():
            folder.mkdir(exist_ok=True)
    ignored = file.parent / ".gitignore"
    if not ignored.exists():
        # A data folder often stands in a repository.
        write_atomically(ignored, b"*\n", mode=0o644)
    # As a whole: the first half of a token, on a disk that then fails, would be one that can be guessed.
    with suppress(FileExistsError):
        # Another process may have been quicker: its token counts.
        write_atomically(file, f"{secrets.token_urlsafe(TOKEN_BYTES)}\n".encode("ascii"), replace=False)


def _read(file: Path, path: str, what: str = "token file") -> str:
    if file.is_symlink():
        raise UsageError(f"{path}: the {what} {file} is a symbolic link; put the file itself there")
    folder = file.parent.stat()
    if folder.st_mode & _WRITABLE_BY_OTHERS and not folder.st_mode & stat.S_ISVTX:
        raise UsageError(
            f"{path}: the folder {file.parent} can be written by its group or by everybody, who could replace"
            f" the file in it: run `chmod go-w {shlex.quote(str(file.parent))}`"
        )
    with open(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as opened:
        found = os.fstat(opened.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise UsageError(f"{path}: the {what} {file} is not a file")
        if found.st_mode & _READABLE_BY_OTHERS:
            raise UsageError(f"{path}: others may read the {what} {file}; run chmod 600 on it")
        # Whoever owns it knows it. The superuser reads for others, as in a container.
        if os.geteuid() not in (found.st_uid, 0) and found.st_uid != 0:
            raise UsageError(f"{path}: the {what} {file} belongs to another user")
        text = opened.read(4096)
    if not text.strip():
        hint = "; delete it to have a token made" if what == "token file" else ""
        raise UsageError(f"{path}: the {what} {file} is empty{hint}")
    # What is no text here is refused as a token.
    return text.decode("ascii", "replace").strip()
