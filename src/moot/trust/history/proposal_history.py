"""The proposals of a space as rules and learning see them: who decided, how, by which rule, and the result.

A `ProposalHistory` observes the accepted envelopes of a space in order, live or from its journal. What
becomes of each is the one life of a proposal (`protocol/proposal_life`); here it has its `case`, and what is
learned of it.

A decision by a rule carries the rule's name. There are three ways to mark it, all visible: the decision
correlates to the `trust/rule` or `trust/accept` envelope of the rule, its context is
`trust/rule/NAME`, or (a rejection) its payload names the `rule`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from moot.protocol.answer_marks import says_unknown
from moot.protocol.envelope import Envelope, rfc3339
from moot.protocol.latest_dict import LatestDict
from moot.protocol.operation import Json
from moot.protocol.opinion import OPINION_RULE
from moot.protocol.proposal_life import RULE_CONTEXT, RULE_KINDS, ProposalLife, RejectionRecord
from moot.protocol.proposal_tracker import ProposalTracker
from moot.trust.history.proposal_case import Case, case_of

# What was decided: one that somebody rejected counts as rejected unless somebody fulfils it all the same.
Verdict = Literal["pending", "fulfilled", "rejected", "withdrawn", "expired"]
# What learning takes from a decision: an approval, a rejection, or nothing.
Lesson = Literal["approve", "reject"]

# The reason of a rejection that came after a rule had approved.
OBJECTION: Final = "objection"
# D-28: the defaults of `proposal_seconds` and `request_seconds` of a space.
PROPOSAL_SECONDS: Final = 86_400.0
ANSWER_SECONDS: Final = 3_600.0
# Only the latest are kept; some 200 MB at most.
MAX_PROPOSALS: Final = 100_000


class DecisionFacts(NamedTuple):
    """Who decided, when, with which envelope, and why."""

    by: str | None = None
    at: float | None = None
    envelope: str | None = None
    reason: str | None = None


class HistoryProposal(ProposalLife, eq=False, kw_only=True):
    """One proposal, what became of it and what is learned of it. Ids link it to its envelopes."""

    case: Case
    ts: str = ""
    # The messages that it refers to: a counter-proposal names what it changes.
    about: tuple[str, ...] = ()
    # By the envelope of a decision: the rule that made it.
    rules: dict[str, str] = msgspec.field(default_factory=dict)
    error: str | None = None
    response: str | None = None
    # Whether the tool has changed since: what was approved was another.
    outdated: bool = False
    # That it was carried out is known from a state of the space alone, and not whether a rule decided.
    is_restored: bool = False
    # What was proposed, where a changed version of it was approved: `case` is then what was carried out, and
    # rules learn from that.
    original: Case | None = None

    @classmethod
    def of(cls, case: Case, **fields: Json) -> HistoryProposal:
        return cls(id=case.id, proposer=case.proposer, proposed_at=case.at, case=case, **fields)

    @property
    def verdict(self) -> Verdict:
        return "rejected" if self.rejections and self.status != "fulfilled" else self.status

    @property
    def waits_for_rules(self) -> bool:
        """Whether rules may still decide it, if its space has it open: what a model thinks keeps them from
        nothing, and neither does an end by our own clock, which may be days ahead of the gateway's.
        """
        return self.status in ("pending", "expired") and all(
            self.rules.get(each.id) == OPINION_RULE for each in self.rejections
        )

    @property
    def decided(self) -> DecisionFacts:
        match self.verdict:
            case "rejected":
                first = self.rejections[0]
                return DecisionFacts(first.by, first.at, first.id, first.reason)
            case "fulfilled":
                return DecisionFacts(self.fulfilled_by, self.settled_at, self.settled_by)
            case "withdrawn":
                by = self.proposer if self.settled_by else None
                return DecisionFacts(by, self.settled_at, self.settled_by, self.reason)
            case "expired":
                return DecisionFacts(at=self.settled_at)
        return DecisionFacts()

    @property
    def by(self) -> str | None:
        return self.decided.by

    @property
    def at(self) -> float | None:
        return self.decided.at

    @property
    def is_decided(self) -> bool:
        """Whether somebody did, and it is known who."""
        return self.verdict in ("fulfilled", "rejected") and bool(self.by)

    @property
    def rule(self) -> str | None:
        return self.rules.get(self.decided.envelope or "")

    @property
    def result(self) -> Literal["ok", "error"] | None:
        return "ok" if self.outcome == "done" else "error" if self.outcome == "failed" else None

    @property
    def automated(self) -> bool:
        return self.rule is not None

    @property
    def by_quorum(self) -> bool:
        return self.status == "fulfilled" and bool(self.votes)

    @property
    def duration_seconds(self) -> float | None:
        """The time from the proposal to the decision."""
        return None if self.at is None else max(0.0, self.at - self.case.at)

    @property
    def lesson(self) -> Lesson | None:
        """What is learned of it: not that people approved what a tool was before it changed."""
        decided = self.people_decided
        return None if self.outdated and decided == "approve" else decided

    @property
    def people_decided(self) -> Lesson | None:
        """What people decided: a no counts before a yes. No rule is people, or it would confirm itself."""
        if any(each.id not in self.rules for each in self.rejections):
            return "reject"
        if self.counters:
            # The proposal that it changes has the lesson, as its proposer's.
            return None
        # Who approved it may not be known: that the outcome is unknown can be all that was heard of it.
        is_theirs = not self.is_restored and self.fulfilled_by not in (None, "", self.case.proposer)
        return "approve" if self.status == "fulfilled" and is_theirs and not self.automated else None

    def reject(self, rejection: RejectionRecord) -> bool:
        """Note who said no; what a person says replaces what a rule said in their name."""
        before = self.rejections
        if rejection.id not in self.rules:
            self.rejections = [no for no in before if no.by != rejection.by or no.id not in self.rules]
        if ProposalLife.reject(self, rejection):
            return True
        self.rejections = before
        return False

    def is_linked_to(self, id: str) -> bool:
        """Whether this envelope settled, answered or rejected it."""
        return id in (self.settled_by, self.response) or any(no.id == id for no in self.rejections)

    def as_json(self) -> dict[str, Json]:
        """One line of an export: the proposal, the decision and the result, linked by ids."""
        case, decided = self.case, self.decided
        return {
            "id": case.id,
            "proposed_at": rfc3339(case.at),
            "proposer": case.proposer,
            "to": list(case.to),
            "method": case.method,
            "tool": case.tool,
            "arguments": case.arguments,
            # Approved with changes: what was proposed in their place; null: as it was proposed.
            "original_arguments": None if self.original is None else self.original.arguments,
            # As 0.1 exported it; `state` has the word that everybody uses.
            "status": "open" if self.verdict == "pending" else self.verdict,
            "state": self.state,
            "decided_by": decided.by,
            "decided_at": None if decided.at is None else rfc3339(decided.at),
            "seconds": None if self.duration_seconds is None else round(self.duration_seconds, 3),
            "reason": decided.reason,
            "decision_id": decided.envelope,
            "automated": self.automated,
            "rule": self.rule,
            "votes": list(self.votes),
            "quorum": self.by_quorum,
            "rejections": [
                {
                    "id": each.id,
                    "by": each.by,
                    "reason": each.reason,
                    "rejected_at": rfc3339(each.at),
                    "rule": self.rules.get(each.id),
                }
                for each in self.rejections
            ],
            "result": self.result,
            "outcome": self.outcome,
            "settled_by": self.assessed_by,
            "note": self.note,
            "error": self.error,
            "response_id": self.response,
        }


class ProposalHistory(ProposalTracker[HistoryProposal]):
    """The proposals of one space in their order; the oldest are dropped first."""

    keeps_origins = False
    keeps_comments = False
    follows_runtime_ids = False

    def __init__(
        self,
        *,
        proposal_seconds: float = PROPOSAL_SECONDS,
        max_proposals: int = MAX_PROPOSALS,
        on_change: Callable[[HistoryProposal], None] | None = None,
    ) -> None:
        super().__init__(answer_seconds=ANSWER_SECONDS)
        self.proposal_seconds = proposal_seconds
        self.max_proposals = max_proposals
        # Called whenever something was decided or answered.
        self.on_change = on_change
        # The messages that told of rules: as many as proposals.
        self._rules: LatestDict[str, str] = LatestDict(max_proposals)

    def get(self, id: str) -> HistoryProposal | None:
        """By the id of the proposal, of an envelope that decided on it, or of its answer."""
        found = self._known.get(id) or next(iter(self._requests.get(id, ())), None)
        return found or next((each for each in self._known.values() if each.is_linked_to(id)), None)

    def observe(self, envelope: Envelope, now: float, *, sender: str = "") -> HistoryProposal | None:
        """Process one accepted envelope; returns the proposal that it is about, if any."""
        self.advance(now)
        if envelope.kind == "mcp/proposal":
            return self._add(envelope, sender, now)
        if envelope.kind in RULE_KINDS:
            rule = envelope.payload.get("rule")
            name = rule.get("name") if isinstance(rule, dict) else rule
            if isinstance(name, str):
                self._rules[envelope.id] = name
            return None
        if envelope.kind == "trust/stop":
            changed = self._object(envelope, envelope.sender or sender, now)
        else:
            changed = self.apply(envelope, now, *([sender] if sender else []))
        decided_by = self._rule_of(envelope) if envelope.kind in ("mcp/request", "mcp/reject") else None
        for each in changed:
            if decided_by is not None:
                each.rules[envelope.id] = decided_by
            if envelope.kind == "moot/settle" and each.outcome == "failed":
                each.error = each.note or "failed"
        return self._report(changed)

    def advance(self, now: float) -> None:
        """It is now so late: nobody decided, or answered, in time."""
        self._report(self.expire(now))

    def _add(self, envelope: Envelope, name: str, now: float) -> HistoryProposal:
        sender = envelope.sender or name
        known = self._known.get(envelope.id)
        # D-94: an id can be used again, and not every client says when.
        if known is not None and envelope.ts and (known.ts, known.proposer) == (envelope.ts, sender):
            return known
        case = case_of(envelope.id, sender, tuple(envelope.to), envelope.payload, at=now, raw=envelope.raw)
        expires = now + self.proposal_seconds
        about = tuple(envelope.correlation_id)
        made = HistoryProposal.of(case, proposer_name=name, ts=envelope.ts, expires=expires, about=about)
        self.track(made)
        while len(self._known) > self.max_proposals:
            self.drop_oldest()
        return made

    def drop_oldest(self) -> HistoryProposal:
        """Let go of the one that was proposed first."""
        return self.untrack(next(iter(self._known)))

    def _rule_of(self, envelope: Envelope) -> str | None:
        context = envelope.context or ""
        if context.startswith(RULE_CONTEXT):
            return context[len(RULE_CONTEXT) :]
        named = envelope.payload.get("rule") if envelope.kind == "mcp/reject" else None
        if isinstance(named, str):
            return named
        return next((self._rules[id] for id in envelope.correlation_id if id in self._rules), None)

    def note_request(self, life: HistoryProposal, envelope: Envelope) -> None:
        named = [self._known[id] for id in envelope.correlation_id if id in self._known]
        counter = next((each for each in named if life.id in each.about), None)
        if counter is None or envelope.payload.get("params") == life.case.payload.get("params"):
            return
        counter.counters = [*counter.counters, life.id]
        case, life.original = life.case, life.case
        life.changed = {name: envelope.payload.get(name) for name in ("method", "params")}
        life.case = case_of(
            case.id, case.proposer, tuple(envelope.to), life.changed, at=case.at, raw=envelope.raw
        )

    def note_answer(self, life: HistoryProposal, envelope: Envelope) -> None:
        # D-99: a host that does not know what came of it leaves that to a person.
        if not says_unknown(envelope.payload.get("error")):
            life.response = envelope.id
            life.error = None if life.outcome == "done" else life.error or _error_of(envelope.payload)

    def _object(self, envelope: Envelope, sender: str, now: float) -> list[HistoryProposal]:
        """Somebody objects to what a rule approved: that call counts as rejected by them."""
        for each in (self.get(id) for id in envelope.correlation_id):
            if each is None or not each.automated or each.status != "fulfilled":
                continue
            if all(no.id != envelope.id for no in each.rejections):
                no = RejectionRecord(envelope.id, sender, OBJECTION, now)
                each.rejections = [*each.rejections, no]
            return [each]
        return []

    def _report(self, changed: Sequence[HistoryProposal]) -> HistoryProposal | None:
        if self.on_change is not None:
            for each in changed:
                self.on_change(each)
        return changed[0] if changed else None


def filter_proposals(
    proposals: Iterable[HistoryProposal],
    *,
    verdict: Sequence[str] = (),
    proposer: str | None = None,
    by: str | None = None,
    tool: str | None = None,
    rule: str | None = None,
    automated: bool | None = None,
    since: float | None = None,
    until: float | None = None,
    decided: tuple[float | None, float | None] = (None, None),
) -> Iterator[HistoryProposal]:
    """Those that match all given conditions; `since` and `until` are about when they were proposed.

    `decided` bounds when they were decided, and those that are pending by when they were proposed.
    """
    after, before = decided
    for each in proposals:
        case = each.case
        if (
            (not verdict or each.verdict in verdict)
            and proposer in (None, case.proposer)
            and by in (None, each.by)
            and tool in (None, case.tool)
            and rule in (None, each.rule)
            and automated in (None, each.automated)
            and (since is None or case.at >= since)
            and (until is None or case.at < until)
            and (after is None or (case.at if each.at is None else each.at) >= after)
            and (before is None or (case.at if each.at is None else each.at) < before)
        ):
            yield each


def _error_of(payload: Json) -> str | None:
    """What went wrong, in the words of the host; None if nothing did."""
    fault = payload.get("error")
    if fault is not None:
        message = fault.get("message") if isinstance(fault, dict) else None
        return message if isinstance(message, str) else "error"
    result = payload.get("result")
    # MCP: a tool that failed says so inside its result.
    if isinstance(result, dict) and result.get("isError") is True:
        content = result.get("content")
        first = content[0] if isinstance(content, list) and content else None
        text = first.get("text") if isinstance(first, dict) else None
        return text if isinstance(text, str) else "the tool failed"
    return None
