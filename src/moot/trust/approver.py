"""The approver: a member that applies rules to proposals and leaves the rest to people (MEW 9.4; D-92).

async with connect(url, "lab", token) as space:
    await Approver(space, RuleStore.open(folder), DecisionLedger()).run()

Everything it does is visible: approvals and rejections name their rule (context `trust/rule/NAME`, or the
payload), suggestions, rules and suspensions are envelopes of their own, and its tools report its state. It
acts within its own capabilities, never grants, and no rule becomes active before a person accepts it:

    trust/suggestion  approver → all    a rule that past decisions support
    trust/accept      person → all      {suggestion, rule?}: it, or a narrower one; {lift}; {resume};
                                        {reviewed: [proposals]}: these decisions of rules were right;
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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

import msgspec

from moot.errors import ApprovalRequired, MootError, NotAllowed, ProposalSettled, TargetAbsent
from moot.participant import MissedMessages
from moot.participant.connection.roster import PresenceEvent
from moot.participant.joined_space import JoinedSpace
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from moot.resilience.steady_clock import SteadyClock
from moot.trust.accepted_calls import AcceptedCalls, note_rejection, rejected_calls
from moot.trust.approver_settings import ApproverSettings
from moot.trust.approver_status import ApproverStatus, is_decided
from moot.trust.backtest import back_test
from moot.trust.budgets import UseTally
from moot.trust.decision_ledger import RULE_CONTEXT, Decision, DecisionLedger
from moot.trust.learner import LearningSettings, suggest
from moot.trust.people import people_among
from moot.trust.proposal_case import Case
from moot.trust.rule_commands import RuleCommands
from moot.trust.rule_history import RuleHistory
from moot.trust.rule_reviews import RuleReviews
from moot.trust.rule_store import RuleStore
from moot.trust.rules import Rule, RuleVerdict, evaluate
from moot.trust.shadow import Shadow
from moot.trust.tool_watcher import ToolWatcher
from moot.trust.tripwires import (
    Complaint,
    Event,
    MemberKicked,
    PersonDecided,
    ProposalSeen,
    Suspension,
    check_tripwires,
    suspension_reasons,
)

log = logging.getLogger(__name__)

# How long learning waits after a decision: people decide several in a row.
LEARN_SECONDS: Final = 0.5
# How many of the latest decisions are learned from; takes some 100 ms.
MAX_LEARNED_DECISIONS: Final = 5_000
# How often the rules file is checked.
RELOAD_SECONDS: Final = 1.0
# Proposals that wait until the tools of their host have been compared; any more are left to people.
MAX_DEFERRED: Final = 1_000
# Proposals of which is remembered why people were asked.
MAX_ASKED: Final = 10_000
# How often is written down up to where we have seen everything, where nothing else is written.
SAVE_SECONDS: Final = 10.0
# The wall clock may differ from the clock that nobody sets by so much without having jumped.
CLOCK_JUMP_SECONDS: Final = 5.0
REJECT_REASON: Final = "policy"


class Approver:
    """The approver of one space. `ledger` has past decisions; from `run` on it observes all new ones."""

    def __init__(
        self,
        space: JoinedSpace,
        store: RuleStore,
        ledger: DecisionLedger,
        settings: ApproverSettings | None = None,
        *,
        clock: Callable[[], float] = time.time,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.space = space
        self.store = store
        self.ledger = ledger
        self.settings = settings or ApproverSettings()
        self.history = RuleHistory.open(store.folder)
        self.reviews = RuleReviews.open(store.folder)
        self.shadow = Shadow(self.history)
        self.tally = UseTally()
        ledger.on_change = self._observe_decision
        self.wall_clock = clock
        # Limits and budgets: a wall clock that is set must not give a rule more decisions than it has.
        self.uses_clock: Callable[[], float] = SteadyClock() if clock is time.time else clock
        self._draw = draw
        # The rule that decided each proposal, for our decisions alone.
        self._deciding_rules: dict[str, str] = {}
        self._count_past_decisions()
        self._accepted = self._accepted_calls()
        self._rejected = rejected_calls(ledger)
        self._reported_rules: set[str] = set()
        # Decisions of people that rules were compared with, and what each said.
        self._considered: dict[str, str] = {}
        # Why people were asked, by proposal.
        self._asked: dict[str, str] = {}
        # Whether what the ledger observes comes from the gateway's history.
        self._recalling = False
        # Messages from the gateway's history, which may be delivered to us once more.
        self._recalled: frozenset[str] = frozenset()
        self._learning = asyncio.Event()
        # Proposals that wait for the comparison of their hosts' tools, each with its draw.
        self._deferred: dict[str, tuple[Case, float]] = {}
        self._tool_watcher = ToolWatcher(
            space, store, on_change=self.trip, on_compared=self._apply_deferred_rules
        )
        self.status = ApproverStatus(self)
        self.commands = RuleCommands(self, clock)
        store.mark_reviewed(store.unreviewed(), clock())
        space.roster.on_change(self._update_people)
        # Before `run`, so that the tools are there as soon as anyone sees us.
        self.status.offer(space)

    async def run(self) -> None:
        """Run until the connection ends or it is cancelled."""
        space = self.space
        reader = space.envelopes(own=True)
        if space.may("capability/grant"):
            log.warning("the approver holds capability/grant, which it never uses: remove that permission")
        await self._catch_up()
        try:
            async with asyncio.TaskGroup() as group:
                helpers = [group.create_task(self._learn()), group.create_task(self._reload_rules())]
                helpers.append(group.create_task(self._tool_watcher.run(self.store.rules)))
                async for envelope in reader:
                    if isinstance(envelope, MissedMessages):
                        log.warning("some envelopes were missed")
                        await self._catch_up()
                    else:
                        self._process(self._with_names(envelope))
                for helper in helpers:
                    helper.cancel()
        finally:
            self.store.save()
            self.history.close()

    # Observing

    async def _catch_up(self) -> None:
        """Process what was sent before we joined, or missed, as far as the gateway's history goes."""
        await self.space.recall()
        past = [self._with_names(envelope) for envelope in await self.space.history()]
        is_new, missed = not self.store.last_seen, self._find_missed(past)
        self._recalling = True
        for envelope in past:
            if self.ledger.get(envelope.id) is None:
                self.ledger.observe(envelope, _sent_at(envelope, self.wall_clock()))
        self._recalling = False
        self._recalled = frozenset(envelope.id for envelope in past)
        self._count_past_decisions()
        self._accepted = self._accepted_calls()
        self._rejected = rejected_calls(self.ledger)
        for decision in list(self.ledger):
            self._count(decision)
            # Predicted before a restart, and decided while we were away.
            self.shadow.compare(decision)
            envelopes = (decision.envelope, *(each.envelope for each in decision.rejections))
            # By their order: of what happened while we were away no clock says whether it was reviewed.
            was_missed = not is_new and any(each in missed for each in envelopes)
            self._compare_with_rules(decision, at=None if was_missed else decision.at)
        for envelope in past:
            # A stop is obeyed even if it was sent while we were away, or to another approver.
            if envelope.kind == "trust/stop" and envelope.id in missed and envelope.sender != self.space.name:
                named = envelope.payload.get("rule")
                if not is_new or not isinstance(named, str) or named in {r.name for r in self.store.rules}:
                    self.commands.stop(envelope)
        self._note_seen(past)
        self.store.save()
        for decision in list(self.ledger):
            if decision.status == "open" and self._is_open(decision.id):
                self.trip(ProposalSeen(decision.case, self._accepted))
                self._apply_rules(decision.case)
        self._learning.set()

    def _find_missed(self, past: Sequence[Envelope]) -> frozenset[str]:
        """What was sent since we saw something last, told by the order of the history.

        A history that does not reach back so far may lack a stop: then all rules are stopped.
        """
        seen = set(self.store.last_seen)
        last = max((at for at, envelope in enumerate(past) if envelope.id in seen), default=-1)
        if seen and last < 0 and self.store.rules:
            why = "messages were missed that the gateway's history no longer has; one may have been a stop"
            self.commands.stop_all(self.space.name, why)
        return frozenset(envelope.id for envelope in past[last + 1 :])

    def _note_seen(self, envelopes: Iterable[Envelope]) -> None:
        """Note up to where we have seen everything, by messages that the gateway's history keeps."""
        me = self.space.name
        self.store.note_seen(
            each.id
            for each in envelopes
            if each.sender != me and each.kind.startswith(("mcp/", "chat", "trust/"))
        )

    def _count_past_decisions(self) -> None:
        """Count decisions of rules that were not counted yet, so that a restart resets no budget."""
        found = [
            each for each in self.ledger if each.rule is not None and each.id not in self._deciding_rules
        ]
        self._deciding_rules |= {each.id: each.rule for each in found if each.rule is not None}
        self.tally.record_past(found)
        rules = {rule.name: rule for rule in self.store.rules}
        # Where the notes about reviews were lost, what was decided since counts as not reviewed.
        noted_at = self.reviews.last_at
        for each in found:
            rule = rules.get(each.rule or "")
            if rule is None or each.at is None:
                continue
            if each.at > max(noted_at, self.store.reviewed_at(rule.name)):
                self.reviews.note(rule, each.id, each.at)

    def _accepted_calls(self) -> AcceptedCalls:
        """An agent that fulfils what another proposes does not make it usual."""
        return AcceptedCalls(each for each in self.ledger if each.by in self.store.people)

    def _with_names(self, envelope: Envelope) -> Envelope:
        """With logical names: rules are about people, not about connections (D-19)."""
        sender, *to = self.space.roster.names_of([envelope.sender, *envelope.to])
        return msgspec.structs.replace(envelope, sender=sender, to=to)

    def _process(self, envelope: Envelope) -> None:
        if envelope.kind.startswith("mcp/") and envelope.id in self._recalled:
            return
        self._note_seen([envelope])
        if envelope.kind == "trust/stop" and envelope.sender != self.space.name:
            # First the rule that decided is suspended, with the words of who objects.
            self.commands.process(envelope)
            self.ledger.observe(envelope, self.wall_clock())
            return
        decision = self.ledger.observe(envelope, self.wall_clock())
        if envelope.sender == self.space.name:
            return
        match envelope.kind:
            case "mcp/proposal" if decision is not None:
                self.trip(ProposalSeen(decision.case, self._accepted))
                self._apply_rules(decision.case)
            case "space/kick":
                member = envelope.payload.get("participant_id")
                self.trip(MemberKicked(str(member), envelope.sender, envelope.id))
            case "mcp/request":
                self._tool_watcher.observe(envelope)
            case _:
                self.commands.process(envelope)

    def _observe_decision(self, decision: Decision) -> None:
        """Somebody decided, or a result arrived."""
        self._count(decision)
        if decision.status == "open" or (decision.automated and decision.lesson is None):
            return
        if decision.automated:
            self.reviews.object_to(decision.id)
        if decision.by in self.store.people:
            self._accepted.add(decision)
        note_rejection(self._rejected, decision)
        if not self._recalling:
            self._compare_with_rules(decision, at=None)
        self.shadow.compare(decision)
        self._learning.set()

    def _count(self, decision: Decision) -> None:
        """Count who decided, for the report; what nobody decided is not counted."""
        if is_decided(decision) and decision.at is not None:
            self.history.count_decision(decision.id, decision.at, rule=decision.rule)

    def _compare_with_rules(self, decision: Decision, *, at: float | None) -> None:
        """Suspend the rules that a decision contradicts, once: its result is not another decision."""
        lesson = decision.lesson
        if lesson is not None and (at is not None or self._considered.get(decision.id) != lesson):
            self.trip(PersonDecided(decision), at=at)
        if lesson is not None:
            self._considered[decision.id] = lesson

    # Deciding

    def verdict(self, case: Case, *, draw: float = 1.0) -> RuleVerdict:
        """What the rules say now; `draw` below 1 leaves the share of checks to people."""
        store, now = self.store, self.wall_clock()
        if store.fault is not None:
            return RuleVerdict("ask", None, f"the rules cannot be read: {store.fault}")
        if store.stopped is not None:
            return RuleVerdict("ask", None, f"{store.stopped.by} stopped all rules: {store.stopped.why}")
        budget = self.settings.budget
        if budget is not None and self.tally.is_used_up(budget, self.uses_clock()):
            return RuleVerdict("ask", None, "the budget for all rules is used up")
        steady = self.uses_clock()
        store.note_expired(max(now, steady))
        found = self._evaluate(case, now, draw)
        if abs(now - steady) > CLOCK_JUMP_SECONDS and found.decision != "ask":
            # Hours and ends are by the wall clock, which somebody has set.
            other = self._evaluate(case, steady, draw)
            if other.decision != found.decision:
                why = f"the clock was set by {now - steady:+.0f} s, and before that the rules said otherwise"
                return RuleVerdict("ask", found.rule, why)
        if found.rule is not None and found.decision != "ask" and (hosts := self._uncompared_hosts(case)):
            why = f"the tools of {', '.join(hosts)} have not been compared with what people decided by"
            return RuleVerdict("ask", None, why)
        return found

    def _evaluate(
        self, case: Case, now: float, draw: float, *, suspended: Mapping[str, str] | None = None
    ) -> RuleVerdict:
        store = self.store
        return evaluate(
            store.rules,
            case,
            now,
            [self.space.name, *(member.name for member in self.space.roster.values())],
            self.tally.times(),
            suspended=suspension_reasons(store.suspensions) if suspended is None else suspended,
            me=self.space.name,
            draw=draw,
            times_now=self.uses_clock(),
            rejected=self._rejected,
            expired=store.expired_names(),
            paused=self.reviews.pause_reasons(store.rules),
        )

    def _uncompared_hosts(self, case: Case) -> list[str]:
        """D-87: a host that has just joined may offer something else under a known name."""
        return [host for host in case.to if not self._tool_watcher.is_compared(host)]

    def _apply_deferred_rules(self, host: str) -> None:
        """The tools of a host have been compared: rules decide what waited for that."""
        waiting = [id for id, (case, _) in self._deferred.items() if host in case.to]
        for case, draw in [self._deferred.pop(id) for id in waiting]:
            if self._is_open(case.id):
                self._apply_rules(case, draw)

    def _apply_rules(self, case: Case, draw: float | None = None) -> None:
        draw = self._draw() if draw is None else draw
        verdict = self.verdict(case, draw=draw)
        if self._uncompared_hosts(case) and len(self._deferred) < MAX_DEFERRED:
            self._deferred[case.id] = (case, draw)
            return
        if self.settings.shadow:
            self._note_asked(case.id, "the approver runs in shadow mode and decides nothing")
            if self.store.fault is None and self.store.stopped is None:
                # As if no disagreement had suspended a rule: people want to know how often there is one.
                self.shadow.predict(case.id, self._evaluate(case, self.wall_clock(), 1.0, suspended={}))
            return
        if verdict.decision == "ask":
            self._note_asked(case.id, verdict.why)
        if verdict.rule is None or verdict.decision == "ask" or case.id in self._deciding_rules:
            return
        # Noted and counted before it is sent, so that a burst cannot exceed a limit.
        if not self.reviews.note(verdict.rule, case.id, self.wall_clock()):
            self._note_asked(case.id, f"rule {verdict.rule.name} matched, but could not note it for review")
            return
        self._deciding_rules[case.id] = verdict.rule.name
        self.tally.record(verdict.rule.name, self.uses_clock())
        if verdict.decision == "approve":
            self.space.spawn(self._fulfil(case, verdict.rule, draw))
        else:
            self.space.spawn(self._reject(case, verdict.rule))
        if self.reviews.is_due(verdict.rule):
            self.commands.announce_review(verdict.rule)

    def _note_asked(self, id: str, why: str) -> None:
        """Note why people are asked, for those who want to know later; the first reason stays."""
        self._asked.setdefault(id, why)
        if len(self._asked) > MAX_ASKED:
            del self._asked[next(iter(self._asked))]

    def asked_because(self, id: str) -> str | None:
        """Why no rule decided a proposal when it came; None if we did not see it come."""
        return self._asked.get(id)

    def _may_still_decide(self, case: Case, rule: Rule) -> bool:
        """Whether nobody stopped the rule after it matched and before its decision is sent."""
        store = self.store
        if store.stopped is None and store.fault is None and rule.name not in store.suspensions:
            return True
        self._deciding_rules.pop(case.id, None)
        self.reviews.forget(case.id)
        self._note_asked(case.id, f"rule {rule.name} matched, but was stopped before it decided")
        return False

    async def _fulfil(self, case: Case, rule: Rule, draw: float) -> None:
        if not self._may_still_decide(case, rule):
            return
        try:
            await self.space.approve(
                case.id, timeout_seconds=self.settings.call_seconds, context=RULE_CONTEXT + rule.name
            )
        except TargetAbsent:
            # It stays open (D-100): rules decide again when its host is back and its tools were compared.
            self._deciding_rules.pop(case.id, None)
            self.reviews.forget(case.id)
            self._note_asked(case.id, f"rule {rule.name} would approve this, but its host is not connected")
            if len(self._deferred) < MAX_DEFERRED:
                self._deferred[case.id] = (case, draw)
        except (ProposalSettled, ApprovalRequired) as fault:
            # Somebody else decided first, or several votes are required (D-28).
            self.reviews.forget(case.id)
            log.info("not decided", extra={"proposal": case.id, "why": str(fault)})
        except NotAllowed as fault:
            self.reviews.forget(case.id)
            self._report_once(
                rule, f"rule {rule.name} would approve this, but I have no permission to: {fault}"
            )
        except MootError as fault:
            log.info("approved, but failed", extra={"proposal": case.id, "why": str(fault)})

    async def _reject(self, case: Case, rule: Rule) -> None:
        if not self._may_still_decide(case, rule):
            return
        try:
            payload: dict[str, Json] = {"reason": REJECT_REASON, "rule": rule.name}
            await self.space.send("mcp/reject", payload, to=case.proposer, about=case.id, confirm=True)
        except MootError as fault:
            self._report_once(rule, f"rule {rule.name} would reject this, but I could not: {fault}")

    def _is_open(self, id: str) -> bool:
        seen = self.space.proposals.get(id)
        return seen is not None and seen.status == "pending" and not seen.rejections

    def _report_once(self, rule: Rule, text: str) -> None:
        if rule.name not in self._reported_rules:
            self._reported_rules.add(rule.name)
            self.send("chat", {"text": text, "format": "plain"})

    # Tripwires

    def trip(self, event: Event, *, at: float | None = None) -> int:
        """Suspend the rules that an event affects; returns how many.

        With `at`, when the event happened, rules that a person has reviewed since are left alone.
        """
        store, now = self.store, self.wall_clock()
        count = 0
        for rule in store.rules:
            if rule.name in store.suspensions or (at is not None and at <= store.reviewed_at(rule.name)):
                continue
            suspension = check_tripwires(rule, event, now, deciding_rules=self._deciding_rules)
            if suspension is not None:
                self._suspend(suspension)
                self.history.count("tripped", now, rule=rule.name)
                if isinstance(event, PersonDecided | Complaint):
                    self.history.count("wrong", now, rule=rule.name)
                count += 1
        return count

    def _suspend(self, suspension: Suspension) -> None:
        self.store.suspensions[suspension.rule] = suspension
        self.store.save()
        log.warning("rule suspended", extra={"rule": suspension.rule, "why": suspension.why})
        self.commands.announce_rule(suspension.rule, "suspended", suspension.why, about=suspension.about)

    def latest_decisions(self, count: int) -> list[Json]:
        """The proposals that rules decided last, oldest first."""
        return list(self._deciding_rules)[-count:]

    def rule_behind(self, id: str) -> str | None:
        """The rule that decided a proposal, by the id of the proposal, the request or the response."""
        decision = self.ledger.get(id)
        return None if decision is None else decision.rule or self._deciding_rules.get(decision.id)

    def pin(self, rules: Iterable[Rule]) -> None:
        """Pin the tools of these rules as they are: a person has just reviewed them."""
        self.space.spawn(self._tool_watcher.pin(list(rules)))

    # Learning

    def learning_settings(self) -> LearningSettings:
        """The settings for learning; people are the members who can accept rules, unless the settings name
        them.
        """
        settings = self.settings.learning
        if settings.people is not None:
            return settings
        self._update_people()
        return replace(settings, people=self.store.people)

    def _update_people(self, _: PresenceEvent | None = None) -> None:
        """Note who is a person; at every change, since a shell command joins for a moment only."""
        members = self.space.roster.values()
        self.store.people = people_among(members, self.store.people, me=self.space.name)

    async def _learn(self) -> None:
        while self.settings.makes_suggestions:
            await self._learning.wait()
            await asyncio.sleep(LEARN_SECONDS)
            self._learning.clear()
            if self.store.fault is None:
                await self._suggest()

    async def _suggest(self) -> None:
        store, now = self.store, self.wall_clock()
        history = list(self.ledger)[-MAX_LEARNED_DECISIONS:]
        rules, unwanted = store.rules, store.unwanted
        await self._tool_watcher.load_schemas(
            dict.fromkeys(host for each in history for host in each.case.to)
        )
        found = await asyncio.to_thread(
            suggest,
            history,
            rules,
            dismissed=unwanted,
            suspended=frozenset(store.suspensions),
            now=now,
            settings=self.learning_settings(),
            schemas=dict(self._tool_watcher.schemas),
        )
        if (store.rules, store.unwanted) != (rules, unwanted):
            # Somebody accepted or dismissed one meanwhile: it would be suggested again at once.
            self._learning.set()
            return
        fresh = {each.id: each.as_json() for each in found}
        for id in [id for id in store.suggestions if id not in fresh]:
            if id in store.pending and not back_test(store.pending[id].rule, history).conflicts:
                # Somebody accepted it, and nothing speaks against it: another person may still do so.
                continue
            # Its evidence has grown into another suggestion, or no longer supports it.
            del store.suggestions[id]
            self.send("trust/dismiss", {"suggestion": id, "reason": "overtaken"})
        for id, payload in fresh.items():
            if id not in store.suggestions:
                store.suggestions[id] = payload
                self.send("trust/suggestion", payload)
        store.save()

    async def _reload_rules(self) -> None:
        saved, saved_at = self.store.last_seen, self.uses_clock()
        while True:
            await asyncio.sleep(RELOAD_SECONDS)
            self.store.note_expired(max(self.wall_clock(), self.uses_clock()))
            if self.store.last_seen != saved and abs(self.uses_clock() - saved_at) >= SAVE_SECONDS:
                saved, saved_at = self.store.last_seen, self.uses_clock()
                self.store.save()
            before, was_broken = self.store.rules, self.store.fault is not None
            if self.store.reload():
                self.commands.announce_changes(before, was_broken=was_broken)
                self._learning.set()

    # Sending

    def send(self, kind: str, payload: dict[str, Json], *, to: str = "", about: str | None = None) -> None:
        """Send in the background, as far as our capabilities allow; our tools report the same."""
        self.space.spawn(self._send(kind, payload, to, about))

    async def _send(self, kind: str, payload: dict[str, Json], to: str, about: str | None) -> None:
        try:
            await self.space.send(kind, payload, to=to or (), about=about or ())
        except MootError as fault:
            log.warning("not sent", extra={"kind": kind, "why": str(fault)})


def _sent_at(envelope: Envelope, now: float) -> float:
    """When an envelope was sent, by its own timestamp but not in the future."""
    try:
        return min(now, datetime.fromisoformat(envelope.ts.replace("Z", "+00:00")).timestamp())
    except ValueError:
        return now
