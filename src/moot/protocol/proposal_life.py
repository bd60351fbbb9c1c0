"""The life of a proposal (MEW 3.2, 3.3; D-28, D-99): one set of words for everybody who follows proposals.

    pending ── mcp/request that repeats it ──▶ fulfilled ── every host has answered ──▶ done | failed
      │                                          ├── nobody can tell (moot/outcome, …) ──▶ unknown
      │                                          └── its host asks its proposer: still fulfilled
      ├── mcp/withdraw, or its proposer is removed ──▶ withdrawn ┐ rejected, if somebody
      └── time ──▶ expired                                      ┘ had rejected it
    unknown ── the host's late answer, or moot/settle ──▶ done | failed
    not pending any more, and the gateway does not remember it ──▶ forgotten

A rejection and a vote change no state: it stays pending, and the proposer, or the next vote, decides what
follows. `status` is the first part of it, in the words of MEW 10.2 (the gateway calls pending `open`), and
`outcome` the second; `state` is both in one word.

`ProposalLife` is one proposal and its transitions; `proposal_tracker` finds the proposal that an envelope is
about. The gateway's own ledger (`space/proposal_ledger`) decides, and keeps the same transitions.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, Literal

import msgspec

from moot.protocol.envelope import rfc3339
from moot.protocol.gateway_proposal import BudgetNote, EffectNote, Execution, GatewayProposal
from moot.protocol.operation import Json, JsonValue
from moot.protocol.opinion import Opinion
from moot.protocol.origin_report import OriginReport
from moot.protocol.preview_report import PreviewReport

Status = Literal["pending", "fulfilled", "withdrawn", "expired"]
ProposalState = Literal[
    "pending", "fulfilled", "done", "failed", "unknown", "rejected", "withdrawn", "expired", "forgotten"
]
# The reason of a withdrawal without a message: its proposer was removed (decision 0015).
REMOVED: Final = "removed"
# How a decision shows that a rule made it: by its context, or by the message of that rule that it names.
RULE_CONTEXT: Final = "trust/rule/"
RULE_KINDS: Final = frozenset({"trust/rule", "trust/accept"})

# What is kept of each proposal and of each rejection: anybody may send more.
MAX_REJECTIONS: Final = 256
MAX_EXPLANATIONS: Final = 256
MAX_COMMENTS: Final = 256
# Of a longer comment the beginning is kept with its proposal: the chat itself has all of it.
MAX_COMMENT_CHARS: Final = 4_000
# Members who say where its values came from, or what a model thinks of it: one, unless somebody pretends.
MAX_REPORTERS: Final = 8


class _ProposedBody(msgspec.Struct):
    method: msgspec.Raw
    params: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _ProposedEnvelope(msgspec.Struct):
    payload: _ProposedBody


_body_decoder = msgspec.json.Decoder(_ProposedEnvelope)


def proposed_bytes(raw: bytes) -> dict[str, bytes]:
    """Method and params in the proposer's own bytes: no digit of a number may change on the way (D-28)."""
    body = _body_decoder.decode(raw).payload
    params = {} if isinstance(body.params, msgspec.UnsetType) else {"params": bytes(body.params)}
    return {"method": bytes(body.method)} | params


class RejectionRecord(msgspec.Struct, eq=False):
    """One member's rejection of a proposal, with explanations that may come later (MEW 3.3.3)."""

    # Empty: the gateway told of it.
    id: str
    by: str
    reason: str
    at: float = 0.0
    explanations: list[str] = msgspec.field(default_factory=list)

    def explain(self, text: str) -> None:
        """A chat that refers to it has come."""
        if len(self.explanations) < MAX_EXPLANATIONS:
            self.explanations.append(text)


class ProposalComment(msgspec.Struct, frozen=True):
    """What somebody said about a proposal: a chat that refers to it, or to another comment on it."""

    # The chat, to answer it.
    id: str
    by: str
    text: str
    at: float
    # Whom it is addressed to; everybody sees it.
    to: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Json]:
        return {"id": self.id, "by": self.by, "text": self.text, "at": rfc3339(self.at), "to": list(self.to)}


