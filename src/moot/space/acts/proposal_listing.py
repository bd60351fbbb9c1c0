"""What members are told about proposals on request: pages of the open ones, and single ones by id (D-96).

Nothing is replayed to whoever joins, so what is open has to be asked for. Everybody in a space sees every
message, so every member may ask; sessions that asked to receive less are told less here too. The envelope is
the one that was proposed, in the dialect of whoever asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import orjson

from moot.errors import MalformedEnvelope
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import ANY_SIZE, DialectName, Envelope, readdress, rfc3339
from moot.protocol.operation import Json
from moot.space.acts.approvals import describe_votes
from moot.space.grants.delegations import describe_delegations
from moot.space.members.member import SpaceMember
from moot.space.proposals.budgets import list_budgets
from moot.space.proposals.effect_keys import list_effects
from moot.space.proposals.proposal_ledger import ProposalRecord
from moot.space.state import State

# What an entry has beside its envelope, generously.
_ENTRY_BYTES: Final = 1_024
# One page of the list of proposals: a quarter of the largest envelope, or one proposal if that is larger.
MAX_PAGE_BYTES: Final = 256 << 10


class ProposalReader(NamedTuple):
    """Who asks: how it reads, and how much it receives."""

    member: SpaceMember
    dialect: DialectName = "mew"
    # Only what is addressed to it (D-54).
    directed: bool = False
    # Whether an envelope larger than a page is told whole; on a socket it would be too large a message.
    whole: bool = False

    def may_see(self, proposal: ProposalRecord) -> bool:
        if not proposal.translated and proposal.dialect != self.dialect:
            return False
        name = self.member.name
        return not self.directed or not proposal.to or name in proposal.to or name == proposal.proposer


class ProposalPage(NamedTuple):
    """An answer, and about how many bytes it has."""

    payload: dict[str, Json]
    size: int


def list_proposals(state: State, reader: ProposalReader, *, after: int, now: float) -> ProposalPage:
    """One page of the open proposals, and of the fulfilled ones whose outcome is not known (yet).

    They come in the order in which they were proposed. `next` is there if there are more: continue after it.
    """
    most = MAX_PAGE_BYTES
    entries: list[Json] = []
    size = 0
    page: dict[str, Json] = {"proposals": entries, **_about_space(state, now)}
    for proposal in state.ledger.listed(after):
        if not reader.may_see(proposal):
            continue
        cost = _cost(proposal, most)
        if entries and size + cost > most:
            page["next"] = entries[-1]["number"]
            break
        size += cost
        entries.append(describe_proposal(state, reader, proposal, now))
    return ProposalPage(page, size)


def find_proposals(state: State, reader: ProposalReader, ids: Iterable[str], *, now: float) -> ProposalPage:
    """These proposals, settled or not; `not_known` are those that nobody remembers here.

    `next_ids` are there if the page could not hold all of them: ask for these next.
    """
    most = MAX_PAGE_BYTES
    entries: list[Json] = []
    not_known: list[str] = []
    left: list[str] = []
    size = 0
    for id in dict.fromkeys(ids):
        proposal = state.ledger.get(id)
        if proposal is None or not reader.may_see(proposal):
            not_known.append(id)
            continue
        cost = _cost(proposal, most)
        if left or (entries and size + cost > most):
            left.append(id)
            continue
        size += cost
        entries.append(describe_proposal(state, reader, proposal, now))
    page: dict[str, Json] = {"proposals": entries, "not_known": not_known, **_about_space(state, now)}
    if left:
        page["next_ids"] = left
    return ProposalPage(page, size)


def _about_space(state: State, now: float) -> dict[str, Json]:
    """What is used of the space's budgets, and who decides in whose place; nothing where there are none."""
    budgets, delegations = state.config.budgets, describe_delegations(state, now)
    return {
        **({"budgets": list_budgets(state.budgets, budgets, now)} if budgets else {}),
        **({"delegations": delegations} if delegations else {}),
        **({"effects": list_effects(state.config.effects)} if state.config.effects else {}),
    }


def _cost(proposal: ProposalRecord, most: int) -> int:
    """How much of a page an entry takes; an envelope that no page holds is left out, or has its own."""
    return _ENTRY_BYTES + min(len(proposal.raw), most)


