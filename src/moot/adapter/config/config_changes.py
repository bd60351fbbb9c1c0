"""Another configuration while the adapter runs: what differs, and what of it needs a restart."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from moot.adapter.config.adapter_settings import AdapterSettings
from moot.adapter.config.source_settings import McpSource
from moot.adapter.trust_chain.chain_walk import events_in, read_small
from moot.errors import MalformedEvent, UsageError
from moot.protocol.operation import Json
from moot.protocol.strict_json import encode
from moot.xprotocol.delegation import DelegationChain
from moot.xprotocol.events import SignedPublic, read

# How often a file is looked at; editors and configuration tools take a moment, people do not notice.
WATCH_SECONDS: Final = 0.5
# Sections that are bound to sockets, files and keys that are open already.
_FIXED: Final = ("relay", "mcp_server", "discovery", "logging", "audit", "store", "control")
# Bounds that were handed to what is open already.
_FIXED_LIMITS: Final = (
    "upstream_call_seconds", "upstream_start_seconds", "seen_events", "answer_seconds", "outward_calls",
)  # fmt: skip
# What of a source makes its process or its connection another one; all the rest is ours alone.
_WIRING: Final = ("transport", "argv", "env", "cwd", "url", "auth", "ca_file", "pin")


@dataclass(frozen=True, slots=True)
class ConfigChanges:
    """What a new configuration came to."""

    # The new settings, with the old ones where only a restart can change them.
    applied: AdapterSettings
    added: tuple[str, ...]
    removed: tuple[str, ...]
    # Sources whose server is another one, or reached otherwise.
    restarted: tuple[str, ...]
    # Sources whose server goes on as it is.
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
    """What differs between two configurations; `rotated`: other keys stand in the same file."""
    before = {source.name: source for source in old.mcp_sources}
    after = {source.name: source for source in new.mcp_sources}
    both = [name for name in after if name in before]
    restarted = tuple(name for name in both if _wired_otherwise(before[name], after[name]))
    needs_restart = [key for key in _FIXED if getattr(old, key) != getattr(new, key)]
    kept = {key: getattr(old, key) for key in _FIXED}
    needs_restart += [
        f"limits.{name}" for name in _FIXED_LIMITS if getattr(old.limits, name) != getattr(new.limits, name)
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


def _wired_otherwise(one: McpSource, other: McpSource) -> bool:
    return any(getattr(one, name) != getattr(other, name) for name in _WIRING)


def own_delegations(settings: AdapterSettings, chain: DelegationChain | None) -> tuple[SignedPublic, ...]:
    """The events of the adapter's own chain, the root's first; they were verified with the chain."""
    file = settings.identity.parent_delegation_event
    if chain is None or file is None:
        return ()
    found: dict[str, SignedPublic] = {}
    for event in events_in(read_small(file), str(file)):
        try:
            signed = read(event, encode(event))
        except MalformedEvent as fault:
            raise UsageError(f"{file}: not a delegation: {fault.message}") from None
        if isinstance(signed, SignedPublic):
            found[signed.event.id] = signed
    return tuple(found[link.id] for link in chain.links)


async def file_changes(file: Path, every: float = WATCH_SECONDS) -> AsyncIterator[None]:
    """Whenever a file is another one than before, and has been so for one look; until cancelled."""
    known = seen = _stamp(file)
    while True:
        await asyncio.sleep(every)
        now = _stamp(file)
        # Two looks alike: whoever writes it has finished. A file that is gone is being replaced.
        if now == seen and now != known and now is not None:
            known = now
            yield
        seen = now


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
