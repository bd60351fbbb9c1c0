"""Suggestions, rules and how often they decided, as this terminal knows them (D-92).

All of it is announced in ordinary envelopes, and this keeps what was received. What was announced before we
joined, the approver's tools report on request (`refresh`). Announcements of other members are kept under
their own names; a report of the approver does not replace them.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from moot.errors import MootError, UsageError
from moot.operations.approver_client import ApproverClient, objects_in
from moot.participant import JoinedSpace
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from moot.protocol.proposal_life import RULE_CONTEXT

# Suggestions and rules that are kept; the latest win.
MAX_KEPT: Final = 512
_ASK_SECONDS: Final = 10.0
# More than are decided while the approver answers.
_MAX_DECISIONS: Final = 50

T = TypeVar("T")


@dataclass(slots=True)
class SuggestionEntry:
    """A rule that somebody suggested; `answer` says who accepted or dismissed it."""

    name: str
    payload: Json
    sender: str
    envelope: str
    answer: str | None = None

    @property
    def text(self) -> str:
        found = (self.payload.get(key) for key in ("words", "summary", "text"))
        return next((text for text in found if isinstance(text, str)), "")


@dataclass(slots=True)
class RuleEntry:
    """A rule and its state. `hits` counts its decisions as far as they were reported or seen."""

    name: str
    rule: Json
    sender: str
    state: str
    words: str = ""
    why: str = ""
    hits: int = 0
    left: int | None = None
    # Decisions that people should review now.
    to_review: int = 0


@dataclass(slots=True)
class ApproverReport:
    """What the approver reported about all rules together."""

    approver: str
    stopped: str | None = None
    fault: str | None = None
    observe: bool = False
    days: list[Json] = field(default_factory=list)
    people: list[str] = field(default_factory=list)
    # Decisions, contradictions and suspensions of each rule, by day.
    rule_days: list[Json] = field(default_factory=list)


class TrustLog:
    """The suggestions and rules that are known."""

    def __init__(self) -> None:
        self._suggestions: OrderedDict[str, SuggestionEntry] = OrderedDict()
        self._rules: OrderedDict[str, RuleEntry] = OrderedDict()
        # Which suggestion each trust/accept was about: it may be refused.
        self._accepts: OrderedDict[str, str] = OrderedDict()
        self.report: ApproverReport | None = None
        self.stopped: str | None = None
        # Decisions by rules since the last report: the rule, who decided, about which proposals.
        self._decisions: deque[tuple[str, str, frozenset[str]]] = deque(maxlen=_MAX_DECISIONS)
        # Proposals that the reported hits include already.
        self._included: set[str] = set()

    # Observing

    def observe(self, envelope: Envelope) -> None:
        payload = envelope.payload
        match envelope.kind:
            case "trust/suggestion":
                name = _text(payload.get("suggestion")) or envelope.id
                _keep(self._suggestions, name, SuggestionEntry(name, payload, envelope.sender, envelope.id))
            case "trust/rule":
                self._observe_rule(envelope)
            case "trust/accept" | "trust/dismiss":
                named = [_text(payload.get("suggestion")), *envelope.correlation_id]
                word = "accepted" if envelope.kind == "trust/accept" else "dismissed"
                for each in self._suggestions.values():
                    if each.name in named or each.envelope in named:
                        each.answer = f"{word} by {envelope.sender}"
                        _keep(self._accepts, envelope.id, each.name)
            case "chat":
                for id in envelope.correlation_id:
                    asked = self._suggestions.get(self._accepts.get(id, ""))
                    if asked is not None and asked.sender == envelope.sender:
                        # The approver answers with a chat what it refuses to do.
                        asked.answer = None

    def _observe_rule(self, envelope: Envelope) -> None:
        payload, state = envelope.payload, _text(envelope.payload.get("state"))
        why, by = _text(payload.get("why")), _text(payload.get("by"))
        given: Json = payload.get("rule")
        rule = given if isinstance(given, dict) else {}
        name = _text(rule.get("name")) or _text(given)
        if not name:
            if state in ("stopped", "resumed"):
                self.stopped = None if state == "resumed" else f"by {by}: {why}" if by else why
            return
        if state == "removed":
            self._rules.pop(name, None)
            return
        known = self._rules.get(name)
        _keep(self._rules, name, ruled := known or RuleEntry(name, rule, envelope.sender, state), move=False)
        ruled.rule = rule or ruled.rule
        ruled.words = _text(payload.get("words")) or _text(rule.get("words")) or ruled.words
        ruled.state = "active" if state == "lifted" else state
        if ruled.state == "active" and ruled.rule.get("observe") is True:
            ruled.state = "observing"
        ruled.why = why if state == "suspended" else ""
        review: Json = payload.get("review")
        if isinstance(review, dict):
            ruled.to_review = len(_list(review.get("decisions"))) if review.get("due") is True else 0

    def count_decision(self, envelope: Envelope) -> None:
        """Count a decision that a rule made."""
        context = envelope.context or ""
        named: Json = envelope.payload.get("rule") if envelope.kind == "mcp/reject" else None
        name = context[len(RULE_CONTEXT) :] if context.startswith(RULE_CONTEXT) else named
        if isinstance(name, str):
            self._decisions.append((name, envelope.sender, frozenset(envelope.correlation_id)))
            self._count(*self._decisions[-1])

    def _count(self, name: str, sender: str, about: frozenset[str]) -> None:
        ruled = self._rules.get(name)
        if ruled is not None and ruled.sender == sender and self._included.isdisjoint(about):
            ruled.hits += 1

    # Asking

    def find_approver(self, space: JoinedSpace) -> str | None:
        """The approver of this space, as far as it can be seen; None without one."""
        names = [self.report.approver] if self.report is not None else []
        names += [ruled.sender for ruled in self._rules.values()]
        names += [suggested.sender for suggested in self._suggestions.values()]
        # Whoever may remove members is a person.
        able = [
            member.id
            for member in space.roster.values()
            if member.may("trust/rule") and not member.may("space/kick")
        ]
        return next((name for name in (*names, "approver", *able) if name in space.roster), None)

    async def refresh(self, space: JoinedSpace) -> str | None:
        """Ask the approver for its rules and suggestions; returns why that was not possible."""
        name = self.find_approver(space)
        if name is None:
            return "no approver is in this space: `moot rules run` starts one"
        self._decisions.clear()
        try:
            client = ApproverClient(space, name)
            rules, suggestions, report = [
                await client.ask(f"trust_{what}", timeout_seconds=_ASK_SECONDS)
                for what in ("rules", "suggestions", "report")
            ]
        except MootError as fault:
            return f"{name} did not answer: {fault}"
        self._apply_report(name, rules, suggestions, report)
        return None

    def _apply_report(self, approver: str, rules: Json, suggestions: Json, report: Json) -> None:
        stopped = rules.get("stopped")
        self.stopped = f"by {stopped.get('by')}: {stopped.get('why')}" if isinstance(stopped, dict) else None
        self.report = ApproverReport(
            approver,
            self.stopped,
            _text(rules.get("fault")) or None,
            # As 0.2 called it.
            rules.get("observe", rules.get("shadow")) is True,
            objects_in(report.get("days")),
            [str(each) for each in _list(report.get("people"))],
            objects_in(report.get("rule_history")),
        )
        self._rules = OrderedDict(
            (name, each) for name, each in self._rules.items() if each.sender != approver
        )
        for each in objects_in(rules.get("rules")):
            rule = each.get("rule") if isinstance(each.get("rule"), dict) else {}
            name, left = _text(rule.get("name")), each.get("left")
            words, why, hits = _text(each.get("words")), _text(each.get("why")), each.get("hits")
            self._rules[name] = RuleEntry(
                name,
                rule,
                approver,
                _text(each.get("state")),
                words,
                why,
                hits if isinstance(hits, int) else 0,
                left if isinstance(left, int) else None,
                _whole(each.get("unreviewed")) if each.get("review_due") is True else 0,
            )
        # The approver counts a decision before it sends it, so a report may be ahead of what we received.
        self._included = {str(each) for each in _list(rules.get("counted"))}
        for decision in self._decisions:
            self._count(*decision)
        open_ones = {
            _text(each.get("suggestion")): each for each in objects_in(suggestions.get("suggestions"))
        }
        for old in self._suggestions.values():
            if old.sender == approver and old.name not in open_ones and old.answer is None:
                old.answer = "overtaken"
        for name, payload in open_ones.items():
            known = self._suggestions.get(name)
            envelope = known.envelope if known is not None else ""
            _keep(self._suggestions, name, SuggestionEntry(name, payload, approver, envelope), move=False)

    # Looking

    def suggestions(self) -> list[SuggestionEntry]:
        return list(self._suggestions.values())

    def open_suggestions(self) -> list[SuggestionEntry]:
        return [each for each in self._suggestions.values() if each.answer is None]

    def rules(self) -> list[RuleEntry]:
        return list(self._rules.values())

    def suggestion(self, named: str) -> SuggestionEntry:
        """By its name, its envelope, or the beginning of either; raises UsageError."""
        like = [each for each in self._suggestions.values() if any(id.startswith(named) for id in _ids(each))]
        exact = [each for each in like if named in _ids(each)]
        if len(exact or like) == 1:
            return (exact or like)[0]
        raise UsageError(f"unknown suggestion {named}: /suggestions lists them")


def _ids(suggested: SuggestionEntry) -> Iterable[str]:
    return (suggested.name, suggested.envelope) if suggested.envelope else (suggested.name,)


def _keep(table: OrderedDict[str, T], id: str, value: T, *, move: bool = True) -> None:
    table[id] = value
    if move:
        table.move_to_end(id)
    while len(table) > MAX_KEPT:
        table.popitem(last=False)


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def _whole(value: Json) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []
