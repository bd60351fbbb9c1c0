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
from moot.protocol.close_codes import SHUT_DOWN
from moot.protocol.envelope import DialectName, Envelope
from moot.protocol.frames import Frame
from moot.protocol.kinds import UNKNOWN
from moot.space import membership
from moot.space.acts import control, proposals, streams
from moot.space.config import Name, SessionId, SpaceConfig
from moot.space.effects import Deliver, Disconnect, Effect, Mint, Reply
from moot.space.ladder import check_free_to_speak, process_envelope
from moot.space.operator import Operator
from moot.space.roster import Options, SpaceMember
from moot.space.state import State


class Space(Operator):
    """One space. What an operator does to it (reload, admin, health) is in `Operator`."""

    def __init__(self, config: SpaceConfig) -> None:
        state = State(config)
        for name, participant in config.participants.items():
            member = SpaceMember(Name(name), participant.capabilities, exclusive=participant.exclusive)
            member.configured = participant
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
        """Let an authenticated participant in; raises Refused when it may not come in like this."""
        return membership.join(self.state, session_id, name, dialect, options, now, mint)

    def leave(self, session_id: SessionId, now: float, mint: Mint) -> list[Effect]:
        """A connection ended. Unknown sessions are no news: the space may have ended it itself."""
        return membership.leave(self.state, session_id, now, mint)

    # Speaking

    def receive(self, session_id: SessionId, envelope: Envelope, now: float, mint: Mint) -> list[Effect]:
        """One envelope from one session, up the ladder. Never raises Refused: the answer is an effect."""
        session = self.state.roster.sessions.get(session_id)
        if session is None:
            raise UsageError(f"session {session_id} has not joined")
        return process_envelope(self.state, session, envelope, now, mint)

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
        return [Reply(session_id, notice)]

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
                    effects += membership.depart(state, session, now, mint)
            else:
                stream = state.streams.open.get(key)
                if stream is not None and stream.closes_at is not None and stream.closes_at <= now:
                    effects += streams.close_by_gateway(state, stream, "owner_disconnected", now, mint)
        return effects
