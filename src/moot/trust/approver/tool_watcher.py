"""Watches the definitions of tools that rules are about, and reports each change once (D-87).

A host is *compared* when its tools have been listed and compared with the stored definitions since it last
joined or said that its list changed. Until then no rule decides about it: what has joined under a known name
may be something else. A host that cannot be listed stays uncompared, and people are asked. So it is with a
tool that a rule approves and that was never listed. The first definition of a tool that is listed is stored
as the known one, whether or not anybody has decided about it by then.
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
from moot.trust.rules.rule import Rule
from moot.trust.rules.rule_store import RuleStore
from moot.trust.rules.tripwires import ToolChanged, names_tool

log = logging.getLogger(__name__)

LIST_CHANGED: Final = "notifications/tools/list_changed"
# How long a host has to list its tools; without an answer it is asked another time.
LIST_SECONDS: Final = 15.0
# Of one host; no rule approves calls of any more.
MAX_PINNED_TOOLS: Final = 2_000
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
        # By host and tool, as they were last listed, and the hosts that were listed.
        self.definitions: dict[tuple[str, str], ListedDefinition] = {}
        self._listed: set[str] = set()
        space.roster.on_change(self._observe_presence)
        space.on_reconnected(self._expire_all)

    def is_compared(self, host: str, tool: str | None) -> bool:
        """Whether rules may decide about this tool of a host; the host is listed again if not."""
        is_current = host in self._compared or host not in self._known_hosts()
        is_pinned = tool is None or f"{host}/{tool}" in self._store.definitions
        if is_current and (is_pinned or not self._is_approved(host, tool)):
            return True
        self._enqueue(host)
        return False

    def compares(self, host: str) -> bool:
        """Whether the tools of a host are compared once it is here, since rules may decide about them."""
        return self._is_approved(host) or host in self._known_hosts()

    @property
    def schemas(self) -> dict[tuple[str, str], Json]:
        """The schemas of arguments."""
        return {key: each.schema for key, each in self.definitions.items()}

    def definition_of(self, host: str, tool: str) -> str | None:
        """The hash of a tool's definition, if it was compared since its host last joined."""
        found = self.definitions.get((host, tool)) if host in self._compared else None
        return None if found is None else found.digest

    async def run(self) -> None:
        """Compare the hosts that are known or that rules name, and whatever may have changed, until
        cancelled.
        """
        # A rule for any host covers whoever is here.
        here = {member.name for member in self._space.roster.values() if self._is_approved(member.name)}
        here -= {self._space.name} | self._store.people
        for host in self._known_hosts() | self._named_hosts() | here:
            self._enqueue(host)
        async with asyncio.TaskGroup() as group:
            while True:
                host = await self._queue.get()
                if self.compares(host):
                    # Each on its own: one that does not answer holds nobody up.
                    group.create_task(self._compare(host))
                else:
                    self._pending.discard(host)

    def pin(self, rules: Iterable[Rule]) -> None:
        """List the tools of these rules, which a person has just reviewed, before they decide anything.

        What changed unnoticed suspends the new rules, too: people looked at a rule, not at its tool.
        """
        for host in sorted({host for rule in rules if rule.tool is not None for host in rule.to or ()}):
            self._expire(host)

    async def load_schemas(self, hosts: Iterable[str]) -> None:
        """List the tools of hosts whose schemas are not known; one that does not answer is asked once."""
        roster = self._space.roster
        missing = [host for host in hosts if host in roster and host not in self._listed]
        await asyncio.gather(*map(self._compare, missing[:MAX_SCHEMA_HOSTS]))

    def observe(self, envelope: Envelope) -> None:
        if envelope.payload.get("method") == LIST_CHANGED:
            self._expire(envelope.sender)

    # Inside

    async def _compare(self, host: str) -> None:
        """List the tools of a host, and again if they may have changed meanwhile."""
        try:
            version = None
            while version != self._versions[host]:
                version = self._versions[host]
                self._apply(host, await self._tools(host), version)
        finally:
            self._pending.discard(host)

    def _apply(self, host: str, now: dict[str, Digests], version: int) -> None:
        """Report what differs from the stored definitions, and store those of tools that are new.

        A host without tools has not been compared.
        """
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
        for name, listed in list(now.items())[:MAX_PINNED_TOOLS]:
            if f"{host}/{name}" not in self._store.definitions:
                log.info("tool pinned as it is", extra={"host": host, "tool": name})
                self._store.definitions[f"{host}/{name}"] = listed.sorted
        self._store.save()
        if self._versions[host] == version:
            self._compared.add(host)
            self._on_compared(host)

    def _known_hosts(self) -> set[str]:
        return {key.partition("/")[0] for key in self._store.definitions}

    def _named_hosts(self) -> set[str]:
        """The hosts in rules that approve calls of tools; some may be patterns, and then nobody's name."""
        named = {host for rule in self._approving_rules() for host in rule.to or ()}
        return named | self._store.remembered.hosts()

    def _is_approved(self, host: str, tool: str | None = None) -> bool:
        """Whether a rule approves calls of this tool, or of any tool, of the host."""
        return self._store.remembered.covers_tool(host, tool) or any(
            rule.covers_host(host) and (tool is None or names_tool(rule.tool, tool))
            for rule in self._approving_rules()
        )

    def _approving_rules(self) -> list[Rule]:
        return [rule for rule in self._store.rules if rule.decision == "approve" and rule.tool is not None]

    def _observe_presence(self, event: PresenceEvent) -> None:
        if event.event == "join" and event.member is not None:
            host = event.member.name
            # People come and go with every command, and are asked for tools only if a call is for them.
            is_host = host not in self._store.people or host in self._known_hosts() | self._named_hosts()
            self._expire(host, list_again=is_host)

    def _expire_all(self) -> None:
        """We were away: any host may be another one now."""
        for host in self._known_hosts() | self._named_hosts():
            self._expire(host)

    def _expire(self, host: str, *, list_again: bool = True) -> None:
        self._listed.discard(host)
        self._versions[host] += 1
        self._compared.discard(host)
        if list_again:
            self._enqueue(host)

    def _enqueue(self, host: str) -> None:
        if host not in self._pending:
            self._pending.add(host)
            self._queue.put_nowait(host)

    async def _tools(self, host: str) -> dict[str, Digests]:
        """Hashes of each definition by name; empty if they cannot be listed."""
        if host not in self._space.roster:
            return {}
        if not self._space.may_request(host, "tools/list"):
            log.info("tools not listed", extra={"host": host, "why": "no right to request tools/list"})
            return {}
        self._listed.add(host)
        try:
            listed = await self._space.list_all(host, "tools", timeout_seconds=LIST_SECONDS)
        except MootError as fault:
            log.info("tools not listed", extra={"host": host, "why": str(fault)})
            return {}
        digests = {str(tool.get("name")): digests_of(tool) for tool in listed}
        self.definitions = {key: each for key, each in self.definitions.items() if key[0] != host}
        for tool in listed:
            name = str(tool.get("name"))
            found = ListedDefinition(digests[name].sorted, tool.get("annotations"), tool.get("inputSchema"))
            self.definitions[host, name] = found
        return digests


class ListedDefinition(NamedTuple):
    """What a listing said of a tool: the hash of its definition, what its annotations claim, its schema."""

    digest: str
    annotations: Json
    schema: Json


class Digests(NamedTuple):
    """Hashes of one definition: with its members in order, and as it was listed, which 0.1 stored."""

    sorted: str
    listed: str


def digests_of(tool: Json) -> Digests:
    in_order = json.dumps(tool, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    texts = in_order.encode("utf-8", "surrogatepass"), strict_json.encode(tool)
    return Digests(*(hashlib.sha256(text).hexdigest() for text in texts))
