"""What rules say about a proposal, judged from files alone: the approver's folder and the journal.

Only the approver knows who is present and which budget it was started with. What cannot be known here is said
in notes, and never guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from moot.trust.history.proposal_history import HistoryProposal
from moot.trust.rules.accepted_calls import RejectedCalls
from moot.trust.rules.budgets import UseTally
from moot.trust.rules.cedar_policies import evaluate_with
from moot.trust.rules.rule import Rule
from moot.trust.rules.rule_evaluation import RuleVerdict, evaluate
from moot.trust.rules.rule_store import RuleStore
from moot.trust.rules.rule_words import join_names
from moot.trust.rules.tripwires import suspension_reasons

_BUDGET_NOTE = "The approver may have a budget for all rules together, which is not known here."


@dataclass(frozen=True, slots=True)
class OfflineVerdict:
    """What the rules say now, what they would have said when it was proposed, and what is not known here."""

    verdict: RuleVerdict
    notes: tuple[str, ...]
    asked_because: str | None


def judge_offline(
    decision: HistoryProposal, store: RuleStore, history: Sequence[HistoryProposal], now: float
) -> OfflineVerdict:
    """Judge one proposal by a rule store and the decisions of a journal."""
    verdict = _verdict_now(decision, store, history, now)
    asked = None if decision.rule is not None else _asked_because(decision, store.rules, history)
    return OfflineVerdict(verdict, tuple(_notes(verdict)), asked)


def _verdict_now(
    decision: HistoryProposal, store: RuleStore, history: Sequence[HistoryProposal], now: float
) -> RuleVerdict:
    if store.fault is not None:
        return RuleVerdict("ask", None, f"the rules cannot be read: {store.fault}")
    if store.stopped is not None:
        return RuleVerdict("ask", None, f"{store.stopped.by} stopped all rules: {store.stopped.why}")
    tally = UseTally()
    tally.record_past(history, store.rules)
    return evaluate_with(
        store.policies,
        store.rules,
        store.remembered.find(decision.case),
        decision.case,
        now,
        _everybody(store.rules),
        tally.times(),
        suspended=suspension_reasons(store.suspensions),
        rejected=RejectedCalls(history),
        expired=store.expired_names(),
    )


def _asked_because(
    decision: HistoryProposal, rules: Sequence[Rule], history: Sequence[HistoryProposal]
) -> str:
    """Why no rule decided it then, by those of today's rules that were there; suspensions are not known."""
    at = decision.case.at
    there = [rule for rule in rules if rule.origin.accepted is None or rule.origin.accepted <= at]
    if not there:
        return "there was no rule that is still there today"
    earlier = [each for each in history if each.at is not None and each.at < at]
    tally = UseTally()
    tally.record_past(earlier, rules)
    found = evaluate(
        there, decision.case, at, _everybody(there), tally.times(), rejected=RejectedCalls(earlier)
    )
    if found.decision == "ask":
        return found.why
    name = "a rule" if found.rule is None else f"rule {found.rule.name}"
    return (
        f"not known here: {name} matches today, and may have been suspended, stopped, changed, over the"
        " budget, a spot check, or missing somebody's presence"
    )


def _everybody(rules: Sequence[Rule]) -> frozenset[str]:
    return frozenset(name for rule in rules for name in rule.limits.while_present)


def _notes(verdict: RuleVerdict) -> list[str]:
    if verdict.rule is None or verdict.decision == "ask":
        return []
    notes = []
    limits = verdict.rule.limits
    if limits.while_present:
        verb = "is" if len(limits.while_present) == 1 else "are"
        names = join_names(limits.while_present)
        notes.append(f"Only while {names} {verb} present; who is present is not known here.")
    if limits.check_share:
        notes.append(f"{limits.check_share:.0%} of such proposals are left to people as spot checks.")
    return [*notes, _BUDGET_NOTE]
