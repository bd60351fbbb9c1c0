"""A space host in a cluster: what members and operators do is checked at the edge, appended to the log, and
performed by every gateway when the log brings it.

    socket ─▶ receive: form, rate, size ─▶ log          the log ─▶ perform: the ladder, journal, delivery

Refusals that need the space's state are decided when the input is performed, by every gateway alike; only the
one that holds the connection answers.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from moot.errors import (
    MalformedEnvelope,
    OutcomeUnknown,
    RateLimited,
    Refused,
    Unavailable,
    UsageError,
)
from moot.gateway.cluster.clustered_space import ClusteredSpace, InputLog, SeededMint, settle, wait_applied
from moot.gateway.cluster.nats.batch import LoggedInput
from moot.gateway.hosting.journaled_space import CarriedOut
from moot.gateway.hosting.message_refusals import space_member
from moot.gateway.hosting.mint import FreshMint
from moot.gateway.hosting.own_connections import invite_ack, tell_own_connections
from moot.gateway.hosting.refusal_log import RefusalLimits
from moot.gateway.hosting.space_host import SpaceHost, StartedPost
from moot.gateway.hosting.space_records import RecordEncoder, apply_act
from moot.gateway.hosting.stored_input import StoredInput
from moot.protocol import strict_json
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import DialectName
from moot.protocol.frames import Frame, read_frame
from moot.protocol.operation import Json
from moot.space.config import Name, SessionId
from moot.space.config_json import load_config
from moot.space.effects import Deliver, Effect, Reply, Token
from moot.space.members import Options
from moot.space.send_rate import SendRate, SendRateLimiter

log = logging.getLogger(__name__)

_HASH: Final = ord("#")
# No participant can have a space in its name.
_ALL_GUESTS: Final = "all guests"


class SharedInput(StoredInput):
    """An input as the log has it: a record of the journal before it was applied."""

    space: str = ""


_decoder = msgspec.json.Decoder(SharedInput)


def read_shared_input(head: bytes) -> SharedInput:
    try:
        return _decoder.decode(head)
    except msgspec.MsgspecError as fault:
        raise UsageError(f"an input of the log that no gateway wrote: {fault}") from None


def encode_shared_input(space: str, input: str, facts: dict[str, Json]) -> bytes:
    return strict_json.encode({"space": space, "t": 0, "in": input} | facts)


class ClusterEdge(InputLog, Protocol):
    """What a host asks of its gateway's place in the cluster."""

    def submit_raw(
        self,
        space: str,
        input: str,
        facts: dict[str, Json],
        raw: bytes,
        on_done: Callable[[object], None] | None,
        secret: Token | None = None,
    ) -> None:
        """`submit` with the bytes of an envelope, and with a fresh token that only this gateway knows."""
        ...

    def check_available(self, space: str) -> None:
        """Raises Unavailable while the log cannot be reached."""
        ...

    def check_current(self, space: str) -> None:
        """Raises Unavailable while what is known of the space here may be old."""
        ...

    def new_session(self) -> str: ...

    def send_frame(self, space: str, session: str, frame: Frame) -> None:
        """To the gateways of other members. Raises Unavailable while this one may be cut off."""
        ...

    def check_frames(self, space: str) -> None:
        """Raises Unavailable while this gateway may be cut off."""
        ...


