"""What the rules say about a proposal, and the decision that the approver sends for them.

Before a decision is sent it is noted for review and counted, so that neither a burst nor a restart exceeds a
limit. Where a host has just joined, rules wait until its tools have been compared, and then decide what is
open for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from moot.errors import ApprovalRequired, BudgetExceeded, MootError, NotAllowed, ProposalSettled, TargetAbsent
from moot.origins.tool_traits import UNDO_CLASSES
from moot.protocol.gateway_proposal import Undo
from moot.protocol.latest_dict import LatestDict
from moot.protocol.operation import Json
from moot.protocol.opinion import OPINION_REASON, OPINION_RULE
from moot.protocol.proposal_life import RULE_CONTEXT
from moot.trust.history.proposal_case import Case
from moot.trust.history.proposal_history import HistoryProposal
from moot.trust.rules.accepted_calls import RejectedCalls
from moot.trust.rules.budgets import UseTally
from moot.trust.rules.cedar_policies import is_policy
from moot.trust.rules.ignored_arguments import loosen_learned
from moot.trust.rules.rule import ORIGINS_UNKNOWN, Rule
from moot.trust.rules.rule_evaluation import RuleVerdict, amounts_of, row_name
from moot.trust.rules.rule_set import RuleSet
from moot.trust.rules.store_records import is_counted
from moot.trust.rules.tripwires import suspension_reasons

if TYPE_CHECKING:
    from moot.trust.approver.approver import Approver

log = logging.getLogger(__name__)

# Proposals of which is remembered why people were asked.
MAX_ASKED: Final = 10_000
# The wall clock may differ from the clock that nobody sets by so much without having jumped.
CLOCK_JUMP_SECONDS: Final = 5.0
REJECT_REASON: Final = "policy"


class RuleDecider:
    """Decides proposals of one space by its rules, within limits, budget and capabilities."""

    def __init__(self, approver: Approver, draw: Callable[[], float]) -> None:
        self.tally = UseTally()
        for name, uses in approver.store.uses.items():
            self.tally.restore(name, uses.times, uses.sums)
        # The rule that decided each proposal, for our decisions alone.
        self.deciding_rules: dict[str, str] = {}
        self.rejected = RejectedCalls()
        self._approver = approver
        self._space, self._store, self._settings = approver.space, approver.store, approver.settings
        self._reviews, self._draw = approver.reviews, draw
        # The rules that have decided since we run, as they were told.
        self._told: dict[str, Rule] = {}
        self._reported_rules: set[str] = set()
        # Why people were asked, by proposal.
        self._asked: LatestDict[str, str] = LatestDict(MAX_ASKED)
        # Kept, so that nobody draws twice for a spot check.
        self._draws: LatestDict[str, float] = LatestDict(MAX_ASKED)

    def verdict(self, case: Case, *, draw: float = 1.0) -> RuleVerdict:
        """What the rules say now; `draw` below 1 leaves the share of checks to people."""
        store, now = self._store, self._approver.wall_clock()
        if (blocked := store.blocked()) is not None:
            return blocked
        budget = self._settings.budget
        if budget is not None and self.tally.is_used_up(budget, self._approver.uses_clock()):
            return RuleVerdict("ask", None, "the budget for all rules is used up")
        steady = self._approver.uses_clock()
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
        self,
        case: Case,
        now: float,
        draw: float,
        *,
        suspended: Mapping[str, str] | None = None,
        observing: bool | None = False,
    ) -> RuleVerdict:
        store = self._store
        if any(rule.undo is not None for rule in store.all_rules):
            case = replace(case, undo=self._undo_of(case))
        return RuleSet(self._loosen(store.rules, case), store.policies).decide(
            case,
            now,
            [self._space.name, *(member.name for member in self._space.roster.values())],
            self.tally.times(),
            found=self._approver.memory.find(case),
            suspended=suspension_reasons(store.suspensions) if suspended is None else suspended,
            me=self._space.name,
            draw=draw,
            times_now=self._approver.uses_clock(),
            rejected=self.rejected,
            expired=store.expired_names(),
            paused=self._reviews.pause_reasons(store.all_rules),
            untrusted=self._approver.origins.ask_reason(case),
            observing=observing,
            unnamed_untrusted=lambda rule: self._unnamed_reason(case, rule),
            spent=self.tally.spent(),
        )

    def _loosen(self, rules: Sequence[Rule], case: Case) -> Sequence[Rule]:
        """As they decide this call: arguments that do not matter are not compared."""
        return loosen_learned(rules, case.tool, self._store.remembered.ignored_in(case))

    def _unnamed_reason(self, case: Case, rule: Rule) -> str | None:
        if rule.origin.plan is None:
            return self._approver.memory.steered_reason(case, rule)
        return self._approver.origins.unnamed_reason(case, rule)

    def _undo_of(self, case: Case) -> Undo:
        """The worst of what is said of its tool at each of its hosts; else what its preview makes it."""
        if case.method != "tools/call" or not case.to:
            return "final"
        traits = [self._approver.origins.traits_of(host, case.tool or "") for host in case.to]
        is_said = any(each.undo or each.effect == "destroys" for each in traits)
        if not is_said and self._can_be_taken_back(case):
            return "reversible"
        return max((each.undo_class for each in traits), key=UNDO_CLASSES.index)

    def apply_by_preview(self, id: str) -> None:
        """A preview may have made it a call that can be taken back."""
        case = next((each for each in self._approver.open_cases() if each.id == id), None)
        if case is not None and any(rule.undo is not None for rule in self._store.all_rules):
            self.apply(case)

    def _can_be_taken_back(self, case: Case) -> bool:
        """Whether approving applies an effect that was seen, where the operator says nothing else of it."""
        seen = self._space.proposals.get(case.id)
        return (
            seen is not None
            and seen.preview is not None
            and seen.preview.can_be_undone
            and not any(each.undo for each in seen.effects)
        )

    def _uncompared_hosts(self, case: Case) -> list[str]:
        """D-87: a host that has just joined may offer something else under a known name.

        What an agent wants to do itself (decision 0104) is in no list of tools, nor is a resource or prompt.
        """
        listed = case.tool if case.method == "tools/call" else None
        tools = {host: None if host == case.proposer else listed for host in case.to}
        return [
            host for host, tool in tools.items() if not self._approver.tool_watcher.is_compared(host, tool)
        ]

    def apply_by_origin(self, case: Case) -> None:
        """The origins of a call may ask no longer: a rule that goes by them decides, and no other."""
        rule = self.verdict(case).rule
        if self._asked.get(case.id, "").endswith(ORIGINS_UNKNOWN):
            # It was looked at since.
            del self._asked[case.id]
        goes_by_origin = rule is not None and (rule.ask is not None or is_policy(rule))
        if goes_by_origin and case.id not in self.deciding_rules:
            self.apply(case)

    def apply(self, case: Case) -> None:
        draw = self._draws[case.id] if case.id in self._draws else self._draw()
        self._draws[case.id] = draw
        verdict = self.verdict(case, draw=draw)
        if self._uncompared_hosts(case):
            return
        self._predict(case)
        if self._settings.observe:
            self._note_asked(case.id, "the approver runs in observe mode and decides nothing")
            return
        if verdict.decision == "ask":
            self._note_asked(case.id, verdict.why)
        if verdict.rule is None or verdict.decision == "ask" or case.id in self.deciding_rules:
            return
        # Noted and counted before it is sent, so that a burst cannot exceed a limit.
        if not self._reviews.note(verdict.rule, case.id, self._approver.wall_clock()):
            self._note_asked(case.id, f"rule {verdict.rule.name} matched, but could not note it for review")
            return
        amounts, at = amounts_of(verdict.rule, case), self._approver.uses_clock()
        if is_counted(verdict.rule):
            try:
                self._store.note_use(verdict.rule, at, amounts)
            except OSError as fault:
                log.warning("a use of a rule cannot be written down", extra={"why": str(fault)})
                self._note_asked(case.id, f"rule {verdict.rule.name} matched, but could not be counted")
                return
        self._tell_once(verdict.rule)
        self.deciding_rules[case.id] = verdict.rule.name
        self.tally.record(verdict.rule.name, at, amounts, row=row_name(verdict.rule, case))
        self._store.remembered.note_used(verdict.rule.name, self._approver.wall_clock())
        if verdict.decision == "approve":
            self._space.spawn(self._fulfil(case, verdict.rule))
        else:
            self._space.spawn(self._reject(case, verdict.rule))
        if self._reviews.is_due(verdict.rule, anew=True):
            self._approver.commands.announce_review(verdict.rule)

    def _tell_once(self, rule: Rule) -> None:
        """Before its first decision, so that whoever asks later knows what it said then.

        One that came in with the file was told by nobody; what is remembered was, when people wanted it.
        """
        if self._told.get(rule.name) != rule and self._store.remembered.get(rule.name) is None:
            self._told[rule.name] = rule
            names: list[Json] = [each.name for each in self._store.all_rules]
            self._approver.commands.announce_rule(rule.name, "active", "it decides", more={"rules": names})

    def _predict(self, case: Case) -> None:
        """Note what those rules would decide that only observe: all of them in observe mode."""
        store, whole = self._store, self._settings.observe
        if store.blocked() is None and (whole or any(rule.observe for rule in store.all_rules)):
            # As if no disagreement had suspended a rule: people want to know how often there is one.
            observing = None if whole else True
            found = self._evaluate(case, self._approver.wall_clock(), 1.0, suspended={}, observing=observing)
            self._approver.history.predict(case.id, found)

    def _note_asked(self, id: str, why: str) -> None:
        """Note why people are asked, for those who want to know later; the first reason stays."""
        if id not in self._asked:
            self._asked[id] = why

    def asked_because(self, id: str) -> str | None:
        """Why no rule decided a proposal when it came; None if we did not see it come."""
        return self._asked.get(id)

    def _may_still_decide(self, case: Case, rule: Rule) -> bool:
        """Whether nobody stopped the rule after it matched and before its decision is sent."""
        store = self._store
        is_known = store.rule(rule.name) is not None and rule.name not in store.suspensions
        if store.blocked() is None and is_known:
            return True
        self.deciding_rules.pop(case.id, None)
        self._reviews.forget(case.id)
        self._leave(case, f"rule {rule.name} matched, but was stopped before it decided")
        return False

    def _leave(self, case: Case, why: str) -> None:
        self._note_asked(case.id, why)
        self._approver.origins.tell(case)

    async def _fulfil(self, case: Case, rule: Rule) -> None:
        if not self._may_still_decide(case, rule):
            return
        try:
            seen = self._space.proposals.get(case.id)
            if seen is not None and seen.approvals_needed:
                # Votes are for people, and so is what they decide together (D-103).
                raise ApprovalRequired(seen.vote_text)
            await self._space.approve(
                case.id,
                timeout_seconds=self._settings.call_seconds,
                context=RULE_CONTEXT + rule.name,
                vote=False,
            )
        except TargetAbsent:
            # It stays open (D-100): rules decide again when its host is back and its tools were compared.
            self.deciding_rules.pop(case.id, None)
            self._reviews.forget(case.id)
            self._leave(case, f"rule {rule.name} would approve this, but its host is not connected")
        except (ProposalSettled, ApprovalRequired, BudgetExceeded) as fault:
            # Somebody else decided first, several votes are required (D-28), or a budget is used up.
            self._reviews.forget(case.id)
            if not isinstance(fault, ProposalSettled):
                is_told = not {"budget", "effect"}.isdisjoint(fault.details)
                why = str(fault) if is_told else "this space asks for several approvals"
                self._leave(case, f"rule {rule.name} matched, but {why}")
            log.info("not decided", extra={"proposal": case.id, "why": str(fault)})
        except NotAllowed as fault:
            self._reviews.forget(case.id)
            self._report_once(
                rule, f"rule {rule.name} would approve this, but I have no permission to: {fault}"
            )
            self._approver.origins.tell(case)
        except MootError as fault:
            log.info("approved, but failed", extra={"proposal": case.id, "why": str(fault)})

    async def _reject(self, case: Case, rule: Rule) -> None:
        if not self._may_still_decide(case, rule):
            return
        try:
            payload: dict[str, Json] = {"reason": REJECT_REASON, "rule": rule.name}
            await self._space.send("mcp/reject", payload, to=case.proposer, about=case.id, confirm=True)
        except MootError as fault:
            self._report_once(rule, f"rule {rule.name} would reject this, but I could not: {fault}")

    def is_open(self, id: str) -> bool:
        seen = self._space.proposals.get(id)
        if seen is None or seen.status != "pending":
            return False
        # What a model thinks of it overrides no rule that people accepted.
        return all(each.reason == OPINION_REASON for each in seen.rejections)

    def _report_once(self, rule: Rule, text: str) -> None:
        if rule.name not in self._reported_rules:
            self._reported_rules.add(rule.name)
            self._approver.say(text)

    def count_past(self, ledger: Iterable[HistoryProposal]) -> None:
        """Count decisions of rules that were not counted yet, so that a restart resets no budget."""
        ours = (each for each in ledger if each.rule not in (None, OPINION_RULE))
        found = [each for each in ours if each.id not in self.deciding_rules]
        self.deciding_rules |= {each.id: each.rule for each in found if each.rule is not None}
        rules = {rule.name: rule for rule in self._store.all_rules}
        uncounted = [each for each in found if each.rule not in self._store.uses]
        self.tally.record_past(uncounted, rules.values(), lambda rule, case: self._loosen([rule], case)[0])
        # Where the notes about reviews were lost, what was decided since counts as not reviewed.
        noted_at = self._reviews.last_at
        for each in found:
            rule = rules.get(each.rule or "")
            if rule is None or each.at is None:
                continue
            if each.at > max(noted_at, self._store.reviewed_at(rule.name)):
                self._reviews.note(rule, each.id, each.at)

    def latest_decisions(self, count: int) -> list[Json]:
        """The proposals that rules decided last, oldest first."""
        return list(self.deciding_rules)[-count:]
