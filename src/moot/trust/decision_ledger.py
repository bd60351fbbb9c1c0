"""Decisions: what was proposed, who decided, how, how long it took, and what came of it.

One `Ledger` hears the accepted envelopes of a space in order, live or out of its journal, and keeps one
`Decision` for each proposal:

    open ── mcp/request that correlates ──▶ fulfilled ── mcp/response ──▶ with a result
      ├──── mcp/withdraw, or its proposer is removed ──▶ withdrawn
      ├──── time ──▶ expired
      └──── mcp/reject ──▶ rejected, unless somebody fulfils it all the same (D-28)

What was decided by a rule is marked with the rule's name. There are three ways to say so, all visible:
the act correlates to the `trust/rule` or `trust/accept` envelope of the rule, its context is
`trust/rule/NAME`, or (a rejection) its payload names the `rule`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from moot.protocol import strict_json
from moot.protocol.envelope import Envelope, rfc3339
from moot.protocol.operation import Json
from moot.trust.proposal_case import Case, case_of

How = Literal["open", "fulfilled", "rejected", "withdrawn", "expired"]
HOWS: Final = ("open", "fulfilled", "rejected", "withdrawn", "expired")
# What a decision teaches: yes, no, or nothing.
Lesson = Literal["approve", "reject"]

RULE_CONTEXT: Final = "trust/rule/"
RULE_KINDS: Final = frozenset({"trust/rule", "trust/accept"})
# D-28: `proposal_seconds` as it comes.
PROPOSAL_SECONDS: Final = 86_400.0
# A space of a million decisions is learned from by its latest ones; some 200 MB at most.
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
    how: How = "open"
    # Who settled it, when, with which envelope; for a rejected one the first who rejected it.
    by: str | None = None
    at: float | None = None
    envelope: str | None = None
    reason: str | None = None
    rule: str | None = None
    rejections: list[RejectionRecord] = field(default_factory=list)
    approvals: list[ApprovalVote] = field(default_factory=list)
    # What came of the fulfilment.
    result: Literal["ok", "error"] | None = None
    error: str | None = None
    response: str | None = None
    answered: float | None = None

    @property
    def id(self) -> str:
        return self.case.id

    @property
    def automated(self) -> bool:
        return self.rule is not None

    @property
    def by_quorum(self) -> bool:
        return self.how == "fulfilled" and bool(self.approvals)

    @property
    def took(self) -> float | None:
        """Seconds from the proposal to the decision."""
        return None if self.at is None else max(0.0, self.at - self.case.at)

    @property
    def lesson(self) -> Lesson | None:
        """What people said by it. An automated decision teaches nothing, else a rule would prove itself.

        A fulfilment that anybody had rejected counts as a rejection: where people disagree, ask.
        """
        if any(rejection.rule is None for rejection in self.rejections):
            return "reject"
        if self.how == "fulfilled" and not self.automated and self.by != self.case.proposer:
            return "approve"
        return None

    def as_json(self) -> dict[str, Json]:
        """One line of an export: the proposal, its verdict and its result, tied by ids."""
        case = self.case
        return {
            "proposal": case.id,
            "proposed": rfc3339(case.at),
            "proposer": case.proposer,
            "to": list(case.to),
            "method": case.method,
            "tool": case.tool,
            "arguments": case.arguments,
            "decision": self.how,
            "by": self.by,
            "decided": None if self.at is None else rfc3339(self.at),
            "seconds": None if self.took is None else round(self.took, 3),
            "reason": self.reason,
            "envelope": self.envelope,
            "automated": self.automated,
            "rule": self.rule,
            "approved_by": [approval.by for approval in self.approvals],
            "quorum": self.by_quorum,
            "rejections": [
                {"by": r.by, "reason": r.reason, "at": rfc3339(r.at), "envelope": r.envelope, "rule": r.rule}
                for r in self.rejections
            ],
            "result": self.result,
            "error": self.error,
            "response": self.response,
        }


class DecisionLedger:
    """The decisions of one space in the order of their proposals. Bounded: the oldest go first."""

    def __init__(
        self,
        *,
        proposal_seconds: float = PROPOSAL_SECONDS,
        most: int = MAX_DECISIONS,
        on_change: Callable[[Decision], None] | None = None,
    ) -> None:
        self.proposal_seconds = proposal_seconds
        self.most = most
        # Called whenever something was decided or answered; live listeners hang here.
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

    def lessons(self) -> list[Decision]:
        return [decision for decision in self if decision.lesson is not None]

    def hear(self, envelope: Envelope, now: float, *, sender: str = "") -> Decision | None:
        """Take in one accepted envelope; the decision that it is about, if any."""
        self.pass_time(now)
        sender = envelope.sender or sender
        match envelope.kind:
            case "mcp/proposal":
                return self._proposed(envelope, sender, now)
            case "mcp/request" | "mcp/reject" | "mcp/withdraw" | "moot/approve":
                return self._decided(envelope, sender, now)
            case "mcp/response":
                return self._answered(envelope, now)
            case "space/kick":
                self.removed(_word(envelope.payload.get("participant_id")), now, reason="removed")
            case kind if kind in RULE_KINDS:
                rule = envelope.payload.get("rule")
                name = rule.get("name") if isinstance(rule, dict) else rule
                if isinstance(name, str):
                    self._rules[envelope.id] = name
        return None

    def _proposed(self, envelope: Envelope, sender: str, now: float) -> Decision:
        case = case_of(envelope.id, sender, tuple(envelope.to), envelope.payload, at=now)
        decision = Decision(case)
        self._decisions[case.id] = self._open[case.id] = decision
        while len(self._decisions) > self.most:
            self._forget(next(iter(self._decisions)))
        return decision

    def _forget(self, id: str) -> None:
        gone = self._decisions.pop(id)
        self._open.pop(id, None)
        if gone.envelope is not None:
            self._requests.pop(gone.envelope, None)

    def _decided(self, envelope: Envelope, sender: str, now: float) -> Decision | None:
        found = None
        rule = self._rule_of(envelope)
        for id in envelope.correlation_id:
            decision = self._open.get(id) or self._decisions.get(id)
            # The gateway took it, so it was open there, whatever our clock says.
            if decision is None or (id not in self._open and decision.how != "expired"):
                continue
            found = decision
            match envelope.kind:
                case "mcp/request":
                    self._requests[envelope.id] = decision
                    self._settle(decision, "fulfilled", sender, now, envelope.id, None, rule)
                case "mcp/withdraw" if sender == decision.case.proposer:
                    reason = _word(envelope.payload.get("reason")) or None
                    # Whoever is told no and takes it back was rejected; the SDK does so by itself.
                    if decision.how == "rejected":
                        self._close(decision)
                    else:
                        self._settle(decision, "withdrawn", sender, now, envelope.id, reason, None)
                case "mcp/reject":
                    reason = _word(envelope.payload.get("reason")) or "other"
                    decision.rejections.append(RejectionRecord(sender, reason, now, envelope.id, rule))
                    if decision.how in ("open", "expired"):
                        decision.how, decision.by, decision.at = "rejected", sender, now
                        decision.envelope, decision.reason, decision.rule = envelope.id, reason, rule
                    self._tell(decision)
                case "moot/approve":
                    if all(approval.by != sender for approval in decision.approvals):
                        decision.approvals.append(ApprovalVote(sender, now, envelope.id))
                    self._tell(decision)
        return found

    def _rule_of(self, envelope: Envelope) -> str | None:
        context = envelope.context or ""
        if context.startswith(RULE_CONTEXT):
            return context[len(RULE_CONTEXT) :]
        named = envelope.payload.get("rule") if envelope.kind == "mcp/reject" else None
        if isinstance(named, str):
            return named
        return next((self._rules[id] for id in envelope.correlation_id if id in self._rules), None)

    def _answered(self, envelope: Envelope, now: float) -> Decision | None:
        for id in envelope.correlation_id:
            decision = self._requests.get(id)
            if decision is None or decision.response is not None:
                continue
            decision.response, decision.answered = envelope.id, now
            decision.result, decision.error = _result_of(envelope.payload)
            self._tell(decision)
            return decision
        return None

    def removed(self, member: str, now: float, *, reason: str) -> None:
        """A removed member's proposals are withdrawn (decision 0015)."""
        for decision in [d for d in self._open.values() if d.case.proposer == member]:
            if decision.how == "open":
                self._settle(decision, "withdrawn", None, now, None, reason, None)
            else:
                self._close(decision)

    def pass_time(self, now: float) -> None:
        """What nobody decided in time has expired."""
        while self._open:
            decision = next(iter(self._open.values()))
            if now < decision.case.at + self.proposal_seconds:
                return
            if decision.how == "open":
                at = decision.case.at + self.proposal_seconds
                self._settle(decision, "expired", None, at, None, None, None)
            else:
                self._close(decision)

    def _settle(
        self,
        decision: Decision,
        how: How,
        by: str | None,
        at: float,
        envelope: str | None,
        reason: str | None,
        rule: str | None,
    ) -> None:
        decision.how, decision.by, decision.at = how, by, at
        decision.envelope, decision.reason, decision.rule = envelope, reason, rule
        self._close(decision)
        self._tell(decision)

    def _close(self, decision: Decision) -> None:
        self._open.pop(decision.id, None)

    def _tell(self, decision: Decision) -> None:
        if self.on_change is not None:
            self.on_change(decision)


def export(decisions: Iterable[Decision]) -> Iterator[bytes]:
    """JSON lines, one decision each: training material, tables, whatever reads JSON (MEW 1, MCPx 1)."""
    for decision in decisions:
        yield strict_json.encode(decision.as_json()) + b"\n"


def chosen(
    decisions: Iterable[Decision],
    *,
    how: Sequence[str] = (),
    proposer: str | None = None,
    by: str | None = None,
    tool: str | None = None,
    rule: str | None = None,
    automated: bool | None = None,
    since: float | None = None,
    until: float | None = None,
) -> Iterator[Decision]:
    """The decisions that fit all that is given."""
    for decision in decisions:
        case = decision.case
        if (
            (not how or decision.how in how)
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
