"""Where the values of each proposed call came from: fed with every message, and told to everybody.

The memory is that of `moot.origins`. What a tool does is said in the rules file (`tools:`), by the operator
or by people through `trust/accept`; of a tool that changed since nothing is known. Each call is judged where
it stands in the order of messages, and again when somebody endorses or revokes something, or says what a tool
does. What people say after a call was proposed counts only if they endorse it: to talk about a value is not
to ask for it. What is found is told by `moot/origins` where people are asked; of what a rule has approved by
it, `trust_origins` tells.

Messages are only kept, and read in slices: when a call is proposed, when it is quiet, or before they become
too many. A call that comes behind many is looked at when those before it have been read, and asks until then.

Nothing in here stops the approver, and whatever goes wrong asks.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final, Protocol

from moot.origins.argument_origins import OriginCall
from moot.origins.endorsement import ENDORSE_KIND
from moot.origins.origin_memory import OriginMemory
from moot.origins.origin_payload import ORIGINS_KIND, payload_of
from moot.origins.origin_verdict import verdict_on
from moot.origins.tool_traits import UNKNOWN_TOOL, ToolTraits, traits_for
from moot.participant.joined_space import JoinedSpace
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from moot.trust.approver.tool_watcher import ToolWatcher
from moot.trust.history.proposal_case import Case
from moot.trust.rules.rule import ORIGINS_UNKNOWN
from moot.trust.rules.rule_store import RuleStore

log = logging.getLogger(__name__)

# Messages that are known to be in the memory, those that can be read again, and findings about proposals; the
# oldest are dropped first.
MAX_SEEN: Final = 20_000
MAX_KEPT_MESSAGES: Final = 4_096
MAX_KEPT_BYTES: Final = 16 << 20
MAX_FINDINGS: Final = 10_000
# What is read at once, in bytes of messages, but for one that is larger: some 10 ms.
SLICE_BYTES: Final = 8 << 10
# Nothing came for so long: there is time to read.
QUIET_SECONDS: Final = 1.0
# A space whose history is longer when the approver first comes may have begun before that history.
MAX_NEW_SPACE_MESSAGES: Final = 100
# Kinds that the history of a gateway keeps over its restarts.
_IN_HISTORY: Final = ("mcp/", "chat", "trust/")
FAILED: Final = "where its values came from could not be found out"


class SendAbout(Protocol):
    """Sends in the background, as far as the approver's capabilities allow."""

    def __call__(self, kind: str, payload: dict[str, Json], *, about: str | None = None) -> None: ...


