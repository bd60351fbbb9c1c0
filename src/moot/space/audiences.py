"""Who receives a message: everybody, but for what a connection asked not to hear (D-01, D-02, D-54)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moot.protocol.envelope import Envelope
from moot.protocol.kinds import KINDS
from moot.space.config import SessionId
from moot.space.members.member import Session, SpaceMember

if TYPE_CHECKING:
    from moot.space.state import State

# What passes between others. A connection that hears only what is its own gets these where they concern it.
# Not what cancels them: that names neither who was addressed nor, for a sequence, whose it is.
_REASONING: Final = frozenset({"reasoning/start", "reasoning/thought", "reasoning/conclusion"})
_TRAFFIC: Final = frozenset({"mcp/request", "mcp/response", "chat", "chat/acknowledge"}) | _REASONING


class Audiences:
    """The audiences of one space. The same object each time, so that delivery can look it up by identity."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._all_but: dict[SessionId, tuple[SessionId, ...]] = {}
        self.forget()

    def forget(self) -> None:
        """Call after any session came or went."""
        self._everyone: tuple[SessionId, ...] | None = None
        # Everyone, while everyone receives whatever others send; None while that depends on the envelope.
        self.uniform: tuple[SessionId, ...] | None = None
        # Those who hear all, and the others; and whether that alone makes a difference.
        self._hearing_all: tuple[SessionId, ...] = ()
        self._hearing_mine: tuple[SessionId, ...] = ()
        self._differs_by_hearing = False
        self._all_but.clear()

    def add(self, session: Session) -> None:
        """As `forget`, after this session came. Of thousands that hear only their own, none is looked at."""
        if not self._stays_known(session):
            self.forget()
        elif not session.options.injected:
            self._differs_by_hearing = self._is_alike and self._is_uniform([session])
            self.uniform = None
            self._everyone = (*self.everyone(), session.id)
            self._hearing_mine = (*self._hearing_mine, session.id)
            self._all_but.clear()

    def remove(self, session: Session) -> None:
        """As `forget`, after this session went."""
        if not self._stays_known(session):
            self.forget()
        elif session.options.injected:
            self._all_but.pop(session.id, None)
        elif not self._differs_by_hearing or len(self._hearing_mine) == 1:
            # Perhaps it was the one that made the difference.
            self.forget()
        else:
            self._everyone = _without(self.everyone(), session.id)
            self._hearing_mine = _without(self._hearing_mine, session.id)
            self._all_but.clear()

    def _stays_known(self, session: Session) -> bool:
        """Whether what is known holds for all but this session. An alias may change it for all."""
        is_alone = session.options.injected or session.hears_mine
        return is_alone and self._everyone is not None and session.member.id == session.member.name

    @property
    def _is_alike(self) -> bool:
        """Whether nothing but hearing makes a difference between sessions."""
        return self.uniform is not None or self._differs_by_hearing

    def everyone(self) -> tuple[SessionId, ...]:
        """All sessions that receive messages, in the order in which they joined."""
        if self._everyone is None:
            sessions = self._state.roster.sessions.values()
            listening = [session for session in sessions if not session.options.injected]
            self._everyone = self._hearing_all = tuple(session.id for session in listening)
            self._hearing_mine = tuple(session.id for session in listening if session.hears_mine)
            if self._hearing_mine:
                self._hearing_all = tuple(session.id for session in listening if not session.hears_mine)
            is_uniform = self._is_uniform(listening)
            self.uniform = self._everyone if is_uniform and not self._hearing_mine else None
            self._differs_by_hearing = is_uniform and bool(self._hearing_mine)
        return self._everyone

    def hearing_all(self) -> tuple[SessionId, ...]:
        """Those who hear what passes between others."""
        self.everyone()
        return self._hearing_all

    def hearing_mine(self) -> tuple[SessionId, ...]:
        """Those who do not."""
        self.everyone()
        return self._hearing_mine

    def heard_members(self) -> list[SpaceMember]:
        """Who is here, as those are told who hear only their own."""
        sessions = self._state.roster.sessions
        return list(dict.fromkeys(sessions[id].member for id in self.hearing_all()))

    def _is_uniform(self, listening: list[Session]) -> bool:
        config = self._state.config
        return (
            not self._state.roster.aliases
            and config.ack_delivery == config.status_delivery == "all"
            and not any(session.directed for session in listening)
            and (config.unmapped == "pass" or all(session.dialect == "mew" for session in listening))
        )

    def all_but(self, origin: Session) -> tuple[SessionId, ...]:
        """Everyone else."""
        found = self._all_but.get(origin.id)
        if found is None:
            found = self._all_but[origin.id] = tuple(id for id in self.everyone() if id != origin.id)
        return found

    def of(
        self, envelope: Envelope, origin: Session, *, translated: bool = True, proposer: str | None = None
    ) -> tuple[SessionId, ...]:
        """D-01: everybody, except sessions that asked not to get it or whose dialect has no word for it.

        A response is for its `proposer` too, in the dialects that address it so (D-30).
        """
        if self.uniform is None:
            self.everyone()
        if self.uniform is not None and translated:
            hears_itself = origin.hears_itself or origin.receives_own(envelope)
            return self.uniform if hears_itself else self.all_but(origin)
        concerned = self._concerned(envelope, origin, proposer) if self._hearing_mine else None
        if concerned is not None and self._differs_by_hearing and translated:
            # A thousand that hear only their own cost nothing here.
            hearing = self._hearing_all
            if not origin.hears_mine and not origin.receives_own(envelope):
                hearing = tuple(id for id in hearing if id != origin.id)
            return (*hearing, *concerned) if concerned else hearing
        withheld = self._is_withheld(envelope.kind)
        addressed = {*envelope.to, proposer} if envelope.to else None
        audience = []
        for id in self.everyone():
            session = self._state.roster.sessions[id]
            if session is origin and not session.receives_own(envelope):
                continue
            if session.directed and addressed is not None and session.member.id not in addressed:
                continue
            if concerned is not None and session.hears_mine and id not in concerned:
                continue
            if session.dialect != envelope.dialect and (
                not translated or (withheld and session.dialect != "mew")
            ):
                continue
            audience.append(id)
        return tuple(audience)

    def _concerned(
        self, envelope: Envelope, origin: Session, proposer: str | None
    ) -> tuple[SessionId, ...] | None:
        """Whom of those that hear only their own it concerns; None: all of them, as proposals do."""
        state, kind = self._state, envelope.kind
        about = envelope.correlation_id
        if kind not in _TRAFFIC or proposer is not None or (about and state.ledger.knows_any(about)):
            return None
        if kind == "mcp/request" and not envelope.to:
            return None
        members = {member.name: member for name in envelope.to if (member := state.roster.resolve(name))}
        # Of a sequence only its start says what it is about: half of it would be worse than nothing.
        for id in () if kind in _REASONING else about:
            record = state.window.get(id)
            # What a host reports on a call that was proposed is for the proposer too.
            for name in () if record is None else (record.author, record.proposer):
                if name is not None and (member := state.roster.members.get(name)):
                    members[member.name] = member
        members[origin.member.name] = origin.member
        return tuple(
            session.id
            for member in members.values()
            for session in member.sessions.values()
            if session.hears_mine
            and not session.options.injected
            and (session is not origin or session.receives_own(envelope))
        )

    def of_notice(self, kind: str) -> tuple[SessionId, ...]:
        """Everybody who has a word for a notice of the gateway."""
        audience = self.everyone()
        if not self._is_withheld(kind):
            return audience
        sessions = self._state.roster.sessions
        return tuple(id for id in audience if sessions[id].dialect == "mew")

    def _is_withheld(self, kind: str) -> bool:
        """D-56: whether members of the legacy dialects do not get this kind."""
        row = KINDS.get(kind)
        return self._state.config.unmapped == "drop" and (row is None or row.bridging == "passed")


def _without(ids: tuple[SessionId, ...], id: SessionId) -> tuple[SessionId, ...]:
    at = ids.index(id)
    return ids[:at] + ids[at + 1 :]
