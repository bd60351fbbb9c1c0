"""The proposal ledger: at most one execution, of exactly what was proposed (MEW 3.2, 3.3, D-28, D-99).

    open ──a matching mcp/request──▶ fulfilled, and its outcome:
      │                                pending ──every host answered───────────────────▶ done | failed
      │                                   ├──host left, time out, cancelled, restart──▶ unknown
      │                                   └──the host says that it does not know──────▶ unknown
      │                                unknown ──the host's late answer, or moot/settle─▶ done | failed
      ├──withdrawn by its proposer───▶ withdrawn
      └──after proposal_seconds──────▶ expired

A rejection is noted and leaves the proposal open: it is feedback, the proposer decides what follows.
Fulfilled is final whatever the outcome: nothing opens a proposal again, so it cannot run twice. `unknown`
never becomes `failed` by itself, because "failed" invites somebody to do it again. What a host answers counts
more than what a person said in its place.

An open proposal keeps the bytes of its envelope, for members that join later, and so does one whose outcome
is not known yet. Resolved ones keep what it was, who decided and what came of it; a bounded number of them
stays known, so that a late approval is told what happened.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from moot.protocol.envelope import DialectName
from moot.protocol.operation import Json, Operation
from moot.space.config import Name

ProposalState = Literal["open", "fulfilled", "withdrawn", "expired"]
Settled = Literal["fulfilled", "withdrawn", "expired"]
Decision = Literal["fulfilled", "rejected", "withdrawn", "expired"]
# What came of a fulfilment.
Execution = Literal["pending", "done", "failed", "unknown"]
UnknownReason = Literal[
    "host_left", "timed_out", "cancelled", "gateway_restarted", "host_removed", "host_does_not_know"
]


# Of what is kept of the reason of a rejection: it is a word, such as `unsafe` (MEW 3.3.2).
MAX_REASON_CHARS: Final = 100
# How many settled proposals a late approval is still told about.
MAX_SETTLED: Final = 10_000
# Fields of a record that 0.2 did not have.
_LATER_FIELDS: Final = frozenset(
    {
        *("counters", "author_votes", "changed_by", "assigned_to", "assigned_by", "delegated_votes"),
        *("fulfilled_for", "passkey", "used_challenges", "confirmed_with"),
    }
)


class ProposalRecord(msgspec.Struct):
    """One proposal and what became of it."""

    id: str
    proposer: Name
    to: tuple[Name, ...]
    fingerprint: str
    expires: float
    approvals_needed: int = 0
    # Who may carry it out without them.
    exempt: tuple[Name, ...] = ()
    # Whether each approval is confirmed with a passkey, and what was signed for those that were.
    passkey: bool = False
    used_challenges: list[str] = msgspec.field(default_factory=list)
    # The key behind each vote: one that is removed takes its votes along.
    confirmed_with: dict[Name, str] = msgspec.field(default_factory=dict)
    # 0: not known, of a snapshot from before this was kept.
    proposed_at: float = 0.0
    state: ProposalState = "open"
    settled_by: str | None = None  # the envelope that settled it
    approved_by: list[Name] = msgspec.field(default_factory=list)
    rejected_by: list[Name] = msgspec.field(default_factory=list)
    # Why they did, as far as they said it in a word.
    reject_reasons: dict[Name, str] = msgspec.field(default_factory=dict)
    # Of a counter-proposal: the proposals of others that it is a changed version of.
    counters: tuple[str, ...] = ()
    # Whether its author's vote on it counts.
    author_votes: bool = False
    # Of a fulfilled one: the counter-proposal that was carried out in its place.
    changed_by: str | None = None
    # Whom it waits for, as somebody said last, and who that was: it changes nobody's rights.
    assigned_to: tuple[Name, ...] = ()
    assigned_by: Name | None = None
    # Giver → delegate, of votes that somebody gave in another's place; and in whose place it was approved.
    delegated_votes: dict[Name, Name] = msgspec.field(default_factory=dict)
    fulfilled_for: Name | None = None
    # Its place among all proposals of the space; pages of a list continue after one.
    number: int = 0
    operation: Operation | None = None
    # The envelope as it came, for as long as somebody may have to read it; empty when it is not kept.
    raw: bytes = b""
    dialect: DialectName = "mew"
    # False: members of other dialects were not sent it (`kind_validation: lazy`).
    translated: bool = True
    settled_at: float = 0.0
    # Of a fulfilled one: by whom, whom it asked, who of these has not answered, and what came of it.
    # None: of a version that did not keep it.
    fulfilled_by: Name | None = None
    asked: tuple[Name, ...] = ()
    waiting: tuple[Name, ...] = ()
    failed: bool = False
    outcome: Execution | None = None
    outcome_at: float = 0.0
    reason: UnknownReason | None = None
    answered_by: list[Name] = msgspec.field(default_factory=list)
    # What the host asks the proposer for before it goes on (`continued_calls`).
    wanted_input: str | None = None
    # Who said what came of it in place of the host, and in which words.
    assessed_by: Name | None = None
    note: str | None = None

    def state_at(self, now: float) -> ProposalState:
        return "expired" if self.state == "open" and now >= self.expires else self.state

    def approvals_missing(self, fulfiller: Name | None = None) -> int:
        """How many have to vote before this member, or anybody who is not exempt, may carry it out."""
        if fulfiller in self.exempt:
            return 0
        return max(0, self.approvals_needed - len(self.approved_by))

    def add_vote(self, voter: Name, giver: Name | None) -> bool:
        """Count a vote, of the giver in whose place it is; nobody counts twice, neither by another."""
        counted = giver or voter
        if counted in self.approved_by or voter in (*self.approved_by, *self.delegated_votes.values()):
            return False
        self.approved_by.append(counted)
        if giver is not None:
            self.delegated_votes[giver] = voter
        return True

    def drop_delegated_vote(self, name: Name) -> None:
        """A member is removed, who voted in another's place or for whom another did."""
        for giver, delegate in list(self.delegated_votes.items()):
            if name in (giver, delegate):
                del self.delegated_votes[giver]
                if giver in self.approved_by:
                    self.approved_by.remove(giver)

    def drop_votes_confirmed_with(self, keys: Collection[str]) -> bool:
        """Passkeys are removed, perhaps because somebody else has them; whether votes are gone by that."""
        gone = [name for name, key in self.confirmed_with.items() if key in keys]
        for name in gone:
            del self.confirmed_with[name]
            self.delegated_votes.pop(name, None)
        before = len(self.approved_by)
        self.approved_by = [name for name in self.approved_by if name not in gone]
        return len(self.approved_by) < before

    @property
    def is_over(self) -> bool:
        """Settled, and if it was fulfilled, what came of it is known."""
        return self.state != "open" and not self.unresolved

    @property
    def unresolved(self) -> bool:
        """Fulfilled, and what came of it is not known (yet)."""
        return self.outcome in ("pending", "unknown")


