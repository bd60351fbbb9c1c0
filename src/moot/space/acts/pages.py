"""What a member asks the gateway about its space. Answers are pages, told to the asking socket alone.

    moot/roster           everybody who is here and every open stream (decision 0068)
    moot/list-owners      whose a name is that several members offer: for each participant asked about, only
                          what belongs to somebody else, which is mostly nothing
    moot/list-proposals   what is open, and what became of a proposal (D-96)

A page counts against the bytes that the member may send, so that a short question, asked often, does not make
the gateway write more than it reads.
"""

from __future__ import annotations

from typing import Final

from moot.errors import InvalidRequest
from moot.protocol import strict_json
from moot.protocol.dialects.translation import show_capabilities
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json, Payload
from moot.space.acts import Act, read_texts
from moot.space.acts.proposal_listing import ProposalReader, find_proposals, list_proposals
from moot.space.effects import Effect, Mint, Reply, Result
from moot.space.id_window import SeenEnvelope
from moot.space.members.listing import describe_page, page_bytes
from moot.space.members.member import Session
from moot.space.proposals import offer_owners
from moot.space.state import State

# Of one question.
MAX_PARTICIPANTS: Final = 256
MAX_IDS: Final = 256


def prepare_roster(state: State, session: Session, envelope: Envelope) -> Act:
    """Needs no capability: it tells no more than a welcome does that has room for everything."""
    page = describe_page(state, session, envelope.payload.get("after"))

    def execute(record: SeenEnvelope, now: float, mint: Mint) -> list[Effect]:
        told = show_capabilities(page, "mew") if session.options.injected else page
        size = page_bytes(state, page)
        return _tell(state, session, envelope, "moot/roster-page", told, size=size, now=now, mint=mint)

    return Act(execute)


def prepare_owners(state: State, session: Session, envelope: Envelope) -> Act:
    """Needs no capability: everybody has seen the lists that it is about."""
    asked = read_texts(envelope.payload.get("participants"))
    if asked is None:
        raise InvalidRequest("payload.participants is a list of ids of participants")
    if len(asked) > MAX_PARTICIPANTS:
        raise InvalidRequest(f"payload.participants names {MAX_PARTICIPANTS} at most")

    def execute(record: SeenEnvelope, now: float, mint: Mint) -> list[Effect]:
        page, size = _describe_owners(state, asked)
        return _tell(state, session, envelope, "moot/owners", page, size=size, now=now, mint=mint)

    return Act(execute)


def prepare_proposals(state: State, session: Session, envelope: Envelope) -> Act:
    after, ids = _read_question(envelope.payload)
    reader = ProposalReader(session.member, session.dialect, session.directed)

    def execute(record: SeenEnvelope, now: float, mint: Mint) -> list[Effect]:
        if state.replaying:
            return []
        if ids is None:
            page = list_proposals(state, reader, after=after, now=now)
        else:
            page = find_proposals(state, reader, ids, now=now)
        told, size = page.payload, page.size
        return _tell(state, session, envelope, "moot/proposals", told, size=size, now=now, mint=mint)

    return Act(execute)


def _tell(
    state: State,
    session: Session,
    envelope: Envelope,
    kind: str,
    page: dict[str, Json],
    *,
    size: int,
    now: float,
    mint: Mint,
) -> list[Effect]:
    session.member.send_limiter.charge(size, now, state.send_rate)
    if session.options.injected:
        return [Result(session.id, page)]
    notice = state.notice(kind, page, now, mint, to=[session.member.id], correlation_id=[envelope.id])
    # Of this moment, and long: whoever asks often must not push others out of the history.
    return [Reply(session.id, notice, kept=False)]


def _describe_owners(state: State, asked: list[str]) -> tuple[dict[str, Json], int]:
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
