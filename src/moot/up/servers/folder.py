"""One folder and nothing outside of it: list, read, write, edit and search by relative paths.

Every step of a path is opened by its name below the folder before it, and never through a symbolic link. So
no path leads outside, whatever `..`, links or concurrent moves of folders do; checking a resolved path first
and opening it afterwards could not guarantee that.

Hidden names and the configuration of a space are not accessible: `.moot` holds everybody's tokens, `.git` and
the like hold passwords and hooks.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Final

# What a model or a person can read at once; a longer file is read in parts.
READ_BYTES: Final = 256 << 10
# Well below the largest envelope of a space (1 MiB), in which it is escaped twice.
WRITE_BYTES: Final = 400_000
MAX_ENTRIES: Final = 1_000
# A search reads so many files, each up to this size, and returns so many lines.
MAX_SEARCH_FILES: Final = 5_000
SEARCH_BYTES: Final = 1 << 20
MAX_MATCHES: Final = 200
_MAX_LINE_CHARS: Final = 300
_MAX_DEPTH: Final = 32

_CONFIGURATIONS: Final = ("moot.yaml", "space.yaml")

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class PathDenied(Exception):
    """The path or its content is not accessible; the text says why."""


class Folder:
    """A folder as a tool server shows it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        try:
            os.close(os.open(root, os.O_RDONLY | os.O_DIRECTORY))
        except OSError as fault:
            raise PathDenied(f"{root} is not a folder: {fault.strerror}") from None

    def entries(self, path: str = ".") -> list[str]:
        """The names in a folder; folders end with a slash."""
        with self._opened_folder(_steps(path)) as handle:
            found = sorted(_entries(handle))
        if not _steps(path):
            found = [name for name in found if name not in _CONFIGURATIONS]
        if len(found) > MAX_ENTRIES:
            found = [*found[:MAX_ENTRIES], f"… and {len(found) - MAX_ENTRIES} more"]
        return found

    def read(self, path: str, first_line: int = 1, lines: int | None = None) -> str:
        """A text file, or some lines of it."""
        if first_line < 1 or (lines is not None and lines < 1):
            raise PathDenied("first_line and lines must be 1 or more")
        text = self._text(path, max_bytes=None if lines is not None or first_line > 1 else READ_BYTES)
        if first_line == 1 and lines is None:
            return text
        kept = text.split("\n")[first_line - 1 : None if lines is None else first_line - 1 + lines]
        shown = "\n".join(kept)
        if len(shown) > READ_BYTES:
            raise PathDenied(f"these lines have more than {READ_BYTES} characters: ask for fewer")
        return shown

    def write(self, path: str, text: str) -> str:
        """Create or replace a file and its folders; atomic."""
        data = text.encode("utf-8", "surrogateescape")
        if len(data) > WRITE_BYTES:
            raise PathDenied(f"a file is written with at most {WRITE_BYTES} bytes at once")
        *folders, name = self._file_steps(path)
        with self._opened_folder(folders, make=True) as handle:
            before = _kind_of(handle, name)
            if before not in (None, "file"):
                raise PathDenied(f"{path} is a {before}, not a file")
            mode = 0o644
            if before == "file":
                mode = stat.S_IMODE(os.stat(name, dir_fd=handle, follow_symlinks=False).st_mode)
            scratch = f".{name[:200]}.{secrets.token_hex(6)}.new"
            try:
                _write(handle, scratch, data, mode)
                os.rename(scratch, name, src_dir_fd=handle, dst_dir_fd=handle)
            except OSError as fault:
                _unlink(handle, scratch)
                raise PathDenied(f"{path} cannot be written: {fault.strerror}") from None
        return f"{'replaced' if before else 'created'} {path}: {len(data)} bytes"

    def edit(self, path: str, old: str, new: str) -> str:
        """Replace a passage that occurs exactly once in a file."""
        text = self._text(path, max_bytes=WRITE_BYTES)
        count = text.count(old) if old else 0
        if count != 1:
            times = "is empty" if not old else f"occurs {count} times" if count else "does not occur"
            raise PathDenied(f"the passage {times} in {path}: give one that occurs exactly once")
        return self.write(path, text.replace(old, new))

    def search(self, text: str, path: str = ".") -> list[str]:
        """Lines of text files below a folder that contain this text, as `file:line: text`."""
        if not text.strip():
            raise PathDenied("the text to search for is empty")
        found: list[str] = []
        start = PurePosixPath(*_steps(path))
        searched = 0
        for name in self._files_below(start):
            searched += 1
            if searched > MAX_SEARCH_FILES:
                return [*found, f"… stopped after {MAX_SEARCH_FILES} files: search below a smaller folder"]
            try:
                content = self._text(str(name), max_bytes=SEARCH_BYTES)
            except PathDenied:
                continue
            for number, line in enumerate(content.split("\n"), 1):
                if text in line:
                    found.append(f"{name}:{number}: {line.strip()[:_MAX_LINE_CHARS]}")
                    if len(found) >= MAX_MATCHES:
                        return [*found, f"… stopped after {MAX_MATCHES} lines: search for something rarer"]
        return found

    # Inside

    def _file_steps(self, path: str) -> list[str]:
        steps = _steps(path)
        if not steps:
            raise PathDenied("a file needs a name")
        return steps

    def _text(self, path: str, max_bytes: int | None) -> str:
        *folders, name = self._file_steps(path)
        limit = SEARCH_BYTES * 8 if max_bytes is None else max_bytes
        with self._opened_folder(folders) as folder:
            try:
                handle = os.open(name, os.O_RDONLY | _FILE, dir_fd=folder)
            except OSError as fault:
                raise PathDenied(f"{path} cannot be read: {_why(fault)}") from None
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise PathDenied(f"{path} is not a file")
        with open(handle, "rb") as opened:
            data = opened.read(limit + 1)
        if len(data) > limit:
            raise PathDenied(
                f"{path} has more than {limit} bytes: read some of its lines (first_line, lines)"
            )
        if b"\0" in data:
            raise PathDenied(f"{path} is not text")
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            raise PathDenied(f"{path} is not text in UTF-8") from None

    @contextmanager
    def _opened_folder(self, steps: list[str], *, make: bool = False) -> Iterator[int]:
        handle = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for step in steps:
                try:
                    if make and _kind_of(handle, step) is None:
                        os.mkdir(step, dir_fd=handle)
                    deeper = os.open(step, _FOLDER, dir_fd=handle)
                except OSError as fault:
                    raise PathDenied(f"{'/'.join(steps)} cannot be opened: {_why(fault)}") from None
                os.close(handle)
                handle = deeper
            yield handle
        finally:
            os.close(handle)

    def _files_below(self, start: PurePosixPath) -> Iterator[PurePosixPath]:
        waiting = [start]
        while waiting:
            folder = waiting.pop()
            try:
                with self._opened_folder(list(folder.parts)) as handle:
                    names = sorted(_entries(handle))
            except PathDenied:
                if folder == start:
                    raise
                continue
            if len(folder.parts) < _MAX_DEPTH:
                waiting += [folder / name[:-1] for name in reversed(names) if name.endswith("/")]
            for name in names:
                if not name.endswith("/") and (folder.parts or name not in _CONFIGURATIONS):
                    yield folder / name


