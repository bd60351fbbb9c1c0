"""Applies an effect to its folders, all of it or nothing; takes one back in the same way.

How it works. What will be there is made first, in a hidden folder beside. Then each path changes by one
rename: exchanged with what was there, which is looked at only after it is out of reach of others. If it is
not what was seen, everything is exchanged back. At the end all that was taken away is looked at once more,
for who still had it open; then the status of the effect is replaced on disk, and from there on it counts.

The journal names what was made, by its inode, before the first rename. After a crash it tells which renames
were done: without the new status they are undone, with it only the hidden folder is removed. Whatever others
have written over ours meanwhile stays theirs.
"""

from __future__ import annotations

import ctypes
import logging
import os
import secrets
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from moot.preview.apply_steps import ApplyStep, steps_of, tree_of
from moot.preview.call_effect import PathChange, PathState
from moot.preview.effect_store import EffectStatus, EffectStore, StoredEffect
from moot.preview.path_state import (
    FOLDER_FLAGS,
    NotBound,
    check_plain,
    opened,
    opened_parent,
    read_state,
    read_tree,
    remove_tree,
    set_modes,
)
from moot.private_files import sync_folder
from moot.resilience.atomic_file import write_atomically

log = logging.getLogger(__name__)

SCRATCH_PREFIX: Final = ".moot-effect-"
# Of linux/fs.h.
_NOREPLACE: Final = 1
_EXCHANGE: Final = 2


class WriteJournal(msgspec.Struct, frozen=True):
    """What is being done; `inodes` of what was made, by the index of its change."""

    effect: str
    wanted: EffectStatus
    scratch: str
    inodes: dict[int, int]
    # Whether the first rename may have been done.
    is_moving: bool = False


class EffectWriter:
    """Applies the effects of one store, one at a time."""

    def __init__(self, store: EffectStore, *, on_step: Callable[[], None] = lambda: None) -> None:
        """`on_step` is called before everything that a crash could come between."""
        self._store = store
        self._journal = store.folder / "journal"
        self._on_step = on_step

    def apply(self, stored: StoredEffect) -> None:
        """Raises NotBound, with what differs: then nothing was changed."""
        if stored.status != "told":
            raise NotBound(f"this effect was {stored.status} already")
        self._write(stored, "applied")

    def undo(self, stored: StoredEffect) -> None:
        """Take it back; raises NotBound, with what differs: then nothing was changed."""
        if stored.status != "applied":
            raise NotBound("it is taken back already" if stored.status == "undone" else "it was not applied")
        self._write(stored, "undone")

    def check(self, stored: StoredEffect) -> None:
        """Raises NotBound if it cannot be applied any more, or not be taken back."""
        changes = _changes(stored, "undone" if stored.status == "applied" else "applied")
        with _opened_roots(changes) as roots:
            for each in changes:
                _check_before(roots[each.root], each)

    def recover(self) -> None:
        """Finish or undo what a crash has interrupted; raises OSError."""
        try:
            journal = msgspec.json.decode(self._journal.read_bytes(), type=WriteJournal)
        except FileNotFoundError:
            return
        stored = self._store.get(journal.effect)
        if stored is not None:
            changes = _changes(stored, journal.wanted)
            with _opened_roots(changes) as roots:
                transaction = _Transaction(stored, changes, journal, roots, self._on_step)
                if stored.status != journal.wanted and journal.is_moving:
                    log.warning("an interrupted change of files is undone", extra={"effect": stored.hash})
                    transaction.roll_back()
                transaction.remove_scratch()
        self._journal.unlink()

    def _write(self, stored: StoredEffect, wanted: EffectStatus) -> None:
        self.recover()
        changes, before = _changes(stored, wanted), stored.status
        journal = WriteJournal(stored.hash, wanted, f"{SCRATCH_PREFIX}{secrets.token_hex(8)}", {})
        with _opened_roots(changes) as roots:
            for each in changes:
                _check_before(roots[each.root], each)
            self._keep(journal)
            transaction = _Transaction(stored, changes, journal, roots, self._on_step)
            try:
                self._keep(transaction.prepare())
                transaction.run()
                self._on_step()
                stored.set_status(wanted)
            except BaseException as fault:
                # Whatever it was: the status says whether it counts.
                if stored.status == before:
                    transaction.roll_back()
                    stored.set_status(before)
                transaction.remove_scratch()
                self._journal.unlink()
                if isinstance(fault, OSError):
                    raise NotBound(f"a file could not be changed: {fault.strerror}") from None
                raise
            self._on_step()
            transaction.remove_scratch()
        self._on_step()
        self._journal.unlink()

    def _keep(self, journal: WriteJournal) -> None:
        self._on_step()
        write_atomically(self._journal, msgspec.json.encode(journal))
        sync_folder(self._store.folder)


