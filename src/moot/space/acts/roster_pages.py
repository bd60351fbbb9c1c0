"""`moot/roster`: everybody who is here and every open stream, in pages (decision 0068)."""

from __future__ import annotations

from moot.protocol.dialects.translation import show_capabilities
from moot.protocol.envelope import Envelope
from moot.space.acts import Act
from moot.space.effects import Effect, Mint, Reply, Result
from moot.space.id_window import SeenEnvelope
from moot.space.listing import describe_page, page_bytes
from moot.space.members import Session
from moot.space.state import State


def prepare_roster(state: State, session: Session, envelope: Envelope) -> Act:
    """Needs no capability: it tells no more than a welcome does that has room for everything."""
    page = describe_page(state, session, envelope.payload.get("after"))

    def execute(record: SeenEnvelope, now: float, mint: Mint) -> list[Effect]:
        # A question of a hundred bytes must not cost the gateway as many megabytes as somebody likes.
        session.member.send_limiter.charge(page_bytes(state, page), now, state.send_rate)
        if session.options.injected:
            return [Result(session.id, show_capabilities(page, "mew"))]
        ids = [envelope.id]
        notice = state.notice("moot/roster-page", page, now, mint, to=[session.member.id], correlation_id=ids)
        # Of this moment, and long: whoever asks often must not push others out of the history.
        return [Reply(session.id, notice, kept=False)]

    return Act(execute)
