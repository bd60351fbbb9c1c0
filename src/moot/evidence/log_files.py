"""The log of one space on disk, beside its journal.

    DATA/spaces/NAME/log/
        about.json    the log's origin, and which record its first entry stands for
        entries       32 bytes for each record: `entry_of` its line
        level-1       32 bytes for each 256 entries: the hash over them; level-2 over 256 of those, …
        checkpoint    how large the log is, with the root of its tree, signed
        cosigned      the newest checkpoint that enough witnesses signed, if a policy asks for any

The checkpoint alone says how large the log is. Entries are on disk before it is signed, so what stands behind
its size was appended and not signed: it is written again. A checkpoint that its files do not bear out is
never followed by another one.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from moot.errors import UsageError
from moot.evidence.checkpoint import Checkpoint, parse_checkpoint, signers
from moot.evidence.inclusion_file import InclusionFile
from moot.evidence.log_hashes import leaf_hashes, split_hashes, tile_hash
from moot.evidence.merkle_tree import (
    HASH_BYTES,
    Subtree,
    consistency_proof,
    inclusion_proof,
    root_of,
)
from moot.evidence.signed_note import Note, NoteError, Signature, SignerKey, VerifierKey
from moot.evidence.tiles import WIDTH, Tile, bundle, subtree_from
from moot.private_files import sync_folder
from moot.resilience.atomic_file import write_atomically
from moot.store.journal_backwards import records_before
from moot.store.journal_segments import make_folder
from moot.store.record_chain import entry_of, shared_number

FOLDER: Final = "log"
JOURNAL: Final = "journal"
CHECKPOINT_FILE: Final = "checkpoint"
COSIGNED_FILE: Final = "cosigned"
_ABOUT_FILE: Final = "about.json"
_LEVEL_BITS: Final = 8


class LogBroken(UsageError):
    """The files of a log do not bear out what was signed: nothing more is signed."""


class LogAbout(msgspec.Struct, frozen=True, kw_only=True):
    origin: str
    first: int = 1  # the record of entry 0
    # Of a cluster: entry 0 is of the record with the shared number 1, whatever its number here is.
    shared: bool = False
    # Which space of the cluster: one of the same name has another.
    id: str = ""


class LogReader:
    """Reads a log, also while a gateway appends to it; raises UsageError when there is none."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            raw = (folder / _ABOUT_FILE).read_bytes()
            self.about = msgspec.json.decode(raw, type=LogAbout)
        except FileNotFoundError:
            raise UsageError(f"there is no log in {folder}: a gateway with a journal makes it") from None
        except msgspec.MsgspecError as fault:
            raise LogBroken(f"{folder / _ABOUT_FILE} is damaged: {fault}") from None

    def signed(self) -> tuple[Checkpoint, Note]:
        """The newest checkpoint; raises LogBroken when it is none of this log."""
        found = self._note_in(CHECKPOINT_FILE)
        if found is None:
            raise LogBroken(f"{self.folder / CHECKPOINT_FILE} is gone: restore it from a copy")
        return found

    def cosigned(self) -> tuple[Checkpoint, Note] | None:
        """The newest one that enough witnesses signed."""
        return self._note_in(COSIGNED_FILE)

    def _note_in(self, name: str) -> tuple[Checkpoint, Note] | None:
        path = self.folder / name
        try:
            checkpoint, note = parse_checkpoint(path.read_bytes())
        except FileNotFoundError:
            return None
        except NoteError as fault:
            raise LogBroken(f"{path} is damaged: {fault}") from None
        if checkpoint.origin != self.about.origin:
            raise LogBroken(f"{path} is of {checkpoint.origin}, not of {self.about.origin}")
        return checkpoint, note

    def entries(self, first: int, count: int) -> bytes:
        """So many entries; fewer where the file ends."""
        return self._read("entries", first, count)

    def hashes(self, level: int, first: int, count: int) -> bytes:
        """So many hashes of a level of tiles; raises LogBroken where the file ends before."""
        raw = self._read(f"level-{level}" if level else "entries", first, count)
        if len(raw) != count * HASH_BYTES:
            raise LogBroken(f"the files in {self.folder} are shorter than what was signed")
        return raw if level else leaf_hashes(raw)

    @property
    def subtree(self) -> Subtree:
        return subtree_from(self.hashes)

    def tile(self, tile: Tile, size: int) -> bytes | None:
        """What a tile holds, None if the tree of this size does not have it."""
        if not tile.is_in(size):
            return None
        if tile.level is None:
            return bundle(split_hashes(self.entries(tile.first, tile.width)))
        return self.hashes(tile.level, tile.first, tile.width)

    def root(self, size: int) -> bytes:
        return root_of(size, self.subtree)

    def consistency(self, old: int, size: int) -> list[bytes]:
        return consistency_proof(old, size, self.subtree)

    def proof_of(self, record: int) -> InclusionFile | None:
        """That a record of the journal is in the log; None while no signed checkpoint covers it.

        By a checkpoint that enough witnesses signed, where there is one. Raises UsageError for a record from
        before the log began.
        """
        index = self.index_of(record)
        for found in (self.cosigned(), self.signed()):
            if found is not None and index < found[0].size:
                proof = inclusion_proof(index, found[0].size, self.subtree)
                return InclusionFile(index, proof, found[1], found[0])
        return None

    def index_of(self, record: int) -> int:
        """The entry of a record of the journal; raises UsageError for one that the log does not have."""
        if not self.about.shared:
            if record < self.about.first:
                raise UsageError(f"record {record} is not in the log, which begins with {self.about.first}")
            return record - self.about.first
        found = next(records_before(self.folder.parent / JOURNAL, record + 1), None)
        number = 0 if found is None or found.number != record else shared_number(found.line)
        logged = self.entries(number - 1, 1) if number else b""
        if found is None or not number or (logged and logged != entry_of(found.line)):
            raise UsageError(f"record {record} is this gateway's own, and not in the log of its cluster")
        return number - 1

    def entry_of_record(self, record: int) -> bytes:
        return self.entries(record - self.about.first, 1)

    def _read(self, name: str, first: int, count: int) -> bytes:
        try:
            file = self._open(name, os.O_RDONLY)
        except FileNotFoundError:
            return b""
        try:
            return os.pread(file, count * HASH_BYTES, first * HASH_BYTES)
        finally:
            os.close(file)

    def _open(self, name: str, flags: int) -> int:
        """Raises LogBroken for a link: what is appended and cut off is a file of this folder."""
        try:
            return os.open(self.folder / name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as fault:
            if fault.errno != errno.ELOOP:
                raise
            raise LogBroken(f"{self.folder / name} is a link, and no file of the log") from None


class LogWriter(LogReader):
    """Appends and signs; for one process at a time, the one that holds the journal."""

    def __init__(self, folder: Path, keys: Sequence[VerifierKey]) -> None:
        """Go on with a log that one of these keys signed; raises LogBroken if its files do not fit it."""
        super().__init__(folder)
        self.checkpoint, self.note = self.signed()
        if not signers(self.note, keys):
            raise LogBroken(
                f"{folder / CHECKPOINT_FILE} is signed by a key that is not in the gateway's file of keys"
            )
        self.size = self.checkpoint.size
        cosigned = self.cosigned()
        if cosigned is not None and cosigned[0].size > self.size:
            # Set back, as by a copy of a disk: to go on would be to sign another past than witnesses saw.
            raise LogBroken(
                f"witnesses signed {cosigned[0].size} entries, and the checkpoint has {self.size}: restore "
                f"journal and log as they were last"
            )
        self._check()
        for name, count in [("entries", self.size), *self._levels(self.size)]:
            if (folder / name).exists():
                with open(self._open(name, os.O_WRONLY), "wb") as file:
                    file.truncate(count * HASH_BYTES)

    @staticmethod
    def create(folder: Path, about: LogAbout, key: SignerKey) -> None:
        """Make an empty log. It is there once it says what it is about, the last step."""
        make_folder(folder)
        empty = Checkpoint(about.origin, 0, root_of(0, lambda _level, _index: b""))
        write_atomically(folder / CHECKPOINT_FILE, str(empty.signed(key)).encode())
        write_atomically(folder / _ABOUT_FILE, msgspec.json.encode(about))
        sync_folder(folder)
        sync_folder(folder.parent)

    @property
    def last_record(self) -> int:
        """The last record that is signed for."""
        return self.about.first + self.checkpoint.size - 1

    def append(self, entries: bytes) -> None:
        """Write entries behind the others, and have them on disk; they count once `sign` has been called."""
        size = self.size + len(entries) // HASH_BYTES
        self._write("entries", self.size, entries)
        # Whole tiles of the level below, hashed; those of the entries first.
        before = dict(self._levels(self.size))
        for level, (name, count) in enumerate(self._levels(size), 1):
            first = before.get(name, 0)
            whole = [tile_hash(self.hashes(level - 1, tile * WIDTH, WIDTH)) for tile in range(first, count)]
            if whole:
                self._write(name, first, b"".join(whole))
        self.size = size

    def sign(self, key: SignerKey) -> Checkpoint:
        """Sign for what was appended; raises LogBroken if it does not continue what was signed before."""
        if self.size == self.checkpoint.size:
            return self.checkpoint
        self.adopt(*self.draft(key))
        return self.checkpoint

    def draft(self, key: SignerKey) -> tuple[Checkpoint, Note]:
        """A checkpoint for what was appended, to be shown to nobody until it is known to be the only one."""
        self._check()
        checkpoint = Checkpoint(self.about.origin, self.size, self.root(self.size))
        return checkpoint, checkpoint.signed(key)

    def adopt(self, checkpoint: Checkpoint, note: Note) -> None:
        """Go by this one, which the files bear out, from now on."""
        self._replace(CHECKPOINT_FILE, note)
        self.checkpoint, self.note = checkpoint, note

    def add_signatures(self, size: int, added: Iterable[Signature]) -> Note | None:
        """Keep what witnesses signed below the checkpoint of this size; None if there is a newer one."""
        if size != self.checkpoint.size:
            return None
        note = self.note.with_signatures(added)
        if note != self.note:
            self._replace(CHECKPOINT_FILE, note)
            self.note = note
        return note

    def keep_cosigned(self, note: Note) -> None:
        self._replace(COSIGNED_FILE, note)

    def _replace(self, name: str, note: Note) -> None:
        write_atomically(self.folder / name, str(note).encode())
        sync_folder(self.folder)

    def _check(self) -> None:
        if self.root(self.checkpoint.size) != self.checkpoint.root:
            raise LogBroken(f"the files in {self.folder} are not those that were signed")

    @staticmethod
    def _levels(size: int) -> list[tuple[str, int]]:
        """The files above the entries of a log of this size, and how many hashes each has."""
        found: list[tuple[str, int]] = []
        while size := size >> _LEVEL_BITS:
            found.append((f"level-{len(found) + 1}", size))
        return found

    def _write(self, name: str, first: int, raw: bytes) -> None:
        path = self.folder / name
        is_new = not path.exists()
        file = self._open(name, os.O_WRONLY | os.O_CREAT)
        try:
            written = 0
            while written < len(raw):
                written += os.pwrite(file, raw[written:], first * HASH_BYTES + written)
            os.fsync(file)
        finally:
            os.close(file)
        if is_new:
            sync_folder(self.folder)


def set_aside(space: Path, number: int, stamp: str) -> Path | None:
    """Put the log of a space away if it is signed for this record or a later one, which is given up.

    Returns where it is now. A new one begins under another name.
    """
    folder = space / FOLDER
    try:
        reader = LogReader(folder)
        if reader.about.first + reader.signed()[0].size <= number:
            return None
    except UsageError:
        if not folder.exists():
            return None
    aside = space / f"{FOLDER}.damaged-{stamp}"
    folder.rename(aside)
    sync_folder(space)
    return aside
