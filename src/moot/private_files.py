"""Files and folders for our own user: logs, tokens and data that others must neither read nor replace.

Decided as ssh decides about keys. What others could have changed, or could read, is refused with the command
that mends it; nothing is mended silently but the mode of a log file of our own. The superuser, who is often
the user of a container, may use what belongs to others.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Self

from moot.errors import UsageError

_FILE_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700
_OPEN_TO_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH
# Longer than any token; a wrong file is not read whole.
_SECRET_BYTES: Final = 8 << 10


def use_folder(folder: Path, *, what: str = "the data folder", option: str = "--data DIR") -> None:
    """Make a folder for data, and check it; raises UsageError with what to do.

    `option` names another folder.
    """
    try:
        folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    except OSError as fault:
        raise UsageError(f"cannot use {folder}: {fault.strerror}. Name another with {option}") from None
    check_folder(folder, what=what, option=option)


def check_folder(folder: Path, *, what: str = "the data folder", option: str = "--data DIR") -> None:
    """Raises UsageError if others may write to a folder or own it."""
    if os.name != "posix":
        return
    found = folder.stat()
    quoted = shlex.quote(str(folder))
    if found.st_mode & _WRITABLE_BY_OTHERS:
        raise UsageError(
            f"{what} {folder} can be written by its group or by everybody, who could replace what is in it:"
            f" run `chmod go-w {quoted}`, or name another folder with {option}"
        )
    if not _is_trusted(found.st_uid):
        raise UsageError(
            f"{what} {folder} belongs to another user (uid {found.st_uid}), who could replace what is in it:"
            f" run this as that user, or name another folder with {option}"
        )


def open_private(path: str | os.PathLike[str], flags: int) -> int:
    """An `opener` for files that we write: for us alone, and through no link that another user has put there.

    A file of our own that others may use is mended. Raises OSError.
    """
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, _FILE_MODE)
    except OSError as fault:
        if fault.errno != errno.ELOOP:
            raise
        if not _is_trusted(os.lstat(path).st_uid):
            raise PermissionError(
                errno.EPERM, "it is a symbolic link that belongs to another user", str(path)
            ) from None
        # Such as /dev/stdout, or logs on another disk.
        descriptor = os.open(path, flags | os.O_CLOEXEC, _FILE_MODE)
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and found.st_mode & _OPEN_TO_OTHERS and found.st_uid == os.geteuid():
        with suppress(OSError):
            os.fchmod(descriptor, _FILE_MODE)
    return descriptor


def append_lines(path: Path, lines: bytes) -> None:
    """Add whole lines to a file of ours, and have them on disk; raises OSError.

    What an earlier call left half written, on a full disk or in a crash, does not swallow the first of these.
    """
    with open(path, "a+b", opener=open_private) as file:
        if file.seek(0, os.SEEK_END) and file.seek(-1, os.SEEK_END) and file.read(1) != b"\n":
            file.write(b"\n")
        file.write(lines)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """A new name is on disk only when its folder is; raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def lock_file(file: Path) -> Iterator[None]:
    """Hold a file that several processes change while others wait, by a lock beside it; raises OSError."""
    file.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    with open(file.with_name(f".{file.name}.lock"), "w", opener=open_private) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def read_secret(path: Path, *, max_bytes: int = _SECRET_BYTES, what: str = "a token") -> bytes:
    """The beginning of a file that holds a secret; raises OSError, and UsageError when others know it.

    Modes do not count on a read-only file system, such as the secrets of Docker and Kubernetes: whoever has
    mounted it has decided who reads it.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:
        found = os.fstat(opened.fileno())
        if not stat.S_ISDIR(found.st_mode) and os.name == "posix":
            _check_secret(path, found, what, os.fstatvfs(opened.fileno()).f_flag & os.ST_RDONLY != 0)
        return opened.read(max_bytes)


def _check_secret(path: Path, found: os.stat_result, what: str, is_read_only: bool) -> None:
    if not _is_trusted(found.st_uid):
        raise UsageError(
            f"{path} belongs to another user (uid {found.st_uid}), who knows what is in it:"
            f" get {what} of your own, and keep it in a file of your own"
        )
    # Others than its owner are the concern of whoever set up a file for us: as with ssh.
    is_own = found.st_uid == os.geteuid()
    if not stat.S_ISREG(found.st_mode) or is_read_only:
        # A pipe, such as <(pass show token), has one reader.
        return
    if found.st_mode & (_OPEN_TO_OTHERS if is_own else _WRITABLE_BY_OTHERS):
        raise UsageError(
            f"others may read or write {path}, which holds {what}:"
            f" run `chmod 600 {shlex.quote(str(path))}`; if others have used this machine, replace it"
        )


def _is_trusted(owner: int) -> bool:
    return owner in (os.geteuid(), 0) or os.geteuid() == 0


class FileToken(str):
    """A token that knows its file, so that whoever it is refused to can name that."""

    __slots__ = ("file", "is_unread")

    file: Path
    # Whether the gateway is known to have read its files before this one was written.
    is_unread: bool

    def __new__(cls, token: str, file: Path, *, is_unread: bool = False) -> Self:
        made = super().__new__(cls, token)
        made.file = file
        made.is_unread = is_unread
        return made


def token_from(path: str | Path) -> FileToken:
    """The token in a file, which holds nothing else; raises UsageError, also when others may read it."""
    file = Path(path)
    try:
        words = read_secret(file).decode("ascii").split()
    except (OSError, UnicodeDecodeError) as fault:
        why = fault.strerror if isinstance(fault, OSError) else "it is no text"
        raise UsageError(f"no token can be read from {file}: {why}") from None
    if len(words) != 1 or not words[0].isprintable():
        found = "other characters" if len(words) == 1 else f"{len(words)} words"
        raise UsageError(f"{file} must hold one token of visible characters and nothing else; it has {found}")
    return FileToken(words[0], file)


def name_from(path: str | Path) -> str | None:
    """Whose token a file holds, where it is called NAME.token as Moot and the reference call theirs."""
    file = Path(path)
    return file.stem if file.suffix == ".token" and file.stem else None