class ProposalLife(msgspec.Struct, eq=False, kw_only=True):
    """One proposal and what became of it. Times are seconds since 1970, by the gateway's clock."""

    id: str
    proposer: str
    # The proposer's logical name, by which it can be removed while it is away (D-19).
    proposer_name: str = ""
    proposed_at: float = 0.0
    # When it is next overdue: a decision on a pending one, an answer to a fulfilled one.
    expires: float = float("inf")
    answer_by: float = float("inf")
    status: Status = "pending"
    settled_at: float = 0.0
    # The envelope that withdrew it, or the first request that carries it out.
    settled_by: str | None = None
    # Why it was withdrawn, or why nobody knows what came of it.
    reason: str | None = None
    rejections: Sequence[RejectionRecord] = msgspec.field(default_factory=list)
    # Who voted for it, where the space asks for several; how many it needs and lacks, and for whom it needs
    # none, in the gateway's own count (D-103).
    votes: list[str] = msgspec.field(default_factory=list)
    approvals_needed: int = 0
    approvals_missing: int = 0
    # Each approval is confirmed with a passkey, which only the console can ask for.
    passkey: bool = False
    exempt: list[str] = msgspec.field(default_factory=list)
    # What it would take of the budgets of the space, as it was told last.
    budgets: list[BudgetNote] = msgspec.field(default_factory=list)
    # What it would bring about, and whether that was done before.
    effects: list[EffectNote] = msgspec.field(default_factory=list)
    # Who fulfilled it, with which requests (the last counts: the others were answered with a question), whom
    # these asked, and who of them has not answered.
    fulfilled_by: str | None = None
    requests: list[str] = msgspec.field(default_factory=list)
    # Who sent the last one; empty: not told.
    requested_by: str = ""
    asked: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    answered: bool = False
    outcome: Execution | None = None
    # The host waits for input of the proposer (MCP `input_required`); what it gave since, each time.
    wants_input: bool = False
    inputs: list[dict[str, Json]] = msgspec.field(default_factory=list)
    # Who said what came of it in place of the host, and in which words.
    assessed_by: str | None = None
    note: str | None = None
    # What was said about it, the oldest first.
    comments: list[ProposalComment] = msgspec.field(default_factory=list)
    # Whom it is for, as somebody said last, and who that was: others may decide it all the same.
    assigned_to: list[str] = msgspec.field(default_factory=list)
    assigned_by: str | None = None
    # Of a counter-proposal: the proposals that it is a changed version of.
    counters: list[str] = msgspec.field(default_factory=list)
    # Method and params that were carried out in its place; of one that the gateway told of, only the
    # counter-proposal is known.
    changed: dict[str, Json] | None = None
    changed_by: str | None = None
    # Where its values came from, as each who may tell said last, with the size of that message.
    origins_by: dict[str, tuple[OriginReport, int]] = msgspec.field(default_factory=dict)
    # What models think of it, by who asked them; the last words of each.
    opinions: dict[str, Opinion] = msgspec.field(default_factory=dict)
    # What it did in a preview, by who says so: it counts from who would carry it out.
    previews: dict[str, PreviewReport] = msgspec.field(default_factory=dict)
    # The gateway does not remember it: it is not open, and what became of it is not known.
    forgotten: bool = False
    # We may have missed something about it.
    uncertain: bool = False
    _has_failed: bool = False

    @property
    def state(self) -> ProposalState:
        """All of it in one word."""
        if self.status == "fulfilled":
            return self.outcome if self.outcome and self.outcome != "pending" else "fulfilled"
        if self.status == "pending":
            return "pending"
        return "forgotten" if self.forgotten else "rejected" if self.rejections else self.status

    @property
    def request_id(self) -> str | None:
        """The request whose answer says what came of it."""
        return self.requests[-1] if self.requests else None

    @property
    def is_over(self) -> bool:
        """Whether nothing is waited for any more; a late answer may still tell an outcome that is unknown."""
        return self.state not in ("pending", "fulfilled")

    @property
    def repeats(self) -> tuple[str, ...]:
        """The requests that did before what it would do; whoever approves it all the same names them."""
        return tuple(each.earlier.request_id for each in self.effects if each.earlier is not None)

    def missing_for(self, member: str) -> int:
        """How many votes are missing before this member can carry it out."""
        return 0 if member in self.exempt else self.approvals_missing

    def needs_others(self, member: str) -> bool:
        """Whether this member cannot make the call alone, whatever its rights."""
        if (self.approvals_needed or self.passkey) and member not in self.exempt:
            return True
        verdicts = {each.verdict for each in self.budgets} | {each.verdict for each in self.effects}
        return not verdicts <= {"free"}

    @property
    def vote_text(self) -> str:
        """How far the vote on a pending one is, for people; empty where none is needed."""
        if not self.approvals_needed or self.status != "pending":
            return ""
        given = self.approvals_needed - self.approvals_missing
        more = (
            f"{self.approvals_missing} more needed" if self.approvals_missing else "complete: approve it now"
        )
        return f"{given} of {self.approvals_needed} approvals{' with passkey' * self.passkey}, {more}"

    @property
    def state_text(self) -> str:
        """Its state, for people."""
        match self.state:
            case "fulfilled":
                doing = f"waiting for input of {self.proposer}" if self.wants_input else "running"
            case "unknown":
                doing = "outcome unknown"
            case "done" | "failed" as doing:
                pass
            case "rejected":
                return f"rejected by {', '.join(each.by for each in self.rejections)}, {self.status}"
            case "withdrawn" if self.reason == REMOVED:
                return f"withdrawn, because {self.proposer} was removed"
            case "withdrawn":
                return f"withdrawn: {self.reason or 'no reason given'}"
            case "forgotten":
                return "not pending any more, and the gateway does not remember what became of it"
            case state:
                return state
        changes = " with changes" if self.is_changed else ""
        return f"approved{changes} by {self.fulfilled_by or 'somebody'}, {doing}"

    @property
    def is_changed(self) -> bool:
        """Whether another call was carried out in its place: it was approved with changes."""
        return self.changed is not None or self.changed_by is not None

    def is_of(self, names: Collection[str]) -> bool:
        """Whether its proposer is this member, by its runtime id or its name."""
        return self.proposer in names or (self.proposer_name != "" and self.proposer_name in names)

    # Transitions. Each returns whether something changed.

    def reject(self, rejection: RejectionRecord) -> bool:
        """Note who said no, once each; in place of what the gateway told of it, which has no message."""
        known = next((each for each in self.rejections if each.by == rejection.by), None)
        if self.status not in ("pending", "expired") or (known is not None and known.id):
            return False
        if known is None and len(self.rejections) >= MAX_REJECTIONS:
            return False
        # The gateway tells the beginning of the first one that counted.
        if known is not None and known.reason != "other" and not rejection.reason.startswith(known.reason):
            rejection.reason = known.reason
        self.rejections = [*(each for each in self.rejections if each is not known), rejection]
        return True

    def comment(self, comment: ProposalComment) -> bool:
        """Note what was said about it, also after its end; of too many, the oldest is forgotten."""
        if any(each.id == comment.id for each in self.comments):
            return False
        self.comments.append(comment)
        del self.comments[:-MAX_COMMENTS]
        return True

    def assign(self, to: JsonValue, by: str) -> bool:
        names = [each for each in to if isinstance(each, str)] if isinstance(to, list) else []
        self.assigned_to, self.assigned_by = names, by
        return True

    def set_votes(self, votes: list[str]) -> bool:
        """Who has voted for it, while it can be voted on."""
        if self.status != "pending" or votes == self.votes:
            return False
        self.votes = votes
        self.approvals_missing = max(0, self.approvals_needed - len(votes))
        return True

    def count_votes(self, voters: Sequence[str], needed: int, missing: int, exempt: Sequence[str]) -> bool:
        """Take over the gateway's own count."""
        self.votes, self.exempt = list(voters), list(exempt)
        self.approvals_needed, self.approvals_missing = needed, missing
        return True

    def settle(self, status: Status, now: float, by: str | None = None, reason: str | None = None) -> bool:
        """Withdrawn or expired."""
        if self.status != "pending":
            return False
        self.status, self.settled_at, self.settled_by, self.reason = status, now, by, reason
        return True

    def fulfil(self, request: str, by: str, asked: Sequence[str], now: float) -> bool:
        """The gateway has accepted a request that carries it out, so it was open there."""
        if self.status == "fulfilled":
            return False
        self.status, self.settled_at, self.settled_by, self.fulfilled_by = "fulfilled", now, request, by
        self.forgotten = False
        self._begin(request, by, tuple(asked))
        return True

    def resume(self, request: str, by: str, given: JsonValue) -> bool:
        """Its proposer has sent the input that its host asked for, with this request (decision 0142).

        Without such a question it is out of the history, and older than what the gateway told.
        """
        is_expected = self.wants_input or (self.uncertain and request not in self.requests)
        if self.status != "fulfilled" or request == self.request_id or not is_expected:
            return False
        if request not in self.requests:
            self.inputs.append(given if isinstance(given, dict) else {})
        self._begin(request, by, self.asked)
        return True

    def _begin(self, request: str, by: str, asked: tuple[str, ...]) -> None:
        if request in self.requests:
            self.requests.remove(request)
        self.requests.append(request)
        self.requested_by = by
        self.asked = self.waiting = asked
        self.outcome, self.reason = "pending", None
        self.answered = self.wants_input = self._has_failed = False

    def is_requested_by(self, who: Collection[str]) -> bool:
        """Whether this member sent the request whose answer is waited for."""
        if self.requested_by:
            return self.requested_by in who
        return self.fulfilled_by in who or self.is_of(who)

    def expects_answer(self, host: Collection[str]) -> bool:
        """Whether this host was asked and has not answered; of a broadcast, the first answer counts."""
        if not self.asked:
            return self.status == "fulfilled" and not self.answered
        return not set(self.waiting).isdisjoint(host)

    def note_answer(self, host: Collection[str], *, failed: bool = False, asks: bool = False) -> None:
        """A host that was asked has answered: it is over when all have, unless it asks for input first."""
        self.answered, self.wants_input, self._has_failed = True, asks, self._has_failed or failed
        self.waiting = tuple([each for each in self.waiting if each not in host])
        if asks:
            self.outcome = "pending"
        elif not self.waiting:
            self.outcome, self.reason = "failed" if self._has_failed else "done", None
            self.assessed_by = self.note = None

    def lose_track(self, reason: str) -> bool:
        """Nobody can tell any more what came of it (D-99)."""
        if self.outcome != "pending":
            return False
        self.outcome, self.reason = "unknown", reason
        return True

    def assess(self, outcome: Json, by: str, note: JsonValue) -> bool:
        """A person says what came of it. That nobody knew may never have been heard here."""
        if self.outcome not in ("pending", "unknown") or outcome not in ("done", "failed"):
            return False
        self.outcome, self.reason, self.assessed_by = outcome, None, by
        self.note = note if isinstance(note, str) else None
        return True

    @property
    def origins(self) -> OriginReport | None:
        """What the first says; while somebody says that it asks, what that one says."""
        reports = [report for report, _size in self.origins_by.values()]
        return next((each for each in reports if each.asks), reports[0] if reports else None)

    @property
    def origins_bytes(self) -> int:
        return sum(size for _report, size in self.origins_by.values())

    def note_origins(self, report: OriginReport, by: str, size: int) -> bool:
        """Take over where its values came from: nobody takes back what another says."""
        held = self.origins_by.get(by)
        if (held is None and len(self.origins_by) >= MAX_REPORTERS) or (held and held[0] == report):
            return False
        self.origins_by[by] = (report, size)
        return True

    def note_opinion(self, opinion: Opinion, by: str) -> bool:
        if (by not in self.opinions and len(self.opinions) >= MAX_REPORTERS) or (
            self.opinions.get(by) == opinion
        ):
            return False
        self.opinions[by] = opinion
        return True

    def note_preview(self, preview: PreviewReport, by: Sequence[str]) -> bool:
        """Of a member, by all that it is called."""
        if by[0] not in self.previews and len(self.previews) >= MAX_REPORTERS:
            return False
        self.previews |= dict.fromkeys(by, preview)
        return True

    @property
    def opinion_texts(self) -> list[str]:
        """What models think of it, for people."""
        return [each.text(by) for by, each in self.opinions.items()]

    def restore(self, told: GatewayProposal, now: float, rejection: type[Any] = RejectionRecord) -> None:
        """Take over what the gateway says, which holds from here on in the order of the space."""
        self.uncertain = False
        self.count_votes(told.approved_by, told.approvals_needed, told.approvals_missing, told.exempt)
        self.budgets, self.effects, self.passkey = told.budgets, told.effects, told.passkey
        self.counters, self.changed_by = told.counters, told.changed_by
        self.assigned_to, self.assigned_by = told.assigned_to, told.assigned_by
        for by, reason in told.rejections:
            self.reject(rejection("", by, reason, now))
        if told.state == "fulfilled":
            self._restore_fulfilment(told, now)
        elif told.state != "open":
            self.settle(told.state, now, told.settled_by)
        elif self.status != "fulfilled":
            # It was over by our clock alone, or by a removal that was older than it.
            self.status, self.reason, self.settled_by, self.forgotten = "pending", None, None, False

    def _restore_fulfilment(self, told: GatewayProposal, now: float) -> None:
        request = told.settled_by or ""
        if request != self.request_id:
            self.status = "pending"
        if self.fulfil(request, told.fulfilled_by or "", told.asked, now):
            # It may be its proposer's, who gave input with it.
            self.requested_by = ""
        if self.outcome not in ("done", "failed"):
            self.outcome, self.reason = told.outcome or "pending", told.reason
            self.wants_input, self._has_failed = told.wants_input, told.failed
            waiting = self.asked if told.waiting_for is None else tuple(told.waiting_for)
            self.waiting = () if self.wants_input else waiting
        self.assessed_by, self.note = told.assessed_by, told.note
