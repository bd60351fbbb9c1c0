"""The output of a member, in DATA/logs/NAME.log: bounded on disk and in memory, and without its token."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from moot.config.gateway_config import Secret
from moot.mcp.stderr_tail import StderrTail

# Four megabytes and their predecessor: a chatty agent fills it in a day or two.
FILE_BYTES: Final = 4 << 20
# A line without an end is searched for the token in pieces of this size.
_MAX_PARTIAL_BYTES: Final = 64 << 10
_REDACTED: Final = b"[redacted]"
_NOTE: Final = "-- "


class MemberLog:
    """Takes the output of one member. `last_line` is the latest one that is not blank."""

    def __init__(self, file: Path, token: Secret, *, file_bytes: int = FILE_BYTES) -> None:
        self.file = file
        self._tail = StderrTail(file, file_bytes=file_bytes)
        self._token = token.reveal().encode()
        self._partial = b""
        self.last_line = ""

    def feed(self, data: bytes) -> None:
        """Output of the member, in pieces of any size; never raises."""
        whole, newline, rest = (self._partial + data).rpartition(b"\n")
        if newline:
            self._keep(whole + newline)
        self._partial = rest
        if len(self._partial) > _MAX_PARTIAL_BYTES:
            # The token may cross the cut: as much as could be its beginning waits.
            cut = len(self._partial) - len(self._token)
            redacted = self._partial.replace(self._token, _REDACTED)
            ready, self._partial = (
                (self._partial[:cut], self._partial[cut:]) if redacted == self._partial else (redacted, b"")
            )
            self._keep(ready)

    def last_lines(self, count: int) -> list[str]:
        """The last lines since it was started, oldest first: escape them before they are shown."""
        lines = self._tail.last_lines(count)
        notes = [at for at, line in enumerate(lines) if line.startswith(_NOTE)]
        return lines[notes[-1] + 1 :] if notes else lines

    def note(self, text: str) -> None:
        """A line of `moot up` itself."""
        self.flush()
        self._keep(f"{_NOTE}{text}\n".encode())

    def flush(self) -> None:
        """The member has ended: an unfinished line counts as a line too."""
        if self._partial:
            self._keep(self._partial + b"\n")
            self._partial = b""

    def close(self) -> None:
        self.flush()
        self._tail.close()

    def _keep(self, lines: bytes) -> None:
        lines = lines.replace(self._token, _REDACTED)
        self._tail.feed(lines)
        written = [line for line in lines.decode("utf-8", "replace").splitlines() if line.strip()]
        if written:
            self.last_line = written[-1].strip()
