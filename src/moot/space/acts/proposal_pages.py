"""Asking the gateway what is open, and what became of a proposal (`moot/list-proposals`, D-96).

The answer goes to the asking socket alone. It counts against the bytes that the member may send, so that a
short question, asked often, does not make the gateway write more than it reads.
"""

from __future__ import annotations

from typing import Final

from moot.errors import InvalidRequest
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Payload
from moot.space.acts import Act
from moot.space.effects import Effect, Mint, Reply, Result
from moot.space.id_window import SeenEnvelope
from moot.space.members import Session
from moot.space.proposal_listing import ProposalReader, find_proposals, list_proposals
from moot.space.state import State

MAX_IDS: Final = 256


def prepare_list(state: State, session: Session, envelope: Envelope) -> Act:
    after, ids = _read_question(envelope.payload)
    member = session.member
    reader = ProposalReader(member, session.dialect, session.directed)

    def execute(record: SeenEnvelope, now: float, mint: Mint) -> list[Effect]:
        if state.replaying:
            return []
        if ids is None:
            page = list_proposals(state, reader, after=after, now=now)
        else:
            page = find_proposals(state, reader, ids, now=now)
        member.send_limiter.charge(page.size, now, state.send_rate)
        if session.options.injected:
            return [Result(session.id, page.payload)]
        notice = state.notice(
            "moot/proposals", page.payload, now, mint, to=[member.id], correlation_id=[envelope.id]
        )
        return [Reply(session.id, notice, kept=False)]

    return Act(execute)


def _read_question(payload: Payload) -> tuple[int, list[str] | None]:
    unknown = set(payload) - {"after", "ids"}
    if unknown:
        raise InvalidRequest(f"unknown: {', '.join(sorted(unknown))}; give after, or ids, or neither")
    after, ids = payload.get("after", 0), payload.get("ids")
    if not isinstance(after, int) or isinstance(after, bool) or after < 0:
        raise InvalidRequest("payload.after is the number that `next` said before")
    if ids is None:
        return after, None
    if not isinstance(ids, list) or not all(isinstance(id, str) for id in ids):
        raise InvalidRequest("payload.ids is a list of ids of proposals")
    if len(ids) > MAX_IDS:
        raise InvalidRequest(f"payload.ids names {MAX_IDS} proposals at most")
    return after, ids
