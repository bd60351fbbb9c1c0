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
from typing import Final, NamedTuple

from moot.errors import UsageError
from moot.protocol.envelope import rfc3339
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
# Of what became of rules since, as much as somebody reads.
MAX_SINCE: Final = 10


class RuleChange(NamedTuple):
    """What became of a rule; `rule` is "" for all of them."""

    at: float
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{rfc3339(self.at)}: {self.text}"


@dataclass(slots=True)
class ToldRules:
    """What one member has told of its rules so far."""

    rules: dict[str, Rule] = field(default_factory=dict)
    suspended: dict[str, str] = field(default_factory=dict)
    stopped: str | None = None
    # Those that there were, and of which nobody told what they said.
    untold: tuple[str, ...] = ()

    def take(self, payload: dict[str, Json], at: float) -> RuleChange | None:
        """Take a message; None if it changes nothing."""
        told, state, why = payload.get("rule"), payload.get("state"), str(payload.get("why", ""))
        because = f" ({why})" if why else ""
        if told is None:
            if state not in ("stopped", "resumed"):
                return None
            by = payload.get("by")
            was, self.stopped = self.stopped, f"{by or 'a fault'} stopped all rules{because}"
            if state == "resumed":
                self.stopped = None
                return RuleChange(at, "", "all rules decided again") if was else None
            return RuleChange(at, "", self.stopped) if was is None else None
        try:
            rule = rule_of_json(told) if isinstance(told, dict) else None
        except UsageError:
            # Of a later version, or by somebody who is no approver.
            return None
        name = rule.name if rule is not None else told
        change = None if not isinstance(name, str) else self._take(name, rule, state, at, because)
        if isinstance(names := payload.get("rules"), list):
            self._list([each for each in names if isinstance(each, str)])
        return change

    def _list(self, names: Sequence[str]) -> None:
        """These there are; what is remembered of calls stands in no file."""
        kept = [name for name in self.rules if name not in names and counted_name(name) == REMEMBERED]
        self.untold = tuple(name for name in names if name not in self.rules)
        self.rules = {name: self.rules[name] for name in (*names, *kept) if name in self.rules}

    def _take(self, name: str, rule: Rule | None, state: Json, at: float, because: str) -> RuleChange | None:
        before, was_suspended = self.rules.get(name), self.suspended.pop(name, None) is not None
        if state == "removed":
            self.rules.pop(name, None)
            return None if before is None else RuleChange(at, name, f"rule {name} was removed{because}")
        if rule is not None:
            self.rules[name] = rule
            self.untold = tuple(each for each in self.untold if each != name)
        if state == "suspended":
            self.suspended[name] = because.strip(" ()")
            return None if was_suspended else RuleChange(at, name, f"rule {name} was suspended{because}")
        if was_suspended:
            return RuleChange(at, name, f"rule {name} was resumed{because}")
        if rule is None or rule == before:
            return None
        return RuleChange(at, name, f"rule {name} was {'new' if before is None else 'changed'}{because}")


@dataclass(frozen=True, slots=True)
class RulesThen:
    """What the rules of then say, and what became of them since. `verdict` is None if that is not known."""

    verdict: RuleVerdict | None
    notes: tuple[str, ...] = ()
    since: tuple[RuleChange, ...] = ()

    def lines(self) -> list[str]:
        found = self.verdict
        said = "not known" if found is None else f"{found.decision} ({found.why})"
        left = len(self.since) - MAX_SINCE
        return [
            f"Rules of then: {said}.",
            *(f"  {each}" for each in self.notes),
            *(f"  Since then, {each}." for each in self.since[:MAX_SINCE]),
            *([f"  Since then, {left} further changes."] if left > 0 else []),
        ]

    def as_json(self) -> dict[str, Json]:
        found = self.verdict
        return {
            "verdict": None if found is None else found.decision,
            "why": None if found is None else found.why,
            "rule": None if found is None or found.rule is None else rule_as_json(found.rule),
            "notes": list(self.notes),
            "since": [
                {"at": rfc3339(each.at), "rule": each.rule or None, "what": each.text} for each in self.since
            ],
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
    then: dict[str, ToldRules] | None = None
    since: list[tuple[str, RuleChange]] = []
    teller = ""
    for record in records:
        if record.id == until:
            # The last one, where an id was used again (D-94).
            then, since = deepcopy(told), []
        elif record.kind.replace(".", "/") == _KIND and record.text("out") == "accepted":
            who, payload = record.text("who"), record.envelope_fields.get("payload")
            change = told.setdefault(who, ToldRules()).take(
                payload if isinstance(payload, dict) else {}, record.time
            )
            teller = who if then is None else teller
            if change is not None:
                since.append((who, change))
    then = told if then is None else then
    who = decision.by if by_rule and decision.by in then else teller
    rules = then.get(who or "", ToldRules())
    if by_rule and decision.rule not in rules.rules:
        note = f"The journal does not tell what rule {decision.rule} said then."
        return RulesThen(None, (note,))
    if not rules.rules and rules.stopped is None:
        return RulesThen(None, ("Until then the journal tells of no rule.",))
    verdict = _judge(decision, rules, who or "", history)
    case = decision.case
    notes = _notes(decision, verdict, [each for each in then if each != who])
    if rules.untold:
        names = join_names(rules.untold[:MAX_SINCE])
        notes.append(f"There were other rules, of which the journal does not tell what they said: {names}.")
    about = {"", decision.rule or "", verdict.rule.name if verdict.rule else ""}
    matching = {name for name, rule in rules.rules.items() if rule.covers_call(case, case.at)}
    kept = [each for name, each in since if name == who and each.rule in about | matching]
    return RulesThen(verdict, tuple(notes), tuple(kept))


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
