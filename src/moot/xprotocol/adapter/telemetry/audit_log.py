"""Who called what, on whose account, with what outcome (XP 8.6, 6.4): one JSON object a line.

A line holds ids, kinds, keys and sizes; arguments and results only if `audit.plaintext` says so. Lines are
collected for a moment and written by a thread. While they cannot be written (a full disk) or are written too
slowly (a disk that hangs) they are kept, `accepts_calls` is false and the adapter starts no calls: a refused
call is better than one without a trace. So the entries of calls always fit: no more of them come than are in
progress. Refusals may come for ever; beyond MAX_BUFFERED_BYTES they are only counted, and the count is
logged and becomes an entry as soon as there is room.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import orjson

from moot.errors import UsageError
from moot.protocol.operation import Json
from moot.store.worker_thread import WorkerThread
from moot.xprotocol.adapter.config.adapter_settings import AuditSettings
from moot.xprotocol.adapter.telemetry.adapter_metrics import AdapterMetrics

log = logging.getLogger(__name__)

# Long enough for one write to serve many calls, short enough that a crash loses little.
BATCH_SECONDS: Final = 0.05
# After a fault of the disk.
RETRY_SECONDS: Final = 1.0
# 16 MiB: an editor still opens it.
FILE_BYTES: Final = 16 << 20
# Kept beside the current one: 336 MiB in all.
MAX_OLD_FILES: Final = 20
# Lines that wait for the disk; beyond this calls are refused and refusals only counted. 8 MiB are some 20,000
# lines without plaintext.
MAX_BUFFERED_BYTES: Final = 8 << 20
_CLOSE_SECONDS: Final = 5.0


class AuditLog:
    """The audit log; `file` None writes nothing. Belongs to one loop."""

    def __init__(self, file: Path | None, settings: AuditSettings | None = None) -> None:
        self.file = file
        self.plaintext = settings is not None and settings.plaintext
        # False while there are lines that could not be written.
        self.is_writable = True
        self._settings = settings or AuditSettings()
        # Refusals that were only counted, since the start.
        self.lost_refusals = 0
        self._unreported_refusals = 0
        self._lines: list[bytes] = []
        self._buffered_bytes = 0
        # Set while calls are accepted.
        self._accepting = asyncio.Event()
        self._accepting.set()
        self._writing = 0
        self._timer: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._loop = asyncio.get_running_loop()
        self._worker: WorkerThread | None = None
        if file is not None:
            _check_writable(file)
            self._worker = WorkerThread(self._loop, "audit")

    @property
    def accepts_calls(self) -> bool:
        """Whether a call that starts now would be recorded."""
        return self.is_writable and not self._is_full()

    async def wait_accepting(self) -> None:
        """Wait until `accepts_calls`."""
        await self._accepting.wait()

    def record(self, entry: dict[str, Json]) -> None:
        """Add the entry of something that was done; members that are None are left out.

        It is always kept, so check `accepts_calls` before doing it.
        """
        if self._worker is not None:
            self._keep(entry)

    def record_refusal(self, entry: dict[str, Json]) -> None:
        """Add the entry of a refusal; only counted while the buffer is full."""
        if self._worker is None:
            return
        if not self._is_full():
            self._keep(entry)
            return
        if not self._unreported_refusals:
            log.error(
                "audit log is full: refusals are only counted until it can be written",
                extra={"file": str(self.file), "bytes": self._buffered_bytes},
            )
        self.lost_refusals += 1
        self._unreported_refusals += 1

    def _keep(self, entry: dict[str, Json]) -> None:
        moment = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = {"time": moment}
        line |= {name: value for name, value in entry.items() if value is not None}
        data = orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)
        self._lines.append(data)
        self._buffered_bytes += len(data)
        self._update_accepting()
        self._idle.clear()
        if self._timer is None and not self._writing:
            self._timer = self._loop.call_later(BATCH_SECONDS, self._write)

    def _is_full(self) -> bool:
        return self._buffered_bytes >= MAX_BUFFERED_BYTES

    def _update_accepting(self) -> None:
        if not self.is_writable or self._is_full():
            if self.is_writable and self._accepting.is_set():
                log.error(
                    "audit log is written too slowly: calls are refused until it is",
                    extra={"file": str(self.file), "bytes": self._buffered_bytes},
                )
            self._accepting.clear()
        else:
            self._accepting.set()

    async def flush(self) -> None:
        """Wait until all entries are in the file."""
        await self._idle.wait()

    async def close(self) -> None:
        """Write what is left, within a time limit; what cannot be written is lost, and logged."""
        if self._worker is None:
            return
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                if self._timer is not None:
                    self._timer.cancel()
                    self._write()
                await self._idle.wait()
        except TimeoutError:
            log.error(
                "audit lines lost",
                extra={
                    "lines": len(self._lines),
                    "refusals": self._unreported_refusals,
                    "file": str(self.file),
                },
            )
        if self._timer is not None:
            self._timer.cancel()
        self._worker.stop()
        self._worker = None

    def _write(self) -> None:
        self._timer = None
        if self._worker is None or self._writing or not self._lines:
            return
        self._writing = len(self._lines)
        data = b"".join(self._lines[: self._writing])
        self._worker.submit(lambda: self._append(data), self._appended)

    def _appended(self, fault: OSError | UsageError | None) -> None:
        count, self._writing = self._writing, 0
        if fault is None:
            self._buffered_bytes -= sum(map(len, self._lines[:count]))
            del self._lines[:count]
            self._report_lost_refusals()
            if not self.is_writable:
                log.info("audit log can be written again", extra={"file": str(self.file)})
            self.is_writable = True
            self._update_accepting()
            if self._lines:
                self._timer = self._loop.call_later(BATCH_SECONDS, self._write)
            else:
                self._idle.set()
            return
        if self.is_writable:
            log.error(
                "audit log cannot be written: calls are refused until it can",
                extra={"file": str(self.file), "reason": str(fault)},
            )
        self.is_writable = False
        self._update_accepting()
        self._timer = self._loop.call_later(RETRY_SECONDS, self._write)

    def _report_lost_refusals(self) -> None:
        if self._unreported_refusals and not self._is_full():
            lost, self._unreported_refusals = self._unreported_refusals, 0
            log.error("refusals were not recorded", extra={"file": str(self.file), "refusals": lost})
            self._keep({"outcome": "refusals_not_recorded", "refusals": lost})

    # In the thread

    def _append(self, data: bytes) -> None:
        file = self.file
        assert file is not None  # noqa: S101  # there is no worker without
        try:
            size = file.stat().st_size
        except FileNotFoundError:
            size = 0
        if size and size + len(data) > FILE_BYTES:
            _rotate(file, MAX_OLD_FILES)
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            before = os.fstat(descriptor).st_size
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
        except OSError:
            # All of it is written again later, so a partial write must not stay.
            with suppress(OSError):
                os.ftruncate(descriptor, before)
            raise
        finally:
            os.close(descriptor)


def _rotate(file: Path, kept: int) -> None:
    """`audit.jsonl` becomes `audit.jsonl.1`, and so on; the oldest goes."""
    if kept == 0:
        file.unlink()
        return
    for number in range(kept - 1, 0, -1):
        older = file.with_name(f"{file.name}.{number}")
        if older.exists():
            older.replace(file.with_name(f"{file.name}.{number + 1}"))
    file.replace(file.with_name(f"{file.name}.1"))


def _check_writable(file: Path) -> None:
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                # A crash cut off the last line: the next one must not become part of it.
                os.write(descriptor, b"\n")
        finally:
            os.close(descriptor)
    except OSError as fault:
        raise UsageError(
            f"audit.file {file}: cannot be written: {fault.strerror or fault}. Name another, or set "
            "audit.enabled: false"
        ) from None


@dataclass(frozen=True, slots=True)
class AuditedCall:
    """A finished call, without its content."""

    source: str
    key: str
    kind: str
    # `ok`, CANCELLED, a code of XP 5.3, or OTHER.
    outcome: str
    seconds: float
    # Nothing was sent.
    is_refused: bool = False


def record_call(call: AuditedCall, metrics: AdapterMetrics, audit: AuditLog) -> None:
    """Record a finished call; its arguments and result are never recorded."""
    metrics.count_call(call.source, call.outcome, call.seconds)
    record = audit.record_refusal if call.is_refused else audit.record
    record(
        {
            "direction": "outward",
            "source": call.source,
            "key": call.key or None,
            "kind": call.kind,
            "outcome": call.outcome,
            "seconds": round(call.seconds, 4),
        }
    )
