"""What can still be read of a journal that is damaged, and a new one made of what is sound.

`salvage` reads every line that is a record, wherever it stands, and says of each whether the chain vouches
for it: after a break the chain is taken up again at the next seal. `sound_prefix` is the part
up to the first break, which stays a journal. Everything else is set aside, and nothing is deleted.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import orjson

from moot.errors import UsageError
from moot.private_files import sync_folder
from moot.store.journal_segments import REMOVED_FILE, chain_start, first_head, make_folder, segments_of
from moot.store.record_chain import (
    ChainHead,
    batch_hash,
    follow,
    hash_in,
    is_record,
    is_sealed,
    line,
    number_in,
)
from moot.store.segment_writer import SegmentWriter, lock_folder

# A journal that is being made; it takes the place of the damaged one in one step.
NEW_FOLDER: Final = "journal.new"


class SalvagedLine(NamedTuple):
    """A line that is a record. `verified`: the seal behind it fits to the seal before it."""

    number: int
    line: bytes
    verified: bool


class SoundPrefix(NamedTuple):
    """Whole segments, the sound beginning of one more, and where the chain stands behind them."""

    whole: list[Path]
    partial: tuple[Path, int] | None
    head: ChainHead


def salvage(folder: Path) -> Iterator[SalvagedLine]:
    """All lines of all segments that are records, in the order of the files."""
    try:
        seal = chain_start(folder).hash
        segments = [segment.path for segment in segments_of(folder)]
    except UsageError:
        # A damaged note of what retention removed: everything that is there counts.
        seal, segments = b"", sorted(folder.glob("*.jsonl"))
    for path in segments:
        batch: list[bytes] = []
        with path.open("rb") as file:
            for text in file:
                if not is_record(text) or not number_in(text):
                    yield from _each(batch, verified=False)
                    batch, seal = [], b""
                    continue
                batch.append(text)
                if is_sealed(text):
                    yield from _each(batch, verified=bool(seal) and batch_hash(seal, batch) == hash_in(text))
                    batch, seal = [], hash_in(text)
        if batch:
            yield from _each(batch, verified=False)
            seal = b""


def _each(batch: list[bytes], *, verified: bool) -> Iterator[SalvagedLine]:
    for text in batch:
        with suppress(orjson.JSONDecodeError):
            if not verified:
                orjson.loads(text)
            yield SalvagedLine(number_in(text), text, verified)


def sound_prefix(folder: Path) -> SoundPrefix:
    """The journal up to its first break."""
    try:
        head = chain_start(folder)
    except UsageError:
        return SoundPrefix([], None, first_head(folder))
    whole: list[Path] = []
    for segment in segments_of(folder):
        if segment.first != head.number:
            break
        followed = follow(segment.path, head)
        head = followed.head
        if not followed.whole:
            return SoundPrefix(whole, (segment.path, followed.size) if followed.size else None, head)
        if followed.lines:
            whole.append(segment.path)
    if not whole and chain_start(folder).number > 1:
        # Retention removed the beginning, and the rest is gone too: nothing hangs on that note.
        head = first_head(folder)
    return SoundPrefix(whole, None, head)


def replace_journal(folder: Path, prefix: SoundPrefix, members: bytes, stamp: str) -> Path:
    """Make a journal of this prefix and one more record, put it in the place of the old one; where that is
    now.

    Until the last step the old one stands as it was.
    """
    space = folder.parent
    lock = lock_folder(folder) if folder.is_dir() else None
    fresh = space / NEW_FOLDER
    try:
        if fresh.exists():
            shutil.rmtree(fresh)  # of a repair that was interrupted: links and copies
        make_folder(fresh)
        for path in prefix.whole:
            _link(path, fresh / path.name)
        if prefix.partial is not None:
            path, size = prefix.partial
            with path.open("rb") as file, (fresh / path.name).open("wb") as copy:
                copy.write(file.read(size))
        if (prefix.whole or prefix.partial) and (folder / REMOVED_FILE).exists():
            shutil.copyfile(folder / REMOVED_FILE, fresh / REMOVED_FILE)
        _append(fresh, members)
        aside = space / f"journal.damaged-{stamp}"
        if lock is None:
            make_folder(aside)
        else:
            folder.rename(aside)
        fresh.rename(folder)
        sync_folder(space)
    finally:
        if lock is not None:
            os.close(lock)
    return aside


def _append(folder: Path, members: bytes) -> None:
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    writer = SegmentWriter(folder)
    try:
        # A segment of its own: the files before it may be links to the set-aside ones.
        if writer.size:
            writer.begin_segment()
        number = writer.head.number
        writer.write([line(number, members)], number + 1)
        writer.sync()
    finally:
        writer.release()
    sync_folder(folder)


def _link(path: Path, to: Path) -> None:
    try:
        os.link(path, to)
    except OSError:
        shutil.copy2(path, to)
