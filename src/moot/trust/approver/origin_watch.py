"""Where the values of each proposed call came from: fed with every message, and told to everybody.

The memory is that of `moot.origins`. What a tool does is said in the rules file (`tools:`), by the operator
or by people through `trust/accept`; of a tool that changed since nothing is known. Each call is judged where
it stands in the order of messages, and again when somebody endorses or revokes something, or says what a tool
does. What people say after a call was proposed counts only if they endorse it: to talk about a value is not
to ask for it. What is found is told by `moot/origins` where people are asked; of what a rule has approved by
it, `trust_origins` tells.

Messages are only kept (`KeptMessages`): most are never followed by a call that needs them. When a call is
proposed that does more than read, first the chats of people are looked at; if these do not have all of its
values, everything is read, in slices. A call that comes behind many messages is looked at when those before
it have been read, and asks until then.

Nothing in here stops the approver, and whatever goes wrong asks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from moot.origins.origin_call import OriginCall
from moot.origins.origin_memory import OriginMemory
from moot.origins.origin_payload import payload_of
from moot.origins.origin_verdict import OriginVerdict, verdict_on
from moot.origins.tool_traits import UNKNOWN_TOOL, ToolTraits, traits_for
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import ANY_SIZE, Envelope
from moot.protocol.latest_dict import LatestDict
from moot.protocol.operation import Json
from moot.protocol.origin_report import ENDORSE_KIND, ORIGINS_KIND
from moot.trust.approver.kept_messages import MAX_KEPT_MESSAGES, MAX_SHORT_BYTES, KeptMessage, KeptMessages
from moot.trust.approver.origin_finding import (
    FAILED,
    ONLY_READS,
    keep_asking,
    other_reason,
    sent_at,
    timeless,
    unnamed_value,
)
from moot.trust.approver.said_values import SaidCall, find_said
from moot.trust.history.proposal_case import Case
from moot.trust.rules.rule import ORIGINS_UNKNOWN, Rule

if TYPE_CHECKING:
    from moot.trust.approver.approver import Approver

log = logging.getLogger(__name__)

# Findings about proposals; the oldest are dropped first.
MAX_FINDINGS: Final = 2_000
# What is read at once, in bytes of messages, but for one that is larger: some 10 ms.
SLICE_BYTES: Final = 16 << 10
# A space whose history is longer when the approver first comes may have begun before that history.
MAX_NEW_SPACE_MESSAGES: Final = 100
# The least of the beginning of an id by which a proposal is found.
MIN_ID_CHARS: Final = 4


class OriginWatch:
    """The origins of one space, told to its approver."""

    def __init__(self, approver: Approver) -> None:
        self._approver = approver
        self._space, self._store, self._tools = approver.space, approver.store, approver.tool_watcher
        self.memory = OriginMemory(self.traits_of, own=self._space.name)
        self.kept = KeptMessages(self._decode, self._see, self._note_gap)
        # Messages of the history, which may be delivered once more; None when that is over.
        self._past_ids: frozenset[str] | None = frozenset()
        # Calls to judge when their own message was read, and when all were.
        self._due: dict[str, Case] = {}
        self._due_last: dict[str, Case] = {}
        self._wake = asyncio.Event()
        # Hosts of which something was read before their tools were compared for the first time, and since.
        self._early: set[str] = set()
        self._compared: set[str] = set()
        # What was found by proposal, what of it everybody was told, and what was open when we came.
        self._findings: LatestDict[str, dict[str, Json] | SaidCall] = LatestDict(MAX_FINDINGS)
        # Why others may have led to a call that a person let run again before; empty if they did not.
        self._steered: LatestDict[str, str] = LatestDict(MAX_FINDINGS)
        self._told: LatestDict[str, dict[str, Json]] = LatestDict(MAX_FINDINGS)
        self._recalled: frozenset[str] = frozenset()

    # Feeding

    def observe(self, envelope: Envelope, now: float, is_as_sent: bool = False) -> bool:
        """Take in a message with logical names; returns whether open proposals have to be looked at again.

        `is_as_sent`: its bytes have these names, too. For every message of a space, so it does nothing that
        can wait, and each step counts.
        """
        raw, kind, kept = envelope.raw, envelope.kind, self.kept
        if is_as_sent and kind == "chat" and self._past_ids is None and len(raw) <= MAX_SHORT_BYTES:
            messages = kept.messages
            messages.append(raw)
            if kept.is_full and messages[0].__class__ is bytes:
                # One for one: memory that was let go of is taken by the next message.
                messages.popleft()
            elif len(messages) > MAX_KEPT_MESSAGES:
                kept.make_room()
            return False
        person = envelope.sender in self._store.people
        if not person and envelope.sender == self._space.name and self._is_echo(envelope):
            # What we say repeats what others wrote.
            if kind == ORIGINS_KIND:
                for each in envelope.correlation_id:
                    self._told[each] = dict(envelope.payload)
            return False
        if self._past_ids is not None and self._is_repeated(envelope, self._past_ids):
            return False
        if kind == ENDORSE_KIND:
            self.memory.see(envelope, person=person, at=now)
            return person
        kept.add((envelope, person, sent_at(envelope, now) if kind == "chat" else now))
        return False

    def _is_echo(self, envelope: Envelope) -> bool:
        """Whether only people read it; an agent that asks our tools reads what others wrote."""
        is_answer = envelope.kind == "mcp/response" and self._store.people.issuperset(envelope.to)
        return is_answer or not envelope.kind.startswith("mcp/")

    def _is_repeated(self, envelope: Envelope, past: frozenset[str]) -> bool:
        """Whether it was in the history, too. There is one order: behind a chat that was not, all is new."""
        if envelope.id in past:
            return True
        if envelope.kind == "chat":
            self._past_ids = None
        return False

    async def recall(
        self, past: Sequence[Envelope], with_names: Callable[[Envelope], Envelope], *, is_new: bool
    ) -> None:
        """Take in the gateway's history; if we know nothing of it, also what the journal has from before."""
        ids = {each.id for each in past}
        older, is_whole = [], None
        if self.known_ids().isdisjoint(ids):
            messages, is_whole = await self._space.journal(MAX_KEPT_MESSAGES)
            older = [with_names(each) for each in messages]
        first = next((at for at, each in enumerate(older) if each.id in ids), len(older))
        self.observe_past([*older[:first], *past], is_new=is_new, is_whole=is_whole)

    def observe_past(self, past: Sequence[Envelope], *, is_new: bool, is_whole: bool | None = None) -> None:
        """Take in what was sent before we joined, or missed; each open call is judged where it stands.

        `is_whole`: whether there was nothing before it, if the gateway tells. If not, a short history is
        whole where the approver first comes.
        """
        known = self.known_ids()
        last = max((at for at, each in enumerate(past) if each.id in known), default=-1)
        if is_whole is None:
            is_whole = is_new and len(past) <= MAX_NEW_SPACE_MESSAGES
        if last < 0 and not is_whole:
            self._note_gap()
        cases = {case.id: case for case in self._approver.open_cases() if case.method == "tools/call"}
        again, now = False, self._approver.wall_clock()
        for envelope in past[last + 1 :]:
            if envelope.id in cases:
                self._due[envelope.id] = cases[envelope.id]
            self._past_ids = frozenset()
            again |= self.observe(envelope, sent_at(envelope, now))
        self._past_ids = frozenset(each.id for each in past)
        self._recalled = frozenset(cases)
        for id, case in cases.items():
            if again or (id not in self._findings and id not in self._due):
                self._due_last[id] = case
        self._wake.set()

    def known_ids(self) -> set[str]:
        """The messages that are still kept."""
        return self.kept.ids()

    # Reading

    async def run(self) -> None:
        """Read what calls wait for until cancelled, and let others work between two slices."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._due or self._due_last:
                self._read_slice()
                await asyncio.sleep(0)

    def _read_slice(self) -> None:
        left = SLICE_BYTES
        while not self.kept.is_read and left > 0:
            left -= self.kept.read_oldest()
        if self.kept.is_read:
            late, self._due, self._due_last = self._due | self._due_last, {}, {}
            for case in late.values():
                self._find_late(case)

    def _decode(self, raw: bytes) -> KeptMessage:
        """A short chat is dated as after a restart: by its own time, but not in the future."""
        # The bytes were an envelope once already, so this raises nothing.
        envelope = DIALECTS[self._space.dialect].decode(raw, ANY_SIZE)
        return envelope, envelope.sender in self._store.people, sent_at(envelope, self._approver.wall_clock())

    def note_people(self) -> None:
        """Others are people from now on: whose chats are those of people is found out before."""
        self.kept.decode_all()

    def _see(self, message: KeptMessage) -> None:
        envelope, person, at = message
        self.memory.see(envelope, person=person, at=at)
        if envelope.id in self._due:
            self._find_late(self._due.pop(envelope.id))

    def _find_late(self, case: Case) -> None:
        self._judge(case)
        self._approver.observe_origins(case)

    def read_again(self) -> None:
        """People said what tools do, so all is read again; what they endorsed and revoked stays."""
        endorsements = self.memory.endorsements
        self.memory = OriginMemory(self.traits_of, own=self._space.name)
        self.memory.endorsements |= endorsements
        if self.kept.has_gap:
            self._note_gap()
        self.kept.put_back()

    def note_compared(self, host: str) -> None:
        """The tools of a host are known. What was read of it before, after a start, is read again, once."""
        if host in self._early and host not in self._compared:
            self.read_again()
        self._compared.add(host)

    def _note_gap(self) -> None:
        self.kept.has_gap = True
        self.memory.note_gap()

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

    def effects_of(self, case: Case) -> set[str]:
        """What people said that the tool of a call does, at each of its hosts."""
        if case.method != "tools/call" or case.tool is None:
            return set()
        return {self.traits_of(host, case.tool).effect for host in case.to}

    # Judging

    def look(self, case: Case) -> None:
        """Judge a call that has just been proposed: now, or when what came before it has been read."""
        if case.method == "tools/call":
            found = None if case.id in self._findings else self._find_quickly(case)
            if found is None:
                self._look_at_values(case, self._due)
            else:
                self._findings[case.id] = found

    def look_again(self, case: Case) -> None:
        """Judge an open call by all that was seen."""
        if case.method == "tools/call":
            self._look_at_values(case, self._due_last)

    def _look_at_values(self, case: Case, due: dict[str, Case]) -> None:
        self._read_slice()
        if self.kept.is_read:
            self._judge(case)
        else:
            due[case.id] = case
            self._wake.set()

    def ask_reason(self, case: Case) -> str | None:
        """Why the origins of its values ask; None if they were looked at and do not."""
        found = self._findings.get(case.id)
        if isinstance(found, SaidCall):
            return None
        if found is None or case.method != "tools/call":
            return ORIGINS_UNKNOWN
        return str(found["why"]) if found["asks"] is not False else None

    def unnamed_reason(self, case: Case, rule: Rule) -> str | None:
        """Why a value asks that a line of a plan does not name itself; None if all of them may be used."""
        if case.arguments.keys() <= rule.equals.keys():
            return None
        found = self._findings.get(case.id)
        if found is None:
            return ORIGINS_UNKNOWN
        if isinstance(found, SaidCall) or found["asks"] is False:
            return None
        return self._call_of(case)[1] or unnamed_value(found, case.arguments, rule.equals)

    def steered_reason(self, case: Case) -> str | None:
        """Why others may have led the agent to a call that a person let run again; None if they did not."""
        return self._steered.get(case.id, ORIGINS_UNKNOWN) or None

    def asked(self, id: str) -> bool:
        """Whether a call asked by its origins; what is not known asked."""
        found = self._findings.get(id) or self._told.get(id)
        return found is None or not (isinstance(found, SaidCall) or found.get("asks") is False)

    def whole_id(self, named: str) -> str:
        """The one proposal whose id begins like this, as lists show it; else what was given."""
        like = [id for id in self._findings.keys() | self._told.keys() if id.startswith(named)]
        return like[0] if len(like) == 1 and len(named) >= MIN_ID_CHARS else named

    def was_told(self, id: str) -> bool:
        return id in self._told

    def finding(self, id: str) -> dict[str, Json] | None:
        found = self._findings.get(id) or self._told.get(id)
        if isinstance(found, SaidCall):
            try:
                found = payload_of(found.verdict(), agent=found.call.agent)
            except Exception:
                log.exception("origins not found", extra={"proposal": id})
                found = {"asks": True, "why": FAILED, "arguments": []}
            self._findings[id] = found
        return found

    def named_by(self, id: str) -> str | None:
        """The person who said, or endorsed, every value of a call; None if not all are people's."""
        found = self.finding(id) if self.asked(id) is False else None
        listed = found["arguments"] if found and not found.get("more") else None
        people = [[*each.get("text_to", ())] for each in listed or () if each["origin"] == "person"]
        return people[0][0] if listed and people and len(people) == len(listed) and all(people) else None

    def _find_quickly(self, case: Case) -> dict[str, Json] | SaidCall | None:
        """What is found of a call that only reads, or of which people said all values; None: of no other."""
        call, why = self._call_of(case)
        if why is not None:
            return None
        if call.traits.effect == "reads" and not call.traits.outside:
            # Whatever its values are. If people are asked all the same, it is looked at before they are told.
            return ONLY_READS
        if self.kept.may_reject:
            return None
        try:
            found = find_said(call, self.kept.latest(), self.memory, self._approver.wall_clock())
        except Exception:
            log.exception("what people said is lost")
            return None
        return payload_of(found, agent=case.proposer) if isinstance(found, OriginVerdict) else found

    def _judge(self, case: Case) -> None:
        before = self.finding(case.id)
        try:
            found = self._find(case)
            if before is not None and before.get("asks") is not False and not found["asks"]:
                keep_asking(found, before, case.at)
        except Exception:
            log.exception("origins not found", extra={"proposal": case.id})
            found = {"asks": True, "why": FAILED, "arguments": []}
            self._steered[case.id] = FAILED
            self._note_gap()
        self._findings[case.id] = found

    def _find(self, case: Case) -> dict[str, Json]:
        call, why = self._call_of(case)
        verdict = verdict_on(self.memory, call, self._approver.wall_clock())
        self._steered[case.id] = verdict.steered if why is None else why
        found = payload_of(verdict, agent=case.proposer)
        if (offered := self._approver.memory.offer(case)) is not None:
            found["again"] = offered
        return found if why is None else {**found, "asks": True, "why": why}

    def _call_of(self, case: Case) -> tuple[OriginCall, str | None]:
        """A call as it is looked at, and why it asks whatever its values are."""
        host, tool = case.to[0] if len(case.to) == 1 else "", case.tool or ""
        listed = self._tools.definitions.get((host, tool))
        schema = None if listed is None else listed.schema
        call = OriginCall(case.proposer, tool, case.arguments, self.traits_of(host, tool), schema)
        return call, other_reason(case, host, tool, self._store.changed_tools)

    def tell(self, case: Case) -> None:
        """Tell everybody what was found of a call that people are asked about, if that is something new."""
        if self._findings.get(case.id) is ONLY_READS:
            self._look_at_values(case, self._due)
        found = self.finding(case.id) if case.id in self._findings else None
        is_due = case.id in self._due or case.id in self._due_last
        if found is None or is_due or not self._space.may(ORIGINS_KIND):
            return
        told = self._told.get(case.id)
        if told is not None:
            # Until its tool is known again after a start, nothing better can be said than was said before.
            is_known = any(self._tools.definition_of(host, case.tool or "") for host in case.to)
            if timeless(told) == timeless(found) or (case.id in self._recalled and not is_known):
                return
        self._told[case.id] = found
        self._approver.send(ORIGINS_KIND, found, about=case.id)
