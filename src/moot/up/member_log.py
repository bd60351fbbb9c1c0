"""What a member prints, in DATA/logs/NAME.log: bounded on disk and in memory, and without its token."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from moot.config.gateway_config import Secret
from moot.mcp.stderr_tail import StderrTail

# Four megabytes and their predecessor: a chatty agent fills it in a day or two.
FILE_BYTES: Final = 4 << 20
# What has not been ended by a newline is looked through for the token in pieces of this size.
_HELD_BYTES: Final = 64 << 10
_BLOT: Final = b"[redacted]"


class MemberLog:
    """Takes the output of one member. `last_line` is the latest one that says something."""

    def __init__(self, file: Path, token: Secret, *, file_bytes: int = FILE_BYTES) -> None:
        self.file = file
        self._keeper = StderrTail(file, file_bytes=file_bytes)
        self._token = token.reveal().encode()
        self._held = b""
        self.last_line = ""

    def feed(self, data: bytes) -> None:
        """Output of the member, in pieces of any size; never raises."""
        whole, newline, rest = (self._held + data).rpartition(b"\n")
        if newline:
            self._keep(whole + newline)
        self._held = rest
        if len(self._held) > _HELD_BYTES:
            # The token may stand across the cut: as much as could be its beginning waits.
            cut = len(self._held) - len(self._token)
            blotted = self._held.replace(self._token, _BLOT)
            ready, self._held = (
                (self._held[:cut], self._held[cut:]) if blotted == self._held else (blotted, b"")
            )
            self._keep(ready)

    def note(self, words: str) -> None:
        """A line of `moot up` itself."""
        self.flush()
        self._keep(f"-- {words}\n".encode())

    def last_lines(self, count: int = 20) -> list[str]:
        return self._keeper.last_lines(count)

    def flush(self) -> None:
        """The member has ended: what it did not end with a newline is a line too."""
        if self._held:
            self._keep(self._held + b"\n")
            self._held = b""

    def close(self) -> None:
        self.flush()
        self._keeper.close()

    def _keep(self, lines: bytes) -> None:
        lines = lines.replace(self._token, _BLOT)
        self._keeper.feed(lines)
        said = [line for line in lines.decode("utf-8", "replace").splitlines() if line.strip()]
        if said:
            self.last_line = said[-1].strip()
