"""Who of a member's connections says that something is not offered: the last of those that were asked.

A request reaches all connections of a member (D-22). One that does not have the tool says so at once, while
another may be running it. So "not offered here" waits for the others: it is passed on only when no other
connection that heard the request could still answer. Whatever else a connection says is the member's answer.

Nothing is kept back to be sent later. If the connection that did not say so leaves, nobody knows what it has
done (D-99), and the request ends as every request does that is not answered.
"""

from __future__ import annotations

from typing import Final

from moot.protocol.answer_marks import says_not_offered
from moot.protocol.envelope import Envelope
from moot.space.acts.requests import expects_answer
from moot.space.id_window import SeenEnvelope
from moot.space.members.member import Session
from moot.space.state import State

# By kind of what may say so: the kind that it is about.
ABOUT: Final = {"mcp/response": "mcp/request", "mcp/reject": "mcp/proposal"}


def is_late(state: State, session: Session, envelope: Envelope) -> bool:
    """Whether it says so after another connection has answered, for every request that it names.

    Asked before the check of rights: an answer that is no longer owed would need one. What an older version
    took is taken again when its journal is played.
    """
    if (
        state.replaying
        or envelope.kind != "mcp/response"
        or not says_not_offered(envelope.kind, envelope.payload)
    ):
        return False
    name = session.member.name
    known = [state.window.get(id) for id in envelope.correlation_id]
    return bool(known) and all(
        asked is not None
        and asked.kind == "mcp/request"
        and name in asked.to
        and not expects_answer(asked, name)
        for asked in known
    )


def is_left_to_others(state: State, session: Session, envelope: Envelope) -> bool:
    """Whether this is no answer of the member, since another of its connections has the word; notes it."""
    kind = envelope.kind
    if not session.options.answers or not says_not_offered(kind, envelope.payload):
        return False
    known = [state.window.get(id) for id in envelope.correlation_id]
    asked = [each for each in known if each is not None and _is_asked(session, each, ABOUT[kind])]
    if not asked or len(asked) < len(known) or not all(_others_may_answer(session, each) for each in asked):
        return False
    for each in asked:
        if _heard(session, each) and session.number not in each.not_offered:
            each.not_offered = (*each.not_offered, session.number)
    return True


def _is_asked(session: Session, asked: SeenEnvelope, kind: str) -> bool:
    return asked.kind == kind and (not asked.to or session.member.name in asked.to)


def _others_may_answer(session: Session, asked: SeenEnvelope) -> bool:
    return any(
        other is not session
        and other.options.answers
        and _heard(other, asked)
        and other.number not in asked.not_offered
        for other in session.member.sessions.values()
    )


def _heard(session: Session, asked: SeenEnvelope) -> bool:
    return session.number <= asked.sessions_joined
