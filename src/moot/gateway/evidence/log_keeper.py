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
from typing import TYPE_CHECKING, Final

from moot.config.gateway_config import GatewayConfig
from moot.errors import Unavailable, UsageError
from moot.evidence.inclusion_file import InclusionFile
from moot.evidence.log_files import FOLDER, LogBroken, LogReader
from moot.evidence.log_keys import LogKeys, share_keys, use_keys
from moot.evidence.merkle_tree import HASH_BYTES
from moot.gateway.access import AccessDenied, SpaceDirectory
from moot.gateway.evidence.cluster_log import ClusterSpaceLog
from moot.gateway.evidence.space_log import Done, SpaceLog
from moot.gateway.hosting.space_host import SpaceHost
from moot.store.worker_thread import DaemonExecutor

if TYPE_CHECKING:
    from moot.gateway.cluster.nats.log_exchange import EntriesWanted, LogExchange
    from moot.store.journal import SharedRecords

log = logging.getLogger(__name__)

ROUND_SECONDS: Final = 1.0
# At the end a disk that does not answer is left alone after this: what is missing follows at the next start.
_STOP_SECONDS: Final = 1.0
_PROOF_SECONDS: Final = 5.0


class LogKeeper:
    """The logs of one gateway. Use on the loop."""

    def __init__(self, config: GatewayConfig, directory: SpaceDirectory) -> None:
        self._config = config
        self._directory = directory
        self._keys: LogKeys | None = None
        # In a cluster: what its gateways have in common of logs, and how they number a space's records.
        self.exchange: LogExchange | None = None
        self.records_of: Callable[[SpaceHost], SharedRecords]
        self.logs: dict[str, SpaceLog] = {}
        self._executor: DaemonExecutor | None = None
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._rounds = asyncio.Condition()
        # A log that is let go of may be opened again in a moment.
        self._advancing = asyncio.Lock()
        # Told of a log that has been opened, and of one with a new checkpoint.
        self.on_opened: Callable[[SpaceHost], None] = lambda _host: None
        self.on_signed: Callable[[SpaceLog], None] = lambda _log: None

    @property
    def is_on(self) -> bool:
        return self._config.journal.log

    def start(self) -> None:
        if not self.is_on:
            return
        self._keys = use_keys(self._config.data)
        self._executor = DaemonExecutor("logs")
        self._task = asyncio.get_running_loop().create_task(self._run(), name="logs")

    async def in_thread(self, work: Callable[[], Done], /) -> Done:
        """Have something done between two rounds, by the thread that writes the logs."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    async def close(self, host: SpaceHost, *, is_last: bool) -> None:
        """After its journal is closed: sign for its end if no other gateway will, and let go of it."""
        async with self._advancing:
            if is_last and self._executor is not None and host.journal.is_written:
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
        if self.exchange is None:
            # Of a cluster, the others sign for what came last.
            with suppress(TimeoutError):
                async with asyncio.timeout(_STOP_SECONDS):
                    await self._round()
        if self._executor is not None:
            self._executor.shutdown()

    def is_signed(self, space: str) -> bool:
        """Whether nothing keeps a log from being signed for."""
        found = self.logs.get(space)
        return found is not None and found.writer is not None and not found.broken

    def why_none(self, host: SpaceHost) -> AccessDenied:
        """What to answer where a journal has no log: perhaps it has none yet."""
        if self.is_on and host.journal.is_written:
            return AccessDenied(503, "the log of this journal is not open yet: try again", retry_after=1)
        return AccessDenied(404, "no log is kept of this journal: gateway.journal.log turns it on")

    def unwitnessed_seconds(self, space: str) -> float:
        """How long too few witnesses have signed the log of a space; 0 while enough do, or none are asked."""
        found = self.logs.get(space)
        since = 0.0 if found is None else found.unwitnessed_since
        return time.monotonic() - since if since else 0.0

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
        if self.exchange is not None:
            await self._begin_shared(self.exchange)
        while True:
            await self._round()
            with suppress(TimeoutError):
                async with asyncio.timeout(ROUND_SECONDS):
                    await self._wake.wait()

    async def _begin_shared(self, exchange: LogExchange) -> None:
        """Have the keys of the cluster, and answer its gateways. Until that is possible nothing is signed."""
        while True:
            try:
                self._keys = await share_keys(self._config.data, exchange)
                await exchange.serve(self._find_entries)
                return
            except Unavailable as fault:
                log.warning("the logs of the cluster cannot be reached", extra={"why": fault.message})
                await asyncio.sleep(ROUND_SECONDS)

    async def _find_entries(self, wanted: EntriesWanted) -> bytes:
        """Some entries for another gateway, as many of them as are on disk here; also of spaces that are not
        served here any more."""
        for found in self.logs.values():
            writer = found.writer
            if writer is not None and writer.about.origin == wanted.origin and not found.broken:
                return await asyncio.to_thread(_entries, writer, wanted, writer.size)
        return await asyncio.to_thread(_left_entries, self._config.data, wanted)

    def _make_log(self, name: str, host: SpaceHost) -> SpaceLog:
        assert self._keys is not None  # noqa: S101  # set before the first round
        folder, url, exchange = host.journaled.folder, self._config.public_url, self.exchange
        if exchange is None:
            return SpaceLog(name, folder, self._keys, url)
        is_witnessed = self._config.journal.witnesses is not None
        return ClusterSpaceLog(
            name,
            folder,
            self._keys,
            url,
            exchange=exchange,
            records=self.records_of(host),
            files=host.journal,
            is_witnessed=is_witnessed,
            share_keys=lambda: share_keys(self._config.data, exchange),
        )

    async def _round(self) -> None:
        self._wake.clear()
        for name, host in list(self._directory.hosts.items()):
            async with self._advancing:
                if host.journal.is_written and self._directory.hosts.get(name) is host:
                    await self._advance(name, host)
        async with self._rounds:
            self._rounds.notify_all()

    async def _advance(self, name: str, host: SpaceHost) -> None:
        found = self.logs.get(name)
        if found is None:
            found = self.logs[name] = self._make_log(name, host)
            self.on_opened(host)
        through = host.journal.durable
        if found.broken or found.is_settled(through):
            return
        try:
            is_new = await found.follow(through, self.in_thread)
        except Unavailable as fault:
            log.warning("log not signed for now", extra={"space": name, "why": fault.message})
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
            if is_new:
                self.on_signed(found)


def _entries(log: LogReader, wanted: EntriesWanted, size: int) -> bytes:
    raw = log.entries(wanted.first, max(0, min(wanted.count, size - wanted.first)))
    return raw[: len(raw) // HASH_BYTES * HASH_BYTES]


def _left_entries(data: Path, wanted: EntriesWanted) -> bytes:
    """Entries of a log that this gateway does not continue, up to where it saw them signed. Blocks."""
    for folder in data.glob(f"spaces/*/{FOLDER}"):
        with suppress(OSError, UsageError):
            log = LogReader(folder)
            if log.about.origin == wanted.origin:
                return _entries(log, wanted, log.signed()[0].size)
    return b""
