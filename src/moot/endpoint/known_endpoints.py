"""Which key an endpoint had when it was first met, and no other since (xp1, Discovery).

Whoever takes over a domain can change DNS and the well-known document together. Whoever has met the endpoint
before notices, because the key is kept: {"endpoints": {"xp://weather.example": {"key": …, "seen": …}}}. A
change needs the operator: `accept`, or the entry removed from the file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from moot.errors import InvalidKey, MootError, UsageError
from moot.identity.keys import verify_key

# Configured by hand, so this is a mistake rather than growth.
MAX_ENDPOINTS: Final = 10_000
FILE_NAME: Final = "known-endpoints.json"


class KeyChanged(MootError):
    """An endpoint has another key than before; the text says what to do."""

    def __init__(self, endpoint: str, was: str, now: str, seen: str, file: Path | None) -> None:
        entry = f"remove its entry from {file}" if file is not None else "restart the adapter"
        super().__init__(
            f"{endpoint} has another key than when it was first met ({seen}): {was} is now {now}. Nothing is "
            f"sent to it. If its operator confirms the new key, {entry}"
        )
        self.endpoint = endpoint
        self.was = was
        self.now = now


class KnownEndpoints:
    """The keys that were met. `file` None keeps them for the life of this object only."""

    def __init__(
        self, file: Path | None = None, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        """Raises UsageError for a file that is not one of these."""
        self._file = file
        self._clock = clock
        self._known: dict[str, tuple[str, str]] = {} if file is None else _read(file)

    def key_of(self, endpoint: str) -> str | None:
        entry = self._known.get(endpoint)
        return None if entry is None else entry[0]

    def check(self, endpoint: str, key: str) -> bool:
        """Whether it is met for the first time, and is known from now on; raises KeyChanged."""
        entry = self._known.get(endpoint)
        if entry is None:
            self._keep(endpoint, key)
            return True
        if entry[0] != key:
            raise KeyChanged(endpoint, entry[0], key, entry[1], self._file)
        return False

    def accept(self, endpoint: str, key: str) -> None:
        """The operator says that this is the key from now on."""
        verify_key(key)
        self._keep(endpoint, key)

    def _keep(self, endpoint: str, key: str) -> None:
        if endpoint not in self._known and len(self._known) >= MAX_ENDPOINTS:
            raise UsageError(f"{MAX_ENDPOINTS} endpoints are known, and no more are kept")
        self._known[endpoint] = (key, self._clock().strftime("%Y-%m-%dT%H:%M:%SZ"))
        if self._file is not None:
            _write(self._file, self._known)


def _read(file: Path) -> dict[str, tuple[str, str]]:
    wrong = UsageError(f"{file}: is no file of known endpoints; repair it, or remove it to meet all anew")
    try:
        value = json.loads(file.read_bytes())
        told = value["endpoints"].items()
        entries = {name: (each["key"], str(each.get("seen", ""))) for name, each in told}
        for key, _ in entries.values():
            verify_key(key)
    except FileNotFoundError:
        return {}
    except OSError as fault:
        raise UsageError(f"{file}: cannot be read: {fault.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, InvalidKey):
        raise wrong from None
    return entries


def _write(file: Path, known: dict[str, tuple[str, str]]) -> None:
    entries = {name: {"key": key, "seen": seen} for name, (key, seen) in sorted(known.items())}
    scratch = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with scratch.open("w", encoding="utf-8") as out:
            out.write(json.dumps({"endpoints": entries}, indent=1) + "\n")
            out.flush()
            os.fsync(out.fileno())
        scratch.replace(file)
    except OSError as fault:
        scratch.unlink(missing_ok=True)
        raise UsageError(f"{file}: cannot be written: {fault.strerror}") from None
