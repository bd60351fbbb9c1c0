"""The proposal ledger: at most one execution, of exactly what was proposed (MEW 3.2, 3.3, D-28).

    open ──fulfilled by a matching mcp/request──▶ fulfilled
      ├────withdrawn by its proposer────────────▶ withdrawn
      └────after proposal_seconds───────────────▶ expired

A rejection is noted and leaves the proposal open: it is feedback, the proposer decides what follows.
Settled proposals stay known for a while, so that a late approval is told what happened.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from moot.protocol.operation import Json
from moot.space.config import Name

Outcome = Literal["open", "fulfilled", "withdrawn", "expired"]
Settled = Literal["fulfilled", "withdrawn", "expired"]
Decision = Literal["fulfilled", "rejected", "withdrawn", "expired"]


class ProposalRecord(msgspec.Struct):
    """One proposal and what became of it."""

    id: str
    proposer: Name
    to: tuple[Name, ...]
    fingerprint: str
    expires: float
    approvals_needed: int = 0
    # 0: not known, of a snapshot from before this was kept.
    proposed_at: float = 0.0
    state: Outcome = "open"
    settled_by: str | None = None  # the envelope that settled it
    approved_by: list[Name] = msgspec.field(default_factory=list)
    rejected_by: list[Name] = msgspec.field(default_factory=list)

    def state_at(self, now: float) -> Outcome:
        return "expired" if self.state == "open" and now >= self.expires else self.state


class ProposalLedger:
    """Open proposals, and a bounded number of settled ones."""

    def __init__(self, settled: int) -> None:
        self.proposals: dict[str, ProposalRecord] = {}
        self.max_settled = settled
        # Told of every decision: the first rejection of a proposal, and what settles it.
        self.on_decided: Callable[[ProposalRecord, Decision], None] | None = None
        self._settled: deque[str] = deque()
        self._open: dict[Name, dict[str, ProposalRecord]] = {}

    def get(self, id: str) -> ProposalRecord | None:
        return self.proposals.get(id)

    def named_in(self, correlation: tuple[str, ...] | list[str]) -> list[ProposalRecord]:
        return [self.proposals[id] for id in dict.fromkeys(correlation) if id in self.proposals]

    def open_of(self, proposer: Name) -> list[ProposalRecord]:
        return list(self._open.get(proposer, {}).values())

    def all_open(self) -> list[ProposalRecord]:
        return [proposal for proposals in self._open.values() for proposal in proposals.values()]

    def add(self, proposal: ProposalRecord) -> None:
        self.proposals[proposal.id] = proposal
        if proposal.state == "open":
            self._open.setdefault(proposal.proposer, {})[proposal.id] = proposal

    def reject(self, proposal: ProposalRecord, by: Name) -> None:
        """Note who said no, once each, to a proposal that is open."""
        if proposal.state != "open" or by in proposal.rejected_by:
            return
        proposal.rejected_by.append(by)
        if self.on_decided is not None and len(proposal.rejected_by) == 1:
            self.on_decided(proposal, "rejected")

    def settle(self, proposal: ProposalRecord, state: Settled, by: str | None) -> list[str]:
        """Close an open proposal; returns the ids of settled ones that are now forgotten."""
        if self.on_decided is not None:
            self.on_decided(proposal, state)
        proposal.state = state
        proposal.settled_by = by
        del self._open[proposal.proposer][proposal.id]
        if not self._open[proposal.proposer]:
            del self._open[proposal.proposer]
        self._settled.append(proposal.id)
        forgotten = []
        while len(self._settled) > self.max_settled:
            forgotten.append(self._settled.popleft())
            del self.proposals[forgotten[-1]]
        return forgotten

    def forget(self, id: str) -> bool:
        """Forget a settled proposal, because its id means something else now; False if there is none."""
        if id not in self.proposals:
            return False
        del self.proposals[id]
        self._settled.remove(id)
        return True

    def save(self) -> dict[str, Json]:
        return {
            "proposals": [msgspec.to_builtins(proposal) for proposal in self.proposals.values()],
            "settled": list(self._settled),
        }

    @classmethod
    def load(cls, saved: dict[str, Any], settled: int) -> ProposalLedger:
        ledger = cls(settled)
        for row in saved["proposals"]:
            ledger.add(msgspec.convert(row, ProposalRecord))
        ledger._settled = deque(saved["settled"])
        return ledger