def describe_proposal(
    state: State, reader: ProposalReader, proposal: ProposalRecord, now: float
) -> dict[str, Json]:
    """One proposal: what it is, who voted how, and what came of it."""
    operation = proposal.operation
    entry: dict[str, Json] = {
        "proposal_id": proposal.id,
        "number": proposal.number,
        "state": proposal.state_at(now),
        "proposer": state.runtime_ids([proposal.proposer])[0],
        "to": state.runtime_ids(proposal.to),
        "arguments_hash": proposal.fingerprint,
        "expires_at": rfc3339(proposal.expires),
        **describe_votes(state, proposal, now),
        "rejected_by": state.runtime_ids(proposal.rejected_by),
        "reject_reasons": [proposal.reject_reasons.get(name, "other") for name in proposal.rejected_by],
    }
    if proposal.assigned_to:
        entry["assigned_to"] = state.runtime_ids(proposal.assigned_to)
        entry["assigned_by"] = state.runtime_ids([proposal.assigned_by or proposal.proposer])[0]
    if proposal.proposed_at:
        entry["proposed_at"] = rfc3339(proposal.proposed_at)
    if operation is not None:
        entry["method"], entry["name"] = operation.method, operation.context
    if proposal.state != "open":
        entry |= _describe_settlement(state, proposal)
    if proposal.raw:
        entry |= _show_envelope(state, reader, proposal)
    return entry


def _describe_settlement(state: State, proposal: ProposalRecord) -> dict[str, Json]:
    fields: dict[str, Json] = {"settled_by": proposal.settled_by}
    if proposal.settled_at:
        fields["settled_at"] = rfc3339(proposal.settled_at)
    if proposal.fulfilled_by is not None:
        fields["fulfilled_by"] = state.runtime_ids([proposal.fulfilled_by])[0]
    if proposal.fulfilled_for is not None:
        fields["fulfilled_for"] = state.runtime_ids([proposal.fulfilled_for])[0]
    if proposal.changed_by is not None:
        fields["changed_by"] = proposal.changed_by
    if proposal.outcome is None:
        return fields
    fields |= {
        "outcome": proposal.outcome,
        "asked": state.runtime_ids(proposal.asked),
        "waiting_for": state.runtime_ids(proposal.waiting),
        "answered_by": state.runtime_ids(proposal.answered_by),
    }
    if proposal.outcome_at:
        fields["outcome_at"] = rfc3339(proposal.outcome_at)
    if proposal.reason is not None:
        fields["reason"] = proposal.reason
    if proposal.wanted_input is not None:
        fields["wants_input"] = True
    if proposal.failed and proposal.waiting:
        # One of several hosts, so that what comes of it is known already.
        fields["failed"] = True
    if proposal.assessed_by is not None:
        fields["assessed_by"] = state.runtime_ids([proposal.assessed_by])[0]
        fields["note"] = proposal.note
    return fields


def _show_envelope(state: State, reader: ProposalReader, proposal: ProposalRecord) -> dict[str, Json]:
    raw = proposal.raw
    if not reader.whole and len(raw) > MAX_PAGE_BYTES:
        return {"envelope_bytes": len(raw)}
    if proposal.dialect != reader.dialect or (state.roster.aliases and proposal.to):
        shown = _translate(state, reader, proposal)
        if shown is None:
            return {"envelope_bytes": len(raw)}
        raw = shown
    return {"envelope": orjson.Fragment(raw)}


def _translate(state: State, reader: ProposalReader, proposal: ProposalRecord) -> bytes | None:
    """As it would be delivered now: in the reader's dialect, addressed to runtime ids (D-19)."""
    protocols = frozenset({orjson.loads(proposal.raw)["protocol"]})
    try:
        envelope: Envelope = DIALECTS[proposal.dialect].decode(
            proposal.raw, ANY_SIZE, accept_protocols=protocols
        )
    except MalformedEnvelope:
        return None
    to: Sequence[str] = state.runtime_ids(proposal.to)
    if proposal.to and list(envelope.to) != to:
        envelope = readdress(envelope, to)
    return DIALECTS[reader.dialect].encode(envelope)
