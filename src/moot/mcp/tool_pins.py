"""Tool definitions pinned on first use (D-87): a changed definition is noticed and needs consent.

People and models decide by a tool's description. A server that shows a harmless description when it is
approved and another one later has changed what was agreed to. So the first definition seen is kept, by hash
and in full, in a JSON file; one that differs is a `PinChange`, and the tool is withheld until somebody
accepts it. A new tool is pinned as it is; one that goes away keeps its pin.

    {"servers": {"npx#1f0c…": {"read_file": {"sha256": "…", "seen": "2026-11-15T…Z", "definition": {…}}}}}
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from moot.errors import UsageError
from moot.mcp.eras import JsonObject
from moot.private_files import lock_file
from moot.protocol.operation import Json
from moot.resilience.atomic_file import write_atomically

log = logging.getLogger(__name__)

# A larger definition is kept by its hash alone: 64 KiB is a lot of text about one tool.
DEFINITION_BYTES: Final = 64 << 10
# Pins of one server; beyond them new tools are withheld, since nobody reads that many.
MAX_TOOLS: Final = 10_000
# The fields of a tool in MCP.
_MCP_FIELDS: Final = frozenset(
    [
        "_meta",
        "annotations",
        "description",
        "execution",
        "icons",
        "inputSchema",
        "name",
        "outputSchema",
        "title",
    ]
)
# Of each side of a difference.
_MAX_CHARACTERS: Final = 200


class Pin(msgspec.Struct, frozen=True, omit_defaults=True):
    """A definition as it was when it was first seen, or last accepted."""

    sha256: str
    seen: str
    # None: too long to keep.
    definition: JsonObject | None = None


class _PinFile(msgspec.Struct):
    servers: dict[str, dict[str, Pin]]


@dataclass(frozen=True, slots=True)
class PinChange:
    """A tool whose definition has changed."""

    tool: str
    was: Pin
    now: JsonObject

    def lines(self) -> list[str]:
        """What differs, field by field, as text that is safe on a terminal."""
        if self.was.definition is None:
            return [f"definition: sha256 {self.was.sha256} → {fingerprint(self.now)}"]
        definition = self.was.definition
        return [
            f"{_printable(field)}: {_side(definition, field)} → {_side(self.now, field)}"
            for field in self._fields(definition)
        ]

    def field_names(self) -> list[str]:
        """Which fields differ, without any text of the server: names that MCP does not have are `other`."""
        if self.was.definition is None:
            return ["definition"]
        names = [field if field in _MCP_FIELDS else "other" for field in self._fields(self.was.definition)]
        return list(dict.fromkeys(names))

    def _fields(self, definition: JsonObject) -> list[str]:
        return [
            field
            for field in sorted({*definition, *self.now})
            if _canonical(definition.get(field)) != _canonical(self.now.get(field))
            or (field in definition) != (field in self.now)
        ]


@dataclass(frozen=True, slots=True)
class PinCheck:
    """Which tools of a list may be shown, and which changes were not reported before."""

    shown: list[JsonObject]
    changes: tuple[PinChange, ...]


class Pins:
    """The pins of one server. `file` None keeps them in memory only."""

    def __init__(
        self,
        server: str,
        file: Path | None = None,
        *,
        withhold: bool = True,
    ) -> None:
        self._server = server
        self._file = file
        self._withhold = withhold
        self._pins: dict[str, Pin] = {}
        self._changes: dict[str, PinChange] = {}
        if file is not None:
            self._pins = _read(file).get(server, {})

    @property
    def changes(self) -> Mapping[str, PinChange]:
        """Tools that changed and were not accepted yet."""
        return self._changes

    def withholds(self, tool: object) -> bool:
        """Whether a tool may not be called because it changed."""
        return self._withhold and tool in self._changes

    def check(self, tools: Sequence[Json]) -> PinCheck:
        """Pin new tools, and find changed ones."""
        shown: list[JsonObject] = []
        reported: list[PinChange] = []
        fresh = False
        for tool in tools:
            name = tool.get("name") if isinstance(tool, dict) else None
            if not isinstance(name, str):
                # It cannot be called, so there is nothing to pin.
                continue
            digest = fingerprint(tool)
            pin = self._pins.get(name)
            if pin is None and len(self._pins) < MAX_TOOLS:
                self._pins[name] = pin = self._pin(tool, digest)
                fresh = True
            if pin is not None and pin.sha256 == digest:
                self._changes.pop(name, None)
                shown.append(tool)
                continue
            if pin is not None:
                reported += self._record_change(PinChange(name, pin, tool))
            if not self._withhold:
                shown.append(tool)
        if fresh:
            self._save()
        return PinCheck(shown, tuple(reported))

    def accept(self, tools: Sequence[str] | None = None) -> list[str]:
        """Accept changes, all or those named; returns their tools. Raises UsageError for an unknown one."""
        wanted = list(self._changes) if tools is None else list(tools)
        for name in wanted:
            if name not in self._changes:
                raise UsageError(
                    f"{name!r} has no change to accept; changed are: {', '.join(self._changes) or 'none'}"
                )
        for name in wanted:
            change = self._changes.pop(name)
            self._pins[name] = self._pin(change.now, fingerprint(change.now))
        if wanted:
            self._save()
        return wanted

    # Inside

    def _record_change(self, change: PinChange) -> list[PinChange]:
        before = self._changes.get(change.tool)
        self._changes[change.tool] = change
        return [] if before is not None and _canonical(before.now) == _canonical(change.now) else [change]

    def _pin(self, tool: JsonObject, digest: str) -> Pin:
        small = len(_canonical(tool)) <= DEFINITION_BYTES
        return Pin(digest, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), tool if small else None)

    def _save(self) -> None:
        if self._file is None:
            return
        try:
            with lock_file(self._file):
                # Other servers may have been pinned by other processes since we read.
                servers = _read(self._file)
                servers[self._server] = self._pins
                _write(self._file, servers)
        except OSError as fault:
            # They still hold in memory; the next start pins anew.
            log.warning("pins not saved", extra={"file": str(self._file), "reason": fault.strerror})


def fingerprint(tool: JsonObject) -> str:
    """The hash of a definition; the order of its members does not matter."""
    return hashlib.sha256(_canonical(tool)).hexdigest()


def _canonical(value: Json) -> bytes:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "surrogatepass"
    )


def _side(definition: JsonObject, field: str) -> str:
    return _printable(definition[field]) if field in definition else "(none)"


def _printable(value: Json) -> str:
    # ASCII with escapes: a server's text may try to deceive a terminal (D-86).
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}… ({len(text)} characters)"


def _read(file: Path) -> dict[str, dict[str, Pin]]:
    try:
        return msgspec.convert(json.loads(file.read_bytes()), _PinFile).servers
    except FileNotFoundError:
        return {}
    except OSError as fault:
        raise UsageError(f"{file}: cannot be read: {fault.strerror}") from None
    except (ValueError, msgspec.ValidationError):
        raise UsageError(
            f"{file}: is not a file of pins; repair it, or remove it to pin everything anew"
        ) from None


def _write(file: Path, servers: dict[str, dict[str, Pin]]) -> None:
    value = msgspec.to_builtins(_PinFile(servers))
    # Whoever can write it decides what counts as unchanged: for its owner only.
    write_atomically(file, json.dumps(value, indent=1).encode() + b"\n")