class OriginWatch:
    """The origins of one space. `cases` are the proposals that are open now.

    `on_found` is called for each call that was looked at later than it was asked for.
    """

    def __init__(
        self,
        space: JoinedSpace,
        store: RuleStore,
        tool_watcher: ToolWatcher,
        *,
        cases: Callable[[], Iterable[Case]],
        wall_clock: Callable[[], float],
        on_found: Callable[[Case], None],
        send: SendAbout,
    ) -> None:
        self._space = space
        self._store = store
        self._tools = tool_watcher
        self._cases = cases
        self._wall_clock = wall_clock
        self._on_found = on_found
        self._send = send
        self.memory = OriginMemory(self.traits_of, own=space.name)
        self._seen: dict[str, None] = {}
        # What the memory has not read, and what it has, for when it becomes known what a tool does; whether
        # there was more. None as the time: as the message itself says.
        self._unread: deque[tuple[Envelope, bool, float | None]] = deque()
        self._read: deque[tuple[Envelope, bool, float | None]] = deque()
        self._unread_bytes = 0
        self._read_bytes = 0
        self._has_gap = False
        self._is_broken = False
        # Calls to judge when their own message was read, and when all were.
        self._due: dict[str, Case] = {}
        self._due_last: dict[str, Case] = {}
        self._wake = asyncio.Event()
        # Hosts of which something was read before their tools were compared for the first time, and since.
        self._early: set[str] = set()
        self._compared: set[str] = set()
        # What was found by proposal, what of it everybody was told, and what was open when we came.
        self._findings: dict[str, dict[str, Json]] = {}
        self._told: dict[str, dict[str, Json]] = {}
        self._recalled: frozenset[str] = frozenset()

    # Feeding

    def observe(self, envelope: Envelope, *, is_past: bool = False) -> bool:
        """Take in a message with logical names; returns whether open proposals have to be looked at again.

        For every message of a space, so it does nothing that can wait.
        """
        id, kind = envelope.id, envelope.kind
        if id in self._seen:
            return False
        self._seen[id] = None
        if envelope.sender == self._space.name and self._is_echo(envelope):
            # What we say repeats what others wrote.
            if kind == ORIGINS_KIND:
                for each in envelope.correlation_id:
                    _put(self._told, each, dict(envelope.payload), MAX_FINDINGS)
            return False
        if self._store.first_seen is None and kind.startswith(_IN_HISTORY):
            self._store.first_seen = id
        person = envelope.sender in self._store.people
        if kind == ENDORSE_KIND:
            at = self._wall_clock()
            self.memory.see(envelope, person=person, at=sent_at(envelope, at) if is_past else at)
            return person
        self._unread.append((envelope, person, None if is_past else self._wall_clock()))
        self._unread_bytes += len(envelope.raw)
        if len(self._unread) > MAX_KEPT_MESSAGES // 2 or self._unread_bytes > MAX_KEPT_BYTES // 2:
            self._make_room()
        return False

    def _is_echo(self, envelope: Envelope) -> bool:
        """Whether only people read it; an agent that asks our tools reads what others wrote."""
        is_answer = envelope.kind == "mcp/response" and self._store.people.issuperset(envelope.to)
        return is_answer or not envelope.kind.startswith("mcp/")

    def _make_room(self) -> None:
        self._wake.set()
        while len(self._unread) > MAX_KEPT_MESSAGES or self._unread_bytes > MAX_KEPT_BYTES:
            self._unread_bytes -= len(self._unread.popleft()[0].raw)
            self._note_gap()

    def observe_past(self, past: Sequence[Envelope], *, is_new: bool) -> None:
        """Take in what was sent before we joined, or missed; each open call is judged where it stands."""
        if not self._is_whole([each.id for each in past if each.kind.startswith(_IN_HISTORY)], is_new=is_new):
            self._note_gap()
        cases = {case.id: case for case in self._cases()}
        again = False
        for envelope in past:
            if envelope.id in cases and envelope.id not in self._seen:
                self._due[envelope.id] = cases[envelope.id]
            again |= self.observe(envelope, is_past=True)
        self._recalled = frozenset(cases)
        for id, case in cases.items():
            if again or (id not in self._findings and id not in self._due):
                self._due_last[id] = case
        self._wake.set()

    # Reading

    async def run(self) -> None:
        """Read what was kept until cancelled, and let others work between two slices."""
        while True:
            latest = self._latest()
            try:
                async with asyncio.timeout(QUIET_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                if self._latest() != latest:
                    continue
            self._wake.clear()
            latest = self._latest()
            # Until it is quiet no longer, and no call waits.
            while self._is_due() or (self._unread and self._latest() == latest):
                self._read_slice()
                await asyncio.sleep(0)

    def _latest(self) -> str | None:
        return self._unread[-1][0].id if self._unread else None

    def _is_due(self) -> bool:
        return bool(self._due or self._due_last) or len(self._unread) > MAX_KEPT_MESSAGES // 4

    def _read_slice(self) -> None:
        spent = 0
        while self._unread and (not spent or spent <= SLICE_BYTES):
            kept = envelope, person, at = self._unread.popleft()
            size = len(envelope.raw)
            spent += size
            self._unread_bytes -= size
            self._keep(kept, size)
            try:
                self.memory.see(
                    envelope, person=person, at=sent_at(envelope, self._wall_clock()) if at is None else at
                )
                self.memory.catch_up()
            except Exception:
                log.exception("origins are lost")
                self._is_broken = True
            if envelope.id in self._due:
                self._find_late(self._due.pop(envelope.id))
        if not self._unread:
            late, self._due, self._due_last = self._due | self._due_last, {}, {}
            for case in late.values():
                self._find_late(case)

    def _find_late(self, case: Case) -> None:
        self._judge(case)
        self._on_found(case)

    def _keep(self, kept: tuple[Envelope, bool, float | None], size: int) -> None:
        self._read.append(kept)
        self._read_bytes += size
        while len(self._read) > MAX_KEPT_MESSAGES or self._read_bytes > MAX_KEPT_BYTES:
            self._read_bytes -= len(self._read.popleft()[0].raw)
            self._has_gap = True
        while len(self._seen) > MAX_SEEN:
            del self._seen[next(iter(self._seen))]

    def _is_whole(self, ids: Sequence[str], *, is_new: bool) -> bool:
        """Whether nothing is missing between what we know and this history."""
        if self._seen:
            return not ids or any(id in self._seen for id in ids)
        if is_new and len(ids) > MAX_NEW_SPACE_MESSAGES:
            self._store.first_seen = ""
        first = self._store.first_seen
        return first in ids or (first is None and (is_new or not ids))

    def read_again(self) -> None:
        """People said what tools do, so all is read again; what they endorsed and revoked stays."""
        endorsements = self.memory.endorsements
        self.memory = OriginMemory(self.traits_of, own=self._space.name)
        self.memory.endorsements |= endorsements
        self._is_broken = False
        if self._has_gap:
            self._note_gap()
        self._unread.extendleft(reversed(self._read))
        self._unread_bytes += self._read_bytes
        self._read.clear()
        self._read_bytes = 0
        self._make_room()

    def note_compared(self, host: str) -> None:
        """The tools of a host are known. What was read of it before, after a start, is read again, once."""
        if host in self._early and host not in self._compared:
            self.read_again()
        self._compared.add(host)

    def _note_gap(self) -> None:
        self._has_gap = True
        try:
            self.memory.note_gap()
        except Exception:
            # Nothing of it can be relied on: all ask, until it is read again.
            log.exception("origins are lost")
            self._is_broken = True

    # What tools do

    def traits_of(self, host: str, tool: str) -> ToolTraits:
        """What is said of a tool. Nobody vouches for results of what has joined and not shown its tools."""
        key = f"{host}/{tool}"
        if self._store.fault is not None or key in self._store.changed_tools:
            return UNKNOWN_TOOL
        definition = self._tools.definition_of(host, tool)
        traits = traits_for(self._store.tools, host, tool, definition)
        if definition is None and self._store.tools and self._tools.compares(host):
            if len(self._early) < MAX_FINDINGS:
                self._early.add(host)
            traits = replace(traits, returns="others")
        return traits

    # Judging

    def look(self, case: Case) -> None:
        """Judge a call that has just been proposed: now, or when what came before it has been read."""
        self._look(case, self._due)

    def look_again(self, case: Case) -> None:
        """Judge an open call by all that was seen."""
        self._look(case, self._due_last)

    def _look(self, case: Case, due: dict[str, Case]) -> None:
        if case.method != "tools/call":
            return
        if self._unread_bytes <= SLICE_BYTES:
            self._read_slice()
            self._judge(case)
        else:
            due[case.id] = case
            self._wake.set()

    def ask_reason(self, case: Case) -> str | None:
        """Why the origins of its values ask; None if they were looked at and do not."""
        found = self._findings.get(case.id)
        if found is None or case.method != "tools/call":
            return ORIGINS_UNKNOWN
        return str(found["why"]) if found["asks"] is not False else None

    def asked(self, id: str) -> bool:
        """Whether a call asked by its origins; what is not known asked."""
        found = self._findings.get(id) or self._told.get(id)
        return found is None or found.get("asks") is not False

    def was_told(self, id: str) -> bool:
        return id in self._told

    def finding(self, id: str) -> dict[str, Json] | None:
        return self._findings.get(id) or self._told.get(id)

    def _judge(self, case: Case) -> None:
        before = self._findings.get(case.id) or self._told.get(case.id)
        try:
            found = self._find(case)
            if before is not None and before.get("asks") is not False and not found["asks"]:
                _keep_asking(found, before, case.at)
        except Exception:
            log.exception("origins not found", extra={"proposal": case.id})
            found = {"asks": True, "why": FAILED, "arguments": []}
            self._note_gap()
        _put(self._findings, case.id, found, MAX_FINDINGS)

    def _find(self, case: Case) -> dict[str, Json]:
        host = case.to[0] if len(case.to) == 1 else ""
        tool = case.tool or ""
        schema = self._tools.schemas.get((host, tool))
        call = OriginCall(case.proposer, tool, case.arguments, self.traits_of(host, tool), schema)
        found = payload_of(verdict_on(self.memory, call, self._wall_clock()), agent=case.proposer)
        why = self._other_reason(case, host, tool)
        return found if why is None else {**found, "asks": True, "why": why}

    def _other_reason(self, case: Case, host: str, tool: str) -> str | None:
        if self._is_broken:
            return FAILED
        if not host or not tool:
            return "it is not for one tool of one member"
        if case.unexpected_fields:
            return f"it has {case.unexpected_fields[0]}, which was not looked at"
        if f"{host}/{tool}" in self._store.changed_tools:
            return f"{tool} of {host} has changed, and nobody has looked at it since"
        return None

    def tell(self, case: Case) -> None:
        """Tell everybody what was found of a call that people are asked about, if that is something new."""
        found = self._findings.get(case.id)
        is_due = case.id in self._due or case.id in self._due_last
        if found is None or is_due or not self._space.may(ORIGINS_KIND):
            return
        told = self._told.get(case.id)
        if told is not None:
            # Until its tool is known again after a start, nothing better can be said than was said before.
            is_known = any(self._tools.definition_of(host, case.tool or "") for host in case.to)
            if _timeless(told) == _timeless(found) or (case.id in self._recalled and not is_known):
                return
        _put(self._told, case.id, found, MAX_FINDINGS)
        self._send(ORIGINS_KIND, found, about=case.id)


def sent_at(envelope: Envelope, now: float) -> float:
    """When an envelope was sent, by its own timestamp but not in the future."""
    try:
        return min(now, datetime.fromisoformat(envelope.ts.replace("Z", "+00:00")).timestamp())
    except ValueError:
        return now


def _keep_asking(found: dict[str, Json], before: Mapping[str, Json], at: float) -> None:
    """A value that became a person's since it was proposed, and that nobody endorsed, still asks.

    So does one that a look-up returned since.
    """
    said = {
        (each.get("path"), each.get("value"))
        for each in before.get("arguments", ())
        if each.get("origin") in ("person", "trusted")
    }
    for each in found["arguments"]:
        is_late = each["origin"] == "person" or (each["origin"] == "trusted" and each.get("at", 0.0) >= at)
        if is_late and "endorsed_by" not in each and (each["path"], each["value"]) not in said:
            found |= {"asks": True, "why": before["why"]}
            return


def _timeless(found: Mapping[str, Json]) -> dict[str, Json]:
    """A finding without the times of its sources, which differ a little after a restart."""
    return {
        **found,
        "arguments": [{**each, "at": None} if "at" in each else each for each in found.get("arguments", ())],
    }


def _put(table: dict[str, Json], key: str, value: Json, most: int) -> None:
    table[key] = value
    while len(table) > most:
        del table[next(iter(table))]
