"""The tools that rules are about, as they were when people decided (D-87): a change is told, once."""

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
# A host that is asked for its tools answers within this, or is asked another time.
LIST_SECONDS: Final = 15.0

Change = tuple[str, str, str]


class Definitions:
    """Asks hosts for their tools when these may have changed; needs the right to `tools/list`."""

    def __init__(self, space: JoinedSpace, book: RuleStore) -> None:
        self._space = space
        self._book = book
        self._wanted: asyncio.Queue[str] = asyncio.Queue()
        self._asked: set[str] = set()
        space.roster.on_change(self._presence)

    async def begin(self, rules: Iterable[Rule]) -> None:
        """Hosts that are known are compared with what is known of them; the others are taken as they are."""
        listed = list(rules)
        known = {key.partition("/")[0] for key in self._book.definitions}
        await self.pin([rule for rule in listed if not known & set(rule.to or ())])
        for host in known:
            self._want(host)

    async def pin(self, rules: Iterable[Rule]) -> None:
        """Take the tools of these rules' hosts as they are now: a person has just looked at them."""
        hosts = {host for rule in rules if rule.tool is not None for host in rule.to or ()}
        for host in sorted(hosts):
            tools = await self._tools(host)
            for name, digest in tools.items():
                self._book.definitions[f"{host}/{name}"] = digest
        if hosts:
            self._book.save()

    def heard(self, envelope: Envelope) -> None:
        if envelope.payload.get("method") == LIST_CHANGED:
            self._want(envelope.sender)

    async def changes(self) -> AsyncIterator[Change]:
        """Host, tool, and what about it; until cancelled."""
        while True:
            host = await self._wanted.get()
            self._asked.discard(host)
            known = {
                key.partition("/")[2]: digest
                for key, digest in self._book.definitions.items()
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
                # Told once: from here on the new one is what is known.
                key = f"{host}/{name}"
                if name in now:
                    self._book.definitions[key] = now[name]
                else:
                    del self._book.definitions[key]
                yield host, name, "its definition changed" if name in now else "it no longer exists"
            self._book.save()

    def _presence(self, event: PresenceEvent) -> None:
        if event.event == "join" and event.member is not None:
            self._want(event.member.name)

    def _want(self, host: str) -> None:
        if host not in self._asked:
            self._asked.add(host)
            self._wanted.put_nowait(host)

    async def _tools(self, host: str) -> dict[str, str]:
        """By name, a hash of each definition; empty when they cannot be had."""
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
