"""One proposal: as it is known here, as the gateway tells it, and as we wrote it down."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Literal

import msgspec

from moot.errors import BadAnswer, CallOutcomeUnknown, Expired, McpError, ProposalSettled
from moot.participant.calls.outcome import Rejection
from moot.participant.decisions.call_risks import Risk, risks_of
from moot.protocol.continuation import wanted_input
from moot.protocol.envelope import Envelope, rfc3339
from moot.protocol.fingerprint import fingerprint
from moot.protocol.operation import Json

Status = Literal["pending", "fulfilled", "withdrawn", "expired"]
# What came of a fulfilment.
ExecutionOutcome = Literal["pending", "done", "failed", "unknown"]


class GatewayProposal(msgspec.Struct):
    """One proposal as the gateway tells it (D-96)."""

    proposal_id: str
    state: Literal["open", "fulfilled", "withdrawn", "expired"]
    proposer: str = ""
    proposed_at: str = ""
    method: str = ""
    name: str | None = None
    expires_at: str = ""
    approvals_needed: int = 0
    approvals_missing: int = 0
    exempt: list[str] = []
    approved_by: list[str] = []
    rejected_by: list[str] = []
    # In the same order; of a gateway that does not tell it, empty.
    reject_reasons: list[str] = []
    settled_by: str | None = None
    fulfilled_by: str | None = None
    asked: list[str] = []
    outcome: ExecutionOutcome | None = None
    reason: str | None = None
    assessed_by: str | None = None
    note: str | None = None
    envelope: msgspec.Raw = msgspec.Raw()
    # In place of an envelope that is too large for the list.
    envelope_bytes: int = 0

    @property
    def rejections(self) -> list[tuple[str, str]]:
        """Who said no, and why."""
        return list(
            zip_longest(self.rejected_by, self.reject_reasons[: len(self.rejected_by)], fillvalue="other")
        )


@dataclass(slots=True, eq=False)
class SeenProposal:
    """One proposal and its state as far as it is known here."""

    envelope: Envelope
    expires: float  # seconds since 1970
    status: Status = "pending"
    # The proposer's logical name, by which it can be removed while it is away (D-19).
    proposer_name: str = ""
    rejections: list[Rejection] = field(default_factory=list)
    # Who voted for it, where the space asks for several (D-28).
    votes: list[str] = field(default_factory=list)
    # How many votes it needs and lacks, and for whom it needs none, in the gateway's own count (D-103).
    approvals_needed: int = 0
    approvals_missing: int = 0
    exempt: list[str] = field(default_factory=list)
    # The last vote that the gateway counted, the request that it made by that, or why it made none.
    counted_vote: str = ""
    counted_request: str | None = None
    not_carried_out: dict[str, Json] | None = None
    # Who fulfilled it, with which request to whom; and why it was withdrawn.
    fulfilled_by: str | None = None
    request_id: str | None = None
    asked: tuple[str, ...] = ()
    reason: str | None = None
    # The result of the fulfilment.
    result: dict[str, Json] | None = None
    host: str | None = None
    fault: Exception | None = None
    # The input that its proposer gave since, where the host asked for some: `inputResponses` of each time.
    inputs: list[dict[str, Json]] = field(default_factory=list)
    # What the gateway, or a person in place of the host, says came of it; and in which words.
    told_outcome: ExecutionOutcome | None = None
    assessed_by: str | None = None
    note: str | None = None
    # Written down by us and not as it was sent: its params may have had members for us alone.
    recorded: bool = False
    # The gateway does not remember it: it is not open, and what became of it is not known.
    forgotten: bool = False
    # Since a reconnect: we may have missed something about it.
    uncertain: bool = False
    # Those of the same call that were open at the same time.
    alike: list[SeenProposal] = field(default_factory=list, repr=False)
    watchers: list[Callable[[], None]] = field(default_factory=list, repr=False)
    _fingerprint: str = field(default="", repr=False)
    _risks: list[Risk] | None = field(default=None, repr=False)

    @property
    def id(self) -> str:
        return self.envelope.id

    @property
    def proposer(self) -> str:
        return self.envelope.sender

    @property
    def to(self) -> tuple[str, ...]:
        return tuple(self.envelope.to)

    @property
    def method(self) -> str:
        method: str = self.envelope.payload["method"]
        return method

    @property
    def params(self) -> dict[str, Any]:
        params: dict[str, Any] = self.envelope.payload.get("params", {})
        return params

    @property
    def created(self) -> str:
        return self.envelope.ts

    @property
    def risks(self) -> list[Risk]:
        """What in it deserves a second look, most serious first; none does not mean that it is harmless."""
        if self._risks is None:
            params = self.params
            self._risks = risks_of(str(params.get("name", "")), params.get("arguments", params))
        return [*self._risks, *self._twins()]

    def _twins(self) -> Iterator[Risk]:
        if self.status != "pending":
            return
        for other in self.alike:
            if other.status == "pending":
                text = (
                    f"the same call is already pending: {other.id[:8]}, proposed by {other.proposer}; "
                    "approving both carries it out twice"
                )
                yield Risk("warn", text)

    def is_same_call(self, other: SeenProposal) -> bool:
        """Whether two ask for the same call of the same member."""
        if (self.method, self.to) != (other.method, other.to):
            return False
        ours, theirs = self.params, other.params
        if ours.get("name") != theirs.get("name"):
            return False
        return {**ours, "_meta": None} == {**theirs, "_meta": None}

    def missing_for(self, member: str) -> int:
        """How many votes are missing before this member can carry it out."""
        return 0 if member in self.exempt else self.approvals_missing

    @property
    def vote_text(self) -> str:
        """How far the vote on a pending one is, for people; empty where none is needed."""
        if not self.approvals_needed or self.status != "pending":
            return ""
        given = self.approvals_needed - self.approvals_missing
        more = (
            f"{self.approvals_missing} more needed" if self.approvals_missing else "complete: approve it now"
        )
        return f"{given} of {self.approvals_needed} approvals, {more}"

    @property
    def outcome(self) -> ExecutionOutcome | None:
        """What came of a fulfilled one, as far as it is known; None while nobody has fulfilled it."""
        if self.status != "fulfilled":
            return None
        if self.wants_input:
            return "pending"
        if self.result is not None:
            return "failed" if self.result.get("isError") is True else "done"
        if isinstance(self.fault, BadAnswer):
            return "unknown"
        if isinstance(self.fault, McpError) and not isinstance(self.fault, CallOutcomeUnknown):
            return "failed"
        if self.told_outcome is not None:
            return self.told_outcome
        return "unknown" if self.fault is not None else "pending"

    @property
    def wants_input(self) -> bool:
        """Whether its host waits for input of the proposer (MCP `input_required`)."""
        return wanted_input(self.result) is not None

    @property
    def is_over(self) -> bool:
        """Whether there is a result, or there never will be one."""
        return self.status in ("withdrawn", "expired") or self.result is not None or self.fault is not None

    def check_open(self) -> None:
        """Raises ProposalSettled or Expired if it cannot be decided any more."""
        match self.status:
            case "pending":
                return
            case "fulfilled":
                message = f"the proposal was already fulfilled by {self.fulfilled_by or 'somebody'}"
                if self.outcome == "unknown":
                    message += ", and what came of it is not known; it never runs again"
            case "withdrawn":
                why = f" ({self.reason})" if self.reason else ""
                message = f"the proposal was already withdrawn by {self.proposer}{why}"
            case "expired":
                raise Expired("the proposal has expired: it has to be proposed again")
        raise ProposalSettled(message, state=self.status)

    def fingerprint(self) -> str:
        if not self._fingerprint:
            self._fingerprint = fingerprint(self.envelope.raw)
        return self._fingerprint

    def record(self) -> dict[str, Json]:
        """As MEW 10.2 lists it."""
        return {
            "proposalId": self.id,
            "proposer": self.proposer,
            "target": list(self.to),
            "method": self.method,
            "params": self.params,
            "status": self.status,
            **({} if self.outcome is None else {"outcome": self.outcome}),
            "createdAt": self.created,
            "expiresAt": rfc3339(self.expires),
        }

    def notify_watchers(self) -> None:
        """Call everybody who watches it: something about it has changed."""
        for watcher in tuple(self.watchers):
            watcher()


class RecordedProposal(msgspec.Struct, frozen=True, kw_only=True):
    """A proposal of ours, written down by whoever wants to follow it after a restart."""

    id: str
    to: str
    method: str
    params: dict[str, Any]
    # Seconds since 1970.
    proposed_at: float
