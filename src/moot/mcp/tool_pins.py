"""Tool definitions pinned on first sight (D-87): one that turns into another is seen, and needs consent.

What a tool says of itself is what people and models decide by. A server that shows a harmless description
when it is approved and another one later has changed what was agreed to. So the first definition seen is
kept, by hash and in full, in a JSON file; one that differs is a `Change`, and the tool is withheld until
somebody accepts it. A tool that is new is pinned as it is; one that goes away keeps its pin.

    {"servers": {"npx#1f0c…": {"read_file": {"sha256": "…", "seen": "2026-11-15T…Z", "definition": {…}}}}}
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from moot.errors import UsageError
from moot.mcp.eras import JsonObject
from moot.protocol.operation import Json

log = logging.getLogger(__name__)

# A definition beyond this is kept by its hash alone: 64 KiB is a long book about one tool.
DEFINITION_BYTES: Final = 64 << 10
# Pins of one server; beyond them new tools are withheld, since nobody reads that many.
TOOLS: Final = 10_000
# Of each side of a difference, when it is shown.
_SHOWN: Final = 200


@dataclass(frozen=True, slots=True)
class Pin:
    """A definition as it was when it was first seen, or last accepted."""

    sha256: str
    seen: str
    # None: too long to keep.
    definition: JsonObject | None


@dataclass(frozen=True, slots=True)
class PinChange:
    """A tool that is not what it was."""

    tool: str
    was: Pin
    now: JsonObject

    def lines(self) -> list[str]:
        """What differs, field by field, as text that is safe on a terminal."""
        if self.was.definition is None:
            return [f"definition: sha256 {self.was.sha256} → {fingerprint(self.now)}"]
        fields = sorted({*self.was.definition, *self.now})
        return [
            f"{_shown(field)}: {_side(self.was.definition, field)} → {_side(self.now, field)}"
            for field in fields
            if _canonical(self.was.definition.get(field)) != _canonical(self.now.get(field))
            or (field in self.was.definition) != (field in self.now)
        ]


@dataclass(frozen=True, slots=True)
class PinCheck:
    """What may be shown of a list of tools."""

    shown: list[JsonObject]
    changes: tuple[PinChange, ...]


class Pins:
    """The pins of one server. `file` None keeps them for the life of this object only."""

    def __init__(
        self,
        server: str,
        file: Path | None = None,
        *,
        withhold: bool = True,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._server = server
        self._file = file
        self._withhold = withhold
        self._clock = clock
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
        """Pin what is new, and tell what changed; `changes` of the verdict are those not told before."""
        shown: list[JsonObject] = []
        told: list[PinChange] = []
        fresh = False
        for tool in tools:
            name = tool.get("name") if isinstance(tool, dict) else None
            if not isinstance(name, str):
                # Nothing that could be called, so nothing that could be pinned.
                continue
            digest = fingerprint(tool)
            pin = self._pins.get(name)
            if pin is None and len(self._pins) < TOOLS:
                self._pins[name] = pin = self._pin(tool, digest)
                fresh = True
            if pin is not None and pin.sha256 == digest:
                self._changes.pop(name, None)
                shown.append(tool)
                continue
            if pin is not None:
                told += self._note(PinChange(name, pin, tool))
            if not self._withhold:
                shown.append(tool)
        if fresh:
            self._save()
        return PinCheck(shown, tuple(told))

    def accept(self, tools: Sequence[str] | None = None) -> list[str]:
        """Consent to changes, all or those named; which ones. Raises UsageError for one that is unknown."""
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

    def _note(self, change: PinChange) -> list[PinChange]:
        before = self._changes.get(change.tool)
        self._changes[change.tool] = change
        return [] if before is not None and _canonical(before.now) == _canonical(change.now) else [change]

    def _pin(self, tool: JsonObject, digest: str) -> Pin:
        small = len(_canonical(tool)) <= DEFINITION_BYTES
        return Pin(digest, self._clock().strftime("%Y-%m-%dT%H:%M:%SZ"), tool if small else None)

    def _save(self) -> None:
        if self._file is None:
            return
        try:
            with _locked(self._file):
                # Other servers may have been pinned by other processes since we read.
                servers = _read(self._file)
                servers[self._server] = self._pins
                _write(self._file, servers)
        except OSError as fault:
            # Still pinned while we run; the next run pins anew.
            log.warning("pins not saved", extra={"file": str(self._file), "reason": fault.strerror})


def fingerprint(tool: JsonObject) -> str:
    """The hash of a definition; the order of its members does not matter."""
    return hashlib.sha256(_canonical(tool)).hexdigest()


def _canonical(value: Json) -> bytes:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "surrogatepass"
    )


def _side(definition: JsonObject, field: str) -> str:
    return _shown(definition[field]) if field in definition else "nothing"


def _shown(value: Json) -> str:
    # ASCII with escapes: what a server wrote may be made to deceive a terminal (D-86).
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"


def _read(file: Path) -> dict[str, dict[str, Pin]]:
    try:
        value = json.loads(file.read_bytes())
    except FileNotFoundError:
        return {}
    except OSError as fault:
        raise UsageError(f"{file}: cannot be read: {fault.strerror}") from None
    except ValueError:
        raise UsageError(
            f"{file}: is no file of pins; repair it, or remove it to pin everything anew"
        ) from None
    try:
        return {
            server: {
                name: Pin(pin["sha256"], pin["seen"], pin.get("definition")) for name, pin in pins.items()
            }
            for server, pins in value["servers"].items()
        }
    except (AttributeError, KeyError, TypeError):
        raise UsageError(
            f"{file}: is no file of pins; repair it, or remove it to pin everything anew"
        ) from None


def _write(file: Path, servers: Mapping[str, Mapping[str, Pin]]) -> None:
    value = {
        "servers": {
            server: {
                name: {"sha256": pin.sha256, "seen": pin.seen}
                | ({} if pin.definition is None else {"definition": pin.definition})
                for name, pin in pins.items()
            }
            for server, pins in servers.items()
        }
    }
    scratch = file.with_name(f".{file.name}.{os.getpid()}")
    scratch.write_text(json.dumps(value, indent=1) + "\n")
    scratch.replace(file)


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.with_name(f".{file.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
