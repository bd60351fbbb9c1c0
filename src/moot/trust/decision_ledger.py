"""Decisions: what was proposed, who decided, how, how long it took, and the result.

A `DecisionLedger` observes the accepted envelopes of a space in order, live or from its journal, and keeps
one `Decision` for each proposal:

    open ── mcp/request that correlates ──▶ fulfilled ── mcp/response, or moot/settle ──▶ with a result
      ├──── mcp/withdraw, or its proposer is removed ──▶ withdrawn
      ├──── time ──▶ expired
      └──── mcp/reject ──▶ rejected, unless somebody fulfils it all the same (D-28)

A decision by a rule carries the rule's name. There are three ways to mark it, all visible: the decision
correlates to the `trust/rule` or `trust/accept` envelope of the rule, its context is
`trust/rule/NAME`, or (a rejection) its payload names the `rule`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from moot.protocol.envelope import Envelope, rfc3339
from moot.protocol.operation import Json
from moot.protocol.unknown_outcome import says_unknown
from moot.trust.proposal_case import Case, case_of

Status = Literal["open", "fulfilled", "rejected", "withdrawn", "expired"]
STATUSES: Final = ("open", "fulfilled", "rejected", "withdrawn", "expired")
# What learning takes from a decision: an approval, a rejection, or nothing.
Lesson = Literal["approve", "reject"]

RULE_CONTEXT: Final = "trust/rule/"
# The reason of a rejection that came after a rule had approved.
OBJECTION: Final = "objection"
RULE_KINDS: Final = frozenset({"trust/rule", "trust/accept"})
# D-28: the default of `proposal_seconds`.
PROPOSAL_SECONDS: Final = 86_400.0
# Only the latest are kept; some 200 MB at most.
MAX_DECISIONS: Final = 100_000


@dataclass(frozen=True, slots=True)
class RejectionRecord:
    by: str
    reason: str
    at: float
    envelope: str
    rule: str | None = None


@dataclass(frozen=True, slots=True)
class ApprovalVote:
    """One `moot/approve` where several are needed (D-28)."""

    by: str
    at: float
    envelope: str


@dataclass(slots=True, eq=False)
class Decision:
    """One proposal and what became of it. Ids link it to its envelopes."""

    case: Case
    status: Status = "open"
    # Who settled it, when, with which envelope; for a rejected one the first who rejected it.
    by: str | None = None
    at: float | None = None
    envelope: str | None = None
    reason: str | None = None
    rule: str | None = None
    rejections: list[RejectionRecord] = field(default_factory=list)
    approvals: list[ApprovalVote] = field(default_factory=list)
    # The result of the approved call.
    result: Literal["ok", "error"] | None = None
    error: str | None = None
    response: str | None = None
    # Who said what came of it, where its host never answered; and in which words.
    settled_by: str | None = None
    note: str | None = None
    # Whether the tool has changed since: what was approved was another.
    outdated: bool = False

    @property
    def outcome(self) -> Literal["done", "failed", "unknown"] | None:
        """What came of an approved call. Without an answer nobody knows: that is no failure."""
        if self.status != "fulfilled":
            return None
        return "unknown" if self.result is None else "done" if self.result == "ok" else "failed"

    @property
    def id(self) -> str:
        return self.case.id

    @property
    def automated(self) -> bool:
        return self.rule is not None

    @property
    def by_quorum(self) -> bool:
        return self.status == "fulfilled" and bool(self.approvals)

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
        if any(rejection.rule is None for rejection in self.rejections):
            return "reject"
        if self.status == "fulfilled" and not self.automated and self.by != self.case.proposer:
            return "approve"
        return None

    def as_json(self) -> dict[str, Json]:
        """One line of an export: the proposal, the decision and the result, linked by ids."""
        case = self.case
        return {
            "id": case.id,
            "proposed_at": rfc3339(case.at),
            "proposer": case.proposer,
            "to": list(case.to),
            "method": case.method,
            "tool": case.tool,
            "arguments": case.arguments,
            "status": self.status,
            "decided_by": self.by,
            "decided_at": None if self.at is None else rfc3339(self.at),
            "seconds": None if self.duration_seconds is None else round(self.duration_seconds, 3),
            "reason": self.reason,
            "decision_id": self.envelope,
            "automated": self.automated,
            "rule": self.rule,
            "votes": [approval.by for approval in self.approvals],
            "quorum": self.by_quorum,
            "rejections": [
                {
                    "id": each.envelope,
                    "by": each.by,
                    "reason": each.reason,
                    "rejected_at": rfc3339(each.at),
                    "rule": each.rule,
                }
                for each in self.rejections
            ],
            "result": self.result,
            "outcome": self.outcome,
            "settled_by": self.settled_by,
            "note": self.note,
            "error": self.error,
            "response_id": self.response,
        }


class DecisionLedger:
    """The decisions of one space in the order of their proposals; the oldest are dropped first."""

    def __init__(
        self,
        *,
        proposal_seconds: float = PROPOSAL_SECONDS,
        max_decisions: int = MAX_DECISIONS,
        on_change: Callable[[Decision], None] | None = None,
    ) -> None:
        self.proposal_seconds = proposal_seconds
        self.max_decisions = max_decisions
        # Called whenever something was decided or answered.
        self.on_change = on_change
        self._decisions: dict[str, Decision] = {}
        self._open: dict[str, Decision] = {}
        self._requests: dict[str, Decision] = {}
        self._rules: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._decisions)

    def __iter__(self) -> Iterator[Decision]:
        return iter(self._decisions.values())

    def get(self, id: str) -> Decision | None:
        """By the id of the proposal, of the request that fulfilled it, or of its answer."""
        found = self._decisions.get(id) or self._requests.get(id)
        return found or next((d for d in self if id in (d.envelope, d.response)), None)

    def observe(self, envelope: Envelope, now: float, *, sender: str = "") -> Decision | None:
        """Process one accepted envelope; returns the decision that it is about, if any."""
        self.expire(now)
        sender = envelope.sender or sender
        match envelope.kind:
            case "mcp/proposal":
                return self._add_proposal(envelope, sender, now)
            case "mcp/request" | "mcp/reject" | "mcp/withdraw" | "moot/approve":
                return self._add_decision(envelope, sender, now)
            case "mcp/response":
                return self._add_answer(envelope)
            case "trust/stop":
                return self._add_objection(envelope, sender, now)
            case "moot/settle":
                return self._add_settlement(envelope, sender)
            case "space/kick":
                self.withdraw_of(_word(envelope.payload.get("participant_id")), now, reason="removed")
            case "system/presence" if envelope.payload.get("event") == "leave":
                # A reason says that it does not come back: removed otherwise than by a message, or a guest.
                gone = envelope.payload.get("participant")
                if isinstance(gone, dict) and envelope.payload.get("reason") is not None:
                    self.withdraw_of(_word(gone.get("name", gone.get("id"))), now, reason="removed")
            case kind if kind in RULE_KINDS:
                rule = envelope.payload.get("rule")
                name = rule.get("name") if isinstance(rule, dict) else rule
                if isinstance(name, str):
                    self._rules[envelope.id] = name
        return None

    def _add_proposal(self, envelope: Envelope, sender: str, now: float) -> Decision:
        case = case_of(envelope.id, sender, tuple(envelope.to), envelope.payload, at=now, raw=envelope.raw)
        decision = Decision(case)
        self._decisions[case.id] = self._open[case.id] = decision
        while len(self._decisions) > self.max_decisions:
            self._forget(next(iter(self._decisions)))
        return decision

    def _forget(self, id: str) -> None:
        gone = self._decisions.pop(id)
        self._open.pop(id, None)
        if gone.envelope is not None:
            self._requests.pop(gone.envelope, None)

    def _add_decision(self, envelope: Envelope, sender: str, now: float) -> Decision | None:
        found = None
        rule = self._rule_of(envelope)
        for id in envelope.correlation_id:
            decision = self._open.get(id) or self._decisions.get(id)
            # The gateway accepted it, so it was open there, whatever our clock says.
            if decision is None or (id not in self._open and decision.status != "expired"):
                continue
            found = decision
            match envelope.kind:
                case "mcp/request":
                    self._requests[envelope.id] = decision
                    self._settle(decision, "fulfilled", sender, now, envelope.id, None, rule)
                case "mcp/withdraw" if sender == decision.case.proposer:
                    reason = _word(envelope.payload.get("reason")) or None
                    # A withdrawal after a rejection is still a rejection; the SDK withdraws by itself.
                    if decision.status == "rejected":
                        self._close(decision)
                    else:
                        self._settle(decision, "withdrawn", sender, now, envelope.id, reason, None)
                case "mcp/reject":
                    reason = _word(envelope.payload.get("reason")) or "other"
                    decision.rejections.append(RejectionRecord(sender, reason, now, envelope.id, rule))
                    if decision.status in ("open", "expired"):
                        decision.status, decision.by, decision.at = "rejected", sender, now
                        decision.envelope, decision.reason, decision.rule = envelope.id, reason, rule
                    self._notify(decision)
                case "moot/approve":
                    if all(approval.by != sender for approval in decision.approvals):
                        decision.approvals.append(ApprovalVote(sender, now, envelope.id))
                    self._notify(decision)
        return found

    def _rule_of(self, envelope: Envelope) -> str | None:
        context = envelope.context or ""
        if context.startswith(RULE_CONTEXT):
            return context[len(RULE_CONTEXT) :]
        named = envelope.payload.get("rule") if envelope.kind == "mcp/reject" else None
        if isinstance(named, str):
            return named
        return next((self._rules[id] for id in envelope.correlation_id if id in self._rules), None)

    def _add_answer(self, envelope: Envelope) -> Decision | None:
        # D-99: a host that does not know what came of it leaves that to a person.
        unknown = says_unknown(envelope.payload.get("error"))
        for id in envelope.correlation_id:
            decision = self._requests.get(id)
            if decision is None or decision.response is not None or unknown:
                continue
            decision.response = envelope.id
            decision.result, decision.error = _result_of(envelope.payload)
            self._notify(decision)
            return decision
        return None

    def _add_objection(self, envelope: Envelope, sender: str, now: float) -> Decision | None:
        """Somebody objects to what a rule approved: that call counts as rejected by them."""
        for id in envelope.correlation_id:
            decision = self.get(id)
            if decision is None or not decision.automated or decision.status != "fulfilled":
                continue
            if all(each.envelope != envelope.id for each in decision.rejections):
                decision.rejections.append(RejectionRecord(sender, OBJECTION, now, envelope.id))
                self._notify(decision)
            return decision
        return None

    def _add_settlement(self, envelope: Envelope, sender: str) -> Decision | None:
        """The gateway accepted it, so nobody knew what came of it. A later answer of the host counts more."""
        for id in envelope.correlation_id:
            decision = self._decisions.get(id)
            if decision is None or decision.response is not None:
                continue
            failed = envelope.payload.get("outcome") == "failed"
            decision.settled_by, decision.note = sender, _word(envelope.payload.get("note")) or None
            decision.result = "error" if failed else "ok"
            decision.error = (decision.note or "failed") if failed else None
            self._notify(decision)
            return decision
        return None

    def withdraw_of(self, member: str, now: float, *, reason: str) -> None:
        """A removed member's proposals are withdrawn (decision 0015)."""
        for decision in [d for d in self._open.values() if d.case.proposer == member]:
            if decision.status == "open":
                self._settle(decision, "withdrawn", None, now, None, reason, None)
            else:
                self._close(decision)

    def expire(self, now: float) -> None:
        """Mark proposals as expired that nobody decided in time."""
        while self._open:
            decision = next(iter(self._open.values()))
            if now < decision.case.at + self.proposal_seconds:
                return
            if decision.status == "open":
                at = decision.case.at + self.proposal_seconds
                self._settle(decision, "expired", None, at, None, None, None)
            else:
                self._close(decision)

    def _settle(
        self,
        decision: Decision,
        status: Status,
        by: str | None,
        at: float,
        envelope: str | None,
        reason: str | None,
        rule: str | None,
    ) -> None:
        decision.status, decision.by, decision.at = status, by, at
        decision.envelope, decision.reason, decision.rule = envelope, reason, rule
        self._close(decision)
        self._notify(decision)

    def _close(self, decision: Decision) -> None:
        self._open.pop(decision.id, None)

    def _notify(self, decision: Decision) -> None:
        if self.on_change is not None:
            self.on_change(decision)


