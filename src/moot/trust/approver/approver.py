"""The approver: a member that applies rules to proposals and leaves the rest to people (MEW 9.4; D-92).

async with connect(url, "lab", token) as space:
    await Approver(space, RuleStore.open(folder), ProposalHistory()).run()

Everything it does is visible: approvals and rejections name their rule (context `trust/rule/NAME`, or the
payload), suggestions, rules and suspensions are envelopes of their own, and its tools report its state. It
acts within its own capabilities, never grants, and no rule becomes active before a person accepts it:

    trust/suggestion  approver → all    a rule that past decisions support
    trust/accept      person → all      {suggestion, rule?}: it, or a narrower one; {lift}; {resume};
                                        {reviewed: [proposals]}: these decisions of rules were right;
                                        {suggestion, granted: true, grant?}: the agent was given it itself;
                                        {again: PROPOSAL, count?, until?}: approve this very call again;
                                        {remove: RULE}; {tools: {HOST/TOOL: …}}: what tools do;
                                        {ignore: {HOST/TOOL: [ARGUMENT, …]}}: it does not matter; {matters};
                                        {observe: RULE, on: true}: it decides nothing, or decides again
    trust/dismiss     person → all      {suggestion}; nothing like it is suggested again
    trust/rule        approver → all    {rule, why, state}: active, suspended, lifted, removed; and of all
                                        rules together stopped and resumed
    trust/stop        person → all      {} all rules; {rule}, or about something that a rule did: that rule
    moot/plan         member → all      the calls of a task, which people approve once (`plan_commands`)
    moot/origins      approver → all    about a proposed call: where its values came from (`origin_watch`)
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from moot.errors import MootError
from moot.participant import MissedMessages
from moot.participant.joined_space import JoinedSpace
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from moot.resilience.steady_clock import SteadyClock
from moot.trust.approver.approver_settings import ApproverSettings
from moot.trust.approver.approver_status import ApproverStatus
from moot.trust.approver.call_memory import CallMemory
from moot.trust.approver.origin_finding import sent_at
from moot.trust.approver.origin_watch import OriginWatch
from moot.trust.approver.plan_commands import PlanCommands
from moot.trust.approver.reconciler import Reconciler
from moot.trust.approver.rule_commands import RuleCommands
from moot.trust.approver.rule_decider import RuleDecider
from moot.trust.approver.rule_history import RuleHistory
from moot.trust.approver.rule_reviews import RuleReviews
from moot.trust.approver.rule_suggester import RuleSuggester
from moot.trust.approver.tool_watcher import ToolWatcher
from moot.trust.history.proposal_case import Case
from moot.trust.history.proposal_history import HistoryProposal, ProposalHistory
from moot.trust.rules.accepted_calls import AcceptedCalls, RejectedCalls
from moot.trust.rules.plan import PLAN_KIND
from moot.trust.rules.remembered_calls import counted_name
from moot.trust.rules.rule_store import RuleStore
from moot.trust.rules.tripwires import (
    Complaint,
    Event,
    MemberKicked,
    PersonDecided,
    ProposalSeen,
    ToolChanged,
    trip_rules,
)

log = logging.getLogger(__name__)

# How often the rules file is checked.
RELOAD_SECONDS: Final = 1.0
# How often is written down up to where we have seen everything, where nothing else is written.
SAVE_SECONDS: Final = 10.0


class Approver:
    """The approver of one space. `ledger` has past decisions; from `run` on it observes all new ones."""

    def __init__(
        self,
        space: JoinedSpace,
        store: RuleStore,
        ledger: ProposalHistory,
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
        ledger.on_change = self._observe_decision
        self.wall_clock = clock
        # Limits and budgets: a wall clock that is set must not give a rule more decisions than it has.
        self.uses_clock: Callable[[], float] = SteadyClock() if clock is time.time else clock
        self._considered: dict[str, str] = {}
        # Whether what the ledger observes comes from the gateway's history.
        self._recalling = False
        # Messages from the gateway's history, which may be delivered to us once more.
        self._recalled: frozenset[str] = frozenset()
        self.tool_watcher = ToolWatcher(
            space,
            store,
            on_change=self._observe_tool_change,
            on_compared=self._decide_for_host,
        )
        self.decider = RuleDecider(self, draw)
        self.origins = OriginWatch(self)
        self.suggester = RuleSuggester(self)
        self.memory = CallMemory(self)
        self._load_past_decisions()
        self.status = ApproverStatus(self)
        self.plans = PlanCommands(self, lambda: max(self.wall_clock(), self.uses_clock()))
        self.commands = RuleCommands(self, self.plans, clock)
        store.mark_reviewed(store.unreviewed(), clock())
        # Before `run`, so that the tools are there as soon as anyone sees us.
        self.status.offer(space)

    async def run(self) -> None:
        """Run until the connection ends or it is cancelled."""
        space = self.space
        reader = space.envelopes(own=True)
        await self._catch_up()
        try:
            async with asyncio.TaskGroup() as group:
                helpers = [group.create_task(self._reload_rules())]
                parts = (self.suggester, self.tool_watcher, self.origins, Reconciler(space))
                helpers += [group.create_task(each.run()) for each in parts]
                async for envelope in reader:
                    if isinstance(envelope, MissedMessages):
                        log.warning("some envelopes were missed")
                        await self._catch_up()
                    else:
                        named = self._with_names(envelope)
                        self._process(named, is_as_sent=named is envelope)
                for helper in helpers:
                    helper.cancel()
        finally:
            self.store.save()

    # Observing

    async def _catch_up(self) -> None:
        """Process what was sent before we joined, or missed, as far as the gateway's history goes."""
        await self.space.recall()
        self.memory.note_cleared(())
        past = [self._with_names(envelope) for envelope in await self.space.history()]
        is_new, missed = not self.store.last_seen, self._find_missed(past)
        self._recalling = True
        for envelope in past:
            if self.ledger.get(envelope.id) is None:
                self.ledger.observe(envelope, sent_at(envelope, self.wall_clock()))
        self._recalling = False
        self._recalled = frozenset(envelope.id for envelope in past)
        self._load_past_decisions()
        self.suggester.update_people()
        await self.origins.recall(past, self._with_names, is_new=is_new)
        for decision in list(self.ledger):
            self._count(decision)
            # Predicted before a restart, and decided while we were away.
            self.history.compare(decision)
            envelopes = (decision.decided.envelope, *(each.id for each in decision.rejections))
            # By their order: of what happened while we were away no clock says whether it was reviewed.
            was_missed = not is_new and any(each in missed for each in envelopes)
            self._compare_with_rules(decision, at=None if was_missed else decision.at)
        for envelope in past:
            if envelope.id in missed and (not is_new or envelope.kind == PLAN_KIND):
                self.plans.note_endings(envelope)
                self.commands.process(envelope, was_missed=True)
            # A stop is obeyed even if it was sent while we were away, or to another approver.
            if envelope.kind == "trust/stop" and envelope.id in missed and envelope.sender != self.space.name:
                named = envelope.payload.get("rule")
                if not is_new or not isinstance(named, str) or self.store.rule(named) is not None:
                    self.commands.process(envelope)
        self._note_seen(past)
        self.plans.end_absent()
        self.plans.end_expired()
        self.plans.end_earlier()
        self.store.save()
        for case in self.open_cases():
            self.trip(ProposalSeen(case, self._accepted))
            self.decider.apply(case)
        self.suggester.wake()

    def open_cases(self) -> list[Case]:
        """The proposals that rules may still decide."""
        return [each.case for each in self.ledger if each.waits_for_rules and self.decider.is_open(each.id)]

    def apply_to(self, member: str) -> None:
        """Rules decide what a member has proposed before."""
        for case in self.open_cases():
            if case.proposer == member:
                self.decider.apply(case)

    def look_again(self, *, tools_changed: bool = False) -> None:
        """Judge open calls once more: somebody endorsed or revoked something, or said what a tool does."""
        if tools_changed:
            self.origins.read_again()
        for case in self.open_cases():
            self.origins.look_again(case)
            self.observe_origins(case)

    def observe_origins(self, case: Case) -> None:
        """Rules that go by origins decide; what they leave to people is told to everybody."""
        if self.decider.is_open(case.id):
            self.decider.apply_by_origin(case)
            self._tell_origins(case)

    def _tell_origins(self, case: Case) -> None:
        """Where a rule decided at once, nobody has to look at each argument."""
        if case.id not in self.decider.deciding_rules or self.origins.was_told(case.id):
            self.origins.tell(case)

    def _find_missed(self, past: Sequence[Envelope]) -> frozenset[str]:
        """What was sent since we saw something last, told by the order of the history.

        A history that does not reach back so far may lack a stop: then all rules are stopped.
        """
        seen = set(self.store.last_seen)
        last = max((at for at, envelope in enumerate(past) if envelope.id in seen), default=-1)
        if seen and last < 0 and (self.store.all_rules or self.store.remembered):
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

    def _load_past_decisions(self) -> None:
        for decision in self.ledger:
            self._note_approval(decision)
        self.decider.count_past(self.ledger)
        self.decider.rejected = RejectedCalls(self.ledger)
        # An agent that fulfils what another proposes does not make it usual.
        self._accepted = AcceptedCalls(each for each in self.ledger if each.by in self.store.people)

    def _with_names(self, envelope: Envelope) -> Envelope:
        """With logical names: rules are about people, not about connections (D-19)."""
        if self.space.roster.ids_are_names:
            return envelope
        sender, *to = self.space.roster.names_of([envelope.sender, *envelope.to])
        return msgspec.structs.replace(envelope, sender=sender, to=to)

    def _process(self, envelope: Envelope, *, is_as_sent: bool = False) -> None:
        now = self.wall_clock()
        if self.origins.observe(envelope, now, is_as_sent):
            self.look_again()
        if envelope.kind.startswith("mcp/") and envelope.id in self._recalled:
            return
        self._note_seen([envelope])
        if envelope.kind == "trust/stop" and envelope.sender != self.space.name:
            # First the rule that decided is suspended, with the words of who objects.
            self.commands.process(envelope)
            self.ledger.observe(envelope, now)
            return
        decision = self.ledger.observe(envelope, now)
        if envelope.sender == self.space.name:
            return
        self.plans.note_endings(envelope)
        match envelope.kind:
            case "mcp/proposal" if decision is not None:
                self.origins.look(decision.case)
                self.trip(ProposalSeen(decision.case, self._accepted))
                self.decider.apply(decision.case)
                self._tell_origins(decision.case)
            case "space/kick":
                member = envelope.payload.get("participant_id")
                self.trip(MemberKicked(str(member), envelope.sender, envelope.id))
            case "mcp/request":
                self.tool_watcher.observe(envelope)
            case "moot/preview":
                for id in envelope.correlation_id:
                    self.decider.apply_by_preview(id)
            case "participant/clear" | "participant/restart" | "participant/shutdown":
                self.memory.note_cleared(envelope.to)
            case _:
                self.commands.process(envelope)

    def _observe_decision(self, decision: HistoryProposal) -> None:
        """Somebody decided, or a result arrived."""
        self._count(decision)
        if decision.verdict == "pending":
            return
        if decision.automated and decision.lesson is None:
            if decision.status == "fulfilled" and not self._recalling:
                self.memory.remember_named_read(decision)
            return
        if decision.automated:
            self.reviews.object_to(decision.id)
        self._note_approval(decision)
        if decision.by in self.store.people:
            self._accepted.add(decision)
            if decision.lesson == "approve" and not self._recalling:
                # Whoever approves a call has looked at its tool.
                for host in decision.case.to:
                    self.store.changed_tools.pop(f"{host}/{decision.case.tool}", None)
                self.memory.remember_read(decision)
        self.decider.rejected.note(decision)
        if not self._recalling:
            self._compare_with_rules(decision, at=None)
        self.history.compare(decision)
        self.suggester.wake()

    def _count(self, decision: HistoryProposal) -> None:
        """Count who decided, for the report; what nobody decided is not counted."""
        if decision.is_decided and decision.at is not None:
            self.history.count_decision(decision.id, decision.at, rule=counted_name(decision.rule))

    def _compare_with_rules(self, decision: HistoryProposal, *, at: float | None) -> None:
        """Suspend the rules that a decision contradicts, once: its result is not another decision."""
        lesson = decision.lesson
        if lesson is not None and (at is not None or self._considered.get(decision.id) != lesson):
            behind = self.rule_behind(decision.id)
            went_by_origin = any(rule.ask is not None and rule.name == behind for rule in self.store.rules)
            asked = not went_by_origin and self.origins.asked(decision.id)
            self.trip(PersonDecided(decision, asked), at=at)
            self.reviews.note_decision(self.store.rules, decision)
        if lesson is not None:
            self._considered[decision.id] = lesson

    def trip(self, event: Event, *, at: float | None = None) -> None:
        """Suspend the rules that an event affects, forget what it contradicts, and say so to everybody.

        With `at`, when the event happened, rules that a person has reviewed since are left alone.
        """
        store, now = self.store, self.wall_clock()
        # What only observes is measured, and goes on after a disagreement.
        objected = isinstance(event, Complaint)
        among = [
            rule for rule in (store.all_rules if objected else store.rules) if objected or not rule.observe
        ]
        if isinstance(event, PersonDecided):
            case = event.decision.case
            permits = store.judge(case, self.origins.ask_reason(case)).permits
            among += [rule for rule in permits if not rule.observe]
        for suspension in trip_rules(among, event, now):
            name = suspension.rule
            if name in store.suspensions or (at is not None and at <= store.reviewed_at(name)):
                continue
            store.suspensions[name] = suspension
            store.save()
            log.warning("rule suspended", extra={"rule": name, "why": suspension.why})
            self.commands.announce_rule(name, "suspended", suspension.why, about=suspension.about)
            self.history.count("tripped", now, rule=name)
            if objected or isinstance(event, PersonDecided):
                self.history.count("wrong", now, rule=name)
        self.memory.trip(event, at=at)

    def _decide_for_host(self, host: str) -> None:
        """The tools of a host have been compared: rules decide what is open for it."""
        self.origins.note_compared(host)
        about = [case for case in self.open_cases() if host in case.to]
        for case in about:
            self.origins.look_again(case)
        for case in about:
            self.decider.apply(case)
            self._tell_origins(case)

    def _note_approval(self, decision: HistoryProposal) -> None:
        """An approval counts for its tool as it is, unless the tool has changed since."""
        case, changes = decision.case, self.store.tool_changes
        changed_at = max((changes.get(f"{host}/{case.tool}", 0.0) for host in case.to), default=0.0)
        if decision.lesson == "approve" and decision.at is not None:
            decision.outdated = decision.at <= changed_at
        if decision.lesson == "approve":
            self.memory.note_approved(decision)

    def _observe_tool_change(self, event: ToolChanged) -> None:
        """Suspend the rules about a tool, and learn from none of the approvals before its change."""
        about = [
            each
            for each in self.ledger
            if each.lesson == "approve" and each.case.tool == event.tool and event.host in each.case.to
        ]
        if about:
            self.store.tool_changes[f"{event.host}/{event.tool}"] = self.wall_clock()
            log.info("approvals before a change of their tool no longer count", extra={"count": len(about)})
        for decision in about:
            decision.outdated = True
        # What it returned before stays as it was; from now on nobody vouches for it.
        self.store.changed_tools[f"{event.host}/{event.tool}"] = None
        self.trip(event)
        self.suggester.wake()

    def rule_behind(self, id: str) -> str | None:
        """The rule that decided a proposal, by the id of the proposal, the request or the response."""
        decision = self.ledger.get(id)
        return None if decision is None else decision.rule or self.decider.deciding_rules.get(decision.id)

    async def _reload_rules(self) -> None:
        saved, saved_at = self.store.last_seen, self.uses_clock()
        while True:
            await asyncio.sleep(RELOAD_SECONDS)
            self.store.note_expired(max(self.wall_clock(), self.uses_clock()))
            self.plans.end_expired()
            if self.store.last_seen != saved and abs(self.uses_clock() - saved_at) >= SAVE_SECONDS:
                saved, saved_at = self.store.last_seen, self.uses_clock()
                self.store.save()
            before, was_broken = self.store.all_rules, self.store.fault is not None
            if self.store.reload():
                self.plans.drop_stale_rules()
                self.commands.announce_changes(before, was_broken=was_broken)
                self.look_again(tools_changed=True)
                self.suggester.wake()

    # Sending

    def send(self, kind: str, payload: dict[str, Json], *, to: str = "", about: str | None = None) -> None:
        """Send in the background, as far as our capabilities allow; our tools report the same."""
        self.space.spawn(self._send(kind, payload, to, about))

    def say(self, text: str, *, to: str = "", about: str | None = None) -> None:
        self.send("chat", {"text": text, "format": "plain"}, to=to, about=about)

    async def _send(self, kind: str, payload: dict[str, Json], to: str, about: str | None) -> None:
        try:
            await self.space.send(kind, payload, to=to or (), about=about or ())
        except MootError as fault:
            log.warning("not sent", extra={"kind": kind, "why": str(fault)})