class _Transaction:
    """The renames of one effect."""

    def __init__(
        self,
        stored: StoredEffect,
        changes: tuple[PathChange, ...],
        journal: WriteJournal,
        roots: dict[str, int],
        on_step: Callable[[], None],
    ) -> None:
        self._stored = stored
        self._changes = changes
        self._journal = journal
        self._roots = roots
        self._on_step = on_step
        self._steps = steps_of(changes)

    def prepare(self) -> WriteJournal:
        """Make what will be there, beside; raises OSError."""
        inodes: dict[int, int] = {}
        for root in self._roots.values():
            self._on_step()
            os.mkdir(self._journal.scratch, 0o700, dir_fd=root)
        for step in self._steps:
            change = self._changes[step.index]
            if step.act in ("put", "swap"):
                self._on_step()
                with self._scratch(change.root) as scratch:
                    self._make(scratch, f"n{step.index}", change)
                    found = os.stat(f"n{step.index}", dir_fd=scratch, follow_symlinks=False)
                    inodes[step.index] = found.st_ino
        for path in self._roots:
            with self._scratch(path) as scratch:
                os.fsync(scratch)
        self._journal = msgspec.structs.replace(self._journal, inodes=inodes, is_moving=True)
        return self._journal

    def _make(self, scratch: int, name: str, change: PathChange) -> None:
        tree = tree_of(self._changes, change, after=True)
        for path in sorted(tree, key=lambda each: each.split("/")):
            parts = (name, *path.split("/")) if path else (name,)
            with opened_parent(scratch, parts) as parent:
                self._make_one(parent, parts[-1], tree[path], change if not path else None)
        # Not yet its own mode, which may keep it from being moved.
        set_modes(scratch, name, tree)
        if not self._holds(scratch, name, tree):
            raise NotBound("what was kept of it is damaged")

    def _make_one(self, parent: int, name: str, state: PathState, change: PathChange | None) -> None:
        if state.kind == "folder":
            os.mkdir(name, 0o700, dir_fd=parent)
        elif state.kind == "link":
            os.symlink(state.target, name, dir_fd=parent)
        else:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(name, flags, 0o600, dir_fd=parent), "wb") as file:
                file.write(self._stored.content(state.sha256))
                file.flush()
                if change is not None:
                    self._take_group(change, file.fileno())
                os.fchmod(file.fileno(), state.mode)
                os.fsync(file.fileno())

    def _holds(self, folder: int, name: str, tree: dict[str, PathState]) -> bool:
        """Whether exactly this is there. The mode of a folder itself does not count: it is set apart."""
        found = read_tree(folder, name)
        both = [
            {path: _without_mode(state) if not path else state for path, state in each.items()}
            for each in (found, tree)
        ]
        return both[0] == both[1]

    def _take_group(self, change: PathChange, descriptor: int) -> None:
        if change.before is None:
            return
        with opened_parent(self._roots[change.root], change.parts) as parent:
            group = os.stat(change.parts[-1], dir_fd=parent, follow_symlinks=False).st_gid
        if group != os.fstat(descriptor).st_gid:
            os.fchown(descriptor, -1, group)

    def run(self) -> None:
        """All renames; raises NotBound or OSError in the middle of them."""
        for step in self._steps:
            self._on_step()
            self._do(step)
        # Whoever had a file open may have written to it while it was moved.
        for step in self._steps:
            if step.act in ("take", "swap"):
                with self._scratch(self._changes[step.index].root) as scratch:
                    self._check_taken(scratch, step)
        self._on_step()
        for root in self._roots.values():
            os.fsync(root)
        for parent in {(each.root, each.parts[:-1]) for each in self._changes}:
            with (
                suppress(OSError),
                opened_parent(self._roots[parent[0]], (*parent[1], "")) as descriptor,
            ):
                os.fsync(descriptor)

    def _do(self, step: ApplyStep) -> None:
        change = self._changes[step.index]
        name = change.parts[-1]
        with (
            self._scratch(change.root) as scratch,
            opened_parent(self._roots[change.root], change.parts) as parent,
        ):
            match step.act:
                case "take":
                    _rename(parent, name, scratch, f"o{step.index}", _NOREPLACE)
                    self._check_taken(scratch, step)
                case "put":
                    _rename(scratch, f"n{step.index}", parent, name, _NOREPLACE)
                case "swap":
                    _rename(scratch, f"n{step.index}", parent, name, _EXCHANGE)
                    self._check_taken(scratch, step)
                case "mode":
                    self._set_mode(parent, change, step.index)

    def _set_mode(self, parent: int, change: PathChange, index: int) -> None:
        assert change.after is not None  # noqa: S101  # a mode is of what is there
        with opened(parent, change.parts[-1], change.after) as descriptor:
            found = os.fstat(descriptor)
            if change.before is not None and _are_folders(change):
                is_expected = stat.S_IMODE(found.st_mode) == change.before.mode
            else:
                is_expected = found.st_ino == self._journal.inodes.get(index)
            if not is_expected:
                raise NotBound(f"{change.path} was changed meanwhile")
            os.fchmod(descriptor, change.after.mode)

    def _check_taken(self, scratch: int, step: ApplyStep) -> None:
        """Raises NotBound if what was moved away is not what was seen."""
        change = self._changes[step.index]
        name = f"{'o' if step.act == 'take' else 'n'}{step.index}"
        expected = tree_of(self._changes, change, after=False)
        if step.act == "swap":
            expected = {"": expected[""]}
        if read_tree(scratch, name) != expected:
            raise NotBound(f"{change.path} was changed meanwhile")

    def roll_back(self) -> None:
        """Undo all renames that were done."""
        for step in reversed(self._steps):
            self._on_step()
            with suppress(FileNotFoundError, NotADirectoryError):
                self._undo(step)
        for root in self._roots.values():
            os.fsync(root)

    def _undo(self, step: ApplyStep) -> None:
        change, new, old = self._changes[step.index], f"n{step.index}", f"o{step.index}"
        name = change.parts[-1]
        with (
            self._scratch(change.root) as scratch,
            opened_parent(self._roots[change.root], change.parts) as parent,
        ):
            match step.act:
                case "mode":
                    self._undo_mode(parent, change, step.index)
                case "take":
                    self._give_back(scratch, old, parent, change)
                case "put":
                    self._take_back(parent, scratch, step)
                case "swap":
                    found = os.stat(new, dir_fd=scratch, follow_symlinks=False)
                    if found.st_ino == self._journal.inodes.get(step.index):
                        return
                    if self._is_ours(parent, step):
                        _rename(scratch, new, parent, name, _EXCHANGE)

    def _undo_mode(self, parent: int, change: PathChange, index: int) -> None:
        assert change.after is not None  # noqa: S101  # a mode is of what is there
        with opened(parent, change.parts[-1], change.after) as descriptor:
            found = os.fstat(descriptor)
            if change.before is None or not _are_folders(change):
                if found.st_ino == self._journal.inodes.get(index):
                    os.fchmod(descriptor, 0o700)
            elif stat.S_IMODE(found.st_mode) == change.after.mode:
                os.fchmod(descriptor, change.before.mode)

    def _give_back(self, scratch: int, old: str, parent: int, change: PathChange) -> None:
        try:
            _rename(scratch, old, parent, change.parts[-1], _NOREPLACE)
        except FileExistsError:
            log.warning("somebody else has made a file in place of one that comes back")

    def _take_back(self, parent: int, scratch: int, step: ApplyStep) -> None:
        """Remove what we placed, unless somebody has changed it since."""
        change, new = self._changes[step.index], f"n{step.index}"
        name = change.parts[-1]
        if os.stat(name, dir_fd=parent, follow_symlinks=False).st_ino != self._journal.inodes.get(step.index):
            return
        _rename(parent, name, scratch, new, _NOREPLACE)
        if not self._holds(scratch, new, tree_of(self._changes, change, after=True)):
            log.warning("what somebody else has changed meanwhile stays")
            _rename(scratch, new, parent, name, _NOREPLACE)

    def _is_ours(self, parent: int, step: ApplyStep) -> bool:
        """Whether what is there is the file that we exchanged, as we made it."""
        change = self._changes[step.index]
        name = change.parts[-1]
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        is_same = found.st_ino == self._journal.inodes.get(step.index)
        return is_same and read_state(parent, name) == change.after

    def remove_scratch(self) -> None:
        for path, root in self._roots.items():
            with suppress(FileNotFoundError), self._scratch(path) as scratch:
                for name in os.listdir(scratch):
                    self._on_step()
                    if not name.startswith("o") or self._is_taken(scratch, name):
                        remove_tree(scratch, name)
            # With something of somebody else in it, it stays: nothing of theirs is lost.
            with suppress(OSError):
                os.rmdir(self._journal.scratch, dir_fd=root)

    def _is_taken(self, scratch: int, name: str) -> bool:
        """Whether it holds nothing but what was seen, of which a copy is kept."""
        seen = tree_of(self._changes, self._changes[int(name[1:])], after=False)
        found = read_tree(scratch, name)
        # One that is being removed after a crash has less.
        return all(seen.get(path) == state for path, state in found.items() if path)

    @contextmanager
    def _scratch(self, root: str) -> Iterator[int]:
        descriptor = os.open(self._journal.scratch, FOLDER_FLAGS, dir_fd=self._roots[root])
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def _changes(stored: StoredEffect, wanted: EffectStatus) -> tuple[PathChange, ...]:
    return (stored.effect.inverse() if wanted == "undone" else stored.effect).changes