def filter_decisions(
    decisions: Iterable[Decision],
    *,
    status: Sequence[str] = (),
    proposer: str | None = None,
    by: str | None = None,
    tool: str | None = None,
    rule: str | None = None,
    automated: bool | None = None,
    since: float | None = None,
    until: float | None = None,
) -> Iterator[Decision]:
    """The decisions that match all given conditions."""
    for decision in decisions:
        case = decision.case
        if (
            (not status or decision.status in status)
            and proposer in (None, case.proposer)
            and by in (None, decision.by)
            and tool in (None, case.tool)
            and rule in (None, decision.rule)
            and automated in (None, decision.automated)
            and (since is None or case.at >= since)
            and (until is None or case.at < until)
        ):
            yield decision


def _result_of(payload: Json) -> tuple[Literal["ok", "error"], str | None]:
    fault = payload.get("error")
    if fault is not None:
        message = fault.get("message") if isinstance(fault, dict) else None
        return "error", message if isinstance(message, str) else "error"
    result = payload.get("result")
    # MCP: a tool that failed says so inside its result.
    if isinstance(result, dict) and result.get("isError") is True:
        content = result.get("content")
        first = content[0] if isinstance(content, list) and content else None
        text = first.get("text") if isinstance(first, dict) else None
        return "error", text if isinstance(text, str) else "the tool failed"
    return "ok", None


def _word(value: Json) -> str:
    return value if isinstance(value, str) else ""
