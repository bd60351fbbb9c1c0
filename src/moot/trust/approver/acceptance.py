"""A person accepts, narrows or dismisses a suggestion. Only then does it become a rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from moot.errors import InvalidPattern, UsageError
from moot.protocol.envelope import Envelope
from moot.trust.checks.narrowing_proof import find_counter_example, find_wider_part
from moot.trust.learning.learner import add_rule
from moot.trust.rules.rule import Rule, RuleOrigin
from moot.trust.rules.rule_json import rule_of_json
from moot.trust.rules.rule_store import RuleStore
from moot.trust.rules.store_records import GrantedRule, PendingAcceptance


class Acceptance:
    """Applies `trust/accept` and `trust/dismiss` to the rule store; raises UsageError if that cannot be."""

    def __init__(self, store: RuleStore) -> None:
        self._store = store

    def accept(self, envelope: Envelope, now: float) -> Rule | PendingAcceptance | None:
        """Make a suggestion a rule and return it; None if it was granted instead.

        Where several people have to accept it, all but the last get a PendingAcceptance.
        """
        store, payload = self._store, envelope.payload
        id, suggestion = self._find_suggestion(envelope)
        suggested = rule_of_json(suggestion["rule"], "the suggested rule")
        pending = store.pending.get(id)
        # What is accepted without a word about the rule is what the first person accepted.
        rule = suggested if pending is None else pending.rule
        if payload.get("rule") is not None:
            try:
                rule = rule_of_json(payload["rule"])
            except InvalidPattern as fault:
                raise UsageError(f"the rule cannot be read: {fault}") from None
            wider = find_wider_part(rule, suggested)
            if wider is not None:
                example = find_counter_example(rule, suggested)
                raise UsageError(
                    f"it may allow more than the suggestion, in: {wider}"
                    f"{f', for example {example}' if example else ''}. Accept the suggestion unchanged, "
                    f"narrow it, or write your own rule in {store.rules_file.name}"
                )
        if is_about(rule, envelope.sender):
            raise UsageError("nobody can accept a rule for their own proposals")
        if payload.get("granted") is True:
            # The agent got the capability itself; a rule would only duplicate it.
            del store.suggestions[id]
            grant = payload.get("grant")
            store.granted[id] = GrantedRule(
                suggested, envelope.sender, grant if isinstance(grant, str) else None
            )
            store.save()
            return None
        narrowed = payload.get("rule") is not None or (pending is not None and pending.narrowed)
        by = self._accepted_by(pending, rule, envelope.sender)
        if len(by) < store.accepting_people:
            store.pending[id] = PendingAcceptance(rule, by, narrowed)
            store.save()
            return store.pending[id]
        limits, learned = rule.limits, suggested.limits
        is_same = all(
            getattr(limits, part) == getattr(learned, part)
            for part in ("max_decisions", "per_seconds", "max_each")
        )
        origin = RuleOrigin(id, by[0], now, by[1:], None if is_same else by[0])
        replaced: Any = suggestion.get("replaces") or ()
        taken = _with_origin(rule, origin, {each.name for each in store.rules if each.name not in replaced})
        store.set_rules(add_rule(store.rules, taken, replaces=replaced))
        store.suggestions.pop(id, None)
        store.pending.pop(id, None)
        if narrowed:
            # The rest is not wanted: it would be suggested again at once.
            store.dismissed = (*store.dismissed, suggested)
        store.mark_reviewed([taken.name], now)
        store.save()
        return taken

    def _accepted_by(self, pending: PendingAcceptance | None, rule: Rule, sender: str) -> tuple[str, ...]:
        """Who has accepted this very rule, the sender last, who must not have already."""
        if self._store.accepting_people < 2 or pending is None or pending.rule != rule:
            return (sender,)
        if sender in pending.by:
            raise UsageError("you have accepted it already; another person has to accept it, too")
        return self._store.people_with(pending.by, sender)

    def dismiss(self, envelope: Envelope) -> None:
        """Dismiss a suggestion: nothing like it is suggested again."""
        id, suggestion = self._find_suggestion(envelope)
        rule = rule_of_json(suggestion["rule"], "the suggested rule")
        del self._store.suggestions[id]
        self._store.pending.pop(id, None)
        self._store.dismissed = (*self._store.dismissed, rule)
        self._store.save()

    def forget_grant(self, envelope: Envelope) -> None:
        """A grant was revoked: its suggestion may come again."""
        grant = envelope.payload.get("grant_id")
        gone = [id for id, each in self._store.granted.items() if grant and each.grant == grant]
        for id in gone:
            del self._store.granted[id]
        if gone:
            self._store.save()

    def _find_suggestion(self, envelope: Envelope) -> tuple[str, dict[str, Any]]:
        id = envelope.payload.get("suggestion")
        found = self._store.suggestions.get(id) if isinstance(id, str) else None
        if not isinstance(id, str) or found is None:
            raise UsageError("this suggestion no longer exists; list the current ones")
        return id, found


def is_about(rule: Rule, member: str) -> bool:
    """Separation of duties: whether a rule names this member as proposer."""
    return rule.proposer not in (None, "*") and rule.covers_proposer(member)


def _with_origin(rule: Rule, origin: RuleOrigin, taken: set[str]) -> Rule:
    """The rule with its origin, under a name that is not used yet."""
    name, number = rule.name, 2
    while name in taken:
        name, number = f"{rule.name}-{number}", number + 1
    return replace(rule, name=name, origin=origin)