@contextmanager
def _opened_roots(changes: tuple[PathChange, ...]) -> Iterator[dict[str, int]]:
    with ExitStack() as stack:
        roots: dict[str, int] = {}
        for root in dict.fromkeys(each.root for each in changes):
            try:
                roots[root] = os.open(root, FOLDER_FLAGS)
            except OSError as fault:
                raise NotBound(f"{Path(root).name} cannot be opened: {fault.strerror}") from None
            stack.callback(os.close, roots[root])
        yield roots


def _check_before(root: int, change: PathChange) -> None:
    """Raises NotBound if a path is not as it was."""
    try:
        with opened_parent(root, change.parts) as parent:
            found = read_state(parent, change.parts[-1])
            if found == change.before:
                check_plain(parent, change.parts[-1], found)
    except OSError:
        # A folder on the way is missing, unless it is made by the same effect.
        found = None
    if found != change.before:
        raise NotBound(f"{change.path} is not as it was")


def _are_folders(change: PathChange) -> bool:
    return (
        change.before is not None
        and change.after is not None
        and change.before.kind == change.after.kind == "folder"
    )


def _without_mode(state: PathState) -> PathState:
    return PathState("folder") if state.kind == "folder" else state


def _rename(source: int, name: str, target: int, new: str, flags: int) -> None:
    if sys.platform != "linux":
        raise OSError("files are exchanged on Linux only")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(source, os.fsencode(name), target, os.fsencode(new), flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)