def _is_private(name: str) -> bool:
    """Whether it is hidden, or holds a token as `moot member invite --token-out` writes it."""
    return name.startswith(".") or name.endswith(".token")


def _steps(path: str) -> list[str]:
    """The names on the way; raises PathDenied for a path that is not simply below the folder."""
    if "\0" in path or "\\" in path:
        raise PathDenied("a path must not contain a backslash or NUL")
    if path.startswith(("/", "~")):
        raise PathDenied(f"{path} is not below the shared folder: paths are relative to it")
    steps = [step for step in path.split("/") if step not in ("", ".")]
    if ".." in steps:
        raise PathDenied(f"{path} leads outside of the shared folder")
    if any(_is_private(step) for step in steps) or (steps and steps[0] in _CONFIGURATIONS):
        raise PathDenied(f"{path} is not shared: hidden files, tokens and a space's configuration are not")
    return steps


def _entries(handle: int) -> Iterator[str]:
    with os.scandir(handle) as entries:
        for entry in entries:
            if entry.is_symlink() or _is_private(entry.name):
                continue
            yield f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name


def _kind_of(folder: int, name: str) -> str | None:
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(mode):
        return "symbolic link"
    return "file" if stat.S_ISREG(mode) else "folder" if stat.S_ISDIR(mode) else "device"


def _write(folder: int, name: str, data: bytes, mode: int) -> None:
    handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE, mode, dir_fd=folder)
    with open(handle, "wb") as opened:
        opened.write(data)
        opened.flush()
        os.fsync(opened.fileno())


def _unlink(folder: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except OSError:
        return


def _why(fault: OSError) -> str:
    if fault.errno == errno.ELOOP:
        return "it is a symbolic link"
    if fault.errno == errno.ENOTDIR:
        return "a part of the path is a symbolic link, or not a folder"
    return str(fault.strerror)
