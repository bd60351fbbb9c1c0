"""The tables of a space as JSON, for snapshots, and back."""

from __future__ import annotations

from typing import Any

import msgspec

from moot.protocol.operation import Json
from moot.space.config import SpaceConfig
from moot.space.grant_table import GrantTable
from moot.space.id_window import IdWindow
from moot.space.members import Options, Session, SpaceMember
from moot.space.offer_owners import OfferOwners
from moot.space.proposal_ledger import ProposalLedger
from moot.space.state import State
from moot.space.stream_table import StreamTable
from moot.space.temporary_tokens import TemporaryTokens


def save_state(state: State) -> dict[str, Json]:
    return {
        "members": [member.save() for member in state.roster],
        "sessions": [session.save() for session in state.roster.sessions.values()],
        "grants": state.grants.save(),
        "streams": state.streams.save(),
        "ledger": state.ledger.save(),
        "window": state.window.save(),
        "temporary_tokens": state.temporary_tokens.save(),
        "offer_owners": state.offer_owners.save(),
        "journal_able": state.journal_writable,
        "sessions_joined": state.sessions_joined,
        "deadlines": state.deadlines.save(),
    }


def load_state(config: SpaceConfig, saved: dict[str, Any]) -> State:
    state = State(config)
    for row in saved["members"]:
        state.roster.add(SpaceMember.load(row))
    state.roster.aliases = {member.id: member for member in state.roster if member.id != member.name}
    state.temporary_tokens = TemporaryTokens.load(saved.get("temporary_tokens", {}))
    for row in saved["sessions"]:
        member = state.roster.members[row["member"]]
        # Without a number: saved by 0.1.
        number = row.get("number", 0)
        options = msgspec.convert(row["options"], Options)
        rights = state.token_rights(options.token)
        session = Session(row["id"], member, row["dialect"], options, number, rights)
        session.closing_at = row["closing_at"]
        member.sessions[session.id] = session
        state.roster.sessions[session.id] = session
    state.grants = GrantTable.load(saved["grants"])
    state.streams = StreamTable.load(saved["streams"])
    state.ledger = ProposalLedger.load(saved["ledger"], config.limits.max_settled_proposals)
    state.window = IdWindow.load(saved["window"], config.limits.max_recent_ids)
    pinned = state.window.pinned
    for request in state.ledger.resume_executions(lambda name: pinned[name].owed if name in pinned else ()):
        state.window.pin(request, pinned[request])
    state.offer_owners = OfferOwners.load(saved.get("offer_owners", ()))
    state.journal_writable = saved["journal_able"]
    state.sessions_joined = saved.get("sessions_joined", 0)
    for when, what, key in saved["deadlines"]:
        state.deadlines.schedule(when, what, key)
    for member in state.roster:
        state.refresh(member)
    return state
