"""What is at a path, read below an open folder and never through a link."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from moot.errors import MootError
from moot.preview.call_effect import MAX_CONTENT_BYTES, PathState

FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_CHUNK: Final = 1 << 20
# Kept by the system about every file of ours, and not by those who write it.
_SYSTEM_ATTRIBUTES: Final = ("security.selinux", "security.evm", "security.ima", "user.overlay.")


class NotBound(MootError):
    """An effect that cannot be applied as it was seen; the text says why, as the end of a sentence."""


def read_state(folder: int, name: str, contents: dict[str, bytes] | None = None) -> PathState | None:
    """What is there; its content goes into `contents`. Raises NotBound for what an effect cannot hold."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    mode = stat.S_IMODE(found.st_mode)
    if stat.S_ISDIR(found.st_mode):
        return PathState("folder", mode)
    if stat.S_ISLNK(found.st_mode):
        target = os.readlink(name, dir_fd=folder)
        _check_text(target)
        return PathState("link", target=target)
    if not stat.S_ISREG(found.st_mode):
        raise NotBound(f"{name} is neither a file nor a folder nor a link")
    with open(os.open(name, FILE_FLAGS, dir_fd=folder), "rb", buffering=0) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise NotBound(f"{name} is changing just now")
        if found.st_size > MAX_CONTENT_BYTES:
            raise NotBound(f"{name} has more than {MAX_CONTENT_BYTES >> 20} MiB")
        digest, kept, size = hashlib.sha256(), [], 0
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
            if size > MAX_CONTENT_BYTES:
                raise NotBound(f"{name} has more than {MAX_CONTENT_BYTES >> 20} MiB")
            if contents is not None:
                kept.append(chunk)
    if contents is not None:
        contents[digest.hexdigest()] = b"".join(kept)
    return PathState("file", mode, size, digest.hexdigest())


def check_plain(folder: int, name: str, state: PathState | None) -> None:
    """Raises NotBound for what would not be the same any more after it was replaced."""
    if state is None:
        return
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if state.kind == "file" and found.st_nlink > 1:
        raise NotBound(f"{name} is one file under several names (a hard link)")
    if state.kind == "link":
        return
    with opened(folder, name, state) as descriptor:
        found_attributes = attributes_of(descriptor)
    if found_attributes:
        raise NotBound(f"{name} has extended attributes ({min(found_attributes)})")
    if state.kind == "file" and state.mode & (stat.S_ISUID | stat.S_ISGID):
        raise NotBound(f"{name} runs with the rights of its owner (setuid)")


def attributes_of(descriptor: int) -> dict[str, bytes]:
    """What somebody has written beside a file or folder."""
    listed = [each for each in os.listxattr(descriptor) if not each.startswith(_SYSTEM_ATTRIBUTES)]
    return {each: os.getxattr(descriptor, each) for each in listed}


@contextmanager
def opened(folder: int, name: str, state: PathState) -> Iterator[int]:
    """A file or folder, open for reading."""
    descriptor = os.open(name, FOLDER_FLAGS if state.kind == "folder" else FILE_FLAGS, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def opened_parent(root: int, parts: Sequence[str]) -> Iterator[int]:
    """The folder in which a path is; raises OSError where a part is missing or a link."""
    descriptor = os.open(".", FOLDER_FLAGS, dir_fd=root)
    try:
        for part in parts[:-1]:
            deeper = os.open(part, FOLDER_FLAGS, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = deeper
        yield descriptor
    finally:
        os.close(descriptor)


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise NotBound("a name or the target of a link is not UTF-8") from None


def check_name(name: str) -> None:
    """Raises NotBound for a name that no message can hold."""
    _check_text(name)


def read_tree(folder: int, name: str) -> dict[str, PathState]:
    """What is there with all that is in it, by the path below it; itself has an empty one."""
    state = read_state(folder, name)
    if state is None:
        return {}
    found = {"": state}
    if state.kind == "folder":
        with opened(folder, name, state) as inner:
            for each in os.listdir(inner):
                below = read_tree(inner, each)
                found |= {f"{each}/{path}" if path else each: state for path, state in below.items()}
    return found


def set_modes(folder: int, name: str, tree: Mapping[str, PathState]) -> None:
    """Give the folders in a new one their modes, the deepest first."""
    for path in sorted((each for each in tree if each), key=lambda each: -each.count("/")):
        if tree[path].kind == "folder":
            parts = (name, *path.split("/"))
            with opened_parent(folder, parts) as parent:
                os.chmod(parts[-1], tree[path].mode, dir_fd=parent)


def remove_tree(folder: int, name: str) -> None:
    """Remove a file or a folder of our own with all that is in it, whatever its modes."""
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if not stat.S_ISDIR(found.st_mode):
        os.unlink(name, dir_fd=folder)
        return
    os.chmod(name, 0o700, dir_fd=folder)
    descriptor = os.open(name, FOLDER_FLAGS, dir_fd=folder)
    try:
        for each in os.listdir(descriptor):
            remove_tree(descriptor, each)
    finally:
        os.close(descriptor)
    os.rmdir(name, dir_fd=folder)
