"""What the verdict on a relayed envelope depends on, read off a space the slow and obvious way."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from moot.space.fast_path_record import fast_path_record
from moot.space.state import State

# Some kinds that a session may be allowed as a whole.
RELAYED: Final = ("chat", "chat/cancel", "reasoning/thought")


def verdicts(state: State, kinds: Iterable[str] = RELAYED) -> Any:
    """Equal before and after an input that leaves every verdict as it was."""
    everyone = state.audiences.everyone()
    sessions = {
        session.id: (
            session.member.id,
            session.rights.capabilities,
            session.member.pause,
            session.closing_at,
            [fast_path_record(state, session, kind) for kind in kinds],
        )
        for session in state.roster.sessions.values()
    }
    return everyone, state.audiences.uniform, state.config, state.send_rate, state.journal_writable, sessions
