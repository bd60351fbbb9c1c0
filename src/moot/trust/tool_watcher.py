"""Watches the definitions of tools that rules are about, and reports each change once (D-87).

A host is *compared* when its tools have been listed and compared with the stored definitions since it last
joined or said that its list changed. Until then no rule decides about it: what has joined under a known name
may be something else. A host that cannot be listed stays uncompared, and people are asked.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from moot.errors import MootError
from moot.participant.connection.roster import PresenceEvent
from moot.participant.joined_space import JoinedSpace
from moot.protocol import strict_json
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from moot.trust.rule_store import RuleStore
from moot.trust.rules import Rule
from moot.trust.tripwires import ToolChanged, names_tool

log = logging.getLogger(__name__)

LIST_CHANGED: Final = "notifications/tools/list_changed"
# How long a host has to list its tools; without an answer it is asked another time.
LIST_SECONDS: Final = 15.0
# Hosts that are listed at once to learn from their schemas.
MAX_SCHEMA_HOSTS: Final = 20


class ToolWatcher:
    """Lists the tools of hosts when these may have changed; needs a capability for `tools/list`.

    `on_change` is called for each tool that changed, and then `on_compared` for its host.
    """

    def __init__(
        self,
        space: JoinedSpace,
        store: RuleStore,
        *,
        on_change: Callable[[ToolChanged], object],
        on_compared: Callable[[str], None],
    ) -> None:
        self._space = space
        self._store = store
        self._on_change = on_change
        self._on_compared = on_compared
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        # In the queue, or being compared.
        self._pending: set[str] = set()
        self._compared: set[str] = set()
        # How often each host may have changed: a comparison counts only if it is the same before and after.
        self._versions: Counter[str] = Counter()
        # The schemas of arguments by host and tool, as they were last listed, and the hosts that were listed.
        self.schemas: dict[tuple[str, str], Json] = {}
        self._listed: set[str] = set()
        space.roster.on_change(self._observe_presence)
        space.on_reconnected(self._expire_all)

    def is_compared(self, host: str) -> bool:
        """Whether rules may decide about this host; it is listed again if not."""
        if host in self._compared or host not in self._known_hosts():
            return True
        self._enqueue(host)
        return False

    async def run(self, rules: Iterable[Rule]) -> None:
        """Compare known hosts with their stored definitions, pin the tools of the others as they are, and
        compare whatever may have changed, until cancelled.
        """
        known = self._known_hosts()
        for host in known:
            self._enqueue(host)
        async with asyncio.TaskGroup() as group:
            group.create_task(self.pin([rule for rule in rules if not known & set(rule.to or ())]))
            while True:
                # Each on its own: one that does not answer holds nobody up.
                group.create_task(self._compare(await self._queue.get()))

    async def pin(self, rules: Iterable[Rule]) -> None:
        """Store the tools of these rules as they are now, since a person has just reviewed them."""
        listed = [rule for rule in rules if rule.tool is not None]
        for host in sorted({host for rule in listed for host in rule.to or ()}):
            version = self._versions[host]
            tools = await self._tools(host)
            for name, digests in tools.items():
                key = f"{host}/{name}"
                is_reviewed = any(rule.covers_host(host) and names_tool(rule.tool, name) for rule in listed)
                if is_reviewed or key not in self._store.definitions:
                    self._store.definitions[key] = digests.sorted
            self._apply(host, tools, version)

    async def load_schemas(self, hosts: Iterable[str]) -> None:
        """List the tools of hosts whose schemas are not known; one that does not answer is asked once."""
        missing = [host for host in hosts if host not in self._listed][:MAX_SCHEMA_HOSTS]
        await asyncio.gather(*(self._tools(host) for host in missing))

    def observe(self, envelope: Envelope) -> None:
        if envelope.payload.get("method") == LIST_CHANGED:
            self._expire(envelope.sender)

    # Inside

    async def _compare(self, host: str) -> None:
        try:
            version = None
            while version != self._versions[host]:
                version = self._versions[host]
                if host in self._known_hosts():
                    self._apply(host, await self._tools(host), version)
        finally:
            self._pending.discard(host)

    def _apply(self, host: str, now: dict[str, Digests], version: int) -> None:
        """Report what differs from the stored definitions. A host without tools has not been compared."""
        if not now:
            return
        for key, digest in list(self._store.definitions.items()):
            owner, _, name = key.partition("/")
            if owner != host:
                continue
            found = now.get(name)
            # Reported once: from now on the new definition is the known one.
            if found is None:
                del self._store.definitions[key]
                self._on_change(ToolChanged(host, name, "it no longer exists"))
            else:
                self._store.definitions[key] = found.sorted
                if digest not in found:
                    self._on_change(ToolChanged(host, name, "its definition changed"))
        self._store.save()
        if self._versions[host] == version:
            self._compared.add(host)
            self._on_compared(host)

    def _known_hosts(self) -> set[str]:
        return {key.partition("/")[0] for key in self._store.definitions}

    def _observe_presence(self, event: PresenceEvent) -> None:
        if event.event == "join" and event.member is not None:
            self._expire(event.member.name)

    def _expire_all(self) -> None:
        """We were away: any host may be another one now."""
        for host in self._known_hosts():
            self._expire(host)

    def _expire(self, host: str) -> None:
        self._listed.discard(host)
        self._versions[host] += 1
        self._compared.discard(host)
        self._enqueue(host)

    def _enqueue(self, host: str) -> None:
        if host not in self._pending:
            self._pending.add(host)
            self._queue.put_nowait(host)

    async def _tools(self, host: str) -> dict[str, Digests]:
        """Hashes of each definition by name; empty if they cannot be listed."""
        if host not in self._space.roster or not self._space.may_request(host, "tools/list"):
            return {}
        self._listed.add(host)
        try:
            listed = await self._space.list_all(host, "tools", timeout_seconds=LIST_SECONDS)
        except MootError as fault:
            log.info("tools not listed", extra={"host": host, "why": str(fault)})
            return {}
        self.schemas = {key: schema for key, schema in self.schemas.items() if key[0] != host}
        self.schemas |= {(host, str(tool.get("name"))): tool.get("inputSchema") for tool in listed}
        return {str(tool.get("name")): digests_of(tool) for tool in listed}


class Digests(NamedTuple):
    """Hashes of one definition: with its members in order, and as it was listed, which 0.1 stored."""

    sorted: str
    listed: str


def digests_of(tool: Json) -> Digests:
    in_order = json.dumps(tool, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    texts = in_order.encode("utf-8", "surrogatepass"), strict_json.encode(tool)
    return Digests(*(hashlib.sha256(text).hexdigest() for text in texts))
