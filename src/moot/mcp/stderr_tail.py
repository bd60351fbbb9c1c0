"""The stderr of a child process: its end in memory, all of it (bounded) in a file."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import Final

from moot.private_files import open_private

log = logging.getLogger(__name__)

# A screen of long lines: enough to see why it died.
RING_BYTES: Final = 64 << 10
# One megabyte and its predecessor; a server that logs every call fills it in days.
FILE_BYTES: Final = 1 << 20
# A line of a traceback is shorter; what is longer is data.
LINE_BYTES: Final = 4_096


class StderrTail:
    """Takes the bytes of a child's stderr; memory and disk are bounded whatever comes."""

    def __init__(
        self,
        file: Path | None = None,
        *,
        file_bytes: int = FILE_BYTES,
        mask: Callable[[bytes], bytes] | None = None,
    ) -> None:
        """`mask` takes out of each line what may not be kept."""
        self._mask = mask
        self._ring: deque[bytes] = deque()
        self._kept_bytes = 0
        self._partial = b""
        self._path = file
        self._file_bytes = file_bytes
        self._file: FileIO | None = None

    def feed(self, data: bytes) -> None:
        """Keep these bytes; never raises."""
        if self._mask is None:
            self._write(data)
        *lines, partial = (self._partial + data).split(b"\n")
        # A line that never ends is cut.
        while len(partial) > LINE_BYTES:
            lines.append(partial[:LINE_BYTES])
            partial = partial[LINE_BYTES:]
        self._partial = partial
        for line in lines:
            if self._mask is not None:
                line = self._mask(line)
                self._write(line + b"\n")
            self._keep(line[:LINE_BYTES])

    def last_lines(self, count: int = 20) -> list[str]:
        """The last lines, oldest first, as they were written: escape them before display (D-86)."""
        partial = self._mask(self._partial) if self._mask is not None else self._partial
        lines = [*self._ring, *([partial] if partial else [])]
        return [line.decode("utf-8", "replace").rstrip("\r") for line in lines[-count:]]

    def close(self) -> None:
        """Close the file; what is in memory stays."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _keep(self, line: bytes) -> None:
        self._ring.append(line)
        self._kept_bytes += len(line) + 1
        while self._kept_bytes > RING_BYTES:
            self._kept_bytes -= len(self._ring.popleft()) + 1

    def _write(self, data: bytes) -> None:
        if self._path is None:
            return
        try:
            if self._file is None:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._file = FileIO(self._path, "ab", opener=open_private)
            if self._file.tell() + len(data) > self._file_bytes:
                self._file.close()
                self._path.replace(self._path.with_name(self._path.name + ".1"))
                self._file = FileIO(self._path, "ab", opener=open_private)
            self._file.write(data[-self._file_bytes :])
        except OSError as fault:
            # A full disk must not stop the server.
            log.warning("stderr not kept", extra={"file": str(self._path), "reason": fault.strerror})
            self.close()
            self._path = None
