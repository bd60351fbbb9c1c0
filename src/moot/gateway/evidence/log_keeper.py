"""Keeps the logs of a gateway's journals: behind the disk, in a thread, about once a second.

A round looks at each space whose journal has more records on disk than its log. Those are read from the
journal's files, their entries appended and on disk, and then the checkpoint is signed. So messages wait for
none of it, and nothing is signed that a power cut could take back. A log whose files do not fit what was
signed, or whose journal is another one, is not signed any more: the gateway serves on, and says so in its
log, in `/metrics` and in what it answers who asks for the log.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from moot.config.gateway_config import GatewayConfig
from moot.errors import UsageError
from moot.evidence.checkpoint import Checkpoint, parse_checkpoint
from moot.evidence.inclusion_file import InclusionFile
from moot.evidence.journal_entries import read_entries
from moot.evidence.log_files import CHECKPOINT_FILE, FOLDER, LogAbout, LogBroken, LogReader, LogWriter
from moot.evidence.log_keys import LogKeys, use_keys
from moot.evidence.signed_note import NoteError
from moot.gateway.access import SpaceDirectory
from moot.gateway.hosting.space_host import SpaceHost
from moot.store.journal_reader import START
from moot.store.journal_segments import chain_start
from moot.store.worker_thread import DaemonExecutor

log = logging.getLogger(__name__)

ROUND_SECONDS: Final = 1.0
# Entries that are appended at once: a long journal gets its log in pieces, each of them on disk.
_STEP_BYTES: Final = 2 << 20
# At the end a disk that does not answer is left alone after this: what is missing follows at the next start.
_STOP_SECONDS: Final = 1.0
_PROOF_SECONDS: Final = 5.0


class SpaceLog:
    """The log of one space; everything but the attributes is for the keeper's thread."""

    def __init__(self, name: str, journal: Path, keys: LogKeys, public_url: str | None) -> None:
        self.name = name
        self.folder = journal.parent / FOLDER
        self.writer: LogWriter | None = None
        # Why nothing more is signed; "" while it is.
        self.broken = ""
        self._journal = journal
        self._keys = keys
        self._public_url = public_url
        self._place = START

    @property
    def last_record(self) -> int:
        """The last record that is signed for."""
        return 0 if self.writer is None else self.writer.last_record

    def advance(self, through: int) -> Checkpoint:
        """Append what the journal has up to this record, which is on disk, and sign; raises LogBroken."""
        writer = self.writer = self.writer or self._open(through)
        pending = bytearray()
        for block in read_entries(self._journal, writer.last_record, through, start=self._place):
            pending += block.entries
            self._place = block.end
            if len(pending) >= _STEP_BYTES:
                writer.append(bytes(pending))
                pending.clear()
        if pending:
            writer.append(bytes(pending))
        return writer.sign(self._keys.signer(writer.about.origin))

    def _open(self, through: int) -> LogWriter:
        self._place = START
        first = chain_start(self._journal).number
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


class LogKeeper:
    """The logs of one gateway. Use on the loop."""

    def __init__(self, config: GatewayConfig, directory: SpaceDirectory) -> None:
        self._config = config
        self._directory = directory
        self._keys: LogKeys | None = None
        self.logs: dict[str, SpaceLog] = {}
        self._executor: DaemonExecutor | None = None
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._rounds = asyncio.Condition()
        # Told of a log that has been opened, and of one with a new checkpoint.
        self.on_opened: Callable[[SpaceHost], None] = lambda _host: None
        self.on_signed: Callable[[SpaceLog], None] = lambda _log: None

    @property
    def is_on(self) -> bool:
        return self._config.journal.log and self._config.cluster is None

    def start(self) -> None:
        if not self.is_on:
            if self._config.journal.log:
                log.info("the journals of a cluster have no log yet")
            return
        self._keys = use_keys(self._config.data)
        self._executor = DaemonExecutor("logs")
        self._task = asyncio.get_running_loop().create_task(self._run(), name="logs")

    async def in_thread(self, work: Callable[[], None]) -> None:
        """Have something done between two rounds, by the thread that writes the logs."""
        await asyncio.get_running_loop().run_in_executor(self._executor, work)

    async def close(self, host: SpaceHost) -> None:
        """After its journal is closed, for good: sign for its end, and let go of it."""
        if self._executor is not None and host.journal.is_written:
            await self._advance(host.name, host)
        self.logs.pop(host.name, None)

    async def stop(self) -> None:
        """After the journals are closed: sign for their ends."""
        if self._task is None:
            return
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        self._task = None
        with suppress(TimeoutError):
            async with asyncio.timeout(_STOP_SECONDS):
                await self._round()
        if self._executor is not None:
            self._executor.shutdown()

    def is_signed(self, space: str) -> bool:
        """Whether nothing keeps a log from being signed for."""
        found = self.logs.get(space)
        return found is not None and found.writer is not None and not found.broken

    async def proof_of(self, space: str, record: int) -> InclusionFile | None:
        """That a record is in its space's log; None if it is not signed for within some seconds.

        Raises UsageError where there is no log, or it began after that record.
        """
        host = self._directory.hosts.get(space)
        if host is not None and host.journal.is_written and self._task is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_PROOF_SECONDS):
                    await self._wait_signed(host, record)
        found = self.logs.get(space)
        if found is None or (found.broken and found.writer is None):
            raise UsageError(f"{space} has no log" if found is None else found.broken)
        return await asyncio.to_thread(LogReader(found.folder).proof_of, record)

    async def _wait_signed(self, host: SpaceHost, record: int) -> None:
        written = asyncio.Event()
        host.journal.when_durable(record, written.set)
        await written.wait()
        self._wake.set()
        async with self._rounds:
            await self._rounds.wait_for(lambda: self._is_settled(host.name, record))

    def _is_settled(self, space: str, record: int) -> bool:
        found = self.logs.get(space)
        return found is not None and (bool(found.broken) or found.last_record >= record)

    async def _run(self) -> None:
        while True:
            await self._round()
            with suppress(TimeoutError):
                async with asyncio.timeout(ROUND_SECONDS):
                    await self._wake.wait()

    async def _round(self) -> None:
        self._wake.clear()
        for name, host in list(self._directory.hosts.items()):
            if host.journal.is_written and self._directory.hosts.get(name) is host:
                await self._advance(name, host)
        async with self._rounds:
            self._rounds.notify_all()

    async def _advance(self, name: str, host: SpaceHost) -> None:
        assert self._keys is not None  # noqa: S101  # set before the first round
        found = self.logs.get(name)
        if found is None:
            folder = host.journaled.folder
            found = self.logs[name] = SpaceLog(name, folder, self._keys, self._config.public_url)
            self.on_opened(host)
        through = host.journal.durable
        if found.broken or (found.writer is not None and through <= found.last_record):
            return
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._executor, found.advance, through)
        except LogBroken as fault:
            found.broken = str(fault)
            log.error("log not signed any more", extra={"space": name, "why": found.broken})
        except (OSError, UsageError) as fault:
            # Such as a full disk: the next round tries again, from what is signed.
            found.writer = None
            log.warning("log not written", extra={"space": name, "why": str(fault)})
        except Exception as fault:  # whatever it was: the logs of other spaces go on
            found.broken = repr(fault)
            log.exception("log not signed any more", extra={"space": name})
        else:
            host.journal.logged = found.last_record
            self.on_signed(found)
