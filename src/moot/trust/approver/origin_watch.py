"""Where the values of each proposed call came from: fed with every message, and told to everybody.

The memory is that of `moot.origins`. What a tool does is said in the rules file (`tools:`), by the operator
or by people through `trust/accept`; of a tool that changed since nothing is known. Each call is judged where
it stands in the order of messages, and again when somebody endorses or revokes something, or says what a tool
does. What people say after a call was proposed counts only if they endorse it: to talk about a value is not
to ask for it. What is found is told by `moot/origins`.

Nothing in here stops the approver, and whatever goes wrong asks.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
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
# A space whose history is longer when the approver first comes may have begun before that history.
MAX_NEW_SPACE_MESSAGES: Final = 100
# Kinds that the history of a gateway keeps over its restarts.
_IN_HISTORY: Final = ("mcp/", "chat", "trust/")
FAILED: Final = "where its values came from could not be found out"


class SendAbout(Protocol):
    """Sends in the background, as far as the approver's capabilities allow."""

    def __call__(self, kind: str, payload: dict[str, Json], *, about: str | None = None) -> None: ...


class OriginWatch:
    """The origins of one space. `cases` are the proposals that are open now."""

    def __init__(
        self,
        space: JoinedSpace,
        store: RuleStore,
        tool_watcher: ToolWatcher,
        *,
        cases: Callable[[], Iterable[Case]],
        wall_clock: Callable[[], float],
        send: SendAbout,
    ) -> None:
        self._space = space
        self._store = store
        self._tools = tool_watcher
        self._cases = cases
        self._wall_clock = wall_clock
        self._send = send
        self.memory = OriginMemory(self.traits_of, own=self._space.name)
        self._seen: dict[str, None] = {}
        # What the memory was told, for when it becomes known what a tool does; whether there was more.
        self._kept: deque[tuple[Envelope, bool, float]] = deque()
        self._kept_bytes = 0
        self._has_gap = False
        self._is_broken = False
        self._outside: set[str] = set()
        # What was found by proposal, and what of it everybody was told.
        self._findings: dict[str, dict[str, Json]] = {}
        self._told: dict[str, dict[str, Json]] = {}

    # Feeding

    def observe(self, envelope: Envelope, *, at: float | None = None) -> bool:
        """Take in a message with logical names; returns whether open proposals have to be looked at again.

        `at` is when it was sent, if that is not now.
        """
        if envelope.id in self._seen:
            return False
        _put(self._seen, envelope.id, None, MAX_SEEN)
        is_own = envelope.sender == self._space.name
        if is_own and envelope.kind == ORIGINS_KIND:
            for id in envelope.correlation_id:
                _put(self._told, id, dict(envelope.payload), MAX_FINDINGS)
        if is_own and not envelope.kind.startswith("mcp/"):
            # What we say repeats what others wrote, and nobody takes values from it.
            return False
        if self._store.first_seen is None and envelope.kind.startswith(_IN_HISTORY):
            self._store.first_seen = envelope.id
        person = envelope.sender in self._store.people
        if envelope.kind == "mcp/proposal" and envelope.sender in envelope.to:
            # It asks before it does something itself, so it also reads what the space does not see.
            self._outside.add(envelope.sender)
            self.memory.read_outside(envelope.sender)
        at = self._wall_clock() if at is None else at
        self._keep(envelope, person, at)
        self.memory.see(envelope, person=person, at=at)
        return person and envelope.kind == ENDORSE_KIND

    def _keep(self, envelope: Envelope, person: bool, at: float) -> None:
        self._kept.append((envelope, person, at))
        self._kept_bytes += len(envelope.raw)
        while len(self._kept) > MAX_KEPT_MESSAGES or self._kept_bytes > MAX_KEPT_BYTES:
            self._kept_bytes -= len(self._kept.popleft()[0].raw)
            self._has_gap = True

    def observe_past(self, past: Sequence[Envelope], *, is_new: bool) -> None:
        """Take in what was sent before we joined, or missed; each open call is judged where it stands."""
        if not self._is_whole([each.id for each in past if each.kind.startswith(_IN_HISTORY)], is_new=is_new):
            self._note_gap()
        cases = {case.id: case for case in self._cases()}
        again = False
        for envelope in past:
            is_fresh = envelope.id not in self._seen
            again |= self.observe(envelope, at=sent_at(envelope, self._wall_clock()))
            if is_fresh and envelope.id in cases:
                self._judge(cases[envelope.id])
        for case in cases.values():
            if again or case.id not in self._findings:
                self._judge(case)
            # Until its tool is known again after a start, nothing better can be said than was said before.
            if case.id not in self._told or any(
                self._tools.definition_of(h, case.tool or "") for h in case.to
            ):
                self._tell(case)

    def _is_whole(self, ids: Sequence[str], *, is_new: bool) -> bool:
        """Whether nothing is missing between what we know and this history."""
        if self._seen:
            return not ids or any(id in self._seen for id in ids)
        if is_new and len(ids) > MAX_NEW_SPACE_MESSAGES:
            self._store.first_seen = ""
        first = self._store.first_seen
        return first in ids or (first is None and (is_new or not ids))

    def read_again(self) -> None:
        """What tools do has changed, so all is read again."""
        self.memory = OriginMemory(self.traits_of, own=self._space.name)
        self._is_broken = False
        for agent in self._outside:
            self.memory.read_outside(agent)
        if self._has_gap:
            self._note_gap()
        for envelope, person, at in self._kept:
            self.memory.see(envelope, person=person, at=at)

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
        key = f"{host}/{tool}"
        if self._store.fault is not None or key in self._store.changed_tools:
            return UNKNOWN_TOOL
        return traits_for(self._store.tools, host, tool, self._tools.definition_of(host, tool))

    # Judging

    def look(self, case: Case) -> None:
        """Judge a call and tell everybody, if that is something new."""
        if case.method == "tools/call":
            self._judge(case)
            self._tell(case)

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

    def _tell(self, case: Case) -> None:
        found = self._findings.get(case.id)
        if found is None or not self._space.may(ORIGINS_KIND):
            return
        told = self._told.get(case.id)
        if told is not None and _timeless(told) == _timeless(found):
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
