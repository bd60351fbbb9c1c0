"""The welcomes of the gateway: on joining, and whenever the rights of a member change (MEW 3.8.1)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from moot.space.config import SessionId
from moot.space.effects import Effect, Mint, Reply
from moot.space.members.listing import describe_welcome
from moot.space.members.member import SpaceMember

if TYPE_CHECKING:
    from moot.space.state import State


def welcome(
    state: State, member: SpaceMember, sessions: Iterable[SessionId], now: float, mint: Mint
) -> list[Effect]:
    """MEW 3.8.1, to some of a member's sessions: on joining, and whenever its rights change."""
    effects: list[Effect] = []
    for session in sessions:
        payload = describe_welcome(state, state.roster.sessions[session])
        effects.append(Reply(session, state.notice("system/welcome", payload, now, mint, to=[member.id])))
    return effects


def welcome_again(state: State, members: Iterable[SpaceMember], now: float, mint: Mint) -> list[Effect]:
    """D-88: an updated welcome goes to all sockets of each member."""
    effects: list[Effect] = []
    for member in members:
        effects += welcome(state, member, state.sessions_of([member]), now, mint)
    return effects
