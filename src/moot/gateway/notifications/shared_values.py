"""What gateways of a cluster have in common for notifications: which were sent, and the key of Web Push."""

from __future__ import annotations

from typing import Protocol


class SharedValues(Protocol):
    """Values by key. All raise Unavailable when they cannot be reached."""

    async def read(self, key: str) -> bytes | None: ...

    async def write(self, key: str, value: bytes) -> None: ...

    async def create(self, key: str, value: bytes) -> bytes:
        """Write it if there is none yet; returns what is there."""
