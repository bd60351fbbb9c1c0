"""Trust on first use: the key that each endpoint had when it was first seen (xp1, Discovery).

An attacker who takes over a domain can change DNS and the well-known document together. A client that has
seen the endpoint before notices, because the key is kept:

    {"endpoints": {"xp://weather.example": {"key": …, "seen": …}}}

A change needs the operator: `accept`, or the entry removed from the file.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from moot.errors import InvalidKey, MootError, UsageError
from moot.resilience.atomic_file import write_atomically
from moot.xprotocol.identity.keys import verify_key

# Endpoints are configured by hand; more is a mistake.
MAX_ENDPOINTS: Final = 10_000
FILE_NAME: Final = "known-endpoints.json"


class KeyChanged(MootError):
    """An endpoint has another key than before; the text says what to do."""

    def __init__(self, endpoint: str, was: str, now: str, seen: str, file: Path | None) -> None:
        entry = f"remove its entry from {file}" if file is not None else "restart the adapter"
        super().__init__(
            f"{endpoint} has another key than when it was first seen ({seen}): {was} is now {now}. Nothing "
            f"is sent to it. If its operator confirms the new key, {entry}"
        )
        self.endpoint = endpoint
        self.was = was
        self.now = now


class KnownEndpoints:
    """The keys seen so far. `file` None keeps them in memory only."""

    def __init__(self, file: Path | None = None) -> None:
        """Raises UsageError for an invalid file."""
        self._file = file
        self._known: dict[str, tuple[str, str]] = {} if file is None else _read(file)

    def check(self, endpoint: str, key: str) -> bool:
        """Whether it is seen for the first time; remembers its key. Raises KeyChanged."""
        entry = self._known.get(endpoint)
        if entry is None:
            self._save(endpoint, key)
            return True
        if entry[0] != key:
            raise KeyChanged(endpoint, entry[0], key, entry[1], self._file)
        return False

    def _save(self, endpoint: str, key: str) -> None:
        if endpoint not in self._known and len(self._known) >= MAX_ENDPOINTS:
            raise UsageError(f"{MAX_ENDPOINTS} endpoints are known already: the limit is met")
        self._known[endpoint] = (key, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
        if self._file is not None:
            _write(self._file, self._known)


def _read(file: Path) -> dict[str, tuple[str, str]]:
    wrong = UsageError(f"{file}: is not a file of known endpoints; repair it, or remove it to start over")
    try:
        value = json.loads(file.read_bytes())
        listed = value["endpoints"].items()
        entries = {name: (each["key"], str(each.get("seen", ""))) for name, each in listed}
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
    try:
        write_atomically(file, json.dumps({"endpoints": entries}, indent=1).encode() + b"\n")
    except OSError as fault:
        raise UsageError(f"{file}: cannot be written: {fault.strerror}") from None
