"""Suspending rules: what happened contradicts them, or somebody objects."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from moot.trust.rules.tripwires import Complaint, Event, PersonDecided, Suspension, trip_rules

if TYPE_CHECKING:
    from moot.trust.approver.approver import Approver

log = logging.getLogger(__name__)


class RuleSuspender:
    """Suspends rules of one approver, and says so to everybody."""

    def __init__(self, approver: Approver) -> None:
        self._approver = approver

    def trip(self, event: Event, *, at: float | None = None) -> int:
        """Suspend the rules that an event affects; returns how many.

        With `at`, when the event happened, rules that a person has reviewed since are left alone.
        """
        approver = self._approver
        store, now = approver.store, approver.wall_clock()
        count = 0
        # What only observes is measured, and goes on after a disagreement.
        among = store.all_rules if isinstance(event, Complaint) else store.rules
        if isinstance(event, PersonDecided):
            case = event.decision.case
            among = (*among, *store.judge(case, approver.origins.ask_reason(case)).permits)
        rules = [rule for rule in among if not rule.observe or isinstance(event, Complaint)]
        for suspension in trip_rules(rules, event, now, deciding_rules=approver.decider.deciding_rules):
            name = suspension.rule
            if name in store.suspensions or (at is not None and at <= store.reviewed_at(name)):
                continue
            self._suspend(suspension)
            approver.history.count("tripped", now, rule=name)
            if isinstance(event, PersonDecided | Complaint):
                approver.history.count("wrong", now, rule=name)
            count += 1
        return count + len(approver.memory.trip(event, at=at))

    def _suspend(self, suspension: Suspension) -> None:
        store = self._approver.store
        store.suspensions[suspension.rule] = suspension
        store.save()
        log.warning("rule suspended", extra={"rule": suspension.rule, "why": suspension.why})
        announce = self._approver.commands.announce_rule
        announce(suspension.rule, "suspended", suspension.why, about=suspension.about)
