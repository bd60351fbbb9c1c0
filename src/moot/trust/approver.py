"""The approver: a member that applies rules to proposals and leaves the rest to people (MEW 9.4; D-92).

async with connect(url, "lab", token) as space:
    await Approver(space, Book.open(folder), Ledger()).run()

What it does is seen by all: fulfilments and rejections carry their rule (context `trust/rule/NAME`, or the
payload), suggestions, rules and suspensions are envelopes of their own, and its tools tell how things stand.
It acts within its own capabilities, never grants, and nothing becomes active unless a person says so:

    trust/suggestion  approver → all    a rule that the decisions so far would bear
    trust/accept      person → all      {suggestion, rule?}: it, or a narrower one; {lift}; {resume};
                                        {suggestion, granted: true, grant?}: the agent was given it itself
    trust/dismiss     person → all      {suggestion}; nothing like it is suggested again
    trust/rule        approver → all    {rule, why, state}: active, suspended, lifted, removed; and of all
                                        rules together stopped and resumed
    trust/stop        person → all      {} all rules; {rule}, or about something that a rule did: that rule
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import msgspec

from moot.errors import ApprovalRequired, MootError, NotAllowed, ProposalSettled
from moot.participant import MissedMessages
from moot.participant.connection.roster import PresenceEvent
from moot.participant.joined_space import JoinedSpace
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from moot.trust.approver_status import ApproverStatus
from moot.trust.budgets import Budget, UseTally
from moot.trust.decision_ledger import RULE_CONTEXT, Decision, DecisionLedger
from moot.trust.definitions import Definitions
from moot.trust.learner import DEFAULTS, LearningSettings, suggest
from moot.trust.people import people_among
from moot.trust.proposal_case import Case
from moot.trust.rule_commands import RuleCommands
from moot.trust.rule_store import RuleStore
from moot.trust.rules import Rule, RuleVerdict, evaluate
from moot.trust.shadow import Shadow
from moot.trust.tripwires import (
    Event,
    MemberKicked,
    PersonDecided,
    ProposalSeen,
    Suspension,
    ToolChanged,
    reasons,
    trip,
)

log = logging.getLogger(__name__)

# After a decision, before the history is looked through again: people decide several in a row.
LEARN_SECONDS: Final = 0.5
# How many of the latest decisions are learned from; some 100 ms of computing.
LEARN_FROM: Final = 5_000
# How often the file of rules is looked at.
REREAD_SECONDS: Final = 1.0
REJECTED: Final = "policy"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApproverSettings:
    """How an approver behaves."""

    # Predict and compare, and do nothing.
    shadow: bool = False
    # All rules together; None: only each rule's own limits.
    budget: Budget | None = None
    learning: LearningSettings = DEFAULTS
    # Whether suggestions are made at all.
    suggests: bool = True
    # How long a tool may take.
    call_seconds: float = 300.0


class Approver:
    """One space's. `ledger` holds what was decided before; it hears everything from `run` on."""

    def __init__(
        self,
        space: JoinedSpace,
        book: RuleStore,
        ledger: DecisionLedger,
        settings: ApproverSettings | None = None,
        *,
        clock: Callable[[], float] = time.time,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.space = space
        self.book = book
        self.ledger = ledger
        self.settings = settings or ApproverSettings()
        self.shadow = Shadow()
        self.tally = UseTally()
        ledger.on_change = self._decided
        self._clock = clock
        self._draw = draw
        # By which rule each proposal was decided, ours alone.
        self._acts: dict[str, str] = {}
        self._count_again()
        self._told: set[str] = set()
        # What was heard out of the gateway's memory and may be said to us once more.
        self._recalled: frozenset[str] = frozenset()
        self._learning = asyncio.Event()
        self._definitions = Definitions(space, book)
        self.standing = ApproverStatus(self)
        self.steering = RuleCommands(self, clock)
        book.look_at(book.unseen(), clock())
        space.roster.on_change(self._look_round)
        # Before anybody can ask: who joins is looked at right away.
        self.standing.offer(space)

    async def run(self) -> None:
        """Until the space ends, or cancelled."""
        space = self.space
        reader = space.envelopes(own=True)
        if space.may("capability/grant"):
            log.warning("the approver holds capability/grant, which it never uses: remove that permission")
        await self._look_back()
        async with asyncio.TaskGroup() as group:
            helpers = [group.create_task(self._learn()), group.create_task(self._reread())]
            helpers.append(group.create_task(self._watch_definitions()))
            async for envelope in reader:
                if isinstance(envelope, MissedMessages):
                    log.warning("some envelopes were missed")
                    await self._look_back()
                else:
                    self._hear(self._named(envelope))
            for helper in helpers:
                helper.cancel()

    # Hearing

    async def _look_back(self) -> None:
        """What was said before we were here, or missed, as far as the gateway remembers."""
        await self.space.recall()
        past = [self._named(envelope) for envelope in await self.space.history()]
        for envelope in past:
            if self.ledger.get(envelope.id) is None:
                self.ledger.hear(envelope, _moment(envelope, self._clock()))
        self._recalled = frozenset(envelope.id for envelope in past)
        self._count_again()
        for decision in list(self.ledger):
            self.trip(PersonDecided(decision), at=decision.at)
        for envelope in past:
            # The switch holds though nobody was here to hear it.
            if envelope.kind == "trust/stop" and envelope.sender != self.space.name:
                self._stopped_meanwhile(envelope)
        for decision in list(self.ledger):
            if decision.how == "open" and self._is_open(decision.id):
                self.trip(ProposalSeen(decision.case))
                self._judge(decision.case)
        self._learning.set()

    def _stopped_meanwhile(self, envelope: Envelope) -> None:
        at, rule = _moment(envelope, self._clock()), envelope.payload.get("rule")
        if not isinstance(rule, str) or any(
            each.name == rule and at > self.book.since(rule) and rule not in self.book.suspensions
            for each in self.book.rules
        ):
            self.steering.stop(envelope, at)

    def _count_again(self) -> None:
        """What rules did before, as far as it was not counted: a restart begins no budget anew."""
        found = [each for each in self.ledger if each.rule is not None and each.id not in self._acts]
        self._acts |= {each.id: each.rule for each in found if each.rule is not None}
        self.tally.take(found)

    def _named(self, envelope: Envelope) -> Envelope:
        """With logical names: rules are about people, not about connections (D-19)."""
        sender, *to = self.space.roster.names_of([envelope.sender, *envelope.to])
        return msgspec.structs.replace(envelope, sender=sender, to=to)

    def _hear(self, envelope: Envelope) -> None:
        if envelope.kind.startswith("mcp/") and envelope.id in self._recalled:
            return
        decision = self.ledger.hear(envelope, self._clock())
        if envelope.sender == self.space.name:
            return
        match envelope.kind:
            case "mcp/proposal" if decision is not None:
                self.trip(ProposalSeen(decision.case))
                self._judge(decision.case)
            case "space/kick":
                member = envelope.payload.get("participant_id")
                self.trip(MemberKicked(str(member), envelope.sender, envelope.id))
            case "mcp/request":
                self._definitions.heard(envelope)
            case _:
                self.steering.hear(envelope)

    def _decided(self, decision: Decision) -> None:
        """Somebody decided, or a result came."""
        if decision.how == "open" or decision.automated:
            return
        self.trip(PersonDecided(decision), at=decision.at)
        self.shadow.decided(decision)
        self._learning.set()

    # Deciding

    def verdict(self, case: Case, *, draw: float = 1.0) -> RuleVerdict:
        """What the rules say now; `draw` below 1 leaves the share of checks to people."""
        book, now = self.book, self._clock()
        if book.fault is not None:
            return RuleVerdict("ask", None, f"the rules cannot be read: {book.fault}")
        if book.stopped is not None:
            return RuleVerdict("ask", None, f"{book.stopped.by} stopped all rules: {book.stopped.why}")
        if self.settings.budget is not None and self.tally.spent(self.settings.budget, now):
            return RuleVerdict("ask", None, "the budget for all rules is used up")
        present = [self.space.name, *(member.name for member in self.space.roster.values())]
        return evaluate(
            book.rules,
            case,
            now,
            present,
            self.tally.counts(),
            suspended=reasons(book.suspensions),
            me=self.space.name,
            draw=draw,
        )

    def _judge(self, case: Case) -> None:
        verdict = self.verdict(case, draw=self._draw())
        if self.settings.shadow:
            self.shadow.predict(case.id, verdict)
            return
        if verdict.rule is None or verdict.decision == "ask" or case.id in self._acts:
            return
        # Counted before it is done: a burst must not get past a limit.
        self._acts[case.id] = verdict.rule.name
        self.tally.acted(verdict.rule.name, self._clock())
        act = self._fulfil if verdict.decision == "approve" else self._reject
        self.space.spawn(act(case, verdict.rule))

    async def _fulfil(self, case: Case, rule: Rule) -> None:
        try:
            await self.space.approve(
                case.id, timeout_seconds=self.settings.call_seconds, context=RULE_CONTEXT + rule.name
            )
        except (ProposalSettled, ApprovalRequired) as fault:
            # Somebody was quicker, or it takes several people (D-28).
            log.info("left alone", extra={"proposal": case.id, "why": str(fault)})
        except NotAllowed as fault:
            self._tell_once(
                rule, f"rule {rule.name} would approve this, but I have no permission to: {fault}"
            )
        except MootError as fault:
            log.info("fulfilled, with trouble", extra={"proposal": case.id, "why": str(fault)})

    async def _reject(self, case: Case, rule: Rule) -> None:
        try:
            payload: dict[str, Json] = {"reason": REJECTED, "rule": rule.name}
            await self.space.send("mcp/reject", payload, to=case.proposer, about=case.id, confirm=True)
        except MootError as fault:
            self._tell_once(rule, f"rule {rule.name} would reject this, but I could not: {fault}")

    def _is_open(self, id: str) -> bool:
        seen = self.space.proposals.get(id)
        return seen is not None and seen.status == "pending" and not seen.rejections

    def _tell_once(self, rule: Rule, words: str) -> None:
        if rule.name not in self._told:
            self._told.add(rule.name)
            self.say("chat", {"text": words, "format": "plain"})

    # Trip-wires

    def trip(self, event: Event, *, at: float | None = None) -> int:
        """How many rules it suspends; none that a person looked at after it happened (`at`: not now)."""
        book, now = self.book, self._clock()
        count = 0
        for rule in book.rules:
            if rule.name in book.suspensions or (at is not None and at <= book.since(rule.name)):
                continue
            suspension = trip(rule, event, now, acts=self._acts)
            if suspension is not None:
                self._suspend(suspension)
                count += 1
        return count

    def _suspend(self, suspension: Suspension) -> None:
        self.book.suspensions[suspension.rule] = suspension
        self.book.save()
        log.warning("rule suspended", extra={"rule": suspension.rule, "why": suspension.why})
        self.steering.say_rule(suspension.rule, "suspended", suspension.why, about=suspension.about)

    def latest_acts(self, most: int) -> list[Json]:
        """The proposals that rules decided last, oldest first."""
        return list(self._acts)[-most:]

    def rule_behind(self, id: str) -> str | None:
        """The rule that decided something, by the id of the proposal, the request or the answer."""
        decision = self.ledger.get(id)
        return None if decision is None else decision.rule or self._acts.get(decision.id)

    def pin(self, rules: Iterable[Rule]) -> None:
        """Take the tools of these rules as they are: a person has just looked."""
        self.space.spawn(self._definitions.pin(list(rules)))

    async def _watch_definitions(self) -> None:
        """D-87: a tool that is no longer what people decided by."""
        await self._definitions.begin(self.book.rules)
        async for host, tool, what in self._definitions.changes():
            self.trip(ToolChanged(host, tool, what))

    # Learning

    def learning(self) -> LearningSettings:
        """What it takes now: people are who may accept rules, unless the settings name them."""
        settings = self.settings.learning
        if settings.people is not None:
            return settings
        self._look_round()
        return replace(settings, people=self.book.people)

    def _look_round(self, _: PresenceEvent | None = None) -> None:
        """Who is a person; at every change, since some come for a moment only: a command of the shell."""
        members = self.space.roster.values()
        self.book.people = people_among(members, self.book.people, me=self.space.name)

    async def _learn(self) -> None:
        while self.settings.suggests:
            await self._learning.wait()
            await asyncio.sleep(LEARN_SECONDS)
            self._learning.clear()
            if self.book.fault is None:
                await self._suggest()

    async def _suggest(self) -> None:
        book, now = self.book, self._clock()
        history = list(self.ledger)[-LEARN_FROM:]
        unwanted = (*book.dismissed, *(each.rule for each in book.granted.values()))
        found = await asyncio.to_thread(
            suggest, history, book.rules, dismissed=unwanted, now=now, settings=self.learning()
        )
        fresh = {each.id: each.as_json() for each in found}
        for id in [id for id in book.suggested if id not in fresh]:
            # What it rested on has grown, or no longer bears it.
            del book.suggested[id]
            self.say("trust/dismiss", {"suggestion": id, "reason": "overtaken"})
        for id, payload in fresh.items():
            if id not in book.suggested:
                book.suggested[id] = payload
                self.say("trust/suggestion", payload)
        book.save()

    async def _reread(self) -> None:
        while True:
            await asyncio.sleep(REREAD_SECONDS)
            before, was_broken = self.book.rules, self.book.fault is not None
            if self.book.reread():
                self.steering.reread(before, was_broken=was_broken)
                self._learning.set()

    # Speaking

    def say(self, kind: str, payload: dict[str, Json], *, to: str = "", about: str | None = None) -> None:
        """Said as far as we may; whoever is not told sees it in what our tools tell."""
        self.space.spawn(self._said(kind, payload, to, about))

    async def _said(self, kind: str, payload: dict[str, Json], to: str, about: str | None) -> None:
        try:
            await self.space.send(kind, payload, to=to or (), about=about or ())
        except MootError as fault:
            log.warning("not said", extra={"kind": kind, "why": str(fault)})


def _moment(envelope: Envelope, now: float) -> float:
    """When it was said, as its gateway or sender wrote it."""
    try:
        return min(now, datetime.fromisoformat(envelope.ts.replace("Z", "+00:00")).timestamp())
    except ValueError:
        return now
