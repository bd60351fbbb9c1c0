"""What a run in an overlay changed: its upper folder, compared with the folder as it is.

The upper folder holds what was written, a device of number 0 for what is gone, and a mark on folders that
were made anew in place of others. Files that were opened for writing and are as before are no change.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator

from moot.preview.call_effect import MAX_CONTENT_BYTES, MAX_PATH_CHARS, MAX_PATHS, PathChange, PathState
from moot.preview.path_state import (
    NotBound,
    attributes_of,
    check_name,
    check_plain,
    opened,
    read_state,
)

_OPAQUE = "user.overlay.opaque"


class OverlayScan:
    """The changes of one run, and the contents of the touched files by their hashes."""

    def __init__(self, *, since_ns: int, is_protected: Callable[[str, str], bool]) -> None:
        """`since_ns`: when the run began; what others changed since is no base for it. `is_protected`: of a
        folder and a path in it, whether no call may change it."""
        self.changes: list[PathChange] = []
        self.contents: dict[str, bytes] = {}
        self._since_ns = since_ns
        self._is_protected = is_protected

    def add(self, root: str, base: int, upper: int) -> None:
        """One folder of the box; raises NotBound, OSError."""
        if stat.S_IMODE(os.fstat(base).st_mode) != stat.S_IMODE(os.fstat(upper).st_mode):
            raise NotBound("it changes the mode of the folder itself")
        self._compare_folders(root, "", base, upper, is_new=False)

    def _compare_folders(self, root: str, prefix: str, base: int | None, upper: int, *, is_new: bool) -> None:
        """`is_new`: one above was made anew. Then this one was, too, and has no mark of its own."""
        is_new = is_new or (prefix != "" and _has_attribute(upper, _OPAQUE))
        names = set(_names(upper))
        if is_new and base is not None:
            names |= set(_names(base))
        for name in sorted(names):
            self._compare(root, f"{prefix}{name}", name, base, upper, is_new=is_new)

    def _compare(
        self, root: str, path: str, name: str, base: int | None, upper: int, *, is_new: bool
    ) -> None:
        check_name(name)
        if len(path) > MAX_PATH_CHARS:
            raise NotBound("a path is too long")
        before = None if base is None else self._before(base, name, path)
        after = None if _is_gone(upper, name) else read_state(upper, name, self.contents)
        if before is None and after is None:
            return
        if before != after:
            self._note(PathChange(root, path, before, after), base, upper)
        elif before is not None and base is not None and before.kind != "link" and not _is_gone(upper, name):
            with opened(base, name, before) as old, opened(upper, name, before) as new:
                if attributes_of(old) != attributes_of(new):
                    raise NotBound(f"it changes extended attributes of {path}")
        was = before is not None and before.kind == "folder"
        if after is not None and after.kind == "folder":
            with opened(upper, name, after) as inner:
                if not was or base is None or before is None:
                    self._compare_folders(root, f"{path}/", None, inner, is_new=True)
                else:
                    with opened(base, name, before) as lower:
                        self._compare_folders(root, f"{path}/", lower, inner, is_new=is_new)
        elif was and base is not None and before is not None:
            with opened(base, name, before) as lower:
                self._remove_all(root, f"{path}/", lower)

    def _before(self, base: int, name: str, path: str) -> PathState | None:
        before = read_state(base, name, self.contents)
        if before is not None:
            found = os.stat(name, dir_fd=base, follow_symlinks=False)
            if before.kind == "file" and found.st_ctime_ns > self._since_ns:
                raise NotBound(f"{path} was changed by somebody else at the same time")
        return before

    def _remove_all(self, root: str, prefix: str, base: int) -> None:
        for name in sorted(_names(base)):
            check_name(name)
            before = self._before(base, name, f"{prefix}{name}")
            if before is None:
                continue
            self._note(PathChange(root, f"{prefix}{name}", before, None), base, None)
            if before.kind == "folder":
                with opened(base, name, before) as inner:
                    self._remove_all(root, f"{prefix}{name}/", inner)

    def _note(self, change: PathChange, base: int | None, upper: int | None) -> None:
        name = change.parts[-1]
        if self._is_protected(change.root, change.path):
            raise NotBound(f"{change.path} is read or run outside of the box")
        if change.before is not None and base is not None:
            check_plain(base, name, change.before)
            if os.stat(name, dir_fd=base, follow_symlinks=False).st_uid != os.geteuid():
                raise NotBound(f"{change.path} belongs to another user")
        if change.after is not None and upper is not None:
            _check_made(upper, name, change.after)
        self.changes.append(change)
        if len(self.changes) > MAX_PATHS:
            raise NotBound(f"it changes more than {MAX_PATHS} files")
        if sum(map(len, self.contents.values())) > MAX_CONTENT_BYTES:
            raise NotBound(f"the files that it changes have more than {MAX_CONTENT_BYTES >> 20} MiB")


def _check_made(upper: int, name: str, state: PathState) -> None:
    found = os.stat(name, dir_fd=upper, follow_symlinks=False)
    if state.kind == "file" and found.st_nlink > 1:
        raise NotBound(f"{name} is made as one file under several names (a hard link)")
    if state.kind != "link":
        check_plain(upper, name, state)


def _names(folder: int) -> Iterator[str]:
    with os.scandir(folder) as entries:
        yield from [each.name for each in entries]


def _is_gone(upper: int, name: str) -> bool:
    """Whether the run removed it, or its folder was made anew without it."""
    try:
        found = os.stat(name, dir_fd=upper, follow_symlinks=False)
    except FileNotFoundError:
        return True
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def _has_attribute(folder: int, name: str) -> bool:
    return name in os.listxattr(folder)
