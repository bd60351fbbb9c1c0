"""The rules that there were when something was decided, as the journal tells them, and a replay under these.

An approver tells the space of each rule, whole, before it first decides by it, and of what becomes of it
(`trust/rule`); with that go the names of all, in their order. What was never told, since it decided nothing,
is not known here, and neither is who was present, which budget the approver had, or where values came from:
the replay says so, and guesses nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Final

from moot.errors import UsageError
from moot.protocol.operation import Json
from moot.store.journal_reader import JournalRecord
from moot.trust.history.proposal_history import HistoryProposal
from moot.trust.rules.remembered_calls import REMEMBERED, counted_name
from moot.trust.rules.rule import Rule
from moot.trust.rules.rule_evaluation import RuleVerdict
from moot.trust.rules.rule_json import rule_as_json, rule_of_json
from moot.trust.rules.rule_set import RuleSet
from moot.trust.rules.rule_words import join_names

_KIND: Final = "trust/rule"
# Of rules of which nothing is known, as many as somebody reads.
MAX_UNTOLD: Final = 10


@dataclass(slots=True)
class ToldRules:
    """What one member has told of its rules so far."""

    rules: dict[str, Rule] = field(default_factory=dict)
    suspended: dict[str, str] = field(default_factory=dict)
    stopped: str | None = None
    # Those that there were, and of which nobody told what they said.
    untold: tuple[str, ...] = ()

    def take(self, payload: dict[str, Json]) -> None:
        """Take a message; one that says nothing of rules changes nothing."""
        told, state, why = payload.get("rule"), payload.get("state"), str(payload.get("why", ""))
        if told is None:
            if state == "stopped":
                because = f" ({why})" if why else ""
                self.stopped = f"{payload.get('by') or 'a fault'} stopped all rules{because}"
            elif state == "resumed":
                self.stopped = None
            return
        try:
            rule = rule_of_json(told) if isinstance(told, dict) else None
        except UsageError:
            # Of a later version, or by somebody who is no approver.
            return
        name = rule.name if rule is not None else told
        if isinstance(name, str):
            self._take(name, rule, state, why)
        if isinstance(names := payload.get("rules"), list):
            self._list([each for each in names if isinstance(each, str)])

    def _take(self, name: str, rule: Rule | None, state: Json, why: str) -> None:
        self.suspended.pop(name, None)
        if state == "removed":
            self.rules.pop(name, None)
            return
        if rule is not None:
            self.rules[name] = rule
            self.untold = tuple(each for each in self.untold if each != name)
        if state == "suspended":
            self.suspended[name] = why

    def _list(self, names: Sequence[str]) -> None:
        """These there are; what is remembered of calls stands in no file."""
        kept = [name for name in self.rules if name not in names and counted_name(name) == REMEMBERED]
        self.untold = tuple(name for name in names if name not in self.rules)
        self.rules = {name: self.rules[name] for name in (*names, *kept) if name in self.rules}


@dataclass(frozen=True, slots=True)
class RulesThen:
    """What the rules of then say. `verdict` is None if that is not known."""

    verdict: RuleVerdict | None
    notes: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        found = self.verdict
        said = "not known" if found is None else f"{found.decision} ({found.why})"
        return [f"Rules of then: {said}.", *(f"  {each}" for each in self.notes)]

    def as_json(self) -> dict[str, Json]:
        found = self.verdict
        return {
            "verdict": None if found is None else found.decision,
            "why": None if found is None else found.why,
            "rule": None if found is None or found.rule is None else rule_as_json(found.rule),
            "notes": list(self.notes),
        }


def replay_then(
    decision: HistoryProposal,
    records: Iterable[JournalRecord],
    history: Sequence[HistoryProposal],
) -> RulesThen:
    """Judge a proposal by the rules that the journal tells of.

    Of those until a rule decided it, or else until it was made: then people were asked.
    """
    by_rule = decision.rule is not None
    until = (decision.decided.envelope if by_rule else None) or decision.id
    told: dict[str, ToldRules] = {}
    # The last one, where an id was used again (D-94).
    then: tuple[dict[str, ToldRules], str] | None = None
    teller = ""
    for record in records:
        if record.id == until:
            then = deepcopy(told), teller
        elif record.kind.replace(".", "/") == _KIND and record.text("out") == "accepted":
            teller, payload = record.text("who"), record.envelope_fields.get("payload")
            told.setdefault(teller, ToldRules()).take(payload if isinstance(payload, dict) else {})
    tellers, teller = then or (told, teller)
    who = decision.by if by_rule and decision.by in tellers else teller
    rules = tellers.get(who or "", ToldRules())
    if by_rule and decision.rule not in rules.rules:
        note = f"The journal does not tell what rule {decision.rule} said then."
        return RulesThen(None, (note,))
    if not rules.rules and rules.stopped is None:
        return RulesThen(None, ("Until then the journal tells of no rule.",))
    verdict = _judge(decision, rules, who or "", history)
    notes = _notes(decision, verdict, [each for each in tellers if each != who])
    if rules.untold:
        names = join_names(rules.untold[:MAX_UNTOLD])
        notes.append(f"There were other rules, of which the journal does not tell what they said: {names}.")
    return RulesThen(verdict, tuple(notes))


def _judge(
    decision: HistoryProposal,
    told: ToldRules,
    me: str,
    history: Sequence[HistoryProposal],
) -> RuleVerdict:
    if told.stopped is not None:
        return RuleVerdict("ask", None, told.stopped)
    at = decision.case.at if decision.rule is None or decision.at is None else decision.at
    earlier = [each for each in history if each is not decision and each.at is not None and each.at < at]
    rules = list(told.rules.values())
    remembered = [rule for rule in rules if counted_name(rule.name) == REMEMBERED]
    return RuleSet([rule for rule in rules if rule not in remembered]).decide_after(
        earlier,
        decision.case,
        at,
        found=remembered,
        suspended=told.suspended,
        me=me,
        # What values come from is told of no call that a rule decided at once.
        untrusted=None,
        unnamed_untrusted=lambda _rule: None,
    )


def _notes(decision: HistoryProposal, verdict: RuleVerdict, others: Collection[str]) -> list[str]:
    notes = []
    rule, decided = verdict.rule, decision.rule
    if decided is not None and (rule is None or rule.name != decided or verdict.decision == "ask"):
        notes.append(f"Yet rule {decided} decided: by what the journal tells, it should not have.")
    elif decided is None and verdict.decision != "ask":
        notes.append(
            "Yet no rule decided: somebody may have been absent, a value of unknown origin, the budget used "
            "up, or this one a spot check."
        )
    if rule is not None and rule.ask is not None:
        notes.append("Where its values came from is not replayed.")
    if rule is not None and rule.limits.while_present:
        notes.append(f"Whether {join_names(rule.limits.while_present)} was present is not replayed.")
    if others:
        notes.append(f"{join_names(sorted(others))} told of rules, too, which are left out.")
    return notes