class ClusteredHost(SpaceHost):
    """Runs one space that other gateways run, too."""

    journaled: ClusteredSpace

    def __init__(
        self,
        journaled: ClusteredSpace,
        edge: ClusterEdge,
        *,
        errors_per_second: float,
        refusal_limits: RefusalLimits = RefusalLimits(),  # noqa: B008  # frozen
    ) -> None:
        super().__init__(journaled, errors_per_second=errors_per_second, refusal_limits=refusal_limits)
        self._edge = edge
        self._limiters: dict[str, SendRateLimiter] = {}
        for session in self.space.state.roster.sessions.values():
            # They joined before the snapshot from which this gateway began.
            self._connected_at[session.id] = journaled.clock()
            self._encoders[session.id] = RecordEncoder(session.id, session.member.name, session.dialect)
        self.delivery.find_member = lambda session: space_member(self.space, session) or None

    @property
    def tells_outside(self) -> bool:
        return self._edge.is_first

    # At the edge

    def new_session(self) -> SessionId:
        return SessionId(self._edge.new_session())

    def join(
        self,
        session: SessionId,
        who: str,
        dialect: DialectName,
        options: Options,
        attach: Callable[[], None],
        reject: Callable[[Refused], None],
    ) -> None:
        attached = False

        def done(outcome: object) -> None:
            if isinstance(outcome, Refused):
                if attached:
                    self.delivery.detach(session)
                reject(outcome)
            elif self.space.state.config.access == "restricted":
                # A reload may have come before it in the log, and excluded them.
                asyncio.get_running_loop().call_soon(self._end_excluded)

        # Whether its token is valid is decided in the log's order: a sign-in may be on its way there.
        facts: dict[str, Json] = {"session": session, "who": who, "dialect": dialect}
        facts["options"] = msgspec.to_builtins(options)
        try:
            self._edge.submit(self.name, "join", facts, done)
        except Refused as refusal:
            reject(refusal)
            return
        # What it sends from now on comes behind its join in the log.
        attach()
        attached = True

    def leave(self, session: SessionId) -> None:
        self.delivery.detach(session)
        # Queued even while the log cannot be reached: the others drop the session by themselves later.
        self._edge.submit(self.name, "leave", {"session": session}, None)

    def receive(self, session: SessionId, dialect: DialectName, data: bytes, binary: bool) -> None:
        if data and data[0] == _HASH:
            self._frame(session, data, binary, self.journaled.clock())
            return
        line = self.delivery.sessions.get(session)
        if line is None:
            return
        secret: Token | None = None
        about: tuple[str | None, str | None] = (None, None)
        try:
            self._check_rate(line.member, len(data))
            config = self.space.state.config
            envelope = DIALECTS[dialect].decode(
                data, config.limits.envelope, accept_protocols=config.accept_protocols
            )
            about = envelope.id or None, envelope.kind
            if envelope.kind == "space/invite":
                secret = FreshMint().token()
        except RateLimited as refusal:
            self._received += 1
            self.refusals.answer_undecoded(session, refusal, data)
            return
        except MalformedEnvelope as refusal:
            # One that has not joined yet is answered when it has.
            if session in self.space.state.roster.sessions or len(data) > config.limits.envelope.max_bytes:
                self.refusals.answer(session, refusal, len(data))
                return

        def done(outcome: object) -> None:
            if isinstance(outcome, Refused):
                outcome.about, outcome.kind = about
                self.refusals.answer(session, outcome, len(data))

        try:
            self._edge.submit_raw(self.name, "receive", {"session": session}, data, done, secret)
        except Unavailable as refusal:
            done(refusal)

    async def post(self, who: str, dialect: DialectName, body: bytes, options: Options) -> CarriedOut | Reply:
        config = self.space.state.config
        self._check_rate(who, len(body))
        self._welcome_output_log(who)
        envelope = DIALECTS[dialect].decode(
            body, config.limits.envelope, accept_protocols=config.accept_protocols
        )
        facts: dict[str, Json] = {"session": self.new_session(), "who": who, "dialect": dialect}
        facts["options"] = msgspec.to_builtins(options)
        done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        secret = FreshMint().token() if envelope.kind == "space/invite" else None
        self._edge.submit_raw(self.name, "post", facts, body, lambda outcome: settle(done, outcome), secret)
        try:
            outcome = await wait_applied(done, object)
        except OutcomeUnknown as unknown:
            unknown.details["id"] = envelope.id
            raise
        if isinstance(outcome, Reply):
            return outcome
        if not isinstance(outcome, StartedPost):
            raise TypeError(f"a post came to {outcome!r}")
        carried = outcome.done.result()
        if outcome.kind == "space/invite" and carried.results:
            ack = invite_ack(carried.results[0].fields, who, outcome.id)
            tell_own_connections(self.space, self.delivery, who, ack)
        return carried

    def check_journal(self) -> None:
        """The log keeps what happens. Raises Unavailable while it cannot be reached."""
        if not self.journaled.is_performing:
            self._edge.check_available(self.name)

    def check_current(self) -> None:
        self._edge.check_current(self.name)

    def check_rate_ahead(self, who: str, data: bytes) -> None:  # noqa: ARG002  # all sizes count here
        limiter = self._limiters.get(self._rated_as(who))
        if limiter is not None and not self.journaled.is_performing:
            limiter.check_rate_ahead(asyncio.get_running_loop().time(), self._rate)

    @property
    def _rate(self) -> SendRate:
        return SendRate.of(self.space.state.limits)

    def _check_rate(self, who: str, size: int) -> None:
        """Step 2 of the ladder, for what this gateway receives."""
        rated = self._rated_as(who)
        limiter = self._limiters.get(rated)
        if limiter is None:
            members = self.space.state.roster.members
            if len(self._limiters) > 2 * len(members) + 64:
                kept = {*members, _ALL_GUESTS}
                self._limiters = {name: each for name, each in self._limiters.items() if name in kept}
            limiter = self._limiters[rated] = SendRateLimiter()
        limiter.check_rate(size, asyncio.get_running_loop().time(), self._rate)

    def _rated_as(self, who: str) -> str:
        """Guests share a rate, as in a space without a cluster."""
        member = self.space.state.roster.members.get(Name(who))
        return _ALL_GUESTS if member is not None and member.anonymous else who

    # Frames

    def _frame(self, session: SessionId, data: bytes, binary: bool, now: float) -> None:
        line = self.delivery.sessions.get(session)
        if line is None or session not in self.space.state.roster.sessions:
            return
        try:
            frame = read_frame(data, binary=binary, max_bytes=self.space.state.limits.max_frame_bytes)
        except MalformedEnvelope as refusal:
            self.refusals.answer(session, refusal, len(data))
            return
        try:
            self._check_rate(line.member, len(data))
            self._edge.check_frames(self.name)
        except Refused as refusal:
            if self.stream_error_replies.allows((session, frame.stream_id), now):
                refusal.details.setdefault("stream_id", frame.stream_id)
                self.refusals.answer(session, refusal, len(data))
            return
        effects = self.space.frame(session, frame, now, self.journaled.next_mint())
        if not (effects and isinstance(effects[0], Deliver)):
            if self.stream_error_replies.allows((session, frame.stream_id), now):
                self.delivery.carry_out(effects, now)
            return
        self.delivery.carry_out(effects, now)
        if any(each not in self.delivery.sessions for each in effects[0].sessions):
            self._edge.send_frame(self.name, session, frame)

    def take_frame(self, session: SessionId, data: bytes, binary: bool) -> None:
        """A frame that another gateway received. Its writer's rights are looked at here, too."""
        if session not in self.space.state.roster.sessions:
            return
        try:
            frame = read_frame(data, binary=binary, max_bytes=self.space.state.limits.max_frame_bytes)
        except MalformedEnvelope:
            return
        now = self.journaled.clock()
        effects = self.space.frame(session, frame, now, self.journaled.next_mint())
        self.delivery.carry_out([each for each in effects if isinstance(each, Deliver)], now)

    # From the log

    def perform(self, stored: SharedInput, input: LoggedInput, seed: bytes, secret: Token | None) -> object:
        """Apply one input of the log; returns what came of it, for whoever waits on this gateway."""
        given = [Token(each) for each in stored.tokens]
        if secret is not None and given and given[0].hash == secret.hash:
            given[0] = secret
        session = SessionId(stored.session)
        with self.journaled.performing(SeededMint(seed, given)):
            try:
                match stored.input:
                    case "join":
                        self._join(session, stored.who, stored.dialect, stored.options, _nothing)
                    case "leave":
                        super().leave(session)
                    case "receive":
                        known = self.space.state.roster.sessions.get(session)
                        if known is not None:
                            super().receive(session, known.dialect, input.raw, False)
                    case "post":
                        return self._start_post(
                            session, stored.who, stored.dialect, input.raw, stored.options
                        )
                    case _:
                        return self._perform_act(stored, input.head)
            except Refused as refusal:
                return refusal
        return None

    def perform_expiry(self, seed: bytes) -> None:
        """Let the deadlines act that have come by the log's time."""
        now = self.journaled.clock()
        when = self.space.next_deadline()
        if when is None or when > now:
            return
        with self.journaled.performing(SeededMint(seed)):
            self.journaled.step("expire", self.space.expire)

    def perform_gone(self, sessions: list[SessionId], seed: bytes) -> None:
        """A gateway is gone that held these connections."""
        with self.journaled.performing(SeededMint(seed)):
            for session in sessions:
                self._connected_at.pop(session, None)
                self._encoders.pop(session, None)
            self.journaled.step(
                "gateway_gone",
                lambda now, mint: self.space.drop_sessions(sessions, now, mint),
                sessions=list(sessions),
            )

    def _perform_act(self, stored: SharedInput, head: bytes) -> CarriedOut | None:
        if stored.input == "expire":
            # Its deadlines have acted before it.
            return None
        space, journaled, now = self.space, self.journaled, self.journaled.clock()
        mint = journaled.next_mint()
        effects: list[Effect] | None
        if stored.input == "reload" and stored.config is not None:
            known = set(space.state.roster.members)
            effects = space.reload(load_config(stored.config), now, mint)
            asyncio.get_running_loop().call_soon(self._end_excluded)
            for name in space.state.roster.members:
                if name not in known:
                    self.delivery.history.hide_before(name, now)
        else:
            effects = apply_act(space, stored, now, mint)
        if effects is None:
            raise UsageError(f"a cluster does not know the input {stored.input!r}")
        facts = {name: value for name, value in json.loads(head).items() if name not in ("space", "t", "in")}
        return journaled.perform_act(stored.input, effects, now, facts)

    def _end_excluded(self) -> None:
        """Not while an input of the log is applied: whom it ends leaves by the log, too."""
        self.on_reloaded(self)


def _nothing() -> None:
    """A session that is attached already, or to another gateway."""
