"""The log of one space that this gateway alone serves: from its journal's files to a signed checkpoint."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, Protocol, TypeVar

from moot.evidence.checkpoint import Checkpoint, parse_checkpoint
from moot.evidence.journal_entries import read_entries
from moot.evidence.log_files import CHECKPOINT_FILE, FOLDER, LogAbout, LogBroken, LogReader, LogWriter
from moot.evidence.log_keys import LogKeys
from moot.evidence.signed_note import Note, NoteError
from moot.private_files import sync_folder
from moot.store.journal_reader import START
from moot.store.journal_segments import chain_start

log = logging.getLogger(__name__)

Done = TypeVar("Done")

# Entries that are appended at once: a long journal gets its log in pieces, each of them on disk.
STEP_BYTES: Final = 2 << 20


class InThread(Protocol):
    """Does something in the thread that writes the logs."""

    def __call__(self, work: Callable[[], Done], /) -> Awaitable[Done]: ...


class SpaceLog:
    """The log of one space; what is not an attribute or for the loop is for the keeper's thread."""

    def __init__(self, name: str, journal: Path, keys: LogKeys, public_url: str | None) -> None:
        self.name = name
        self.folder = journal.parent / FOLDER
        self.writer: LogWriter | None = None
        # Why nothing more is signed; "" while it is.
        self.broken = ""
        # Whether the newest checkpoint was signed here, so that this gateway asks the witnesses.
        self.is_signer = True
        # Since when, by the monotonic clock, too few witnesses have signed; 0 while enough have.
        self.unwitnessed_since = 0.0
        self._journal = journal
        self._keys = keys
        self._public_url = public_url
        self._place = START

    @property
    def last_record(self) -> int:
        """The last record that is signed for."""
        return 0 if self.writer is None else self.writer.last_record

    def is_settled(self, through: int) -> bool:
        """Whether nothing is to be done if the journal has records on disk up to this one."""
        return self.writer is not None and through <= self.last_record

    async def follow(self, through: int, in_thread: InThread) -> bool:
        """Append and sign for what the journal has up to this record; whether witnesses are to be asked."""
        await in_thread(lambda: self.advance(through))
        return True

    async def share_cosigned(self, note: Note) -> None:
        """Witnesses have signed: nobody else wants to know."""

    def advance(self, through: int) -> Checkpoint:
        """Append what the journal has up to this record, which is on disk, and sign; raises LogBroken."""
        writer = self.writer = self.writer or self._open(through)
        pending = bytearray()
        for block in read_entries(self._journal, writer.last_record, through, start=self._place):
            pending += block.entries
            self._place = block.end
            if len(pending) >= STEP_BYTES:
                writer.append(bytes(pending))
                pending.clear()
        if pending:
            writer.append(bytes(pending))
        return writer.sign(self._keys.signer(writer.about.origin))

    def _open(self, through: int) -> LogWriter:
        self._place = START
        first = chain_start(self._journal).number
        if (self.folder / "about.json").exists() and LogReader(self.folder).about.shared:
            # What the cluster has signed goes on without this gateway.
            put_aside(self.folder)
        if not (self.folder / "about.json").exists():
            self._check_none_signed()
            origin = self._keys.origin(self.name, self._public_url)
            if first > 1 or any(self.folder.parent.glob(f"{FOLDER}.*")):
                # Not the log that began with record 1, or another one after a repair: a name of its own.
                origin += f"/{time.time():.0f}"
            about = LogAbout(origin=origin, first=first)
            LogWriter.create(self.folder, about, self._keys.signer(origin))
        about = LogReader(self.folder).about
        writer = LogWriter(self.folder, self._keys.verifiers(about.origin))
        last = writer.last_record
        if writer.size and last >= first:
            self._check_last(writer, last, through)
        elif last + 1 < first:
            raise LogBroken(
                f"the log is signed up to record {last}, and the journal begins with {first}: the rest was "
                f"removed while no log was kept. Rename {self.folder} to {FOLDER}.1: a new log begins"
            )
        return writer

    def _check_none_signed(self) -> None:
        """A log that does not say any more what it is about is no reason to begin it anew."""
        try:
            checkpoint, _ = parse_checkpoint((self.folder / CHECKPOINT_FILE).read_bytes())
        except FileNotFoundError:
            return
        except NoteError:
            checkpoint = None
        if checkpoint is None or checkpoint.size:
            raise LogBroken(
                f"{self.folder} has a checkpoint, and no about.json: restore it from a copy, or rename "
                f"{self.folder} to {FOLDER}.1: a new log begins"
            )

    def _check_last(self, writer: LogWriter, last: int, through: int) -> None:
        """The journal must still have the last record that is signed for."""
        found = next(read_entries(self._journal, last - 1, last), None) if last <= through else None
        if found is None or found.entries != writer.entry_of_record(last):
            what = "ends before it" if found is None else "has another one there"
            raise LogBroken(
                f"the log is signed up to record {last}, and the journal {what}. If the journal is as it "
                f"should be, rename {self.folder} to {FOLDER}.1: a new log begins"
            )
        self._place = found.end


def put_aside(folder: Path) -> None:
    """Keep a log that does not go on here under another name; the one that begins has another origin."""
    aside = folder.with_name(f"{FOLDER}.{time.time():.0f}")
    folder.rename(aside)
    sync_folder(folder.parent)
    log.info("a log ends, and another one begins", extra={"kept": str(aside)})