class ProposalLedger:
    """Open proposals, those whose outcome is not known yet, and a bounded number of settled ones."""

    def __init__(self) -> None:
        self.proposals: dict[str, ProposalRecord] = {}
        # Told how many seconds a decision took: the first rejection of a proposal, and what settles it.
        self.decision_timers: Mapping[Decision, Callable[[float], None]] = {}
        self._settled: deque[str] = deque()
        self._open: dict[Name, dict[str, ProposalRecord]] = {}
        # Fulfilled, and not resolved; in the order of their fulfilment.
        self._unresolved: dict[str, ProposalRecord] = {}
        # By the request that fulfils them, while a host may still answer it.
        self._executions: dict[str, list[ProposalRecord]] = {}
        # Bytes of envelopes that are kept, by proposer.
        self._bytes: dict[Name, int] = {}
        self._numbered = 0

    def get(self, id: str) -> ProposalRecord | None:
        return self.proposals.get(id)

    def named_in(self, correlation: Sequence[str]) -> list[ProposalRecord]:
        if len(correlation) == 1:
            found = self.proposals.get(correlation[0])
            return [] if found is None else [found]
        return [self.proposals[id] for id in dict.fromkeys(correlation) if id in self.proposals]

    def knows_any(self, ids: Sequence[str]) -> bool:
        return not self.proposals.keys().isdisjoint(ids)

    def open_of(self, proposer: Name) -> list[ProposalRecord]:
        return list(self._open.get(proposer, {}).values())

    def count_open(self, proposer: Name) -> int:
        return len(self._open.get(proposer, ()))

    def all_open(self) -> list[ProposalRecord]:
        return [proposal for proposals in self._open.values() for proposal in proposals.values()]

    def unresolved(self) -> list[ProposalRecord]:
        """Fulfilled ones whose outcome is pending or unknown, in the order of their fulfilment."""
        return list(self._unresolved.values())

    def listed(self, after: int) -> Iterator[ProposalRecord]:
        """Open and unresolved ones behind a number, in the order in which they were proposed."""
        found = [each for each in (*self.all_open(), *self._unresolved.values()) if each.number > after]
        return iter(sorted(found, key=lambda each: each.number))

    def executed_by(self, request: str) -> list[ProposalRecord]:
        """Those that this request fulfils, while an answer to it can change their outcome."""
        running = self._executions.get(request, ())
        return list(running) if len(running) < 2 else sorted(running, key=lambda each: each.number)

    # Open ones

    def add(self, proposal: ProposalRecord) -> None:
        """Take in a new proposal."""
        self._numbered += 1
        proposal.number = self._numbered
        self._index(proposal)

    def has_room(self, proposer: Name, size: int, most: int) -> bool:
        """Whether another envelope of this proposer may be kept; those of its unresolved ones give way."""
        if self._bytes.get(proposer, 0) + size <= most:
            return True
        return sum(len(each.raw) for each in self.open_of(proposer)) + size <= most

    def drop_unresolved_bytes(self, proposer: Name, size: int, most: int) -> None:
        """Let go of the envelopes of unresolved proposals, the oldest first, until this one has room."""
        for each in self._unresolved.values():
            if self._bytes.get(proposer, 0) + size <= most:
                return
            if each.proposer == proposer:
                self._drop_bytes(each)

    def reject(self, proposal: ProposalRecord, by: Name, reason: Json, now: float) -> None:
        """Note who said no, once each, to a proposal that is open."""
        if proposal.state != "open" or by in proposal.rejected_by:
            return
        proposal.rejected_by.append(by)
        if isinstance(reason, str):
            proposal.reject_reasons[by] = reason[:MAX_REASON_CHARS]
        if len(proposal.rejected_by) == 1:
            self._time(proposal, "rejected", now)

    # Settling and resolving. Each returns the ids of envelopes that nothing here depends on any more: of
    # forgotten proposals, and of requests whose answer has come. They are unpinned.

    def settle(self, proposal: ProposalRecord, state: Settled, by: str | None, now: float) -> list[str]:
        """Close an open proposal that is withdrawn or expired."""
        self._close(proposal, state, by, now)
        self._drop_bytes(proposal)
        return self._retire(proposal)

    def fulfil(
        self, proposal: ProposalRecord, request: str, by: Name, asked: tuple[Name, ...], now: float
    ) -> list[str]:
        """Close an open proposal by the request that carries it out."""
        self._close(proposal, "fulfilled", request, now)
        proposal.fulfilled_by = by
        proposal.asked = proposal.waiting = asked
        proposal.outcome, proposal.outcome_at = "pending", now
        self._executions.setdefault(request, []).append(proposal)
        self._unresolved[proposal.id] = proposal
        # As many as settled ones; the oldest is forgotten whatever came of it.
        if len(self._unresolved) <= MAX_SETTLED or len(self._unresolved) == 1:
            return []
        return self._forget(next(iter(self._unresolved)))

    def _close(self, proposal: ProposalRecord, state: Settled, by: str | None, now: float) -> None:
        self._time(proposal, state, now)
        proposal.state = state
        proposal.settled_by = by
        proposal.settled_at = now
        del self._open[proposal.proposer][proposal.id]
        if not self._open[proposal.proposer]:
            del self._open[proposal.proposer]

    def _time(self, proposal: ProposalRecord, decision: Decision, now: float) -> None:
        timer = self.decision_timers.get(decision)
        if timer is not None and proposal.proposed_at:
            timer(max(0.0, now - proposal.proposed_at))

    # Outcomes

    def lose_track(self, proposal: ProposalRecord, reason: UnknownReason, now: float) -> bool:
        """Nobody can tell any more what came of it; whether that is news."""
        if proposal.outcome != "pending":
            return False
        proposal.outcome, proposal.reason, proposal.outcome_at = "unknown", reason, now
        return True

    def resume(self, proposal: ProposalRecord, request: str, now: float) -> list[str]:
        """Its proposer has sent the input that its host asked for, with this request."""
        released = self._end_execution(proposal)
        proposal.wanted_input = proposal.reason = None
        proposal.settled_by, proposal.waiting = request, proposal.asked
        proposal.outcome, proposal.outcome_at = "pending", now
        self._executions.setdefault(request, []).append(proposal)
        return released

    def note_answer(self, proposal: ProposalRecord, host: Name, *, failed: bool, now: float) -> list[str]:
        """A host has answered. It is resolved when all who were asked have; of a broadcast, by the first."""
        if proposal.asked and host not in proposal.waiting:
            return []
        proposal.waiting = tuple(name for name in proposal.waiting if name != host)
        proposal.answered_by.append(host)
        proposal.failed = proposal.failed or failed
        if proposal.waiting:
            return []
        proposal.reason = proposal.assessed_by = proposal.note = None
        outcome: Literal["done", "failed"] = "failed" if proposal.failed else "done"
        return [*self._end_execution(proposal), *self._resolve(proposal, outcome, now)]

    def assess(
        self,
        proposal: ProposalRecord,
        outcome: Literal["done", "failed"],
        by: Name,
        note: str | None,
        now: float,
    ) -> list[str]:
        """A person says what came of it, as far as they could find out; a late answer still counts more."""
        proposal.assessed_by, proposal.note = by, note
        return self._resolve(proposal, outcome, now)

    def _resolve(self, proposal: ProposalRecord, outcome: Literal["done", "failed"], now: float) -> list[str]:
        proposal.outcome, proposal.outcome_at = outcome, now
        self._drop_bytes(proposal)
        return self._retire(proposal) if self._unresolved.pop(proposal.id, None) is not None else []

    def _retire(self, proposal: ProposalRecord) -> list[str]:
        self._settled.append(proposal.id)
        released = []
        while len(self._settled) > MAX_SETTLED:
            released += self._forget(self._settled.popleft())
        return released

    def forget(self, id: str) -> list[str]:
        """Forget a proposal that is over, because its id means something else now."""
        self._settled.remove(id)
        return self._forget(id)

    def _forget(self, id: str) -> list[str]:
        proposal = self.proposals.pop(id)
        self._unresolved.pop(id, None)
        self._drop_bytes(proposal)
        return [id, *self._end_execution(proposal)]

    def _end_execution(self, proposal: ProposalRecord) -> list[str]:
        """No answer can change its outcome any more."""
        request = proposal.settled_by or ""
        running = self._executions.get(request, [])
        if proposal not in running:
            return []
        left = [each for each in running if each is not proposal]
        if left:
            self._executions[request] = left
        else:
            del self._executions[request]
        return [request]

    def _drop_bytes(self, proposal: ProposalRecord) -> None:
        left = self._bytes.get(proposal.proposer, 0) - len(proposal.raw)
        proposal.raw = b""
        if left > 0:
            self._bytes[proposal.proposer] = left
        else:
            self._bytes.pop(proposal.proposer, None)

    # To JSON and back

    def _index(self, proposal: ProposalRecord) -> None:
        self.proposals[proposal.id] = proposal
        if proposal.raw:
            self._bytes[proposal.proposer] = self._bytes.get(proposal.proposer, 0) + len(proposal.raw)
        if proposal.state == "open":
            self._open.setdefault(proposal.proposer, {})[proposal.id] = proposal
        elif proposal.outcome is not None and (proposal.waiting or proposal.unresolved):
            self._executions.setdefault(proposal.settled_by or "", []).append(proposal)

    def save(self) -> dict[str, Json]:
        return {
            "proposals": [_save_record(proposal) for proposal in self.proposals.values()],
            "settled": list(self._settled),
            "unresolved": list(self._unresolved),
            "numbered": self._numbered,
        }

    @classmethod
    def load(cls, saved: dict[str, Any]) -> ProposalLedger:
        ledger = cls()
        for row in saved["proposals"]:
            proposal = _load_record(row)
            if not proposal.number:
                # From before numbers were kept; they stand in the order in which they were proposed.
                ledger._numbered += 1
                proposal.number = ledger._numbered
            ledger._index(proposal)
        ledger._settled = deque(saved["settled"])
        ledger._unresolved = {id: ledger.proposals[id] for id in saved.get("unresolved", ())}
        ledger._numbered = saved.get("numbered", ledger._numbered)
        return ledger

    def resume_executions(self, owed_to: Callable[[str], tuple[Name, ...]]) -> list[str]:
        """Of a snapshot from before outcomes were kept: those whose request still waits for an answer.

        `owed_to` gives who owes an answer to a request. Returns the requests, which are to be pinned.
        """
        requests = []
        for id in list(self._settled):
            proposal = self.proposals[id]
            if proposal.state != "fulfilled" or proposal.outcome is not None:
                continue
            request = proposal.settled_by or ""
            proposal.asked = proposal.waiting = owed_to(request)
            if proposal.waiting:
                proposal.outcome = "pending"
                self._settled.remove(id)
                self._unresolved[id] = proposal
                self._executions.setdefault(request, []).append(proposal)
                requests.append(request)
        return requests


def _save_record(proposal: ProposalRecord) -> dict[str, Json]:
    """Envelopes are JSON texts, and stay texts in JSON."""
    fields: dict[str, Json] = msgspec.to_builtins(proposal, builtin_types=(bytes,))
    fields["raw"] = proposal.raw.decode()
    # Left out while there is nothing: gateways of an earlier version compare what they know.
    for name in _LATER_FIELDS:
        if not fields[name]:
            del fields[name]
    return fields


def _load_record(saved: dict[str, Any]) -> ProposalRecord:
    fields = {**saved, "raw": saved.get("raw", "").encode()}
    return msgspec.convert(fields, ProposalRecord)
