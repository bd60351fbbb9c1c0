"""A person accepts, narrows or dismisses a suggestion. Only then does it become a rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from moot.errors import InvalidPattern, UsageError
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from moot.trust.narrowing_proof import wider_in
from moot.trust.rule_store import GrantedRule, RuleStore
from moot.trust.rule_yaml import rule_of_json
from moot.trust.rules import Rule, RuleOrigin

Say = Callable[..., None]


class Acceptance:
    """What a `trust/accept` or `trust/dismiss` changes in the book."""

    def __init__(self, book: RuleStore, say: Say) -> None:
        self._book = book
        self._say = say

    def accept(self, envelope: Envelope, now: float) -> Rule | None:
        """The rule that is active now; None when the person granted it instead. Raises UsageError."""
        book, payload = self._book, envelope.payload
        id, suggestion = self._named(envelope)
        suggested = rule_of_json(suggestion["rule"], "the suggested rule")
        rule = suggested
        if payload.get("rule") is not None:
            try:
                rule = rule_of_json(payload["rule"])
            except InvalidPattern as fault:
                raise UsageError(f"the rule cannot be read: {fault}") from None
            wider = wider_in(rule, suggested)
            if wider is not None:
                raise UsageError(
                    f"it may allow more than the suggestion, in: {wider}. Accept the suggestion unchanged, "
                    f"narrow it, or write your own rule in {book.rules_file.name}"
                )
        if self.is_for(rule, envelope.sender):
            raise UsageError("nobody can accept a rule for their own proposals")
        if payload.get("granted") is True:
            # The agent got the right itself; a rule beside it would only do the same.
            del book.suggested[id]
            grant = payload.get("grant")
            book.granted[id] = GrantedRule(
                suggested, envelope.sender, grant if isinstance(grant, str) else None
            )
            book.save()
            return None
        origin = RuleOrigin(id, envelope.sender, now)
        replaced: Any = suggestion.get("replaces") or ()
        taken = _with(rule, origin, {each.name for each in book.rules if each.name not in replaced})
        kept = [each for each in book.rules if each.name not in replaced]
        # Rejecting rules come first, as `learning.accepted` has them.
        book.set_rules((taken, *kept) if taken.decision == "reject" else (*kept, taken))
        book.suggested.pop(id, None)
        if payload.get("rule") is not None:
            # Whoever narrows it does not want the rest: it would be suggested again at once.
            book.dismissed = (*book.dismissed, suggested)
        book.look_at([taken.name], now)
        book.save()
        return taken

    def dismiss(self, envelope: Envelope) -> None:
        """Nothing like it is suggested again."""
        try:
            id, suggestion = self._named(envelope)
            rule = rule_of_json(suggestion["rule"], "the suggested rule")
        except UsageError as fault:
            words: dict[str, Json] = {"text": f"not dismissed: {fault}", "format": "plain"}
            self._say("chat", words, to=envelope.sender, about=envelope.id)
            return
        del self._book.suggested[id]
        self._book.dismissed = (*self._book.dismissed, rule)
        self._book.save()

    def revoked(self, grant: str) -> None:
        """A grant was taken back: its suggestion may come again."""
        gone = [id for id, each in self._book.granted.items() if each.grant == grant]
        for id in gone:
            del self._book.granted[id]
        if gone:
            self._book.save()

    def is_for(self, rule: Rule, member: str) -> bool:
        """Separation of duties: whether a rule is about what this member proposes; not one about anybody."""
        return rule.proposer not in (None, "*") and rule.is_of(member)

    def _named(self, envelope: Envelope) -> tuple[str, dict[str, Any]]:
        id = envelope.payload.get("suggestion")
        found = self._book.suggested.get(id) if isinstance(id, str) else None
        if not isinstance(id, str) or found is None:
            raise UsageError("this suggestion no longer exists; list the current ones")
        return id, found


def _with(rule: Rule, origin: RuleOrigin, taken: set[str]) -> Rule:
    """The rule with its origin, under a name that is free."""
    name, number = rule.name, 2
    while name in taken:
        name, number = f"{rule.name}-{number}", number + 1
    return replace(rule, name=name, origin=origin)
