"""The log of a space that several gateways serve: one tree, and one of them signs.

All gateways give a record the same line but for its number, so each of them has the same entries and makes
the same tree of them. What they have to agree on is the newest checkpoint:

    own entries on disk ─▶ draft ─▶ in the place of the checkpoint that was seen? ─yes─▶ it is the newest
                                                  └─no: another gateway was quicker, and its one is adopted

Whoever signed last goes on. If it does not, though there is more to sign for, another one does after some
seconds. Two that try at once are told apart by NATS, and a draft that lost has been shown to nobody. A
checkpoint that the own entries do not bear out is never adopted: this gateway's copy differs, and says so.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from moot.errors import Unavailable
from moot.evidence.checkpoint import Checkpoint, parse_checkpoint, signers
from moot.evidence.journal_entries import shared_begin
from moot.evidence.log_files import LogAbout, LogBroken, LogReader, LogWriter
from moot.evidence.log_hashes import entries_between
from moot.evidence.log_keys import LogKeys
from moot.evidence.merkle_tree import HASH_BYTES
from moot.evidence.signed_note import Note
from moot.gateway.evidence.space_log import STEP_BYTES, InThread, SpaceLog, put_aside
from moot.store.journal_reader import START, RecordPosition, read_blocks
from moot.store.record_chain import entry_of, number_in, shared_number

if TYPE_CHECKING:
    from moot.gateway.cluster.nats.log_exchange import LogExchange, SeenNote
    from moot.store.journal import Journal, SharedRecords

log = logging.getLogger(__name__)

# Whoever signed last has this long to go on before another one does.
TAKEOVER_SECONDS: Final = 3.0
# What witnesses signed is looked for this often where nothing else happens.
_COSIGNED_SECONDS: Final = 5.0


class _Seen(NamedTuple):
    shared: SeenNote
    checkpoint: Checkpoint
    note: Note


class ClusterSpaceLog(SpaceLog):
    """`follow` is for the loop, and so are `share_cosigned` and `is_settled`."""

    def __init__(
        self,
        name: str,
        journal: Path,
        keys: LogKeys,
        public_url: str | None,
        *,
        exchange: LogExchange,
        records: SharedRecords,
        files: Journal,
        is_witnessed: bool,
        share_keys: Callable[[], Awaitable[LogKeys]],
    ) -> None:
        super().__init__(name, journal, keys, public_url)
        self._exchange = exchange
        self._records = records
        self._files = files
        self._is_witnessed = is_witnessed
        self._share_keys = share_keys
        self.is_signer = False
        self._log_id = f"{name}/{records.id}"
        self._origin = ""
        # The last record of the journal that was read.
        self._read = 0
        # Sizes of the log, and the last record that was read then.
        self._marks: deque[tuple[int, int]] = deque()
        self._through = 0
        # Since when the checkpoint of this revision has been behind what is to be signed for.
        self._behind_since = (-1, 0.0)
        self._cosigned_size = -1
        self._look_at = 0.0

    @property
    def last_record(self) -> int:
        return self._through

    def is_settled(self, through: int) -> bool:
        if self.writer is None or through > self._through:
            return False
        is_waiting = self._is_witnessed and self._cosigned_size < self.writer.checkpoint.size
        return not is_waiting or time.monotonic() < self._look_at

    async def follow(self, through: int, in_thread: InThread) -> bool:
        # Both at once: whether all that was applied is in the journal's files.
        is_whole = self._files.durable >= self._files.next_number - 1
        count = self._records.count
        if not self._origin:
            self._origin = await self._exchange.share_origin(self._log_id, self._own_origin())
        shared = await self._exchange.read(self._log_id, "checkpoint")
        seen = None if shared is None else _Seen(shared, *parse_checkpoint(shared.raw))
        if seen is not None and not signers(seen.note, self._keys.verifiers(self._origin)):
            # Another gateway has a new key.
            self._keys = await self._share_keys()
        is_missing = await in_thread(lambda: self._append(through))
        writer = self.writer
        assert writer is not None  # noqa: S101  # `_append` has opened it
        if seen is not None and (is_missing or (is_whole and writer.size < count)):
            await self._fetch(writer, seen.checkpoint, in_thread)
            await in_thread(lambda: self._append(through))
        is_new = await in_thread(lambda: self._adopt(writer, seen))
        if self._may_sign(writer, seen):
            is_new = await self._sign(writer, seen, in_thread) or is_new
        while self._marks and self._marks[0][0] <= writer.checkpoint.size:
            self._through = self._marks.popleft()[1]
        await self._look_for_cosigned(writer, in_thread)
        # Who signed it asks the witnesses.
        return is_new and self.is_signer

    async def share_cosigned(self, note: Note) -> None:
        """Tell the others what witnesses have signed."""
        size = parse_checkpoint(str(note).encode())[0].size
        seen = await self._exchange.read(self._log_id, "cosigned")
        if seen is None or parse_checkpoint(seen.raw)[0].size < size:
            await self._exchange.replace(self._log_id, "cosigned", str(note), seen)
        self._cosigned_size = size

    # On the loop

    def _may_sign(self, writer: LogWriter, seen: _Seen | None) -> bool:
        size = 0 if seen is None else seen.checkpoint.size
        self.is_signer = seen is None or seen.shared.by == self._exchange.gateway
        if writer.size <= size:
            self._behind_since = (-1, 0.0)
            return False
        revision = 0 if seen is None else seen.shared.revision
        if self._behind_since[0] != revision:
            self._behind_since = (revision, time.monotonic())
        return self.is_signer or time.monotonic() - self._behind_since[1] >= TAKEOVER_SECONDS

    async def _sign(self, writer: LogWriter, seen: _Seen | None, in_thread: InThread) -> bool:
        """Whether the cluster goes by what was signed here."""
        key = self._keys.signer(writer.about.origin)
        draft = await in_thread(lambda: writer.draft(key))
        shared = None if seen is None else seen.shared
        if not await self._exchange.replace(self._log_id, "checkpoint", str(draft[1]), shared):
            self.is_signer = False
            return False
        self.is_signer = True
        await in_thread(lambda: writer.adopt(*draft))
        return True

    async def _fetch(self, writer: LogWriter, signed: Checkpoint, in_thread: InThread) -> None:
        """Entries that this gateway's journal does not have, up to a checkpoint that vouches for them."""
        began = writer.size
        while writer.size < signed.size:
            raw = await self._exchange.fetch(self._origin, writer.size, signed.size - writer.size)
            await in_thread(lambda raw=raw: writer.append(raw))  # type: ignore[misc]
        if writer.size > began:
            if await in_thread(lambda: writer.root(signed.size)) != signed.root:
                # Cut off again when it is opened anew.
                self.writer = None
                raise Unavailable("the entries that another gateway gave are not those that were signed")
            log.info("entries from other gateways", extra={"space": self.name, "count": writer.size - began})

    async def _look_for_cosigned(self, writer: LogWriter, in_thread: InThread) -> None:
        if not self._is_witnessed or self._cosigned_size >= writer.checkpoint.size:
            return
        self._look_at = time.monotonic() + _COSIGNED_SECONDS
        shared = await self._exchange.read(self._log_id, "cosigned")
        if shared is None:
            return
        checkpoint, note = parse_checkpoint(shared.raw)
        if self._cosigned_size < checkpoint.size <= writer.checkpoint.size:
            await in_thread(lambda: self._keep_cosigned(writer, checkpoint, note))
            self._cosigned_size = checkpoint.size

    # In the thread

    def _append(self, through: int) -> bool:
        """Append what the journal has up to this record; whether one is missing before the next."""
        writer = self.writer = self.writer or self._open_shared()
        pending = bytearray()
        is_missing = False
        for block in read_blocks(self._journal, self._read, start=self._place):
            last = block.text[block.text.rfind(b"\n", 0, -1) + 1 :]
            if 0 < shared_number(last) < writer.size and number_in(last) <= through:
                # Read again after a start: the log has all of it.
                self._read = number_in(last)
                self._place = RecordPosition(block.place.segment, block.place.offset + len(block.text))
                continue
            following = writer.size + len(pending) // HASH_BYTES + 1
            found = entries_between(block.text, self._read, through, following)
            if found is not None:
                entries, self._read, end, is_missing = found
                self._place = RecordPosition(block.place.segment, block.place.offset + end)
                pending += entries
            for record in block.records(self._read) if found is None else ():
                number, following = shared_number(record.line), writer.size + len(pending) // HASH_BYTES + 1
                is_missing = number > following
                if is_missing or record.number > through:
                    break
                if number == following:
                    pending += entry_of(record.line)
                elif number == writer.checkpoint.size and number:
                    self._check_entry(writer, number, record.line)
                self._read, self._place = record.number, record.end
            if len(pending) >= STEP_BYTES:
                writer.append(bytes(pending))
                pending.clear()
            if is_missing or self._read >= through:
                break
        if pending:
            writer.append(bytes(pending))
        if not self._marks or self._marks[-1] != (writer.size, self._read):
            self._marks.append((writer.size, self._read))
        return is_missing

    def _check_entry(self, writer: LogWriter, number: int, line: bytes) -> None:
        if writer.entries(number - 1, 1) != entry_of(line):
            raise LogBroken(
                f"record {number_in(line)} of this journal is not the one that the log of the cluster has as "
                f"{number}: start this gateway without its folder of this space, and it copies the cluster's"
            )

    def _adopt(self, writer: LogWriter, seen: _Seen | None) -> bool:
        """Go by the cluster's checkpoint where the own entries reach so far; whether it is new here."""
        if seen is None or seen.checkpoint.size > writer.size:
            return False
        checkpoint, note = seen.checkpoint, seen.note
        if checkpoint.origin != self._origin or not signers(note, self._keys.verifiers(self._origin)):
            raise LogBroken(f"what the cluster has as the newest checkpoint of {self._origin} is none of it")
        if writer.root(checkpoint.size) != checkpoint.root:
            raise LogBroken(
                f"gateway {seen.shared.by} signed {checkpoint.size} entries that are others than those here: "
                "start this gateway without its folder of this space, and it copies the cluster's"
            )
        if checkpoint.size <= writer.checkpoint.size:
            # Of an earlier copy of NATS: what was signed since is signed for again, and more.
            return False
        writer.adopt(checkpoint, note)
        return True

    def _keep_cosigned(self, writer: LogWriter, checkpoint: Checkpoint, note: Note) -> None:
        if (
            signers(note, self._keys.verifiers(self._origin))
            and writer.root(checkpoint.size) == checkpoint.root
        ):
            writer.keep_cosigned(note)

    def _own_origin(self) -> str:
        """What this gateway calls the log if it is the first: as before, where the cluster has forgotten."""
        # A number, as behind the name of every log that is not the first of its space.
        id = self._records.id
        suffix = f"/{int(id[:12], 16)}" if id else f"/{time.time():.0f}"
        if (self.folder / "about.json").exists():
            about = LogReader(self.folder).about
            if about.shared and about.origin.endswith(suffix):
                return about.origin
        return self._keys.origin(self.name, self._public_url) + suffix

    def _open_shared(self) -> LogWriter:
        if (self.folder / "about.json").exists():
            about = LogReader(self.folder).about
            if not about.shared or about.origin != self._origin:
                put_aside(self.folder)
        if not (self.folder / "about.json").exists():
            self._check_none_signed()
            about = LogAbout(origin=self._origin, shared=True, id=self._records.id)
            LogWriter.create(self.folder, about, self._keys.signer(self._origin))
        self._place, self._read = START, shared_begin(self._journal, self._records.id)
        self._marks.clear()
        writer = LogWriter(self.folder, self._keys.verifiers(self._origin))
        found = writer.cosigned()
        self._cosigned_size = -1 if found is None else found[0].size
        return writer
