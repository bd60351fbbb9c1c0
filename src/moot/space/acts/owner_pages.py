"""Asking the gateway whose a name is that several members offer (`moot/list-owners`).

The answer names, for each participant asked about, only what belongs to somebody else: mostly nothing.
It goes to the asking socket alone and counts against the bytes that the member may send, as for proposals.
"""

from __future__ import annotations

from typing import Final

from moot.errors import InvalidRequest
from moot.protocol import strict_json
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from moot.space import offer_owners
from moot.space.acts import Act
from moot.space.effects import Effect, Mint, Reply, Result
from moot.space.id_window import SeenEnvelope
from moot.space.members import Session
from moot.space.state import State

MAX_PARTICIPANTS: Final = 256


def prepare_owners(state: State, session: Session, envelope: Envelope) -> Act:
    """Needs no capability: everybody has seen the lists that it is about."""
    asked = envelope.payload.get("participants")
    if not isinstance(asked, list) or not all(isinstance(each, str) for each in asked):
        raise InvalidRequest("payload.participants is a list of ids of participants")
    if len(asked) > MAX_PARTICIPANTS:
        raise InvalidRequest(f"payload.participants names {MAX_PARTICIPANTS} at most")

    def execute(record: SeenEnvelope, now: float, mint: Mint) -> list[Effect]:
        page, size = _describe_page(state, asked)
        session.member.send_limiter.charge(size, now, state.send_rate)
        if session.options.injected:
            return [Result(session.id, page)]
        notice = state.notice(
            "moot/owners", page, now, mint, to=[session.member.id], correlation_id=[envelope.id]
        )
        return [Reply(session.id, notice, kept=False)]

    return Act(execute)


def _describe_page(state: State, asked: list[str]) -> tuple[dict[str, Json], int]:
    """As many of the participants as one page has room for, at least one; `next` has the others."""
    order = {name: place for place, name in enumerate(state.roster.members)}
    entries: list[Json] = []
    included: set[str] = set()
    size = 0
    for at, id in enumerate(asked):
        member = state.roster.resolve(id)
        if member is None or member.name in included:
            # Named again it would cost as much again, and tell nothing.
            continue
        included.add(member.name)
        taken = state.offer_owners.bind(member.name, order)
        if not taken:
            continue
        entry = {"participant": id, "taken": taken}
        length = len(strict_json.encode(entry))
        if entries and size + length > offer_owners.MAX_MEMBER_BYTES:
            return {"owners": entries, "next": asked[at:]}, size
        entries.append(entry)
        size += length
    return {"owners": entries}, size
