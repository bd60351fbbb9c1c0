"""Tool names that outlive a process: the first owner of a name keeps it when `moot mcp` is restarted (D-91).

A client's person may have allowed a name for good ("always run read_file"). If names were assigned anew
at each start, a newcomer with an earlier place in the list could get that permission. The file holds each
name of one space with its owner; several processes may share it, and the first to write a name keeps it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Final

from moot.errors import InvalidJson
from moot.mcp.eras import JsonObject
from moot.offers.name_table import NameTable
from moot.offers.offer_table import OfferTable
from moot.private_files import lock_file
from moot.protocol import strict_json
from moot.resilience.atomic_file import write_atomically

log = logging.getLogger(__name__)

# 50 000 names of 64 characters, twice over.
MAX_BYTES: Final = 16 << 20


def names_path(state: Path, gateway: str, space: str) -> Path:
    """The file with the names of a space, below a folder for state."""
    which = sha256(f"{gateway.rstrip('/')}\0{space}".encode()).hexdigest()[:16]
    return state / "moot" / "names" / f"{which}.json"


class NamesFile:
    """The names of one space on disk. Problems with the file are logged and otherwise ignored."""

    def __init__(self, path: Path, offers: OfferTable) -> None:
        self._path = path
        self._namespaces: dict[str, NameTable] = {"tools": offers.tool_names, "prompts": offers.prompt_names}
        self._written = {namespace: len(names) for namespace, names in self._namespaces.items()}

    def load(self) -> int:
        """Read the file; how many names were restored."""
        try:
            with lock_file(self._path):
                kept = self._read()
        except OSError as fault:
            log.warning("names are not kept", extra={"path": str(self._path), "why": fault.strerror})
            return 0
        count = 0
        for namespace, names in self._namespaces.items():
            count += sum(names.restore(*binding) for binding in _bindings(kept.get(namespace)))
            self._written[namespace] = len(names)
        return count

    def save(self) -> None:
        """Add names that are new; names in the file stay as they are."""
        if all(len(names) == self._written[namespace] for namespace, names in self._namespaces.items()):
            return
        try:
            with lock_file(self._path):
                kept = self._read()
                merged = {
                    namespace: _merge(kept.get(namespace), names)
                    for namespace, names in self._namespaces.items()
                }
                write_atomically(self._path, strict_json.encode({"version": 1, **merged}))
        except OSError as fault:
            log.warning("names are not kept", extra={"path": str(self._path), "why": fault.strerror})
        self._written = {namespace: len(names) for namespace, names in self._namespaces.items()}

    def _read(self) -> JsonObject:
        try:
            if self._path.stat().st_size > MAX_BYTES:
                raise InvalidJson("too large")
            value = strict_json.parse(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except InvalidJson as fault:
            log.warning("unreadable names", extra={"path": str(self._path), "why": fault.message})
            return {}
        return value if isinstance(value, dict) else {}


def _bindings(kept: object) -> Iterator[tuple[str, str, str]]:
    for binding in kept if isinstance(kept, list) else ():
        if isinstance(binding, list) and len(binding) == 3 and all(isinstance(part, str) for part in binding):
            yield binding[0], binding[1], binding[2]


def _merge(kept: object, names: NameTable) -> list[list[str]]:
    """The names in the file, as far as they are valid, and those of ours that fit."""
    merged = NameTable(names.reserved)
    for binding in (*_bindings(kept), *names):
        merged.restore(*binding)
    return [list(binding) for binding in merged]
