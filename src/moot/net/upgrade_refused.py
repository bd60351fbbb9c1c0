"""What stands where a WebSocket was asked for; apart, since requests over HTTP tell of it as well."""

from __future__ import annotations

from typing import Final

from moot.errors import MootError

# Answers of a gateway that is busy, or of a proxy in front of one that restarts.
_TEMPORARY_STATUSES: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


class UpgradeRefused(MootError):
    """An HTTP answer where a WebSocket was asked for."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"HTTP {status}: {body[:400].decode('utf-8', 'replace')}")
        self.status = status
        self.body = body

    @property
    def is_temporary(self) -> bool:
        """Whether trying again later can help."""
        return self.status in _TEMPORARY_STATUSES
