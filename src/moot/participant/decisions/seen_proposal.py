"""One proposal: as it is known here, and as we wrote it down."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from moot.errors import (
    CallOutcomeUnknown,
    Expired,
    FulfilmentCancelled,
    HostLeft,
    MootError,
    ProposalSettled,
    ResultMissed,
)
from moot.participant.calls.outcome import Rejection
from moot.protocol.answer_marks import unknown_reason
from moot.protocol.call_risks import Risk, risks_of
from moot.protocol.changes import Change, changes_between
from moot.protocol.envelope import Envelope, rfc3339
from moot.protocol.fingerprint import fingerprint
from moot.protocol.operation import Json
from moot.protocol.preview_report import PreviewReport
from moot.protocol.proposal_life import ProposalLife


class SeenProposal(ProposalLife, eq=False, kw_only=True):
    """One proposal and its state as far as it is known here."""

    envelope: Envelope
    # Of the envelope.
    to: tuple[str, ...] = ()
    method: str = ""
    params: dict[str, Any] = msgspec.field(default_factory=dict)
    rejections: Sequence[Rejection] = msgspec.field(default_factory=list)
    # The last vote that the gateway counted, the request that it made by that, or why it made none.
    counted_vote: str = ""
    counted_request: str | None = None
    not_carried_out: dict[str, Json] | None = None
    # What its host answered.
    result: dict[str, Json] | None = None
    host: str | None = None
    error: MootError | None = None
    # Hosts that left and were not back soon; whether nobody else is waited for any more.
    away: set[str] = msgspec.field(default_factory=set)
    is_given_up: bool = False
    # Written down by us and not as it was sent: its params may have had members for us alone.
    recorded: bool = False
    # Told by the gateway; what was said of it before is in the history.
    is_told: bool = False
    # Those of the same call that were open at the same time.
    alike: list[SeenProposal] = msgspec.field(default_factory=list)
    watchers: list[Callable[[], None]] = msgspec.field(default_factory=list)
    _fingerprint: str = ""
    _risks: list[Risk] | None = None

    def __post_init__(self) -> None:
        self._take_envelope(self.envelope)

    def _take_envelope(self, envelope: Envelope) -> None:
        """Be what this envelope proposes, in its bytes, which an approval repeats."""
        payload = envelope.payload
        self.envelope, self.to, self.method = envelope, tuple(envelope.to), payload["method"]
        self.params = payload.get("params", {})
        self.recorded, self._fingerprint, self._risks = False, "", None

    @property
    def changes(self) -> tuple[Change, ...]:
        """What was changed before it was carried out; nothing if it ran as it was proposed."""
        return () if self.changed is None else changes_between(self.envelope.payload, self.changed)

    @property
    def preview(self) -> PreviewReport | None:
        """What it did in a preview, in the words of the one member that would carry it out."""
        return self.previews.get(self.to[0]) if len(self.to) == 1 else None

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

    @property
    def fault(self) -> MootError | None:
        """Why there is no result, and never will be one; None while its host is waited for."""
        if self.error is not None or self.status != "fulfilled":
            return self.error
        match self.outcome, self.reason:
            case "unknown", "host_left":
                # It may be back in a moment.
                return HostLeft(", ".join(self.asked) or "its host") if self.is_given_up else None
            case "unknown", "cancelled" if self.requested_by in ("", self.fulfilled_by):
                return FulfilmentCancelled(self.fulfilled_by or "somebody")
            case "unknown", why:
                return CallOutcomeUnknown(
                    f"{unknown_reason(why)}: whether it was carried out is not known, so check before doing "
                    "it again"
                )
            case ("done" | "failed") as outcome, _ if self.result is None:
                return ResultMissed(outcome)
        return None

    def _begin(self, request: str, by: str, asked: tuple[str, ...]) -> None:
        ProposalLife._begin(self, request, by, asked)
        self.result = self.host = self.error = None
        self.is_given_up = False
        self.away.clear()

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
