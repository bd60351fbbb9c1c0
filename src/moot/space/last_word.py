"""Who of a member's connections says that something is not offered: the last of those that were asked.

A request reaches all connections of a member (D-22). One that does not have the tool says so at once, while
another may be running it. So "not offered here" waits for the others: it is passed on only when no other
connection that heard the request could still answer. Whatever else a connection says is the member's answer.

Nothing is kept back to be sent later. If the connection that did not say so leaves, nobody knows what it has
done (D-99), and the request ends as every request does that is not answered.
"""

from __future__ import annotations

from typing import Final

from moot.protocol.envelope import Envelope
from moot.protocol.not_offered import says_not_offered
from moot.space.acts.requests import expects_answer
from moot.space.id_window import SeenEnvelope
from moot.space.roster import Session
from moot.space.state import State

# By kind of what may say so: the kind that it is about.
ABOUT: Final = {"mcp/response": "mcp/request", "mcp/reject": "mcp/proposal"}


def is_left_to_others(state: State, session: Session, envelope: Envelope) -> bool:
    """Whether this is no answer of the member, since another of its connections has the word; notes it."""
    kind = envelope.kind
    if not session.options.answers or not says_not_offered(kind, envelope.payload):
        return False
    name, left = session.member.name, False
    for id in envelope.correlation_id:
        asked = state.window.get(id)
        if asked is None or asked.kind != ABOUT[kind] or (asked.to and name not in asked.to):
            continue
        if kind == "mcp/response" and not expects_answer(asked, name):
            # Another connection was faster: nobody has to be told of a refusal.
            left = True
        elif _others_may_answer(session, asked):
            left = True
            if _heard(session, asked) and session.number not in asked.not_offered:
                asked.not_offered = (*asked.not_offered, session.number)
    return left


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
