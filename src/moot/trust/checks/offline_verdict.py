"""What rules say about a proposal, judged from files alone: the approver's folder and the journal.

Only the approver knows who is present and which budget it was started with. What cannot be known here is said
in notes, and never guessed.
"""

from __future__ import annotations

from collections.abc import Sequence

from moot.trust.history.proposal_history import HistoryProposal
from moot.trust.rules.rule_evaluation import RuleVerdict
from moot.trust.rules.rule_store import RuleStore
from moot.trust.rules.rule_words import join_names
from moot.trust.rules.tripwires import suspension_reasons

_BUDGET_NOTE = "The approver may have a budget for all rules together, which is not known here."


def judge_offline(
    decision: HistoryProposal, store: RuleStore, history: Sequence[HistoryProposal], now: float
) -> tuple[RuleVerdict, tuple[str, ...]]:
    """What a rule store says of a proposal now, by the decisions of a journal, and what is not known here.

    What the rules said then is told by `rules_then`.
    """
    verdict = store.blocked() or store.rule_set.decide_after(
        history,
        decision.case,
        now,
        suspended=suspension_reasons(store.suspensions),
        expired=store.expired_names(),
    )
    return verdict, tuple(_notes(verdict))


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
