"""The state of an approver, as tools that members with the permission can call."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING

from moot.errors import UsageError
from moot.participant import ToolError
from moot.participant.joined_space import JoinedSpace
from moot.protocol.operation import Json
from moot.trust.approver.origin_commands import report_origins
from moot.trust.approver.rule_history import rule_version
from moot.trust.checks.explain import explain
from moot.trust.rules.rule_json import rule_as_json
from moot.trust.rules.rule_store import ALL_RULES
from moot.trust.rules.rule_words import describe_rule

if TYPE_CHECKING:
    from moot.trust.approver.approver import Approver

# More than are decided while an answer is under way.
_MAX_LATEST = 50
# As many as people look at; the history has more.
MAX_REPORTED_DAYS = 60
# How long a report waits for members that have not said which tools they have.
LIST_SECONDS = 2.0
# Remembered calls in one list.
MAX_LISTED_REMEMBERED = 100
# Decisions of one rule in one review.
MAX_REVIEWED = 200


class ApproverStatus:
    """The tools of one approver."""

    def __init__(self, approver: Approver) -> None:
        self._approver = approver

    def offer(self, space: JoinedSpace) -> None:
        """Offer read-only tools, whose descriptions are what is said here."""
        for tool in (
            self.trust_rules, self.trust_suggestions, self.trust_reviews, self.trust_report,
            self.trust_origins, self.trust_plans, self.trust_explain,
        ):  # fmt: skip
            space.tool(tool)

    def trust_suggestions(self) -> dict[str, Json]:
        """Lists the suggested rules that a person can accept, and why others are not suggested yet."""
        return {
            "suggestions": self._approver.store.open_suggestions(),
            "progress": [asdict(each) for each in self._approver.suggester.progress],
        }

    async def trust_origins(self, proposal: str | None = None) -> dict[str, Json]:
        """Lists what tools are said to do, what they claim themselves, and what people have endorsed.

        Args:
            proposal: Tells of this proposal instead where its values came from.
        """
        approver, space = self._approver, self._approver.space
        if proposal is not None:
            found = approver.origins.finding(approver.origins.whole_id(proposal))
            if found is None:
                raise ToolError(f"nothing is known of a proposal {proposal!r}")
            return {"proposal": found}
        hosts = {member.name for member in space.roster.values()} - approver.store.people - {space.name}
        with suppress(TimeoutError):
            async with asyncio.timeout(LIST_SECONDS):
                await approver.tool_watcher.load_schemas(sorted(hosts))
        return report_origins(approver.store, approver.tool_watcher, approver.origins, approver.wall_clock())

    def trust_plans(self, proposal: str | None = None) -> dict[str, Json]:
        """Lists the plans that members laid out, what of them is approved, and how much of it is used.

        Args:
            proposal: Tells instead what "the same for the rest of this task" would allow.
        """
        try:
            return self._approver.plans.report(proposal)
        except UsageError as fault:
            raise ToolError(str(fault)) from None

    def trust_rules(self) -> dict[str, Json]:
        """Lists the rules of this space, how often each decided, and which are suspended."""
        approver = self._approver
        store = approver.store
        store.note_expired(max(approver.wall_clock(), approver.uses_clock()))
        expired_names = store.expired_names()
        listed: list[Json] = []
        remembered = list(store.remembered)
        for rule in (*store.all_rules, *reversed(remembered[-MAX_LISTED_REMEMBERED:])):
            suspension = store.suspensions.get(rule.name)
            expired = rule.name in expired_names or rule.has_ended(approver.wall_clock())
            works = "observing" if rule.observe else "active"
            state = "suspended" if suspension is not None else "expired" if expired else works
            listed.append(
                {
                    "rule": rule_as_json(rule),
                    "words": rule.words or describe_rule(rule),
                    "state": state,
                    "why": suspension.why if suspension is not None else None,
                    "resumed_by": list(store.resuming.get(rule.name, ())),
                    "hits": approver.decider.tally.count(rule.name),
                    "left": approver.decider.tally.remaining(rule, approver.uses_clock()),
                    "unreviewed": len(approver.reviews.unreviewed(rule.name)),
                    "review_due": approver.reviews.is_due(rule),
                    "review_left": approver.reviews.left(rule),
                }
            )
        return {
            "rules": listed,
            # How many calls are remembered; the list has those that were used last.
            "remembered": len(remembered),
            "stopped": None if store.stopped is None else asdict(store.stopped),
            "resumed_by": list(store.resuming.get(ALL_RULES, ())),
            "fault": store.fault,
            "observe": approver.settings.observe,
            "accepting_people": store.accepting_people,
            "budget": None
            if (budget := approver.settings.budget) is None
            else {
                "count": budget.max_decisions,
                "seconds": budget.per_seconds,
                "left": approver.decider.tally.remaining_of(budget, approver.uses_clock()),
            },
            # Included in `hits`, though perhaps received after this: decisions are counted before they are
            # sent.
            "counted": approver.decider.latest_decisions(_MAX_LATEST),
        }

    def trust_reviews(self) -> dict[str, Json]:
        """Lists what rules decided and nobody has reviewed yet, oldest first."""
        approver = self._approver
        listed: list[Json] = []
        for rule in approver.store.all_rules:
            ids = approver.reviews.unreviewed(rule.name)
            if not ids:
                continue
            listed.append(
                {
                    "rule": rule.name,
                    "words": rule.words or describe_rule(rule),
                    "due": approver.reviews.is_due(rule),
                    "left": approver.reviews.left(rule),
                    "reviewed": approver.reviews.reviewed(rule.name),
                    "decisions": [self._describe_decision(id) for id in ids[:MAX_REVIEWED]],
                }
            )
        return {"reviews": listed}

    def _describe_decision(self, id: str) -> dict[str, Json]:
        decision = self._approver.ledger.get(id)
        if decision is None:
            # The gateway's history no longer has it.
            return {"id": id}
        word = "approve" if decision.verdict == "fulfilled" else decision.verdict
        return {**decision.as_json(), "decision": word}

    def trust_report(self) -> dict[str, Json]:
        """Reports the share of automatic decisions by day, whose approvals count, and observe results."""
        approver = self._approver
        history = approver.history
        versions = {rule.name: rule_version(rule) for rule in approver.store.all_rules}
        observe: dict[str, Json] = {}
        for name in history.rules():
            record = history.observed(name, version=versions.get(name))
            if not record.agreements + record.conflicts:
                continue
            observe[name] = {
                "agreements": record.agreements,
                "conflicts": record.conflicts,
                "error_bound": round(record.bound, 4),
            }
        return {
            "days": history.shares(MAX_REPORTED_DAYS),
            # Included in `days`, though whoever asks may receive these decisions later than the report.
            "counted": [each.id for each in approver.ledger if each.is_decided][-_MAX_LATEST:],
            "observe": observe,
            "rule_history": history.rule_days(MAX_REPORTED_DAYS),
            "approvals": approver.settings.learning.min_approvals,
            "people": sorted(approver.suggester.learning_settings().people or ()),
        }

    def trust_explain(self, id: str) -> dict[str, Json]:
        """Explains why a proposal was or was not decided by a rule.

        Args:
            id: The id of the proposal, or of the resulting request or response.
        """
        approver = self._approver
        decision = approver.ledger.get(id)
        if decision is None:
            raise ToolError(f"unknown proposal, request or response {id!r}")
        # The approver's own verdict: it considers stops, the budget and who is present.
        verdict = approver.decider.verdict(decision.case)
        asked = approver.decider.asked_because(decision.id) if decision.rule is None else None
        rules = approver.store.rules_about(decision.case, decision.rule)
        found = explain(decision, rules, approver.wall_clock(), verdict=verdict, asked_because=asked)
        return {**found.as_json(), "lines": list(found.lines())}
