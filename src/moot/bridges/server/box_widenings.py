"""What people allowed the box of one server besides what the operator listed: for now, or for good.

How it works. The bridge proposes a call to itself, of the tool `moot/widen-box`, when its box refuses
something. It is a proposal like any other, and no rule approves it; it runs only for members who may give
rights. Once: a host for ten minutes, a path until the server is started again. Always: kept in a file beside
the pins, which no box is shown. What is allowed is a host with its port, or a path; patterns and addresses
are the operator's, in the configuration.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from moot.box.boxed_child import Box
from moot.box.host_rules import is_address, read_rules
from moot.config.box_config import MAX_HOSTS, BoxConfig, read_hosts
from moot.errors import UsageError
from moot.protocol.hidden_text import is_visible_name
from moot.protocol.operation import Json
from moot.resilience.atomic_file import RecordFile

ONCE_SECONDS: Final = 600.0
# Of each kind.
MAX_KEPT: Final = MAX_HOSTS
_MAX_FILE_BYTES: Final = 1 << 20
# As in /srv/notes: the root and whole /home are the operator's to list.
_MIN_PARTS: Final = 3
_KINDS: Final = ("network", "read", "write")


class KeptWidenings(msgspec.Struct):
    """What was allowed for good."""

    network: list[str] = []
    read: list[str] = []
    write: list[str] = []


class BoxWidenings:
    """What one box may reach now; the box asks at each start, and for hosts at each connection."""

    def __init__(self, box: Box, clock: Callable[[], float] | None = None) -> None:
        """Reads what was kept; `clock` is the loop's unless another is given."""
        self._box = box
        self._clock = clock or asyncio.get_running_loop().time
        home = box.home
        self._file: RecordFile[KeptWidenings] | None = None
        if home is not None:
            place = home.parent.parent / "box-widenings" / f"{home.name}.json"
            self._file = RecordFile(
                place, KeptWidenings, max_bytes=_MAX_FILE_BYTES, what="what a box was allowed"
            )
        self._kept = KeptWidenings() if self._file is None else self._file.record
        # As the box was last started.
        self.present: BoxConfig = box.config
        self._host_ends: dict[str, float] = {}
        # Paths for the next start alone.
        self._next_start: set[tuple[str, str]] = set()

    def at_start(self) -> BoxConfig:
        """All that a box which starts now may reach."""
        config = self._box.config
        added: dict[str, list[str]] = {name: list(getattr(self._kept, name)) for name in ("read", "write")}
        for name, path in self._next_start:
            added[name].append(path)
        self._next_start.clear()
        # What was removed since then is no reason to start no more.
        there = {name: [each for each in paths if Path(each).exists()] for name, paths in added.items()}
        self.present = msgspec.structs.replace(
            config,
            network=self.hosts(),
            read=tuple(dict.fromkeys((*config.read, *there["read"]))),
            write=tuple(dict.fromkeys((*config.write, *there["write"]))),
        )
        return self.present

    def hosts(self) -> tuple[str, ...]:
        """The hosts that may be connected to now."""
        now = self._clock()
        self._host_ends = {host: end for host, end in self._host_ends.items() if end > now}
        return tuple(dict.fromkeys((*self._box.config.network, *self._kept.network, *self._host_ends)))

    def widen(self, arguments: Mapping[str, Json]) -> tuple[str, str, str]:
        """Do what one call says: the kind, its value, and what was done in words; raises UsageError."""
        keep = arguments.get("keep", "once")
        kinds = [name for name in _KINDS if name in arguments]
        if keep not in ("once", "always", "never") or len(kinds) != 1:
            raise UsageError("name one of network, read and write, and keep: once, always or never")
        kind = kinds[0]
        value = arguments[kind]
        if not isinstance(value, str) or not is_visible_name(value):
            raise UsageError(f"{kind}: has to be one name")
        if keep == "never":
            self._take_back(kind, value)
            return kind, value, f"{kind}: {value} is allowed no more"
        value = self._checked(kind, value)
        if keep == "always":
            self._keep(kind, value)
            return kind, value, f"{kind}: {value} is allowed for good"
        if kind == "network":
            if value not in self._host_ends and len(self._host_ends) >= MAX_KEPT:
                raise UsageError(f"more than {MAX_KEPT} hosts are allowed for now")
            self._host_ends[value] = self._clock() + ONCE_SECONDS
            return kind, value, f"{kind}: {value} is allowed for {ONCE_SECONDS / 60:.0f} minutes"
        self._next_start.add((kind, value))
        return kind, value, f"{kind}: {value} is allowed until the server is next started"

    def _checked(self, kind: str, value: str) -> str:
        """What may be allowed from here; raises UsageError."""
        if kind == "network":
            hosts = read_hosts(value, "network")
            rules = read_rules(hosts).rules
            if len(rules) != 1 or "*" in rules[0].host or is_address(rules[0].host):
                raise UsageError("network: one host by its name; patterns and addresses are the operator's")
            return hosts[0]
        path = Path(value)
        if not path.is_absolute() or ".." in path.parts or len(path.parts) < _MIN_PARTS:
            raise UsageError(f"{kind}: {value} is no full path of something below the folders of the root")
        if self._box.may_change(path) or (kind == "read" and self._box.read_only(value)):
            raise UsageError(f"{kind}: {value} is in the box already")
        if self._is_hidden(path) or self._is_hidden(path.resolve()):
            raise UsageError(f"{kind}: {value} is never shown in a box")
        if not path.exists():
            raise UsageError(f"{kind}: {value} is not there")
        return value

    def _is_hidden(self, path: Path) -> bool:
        # What is hidden below a folder that is shown stays so: the plan of the box sees to it.
        return any(path.is_relative_to(each) for each in self._box.hidden)

    def _keep(self, kind: str, value: str) -> None:
        if self._file is None:
            raise UsageError("there is no place to keep it: use keep: once")
        kept: list[str] = getattr(self._kept, kind)
        if value in kept:
            return
        if len(kept) >= MAX_KEPT:
            raise UsageError(f"more than {MAX_KEPT} are kept: take some back (keep: never)")
        kept.append(value)
        try:
            self._file.write()
        except UsageError:
            kept.remove(value)
            raise

    def _take_back(self, kind: str, value: str) -> None:
        was_once = self._host_ends.pop(value, None) is not None
        kept: list[str] = getattr(self._kept, kind)
        if value in kept and self._file is not None:
            kept.remove(value)
            self._file.write()
        elif not was_once:
            raise UsageError(f"{kind}: {value} was not allowed from here; the configuration has the rest")
