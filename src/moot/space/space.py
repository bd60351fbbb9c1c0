"""One space: everyone sees every message, nobody does what their capabilities don't allow.

`Space` is a synchronous state machine. Every input (join, leave, receive, frame, expire, and what
an operator does) carries the time and a mint of fresh ids, and returns effects in the order in which they
are to be carried out. The same inputs in the same order give the same state and the same effects,
so restart, audit and clustering are replay.

Where to read on: `ladder` is what happens to an envelope, `acts/` what the gateway itself executes,
`roster`, `grants`, `streams`, `proposals` and `window` are the tables, `state` holds them together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moot.errors import InvalidRequest, MalformedEnvelope, Refused, UnauthorizedStreamWrite, UsageError
from moot.protocol import payloads
from moot.protocol.close_codes import REPLACED, SHUT_DOWN
from moot.protocol.envelope import DialectName, Envelope
from moot.protocol.frames import Frame
from moot.protocol.kinds import UNKNOWN
from moot.space.acts import control, invites, proposals, streams
from moot.space.config import Name, SessionId, SpaceConfig
from moot.space.effects import Answer, Deliver, Disconnect, Effect, Mint
from moot.space.ladder import check_free_to_speak, climb
from moot.space.operator import Operator
from moot.space.roster import Member, Options, Session, logical_name
from moot.space.state import State


class Space(Operator):
    """One space. What an operator does to it (reload, admin, health) is in `Operator`."""

    def __init__(self, config: SpaceConfig) -> None:
        state = State(config)
        for name, participant in config.participants.items():
            member = Member(Name(name), participant.capabilities, exclusive=participant.exclusive)
            member.credentials = participant.credentials
            state.roster.add(member)
        for member in state.roster:
            state.refresh(member)
        super().__init__(state)

    @classmethod
    def restore(cls, config: SpaceConfig, saved: Mapping[str, Any]) -> Space:
        """The space as `save` left it, under the same configuration."""
        space = cls.__new__(cls)
        Operator.__init__(space, State.load(config, dict(saved)))
        return space

    # Coming and going

    def join(
        self,
        session_id: SessionId,
        name: str,
        dialect: DialectName,
        options: Options,
        now: float,
        mint: Mint,
    ) -> list[Effect]:
        """Let an authenticated participant in; raises Refused when it may not come in like this.

        Welcome first, then presence to all, the joiner included (D-02). Only the first session of a
        member is news (D-22).
        """
        state = self.state
        if dialect not in state.config.dialects:
            raise InvalidRequest(
                f"this space does not speak {dialect}; it speaks {', '.join(sorted(state.config.dialects))}"
            )
        member = self._guest(name) if options.anonymous else state.roster.find(name)
        was_present = member.present
        older = list(member.sessions.values()) if member.exclusive and not options.injected else []
        session = Session(session_id, member, dialect, options)
        if options.anonymous and member.name not in state.roster.members:
            state.roster.add(member)
            state.refresh(member)
        state.roster.enter(session, most=state.limits.sessions_per_member)
        state.membership_changed()
        if options.injected:
            return []
        effects: list[Effect] = []
        for other in older:
            state.roster.exit(other)
            effects.append(Disconnect(other.id, REPLACED, "a newer connection of this participant took over"))
        member.shut_down = None
        streams.owner_returned(state, member.name)
        effects += state.welcome(member, [session_id], now, mint)
        if not was_present:
            news = payloads.presence("join", state.shown(member))
            hearing = tuple(id for id in state.everyone() if options.echo or id != session_id)
            effects.append(Deliver(hearing, state.notice("system/presence", news, now, mint)))
        return effects

    def _guest(self, name: str) -> Member:
        state = self.state
        if state.config.anonymous is None:
            raise InvalidRequest("this space takes no guests: a token is needed")
        known = state.roster.resolve(name)
        if known is not None:
            raise InvalidRequest(f"{name!r} is taken")
        member = Member(logical_name(name), state.config.anonymous)
        member.anonymous = True
        return member

    def leave(self, session_id: SessionId, now: float, mint: Mint) -> list[Effect]:
        """A connection ended. Unknown sessions are no news: the space may have ended it itself."""
        state = self.state
        session = state.roster.sessions.get(session_id)
        if session is None:
            return []
        return self._depart(session, now, mint)

    def _depart(self, session: Session, now: float, mint: Mint) -> list[Effect]:
        state, member = self.state, session.member
        was_present = member.present
        state.roster.exit(session)
        state.membership_changed()
        effects: list[Effect] = []
        if was_present and not member.present:
            effects += self._last_left(member, now, mint)
        state.roster.release(member)
        state.membership_changed()
        return effects

    def _last_left(self, member: Member, now: float, mint: Mint) -> list[Effect]:
        state = self.state
        gone = payloads.presence("leave", payloads.member(member.id, name=member.name))
        effects: list[Effect] = []
        # Writers lose their streams before the leave is told, so that nobody sees a writer who is gone.
        if member.anonymous:
            effects += self._forget_guest(member, now, mint)
        else:
            if member.shut_down is not None:
                # D-39: whoever was shut down is not waited for.
                effects += streams.close_streams_of(state, member.name, "owner_shut_down", now, mint)
            effects += streams.drop_writer(state, member, "disconnected", now, mint)
            streams.owner_left(state, member.name, now)
        effects.append(state.announce("system/presence", gone, now, mint))
        return effects

    def _forget_guest(self, member: Member, now: float, mint: Mint) -> list[Effect]:
        """D-17: a guest's rights end with its connection."""
        state = self.state
        effects: list[Effect] = [
            effect
            for effect in invites.remove_member(state, member, "left", now, mint)
            if isinstance(effect, Deliver | Answer)
        ]
        state.roster.remove(member)
        return effects

    # Speaking

    def receive(self, session_id: SessionId, envelope: Envelope, now: float, mint: Mint) -> list[Effect]:
        """One envelope from one session, up the ladder. Never raises Refused: the answer is an effect."""
        session = self.state.roster.sessions.get(session_id)
        if session is None:
            raise UsageError(f"session {session_id} has not joined")
        return climb(self.state, session, envelope, now, mint)

    def refuse(self, session_id: SessionId, refusal: Refused, now: float, mint: Mint) -> list[Effect]:
        """Answer for what never became an envelope: malformed bytes (step 1), a frame out of shape."""
        session = self.state.roster.sessions.get(session_id)
        if session is None:
            return []
        about = refusal.about if isinstance(refusal, MalformedEnvelope) else None
        kind = refusal.kind if isinstance(refusal, MalformedEnvelope) else None
        payload = payloads.error(refusal, attempted_kind=kind)
        ids = [about] if about else []
        notice = self.state.notice(
            "system/error", payload, now, mint, to=[session.member.id], correlation_id=ids
        )
        return [Answer(session_id, notice)]

    # Frames (MEW 3.10.3): they read the state and never change it.

    def frame(self, session_id: SessionId, frame: Frame, now: float, mint: Mint) -> list[Effect]:
        """One stream frame from one session: to its targets, or to everybody (D-36)."""
        state = self.state
        session = state.roster.sessions.get(session_id)
        if session is None:
            raise UsageError(f"session {session_id} has not joined")
        member = session.member
        try:
            member.throttle.check_rate(len(frame.raw), now, state.pace)
            if not session.takes_frames:
                raise InvalidRequest("this connection takes no stream frames: connect with streams=1")
            if member.pause is not None or session.closing_at is not None:
                check_free_to_speak(state, session, UNKNOWN, now)
            stream = state.streams.find(frame.stream_id)
            if member.name not in stream.writers:
                raise UnauthorizedStreamWrite(
                    f"{member.id} may not write to {stream.id}: ask its owner for stream/grant-write",
                    stream_id=stream.id,
                )
        except Refused as refusal:
            return self.refuse(session_id, refusal, now, mint)
        if stream.target is None:
            heard = (state.roster.sessions[id] for id in state.everyone())
        else:
            members = (state.roster.members.get(name) for name in stream.target)
            heard = (
                s for m in members if m is not None for s in m.sessions.values() if not s.options.injected
            )
        sessions = tuple(s.id for s in heard if s.takes_frames and (s is not session or s.options.echo))
        return [Deliver(sessions, frame)]

    # Time

    def next_deadline(self) -> float | None:
        """When `expire` should next be called, if nothing else happens."""
        return self.state.next_deadline()

    def expire(self, now: float, mint: Mint) -> list[Effect]:
        """Let time act: requests and proposals lapse, pauses end, shut-down sessions close, orphans go."""
        state = self.state
        effects: list[Effect] = []
        for what, key in state.due(now):
            if what == "request":
                state.settle(key)
            elif what == "proposal":
                proposals.expire_proposal(state, key, now)
            elif what == "pause":
                member = state.roster.members.get(Name(key))
                if member is not None and member.pause is not None and member.pause_is_over(now):
                    control.lift_pause(state, member)
            elif what == "shutdown":
                session = state.roster.sessions.get(SessionId(key))
                if session is not None and session.closing_at is not None and session.closing_at <= now:
                    effects.append(Disconnect(session.id, SHUT_DOWN, "shut down on request"))
                    effects += self._depart(session, now, mint)
            else:
                stream = state.streams.open.get(key)
                if stream is not None and stream.closes_at is not None and stream.closes_at <= now:
                    effects += streams.close_by_gateway(state, stream, "owner_disconnected", now, mint)
        return effects
