"""The trace of a proposal of ours: the call, and within it the wait for a decision.

There is no convention for waiting on a person yet. Ours is an INTERNAL span `approval` from the proposal to
its decision, with `moot.approval.outcome`, `.by` (who decided), `.votes` and `.comments`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from moot.errors import Expired, Rejected, TimedOut, Withdrawn
from moot.participant.calls.outcome import Outcome
from moot.participant.decisions.own_proposal import Proposal
from moot.protocol.operation import Json

if TYPE_CHECKING:
    from moot.tracing.call_tracer import CallTracer, Operation, Span


class TracedProposal:
    """Ends the wait when somebody has decided, and the call when its outcome is known."""

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self._wait: Span | None = None

    @classmethod
    def start(
        cls, tracer: CallTracer, to: Sequence[str], method: str, params: Mapping[str, Json] | None
    ) -> TracedProposal | None:
        operation = tracer.start(
            "client", method, params, moot__member=", ".join(to), network__transport="tcp"
        )
        return None if operation is None else cls(operation)

    def follow(self, proposal: Proposal) -> None:
        seen = proposal.seen
        self.operation.span.set_attribute("moot.proposal.id", seen.id)
        self._wait = self.operation.start_wait(seen.id)

        def watch() -> None:
            if seen.status == "fulfilled":
                self._end_wait(proposal, "approved_with_changes" if seen.changes else "approved")

        def end(outcome: Outcome | None, fault: Exception | None) -> None:
            seen.watchers.remove(watch)
            watch()
            self._end_wait(proposal, _ending(fault))
            if outcome is not None:
                self.operation.result = outcome.result
            self.operation.end(fault)

        seen.watchers.append(watch)
        proposal.on_end = end

    def _end_wait(self, proposal: Proposal, outcome: str) -> None:
        if self._wait is None:
            return
        span, self._wait, seen = self._wait, None, proposal.seen
        deciders = [no.by for no in seen.rejections]
        if outcome.startswith("approved"):
            deciders = [seen.fulfilled_by or ""]
        facts: dict[str, str | int] = {
            "moot.approval.outcome": outcome,
            "moot.approval.by": ", ".join(deciders),
            "moot.approval.votes": ", ".join(seen.votes),
            "moot.approval.comments": len(seen.comments),
        }
        span.set_attributes({name: value for name, value in facts.items() if value})
        span.end()


def _ending(fault: Exception | None) -> str:
    match fault:
        case Rejected():
            return "rejected"
        case Withdrawn():
            return "withdrawn"
        case Expired() | TimedOut():
            return "expired"
    return "unknown"
