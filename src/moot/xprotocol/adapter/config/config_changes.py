"""Compares two configurations: what differs, and what of it needs a restart; and watches the file."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from moot.protocol.operation import Json
from moot.xprotocol.adapter.config.adapter_settings import AdapterSettings
from moot.xprotocol.adapter.config.source_settings import McpSource

# How often the file is checked.
WATCH_SECONDS: Final = 0.5
# Sections that apply to sockets, files and keys that are open already.
_RESTART_SECTIONS: Final = ("relay", "mcp_server", "discovery", "logging", "audit", "store", "control")
# Limits of parts that are open already.
_RESTART_LIMITS: Final = (
    "upstream_call_seconds", "upstream_start_seconds",
)  # fmt: skip
# Fields of a source whose change needs a new process or connection.
_CONNECTION_FIELDS: Final = ("transport", "argv", "variables", "cwd", "url", "auth", "ca_file", "pin")


@dataclass(frozen=True, slots=True)
class ConfigChanges:
    """What differs in a new configuration."""

    # The new settings, with the old ones where only a restart can change them.
    applied: AdapterSettings
    added: tuple[str, ...]
    removed: tuple[str, ...]
    # Sources whose server has to be started or connected anew.
    restarted: tuple[str, ...]
    # Other changed sources: their server goes on.
    changed: tuple[str, ...]
    endpoints_changed: bool
    needs_restart: tuple[str, ...]

    def summary(self) -> dict[str, Json]:
        return {
            "added": list(self.added),
            "removed": list(self.removed),
            "restarted": list(self.restarted),
            "changed": list(self.changed),
            "needs_restart": list(self.needs_restart),
        }


def changes_between(old: AdapterSettings, new: AdapterSettings, *, rotated: bool = False) -> ConfigChanges:
    """What differs between two configurations; `rotated`: the key file has another key."""
    before = {source.name: source for source in old.mcp_sources}
    after = {source.name: source for source in new.mcp_sources}
    both = [name for name in after if name in before]
    restarted = tuple(name for name in both if _connects_otherwise(before[name], after[name]))
    needs_restart = [key for key in _RESTART_SECTIONS if getattr(old, key) != getattr(new, key)]
    kept = {key: getattr(old, key) for key in _RESTART_SECTIONS}
    needs_restart += [
        f"limits.{name}" for name in _RESTART_LIMITS if getattr(old.limits, name) != getattr(new.limits, name)
    ]
    if rotated or old.identity.key_file != new.identity.key_file:
        needs_restart.append("identity.key_file")
    identity = msgspec.structs.replace(new.identity, key_file=old.identity.key_file)
    return ConfigChanges(
        applied=msgspec.structs.replace(new, identity=identity, **kept),
        added=tuple(name for name in after if name not in before),
        removed=tuple(name for name in before if name not in after),
        restarted=restarted,
        changed=tuple(name for name in both if name not in restarted and before[name] != after[name]),
        endpoints_changed=old.xprotocol_sources != new.xprotocol_sources,
        needs_restart=tuple(needs_restart),
    )


def _connects_otherwise(one: McpSource, other: McpSource) -> bool:
    return any(getattr(one, name) != getattr(other, name) for name in _CONNECTION_FIELDS)


async def file_changes(file: Path, *others: Path) -> AsyncIterator[None]:
    """Yields whenever one of these has changed and all were stable for one check; until cancelled."""
    known = seen = [_stamp(each) for each in (file, *others)]
    while True:
        await asyncio.sleep(WATCH_SECONDS)
        now = [_stamp(each) for each in (file, *others)]
        # Equal twice: the writer has finished. If the first one is missing, it is being replaced.
        if now == seen and now != known and now[0] is not None:
            known = now
            yield
        seen = now


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
