"""How things stand, as tools that anybody with the right to ask may call; and as values for `moot rules`."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from moot.participant import ToolError
from moot.participant.joined_space import JoinedSpace
from moot.protocol.envelope import rfc3339
from moot.protocol.operation import Json
from moot.trust.decision_ledger import Decision
from moot.trust.explain import explain
from moot.trust.rule_words import rule_in_words
from moot.trust.rule_yaml import rule_as_json

if TYPE_CHECKING:
    from moot.trust.approver import Approver

_DAY = 86_400.0
# More than are decided while an answer is under way.
_LATEST_ACTS = 50


class ApproverStatus:
    """Of one approver."""

    def __init__(self, approver: Approver) -> None:
        self._approver = approver

    def offer(self, space: JoinedSpace) -> None:
        """Four tools that change nothing."""

        @space.tool
        def trust_rules() -> dict[str, Json]:
            """Lists the rules of this space, how often each decided, and which are suspended."""
            return self.rules()

        @space.tool
        def trust_suggestions() -> dict[str, Json]:
            """Lists the suggested rules that a person can accept, narrow or dismiss."""
            return {"suggestions": list(self._approver.book.suggested.values())}

        @space.tool
        def trust_report() -> dict[str, Json]:
            """Reports the share of automatic decisions by day, whose approvals count, and shadow results."""
            return self.report()

        @space.tool
        def trust_explain(id: str) -> dict[str, Json]:
            """Explains why a proposal was or was not decided by a rule.

            Args:
                id: The id of the proposal, or of the resulting request or response.
            """
            return self.explained(id)

    def rules(self) -> dict[str, Json]:
        approver = self._approver
        book, now = approver.book, time.time()
        listed: list[Json] = []
        for rule in book.rules:
            suspension = book.suspensions.get(rule.name)
            expired = rule.limits.expires is not None and now >= rule.limits.expires
            state = "suspended" if suspension is not None else "expired" if expired else "active"
            listed.append(
                {
                    "rule": rule_as_json(rule),
                    "words": rule.words or rule_in_words(rule),
                    "state": state,
                    "why": suspension.why if suspension is not None else None,
                    "hits": approver.tally.hits(rule.name),
                    "left": approver.tally.left(rule, now),
                }
            )
        return {
            "rules": listed,
            "stopped": None if book.stopped is None else book.stopped.as_json(),
            "fault": book.fault,
            "shadow": approver.settings.shadow,
            # In `hits` already, though perhaps heard after this: acts are counted before they are done.
            "counted": approver.latest_acts(_LATEST_ACTS),
        }

    def report(self) -> dict[str, Json]:
        approver = self._approver
        rules = {compared.rule for compared in approver.shadow.comparisons}
        shadow: dict[str, Json] = {}
        for name in sorted(rules):
            record = approver.shadow.record(name)
            shadow[name] = {
                "agreements": record.agreements,
                "conflicts": record.conflicts,
                "error_bound": round(record.bound, 4),
            }
        return {
            "days": shares(approver.ledger),
            "shadow": shadow,
            "approvals": approver.settings.learning.approvals,
            "people": sorted(approver.learning().people or ()),
        }

    def explained(self, id: str) -> dict[str, Json]:
        approver = self._approver
        decision = approver.ledger.get(id)
        if decision is None:
            raise ToolError(f"unknown proposal, request or response {id!r}")
        # The approver's own: it minds the switch, the budget and who is here.
        verdict = approver.verdict(decision.case)
        found = explain(decision, approver.book.rules, time.time(), verdict=verdict)
        return {**found.as_json(), "lines": list(found.lines())}


def shares(decisions: Iterable[Decision]) -> list[Json]:
    """What was decided each day, by people and by rules; the share that was automatic."""
    days: dict[float, list[int]] = {}
    for decision in decisions:
        if decision.how in ("fulfilled", "rejected") and decision.at is not None:
            counts = days.setdefault(decision.at // _DAY * _DAY, [0, 0])
            counts[decision.automated] += 1
    return [
        {
            "day": rfc3339(day)[:10],
            "people": by_people,
            "rules": by_rules,
            "share": round(by_rules / (by_people + by_rules), 4),
        }
        for day, (by_people, by_rules) in sorted(days.items())
    ]
