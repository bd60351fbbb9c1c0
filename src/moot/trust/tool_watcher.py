"""Watches the definitions of tools that rules are about, and reports each change once (D-87)."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Iterable
from typing import Final

from moot.errors import MootError
from moot.participant.connection.roster import PresenceEvent
from moot.participant.joined_space import JoinedSpace
from moot.protocol import strict_json
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from moot.trust.rule_store import RuleStore
from moot.trust.rules import Rule

log = logging.getLogger(__name__)

LIST_CHANGED: Final = "notifications/tools/list_changed"
# How long a host has to list its tools; without an answer it is asked another time.
LIST_SECONDS: Final = 15.0

Change = tuple[str, str, str]


class ToolWatcher:
    """Lists the tools of hosts when these may have changed; needs a capability for `tools/list`."""

    def __init__(self, space: JoinedSpace, store: RuleStore) -> None:
        self._space = space
        self._store = store
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._queued: set[str] = set()
        space.roster.on_change(self._observe_presence)

    async def start(self, rules: Iterable[Rule]) -> None:
        """Compare known hosts with their stored definitions; pin the tools of the others as they are."""
        listed = list(rules)
        known = {key.partition("/")[0] for key in self._store.definitions}
        await self.pin([rule for rule in listed if not known & set(rule.to or ())])
        for host in known:
            self._enqueue(host)

    async def pin(self, rules: Iterable[Rule]) -> None:
        """Store the tools of these rules' hosts as they are now, since a person has just reviewed them."""
        hosts = {host for rule in rules if rule.tool is not None for host in rule.to or ()}
        for host in sorted(hosts):
            tools = await self._tools(host)
            for name, digest in tools.items():
                self._store.definitions[f"{host}/{name}"] = digest
        if hosts:
            self._store.save()

    def observe(self, envelope: Envelope) -> None:
        if envelope.payload.get("method") == LIST_CHANGED:
            self._enqueue(envelope.sender)

    async def changes(self) -> AsyncIterator[Change]:
        """Yield host, tool and what changed; runs until cancelled."""
        while True:
            host = await self._queue.get()
            self._queued.discard(host)
            known = {
                key.partition("/")[2]: digest
                for key, digest in self._store.definitions.items()
                if key.partition("/")[0] == host
            }
            if not known:
                continue
            now = await self._tools(host)
            if not now:
                continue
            for name, digest in known.items():
                if now.get(name) == digest:
                    continue
                # Reported once: from now on the new definition is the known one.
                key = f"{host}/{name}"
                if name in now:
                    self._store.definitions[key] = now[name]
                else:
                    del self._store.definitions[key]
                yield host, name, "its definition changed" if name in now else "it no longer exists"
            self._store.save()

    def _observe_presence(self, event: PresenceEvent) -> None:
        if event.event == "join" and event.member is not None:
            self._enqueue(event.member.name)

    def _enqueue(self, host: str) -> None:
        if host not in self._queued:
            self._queued.add(host)
            self._queue.put_nowait(host)

    async def _tools(self, host: str) -> dict[str, str]:
        """A hash of each definition by name; empty if they cannot be listed."""
        if host not in self._space.roster or not self._space.may_request(host, "tools/list"):
            return {}
        try:
            listed = await self._space.list_all(host, "tools", timeout_seconds=LIST_SECONDS)
        except MootError as fault:
            log.info("tools not listed", extra={"host": host, "why": str(fault)})
            return {}
        return {str(tool.get("name")): digest_of(tool) for tool in listed}


def digest_of(tool: Json) -> str:
    return hashlib.sha256(strict_json.encode(tool)).hexdigest()
