"""Applying one input to a space: decided by it, recorded with its outcome, its effects carried out.

    bytes → decode → space (the ladder) → journal → delivery

Nothing here awaits between an input and its effects; `durability` says when they go out. Whoever comes here
has had an input put in order (`input_order`): this applies it, wherever the order comes from.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec
import orjson

from moot.errors import (
    InvalidOperation,
    MalformedEnvelope,
    RateLimited,
    Unauthorized,
    Unavailable,
    UsageError,
)
from moot.gateway.hosting.durability import CarriedOut
from moot.gateway.hosting.journaled_space import JournaledSpace
from moot.gateway.hosting.message_refusals import MessageRefusals, space_member
from moot.gateway.hosting.own_connections import tell_own_connections
from moot.gateway.hosting.space_records import (
    RecordEncoder,
    apply_act,
    encode_record,
    filled_id,
    outcome_of,
)
from moot.gateway.hosting.stored_input import ACCEPTED, LEFT_TO_OTHERS, StoredInput
from moot.gateway.hosting.stream_frames import StreamFrames
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import DialectName, Envelope
from moot.protocol.kinds import KINDS, UNKNOWN, Kind
from moot.protocol.operation import Json
from moot.space.config import Name, SessionId
from moot.space.effects import Deliver, Effect, Reply
from moot.space.last_vote import made_requests
from moot.space.members.member import Options, Session, capability_pairs
from moot.space.state import State

log = logging.getLogger(__name__)

_HASH: Final = ord("#")
# Smaller messages are decoded in no time; larger ones only if their sender is not too fast.
LARGE_BYTES: Final = 16_384
# Acts whose effects wait for no disk.
_AT_ONCE: Final = frozenset({"sign_in", "poll", "renew"})


class NewSession(NamedTuple):
    """Who joins, or posts one envelope."""

    id: SessionId
    who: str
    dialect: DialectName
    options: Options


class Applied(NamedTuple):
    """An input that was applied; `done` when it is on disk. `noted`: its record, if the position has to know
    of it. Of a post: the id and the kind of its envelope."""

    done: asyncio.Future[CarriedOut]
    noted: int
    id: str = ""
    kind: str = ""


class InputApplier:
    """Applies the inputs of one space, one after the other."""

    def __init__(self, journaled: JournaledSpace) -> None:
        self.journaled = journaled
        self.refusals = MessageRefusals(journaled)
        self.frames = StreamFrames(journaled, self.refusals)
        # How many envelopes took the slow path.
        self.received = 0
        self.connected_at: dict[SessionId, float] = {}
        # It was archived or deleted: who was on the way to it comes too late.
        self.is_ended = False
        self._space = journaled.space
        self._journal = journaled.journal
        self._durability = journaled.durability
        self._unsaved = journaled.durability.unsaved
        self._encoders: dict[SessionId, RecordEncoder] = {}

    def join(self, joining: NewSession, attach: Callable[[], None] | None = None) -> None:
        """Let a session join; raises Refused. `attach` connects its outbox before anything is sent to it."""
        self._check_open()
        session, who, dialect, options = joining
        options = check_token(self._space.state, who, options, self.journaled.clock())
        now, mint = self.journaled.clock(), self.journaled.next_mint()
        effects = self._space.join(session, who, dialect, options, now, mint)
        if dialect == "mew":
            self.journaled.fast_paths.begin(session, self._space.state.roster.sessions[session].member.id)
        self.know_session(session, who, dialect)
        if attach is not None:
            attach()
        facts: dict[str, Json] = {"options": msgspec.to_builtins(options)}
        number = self.journaled.record("join", now, mint, session=session, who=who, dialect=dialect, **facts)
        self.journaled.carry_out(effects, number, now)

    def _check_open(self) -> None:
        if self.is_ended:
            raise InvalidOperation("this space has been archived or deleted")

    def know_session(self, session: SessionId, who: str, dialect: DialectName) -> None:
        """A session is in the space from now on."""
        self.connected_at[session] = self.journaled.clock()
        self._encoders[session] = RecordEncoder(session, who, dialect)

    def forget_session(self, session: SessionId) -> None:
        self.connected_at.pop(session, None)
        self._encoders.pop(session, None)

    def leave(self, session: SessionId) -> None:
        """A connection ended."""
        self.forget_session(session)
        self.journaled.fast_paths.end(session)
        known = self._space.state.roster.sessions.get(session)
        if known is not None:
            log.info(
                "left",
                extra={"space": self.journaled.name, "participant": known.member.name, "session": session},
            )
            self.journaled.step(
                "leave",
                lambda now, mint: self._space.leave(session, now, mint),
                session=session,
                who=known.member.name,
            )

    def drop(self, sessions: Sequence[SessionId]) -> None:
        """A gateway of the cluster is gone that held these connections."""
        for session in sessions:
            self.forget_session(session)
            self.journaled.fast_paths.end(session)
        self.journaled.step(
            "gateway_gone",
            lambda now, mint: self._space.drop_sessions(sessions, now, mint),
            sessions=list(sessions),
        )

    def act(self, stored: StoredInput, facts: dict[str, Json]) -> Applied | None:
        """What came neither by a message nor by a connection: an operator, a sign-in, a poll. Raises Refused.

        `facts` are what its record says. None: nobody waits for the disk.
        """
        self._check_open()
        journaled, input = self.journaled, stored.input
        now, mint = journaled.clock(), journaled.next_mint()
        effects = apply_act(self._space, stored, now, mint)
        if effects is None:
            raise UsageError(f"no input of a space: {input!r}")
        number = journaled.record(input, now, mint, **facts)
        if self._unsaved is not None and (stored.add or input == "restore"):
            self._unsaved.note_member(Name(stored.who), number)
        waits = input not in _AT_ONCE
        if waits:
            journaled.snapshots.mark_rights_change(number)
        if not waits or input == "reload":
            journaled.carry_out(effects, number, now, waits=waits)
            return None
        shrinks = input in ("sign_out", "passkey_remove") or (input == "capabilities" and not stored.add)
        return Applied(journaled.hold_until_durable(effects, number, now, shrinks_rights=shrinks), number)

    def receive(self, session: SessionId, dialect: DialectName, data: bytes, binary: bool) -> None:
        """One message from a socket: an envelope, or a stream frame."""
        # Here and below, names of arguments are left out where every message would pay for them.
        journaled, space = self.journaled, self._space
        now = journaled.clock()
        if session not in space.state.roster.sessions:
            # The space has let go of it; the close that says so still waits for the disk.
            return
        if data and data[0] == _HASH:
            self.frames.receive(session, data, binary, now)
            return
        config = space.state.config
        try:
            if len(data) >= LARGE_BYTES:
                space.check_rate_ahead(space_member(space, session), now)
            envelope = DIALECTS[dialect].decode(
                data, config.limits.envelope, accept_protocols=config.accept_protocols
            )
        except RateLimited as refusal:
            self.received += 1
            self.refusals.answer_undecoded(session, refusal, data)
            return
        except MalformedEnvelope as refusal:
            space.count_malformed(session, len(data), now)
            self.refusals.answer(session, refusal, len(data))
            return
        row = KINDS.get(envelope.kind, UNKNOWN)
        if not (self._journal.writable or row.shrinks_rights) and self._has_no_room(session, envelope, data):
            return
        unsaved = self._unsaved
        if unsaved is not None and unsaved.gives_rights:
            try:
                unsaved.check(space.state.roster.sessions[session], envelope, journaled.saved)
            except Unavailable as refusal:
                self._answer_unavailable(session, envelope, data, refusal)
                return
        mint = journaled.mint
        if mint.ids or mint.tokens:
            mint = journaled.next_mint()
        effects = space.receive(session, envelope, now, mint)
        self.received += 1
        only = effects[0] if len(effects) == 1 else None
        if (
            isinstance(only, Deliver)
            and not row.changes_verdict
            and not row.shrinks_rights
            and not only.waits_for_disk
        ):
            # Nearly everything: it is delivered, and nothing else happens.
            encoder = self._encoders[session]
            journal = self._journal
            if journal.is_written:
                number = journal.append(encoder.record(now, envelope, ACCEPTED, mint), data)
            else:
                number = journal.append(b"")
            if not self._durability.sends_at_once:
                journaled.carry_out(effects, number, now, is_audited=row.audited)
                return
            journaled.deliver_at_once(only, number, now)
            if dialect == "mew":
                clock, due = journaled.clock, journaled.snapshot_due
                self.journaled.fast_paths.learn(session, envelope, encoder.common, clock, due)
            return
        out = outcome_of(effects)
        if out == LEFT_TO_OTHERS:
            self._journal.append(self._encoders[session].record(now, envelope, out, mint), data)
            return
        if out != ACCEPTED:
            who = space_member(space, session)
            number = self.refusals.record_envelope(
                "receive", session, who, dialect, envelope, out, data, now, mint
            )
            journaled.carry_out(effects, number, now)
            return
        made = made_requests(effects) if envelope.kind == "moot/approve" else ()
        head = self._encoders[session].record(now, envelope, out, mint, made)
        number = self._journal.append(head, data, vital=row.shrinks_rights)
        waits = self._mark(row, effects, number)
        journaled.carry_out(
            effects, number, now, waits=waits, shrinks_rights=row.shrinks_rights, is_audited=row.audited
        )
        if unsaved is not None and (row.changes_verdict or row.shrinks_rights):
            unsaved.note_envelope(session, envelope, number, journaled.saved)
            self._durability.tell_unsaved()

    def _mark(self, row: Kind, effects: list[Effect], number: int) -> bool:
        """Note how far the space has come if a loss of that would matter; whether it waits for the disk."""
        if row.changes_verdict or row.shrinks_rights:
            self.journaled.snapshots.mark_rights_change(number)
            return row.changes_verdict
        for effect in effects:
            if isinstance(effect, Deliver) and effect.waits_for_disk:
                # A crash must not forget a fulfilment that a host has seen: it would be carried out twice.
                self.journaled.snapshots.mark_fulfilment(number)
                return True
        return False

    def _has_no_room(self, session: SessionId, envelope: Envelope, data: bytes) -> bool:
        """Refuse what could be neither delivered nor kept: `strict` delivers only what is on disk."""
        if not (self._durability.withholds and self._journal.is_full):
            return False
        refusal = Unavailable("the journal cannot be written, and no room is left to keep messages for it")
        self._answer_unavailable(session, envelope, data, refusal)
        return True

    def _answer_unavailable(
        self, session: SessionId, envelope: Envelope, data: bytes, refusal: Unavailable
    ) -> None:
        refusal.about, refusal.kind = envelope.id or None, envelope.kind
        self.refusals.answer(session, refusal, len(data))

    def post(self, posting: NewSession, body: bytes) -> Applied | Reply:
        """Apply the envelope of a post; its effects wait for the disk. A refusal is returned as the reply."""
        self._check_open()
        session, who, dialect, options = posting
        options = check_token(self._space.state, who, options, self.journaled.clock())
        now, mint = self.journaled.clock(), self.journaled.next_mint()
        space = self._space
        config = space.state.config
        try:
            envelope = DIALECTS[dialect].decode(
                body, config.limits.envelope, accept_protocols=config.accept_protocols
            )
        except MalformedEnvelope as refusal:
            self.refusals.record_malformed(session, who, refusal, len(body), now, mint)
            raise
        row = KINDS.get(envelope.kind, UNKNOWN)
        vital = row.shrinks_rights
        if not vital:
            # HTTP 200 says that it is kept (D-41), which nobody can say now; a socket is not told so much.
            self._durability.check()
        unsaved = self._unsaved
        if unsaved is not None and unsaved.gives_rights:
            rights = space.state.token_rights(options.token)
            member = space.state.roster.find(who)
            unsaved.check(
                Session(session, member, dialect, options, 0, rights), envelope, self.journaled.saved
            )
        space.join(session, who, dialect, options, now, mint)
        effects = space.receive(session, envelope, now, mint)
        effects += space.leave(session, now, mint)
        out = outcome_of(effects)
        self.received += 1
        id = envelope.id or filled_id(out, mint)
        facts: dict[str, Json] = {"kind": envelope.wire_kind or envelope.kind, "id": id}
        facts["options"] = msgspec.to_builtins(options)
        if out != ACCEPTED:
            number = self.refusals.record_envelope(
                "post", session, who, dialect, envelope, out, body, now, mint
            )
            answer = effects[0]
            self.journaled.carry_out(effects[1:], number, now)
            assert isinstance(answer, Reply)  # noqa: S101  # that is how a refusal is known
            tell_own_connections(space, self.journaled.delivery, who, answer.notice)
            return answer
        if envelope.kind == "moot/approve" and (made := made_requests(effects)):
            facts["made"] = [orjson.Fragment(each) for each in made]
        head = encode_record("post", now, mint, session=session, who=who, dialect=dialect, out=out, **facts)
        number = self._journal.append(head + b',"raw":', body, vital=vital)
        self._mark(row, effects, number)
        if unsaved is not None and row.changes_verdict and not vital:
            unsaved.note_envelope(session, envelope, number, self.journaled.saved)
        done = self.journaled.hold_until_durable(effects, number, now, shrinks_rights=vital)
        return Applied(done, number if row.changes_verdict or vital else 0, id, envelope.kind)


def check_token(state: State, who: str, options: Options, now: float) -> Options:
    """The options with what the token carries now; raises Unauthorized if it has been void since.

    A token is looked up when a request begins; it may be replaced while the rest of that is on its way.
    """
    if options.token is None:
        return options
    member = state.roster.members.get(Name(who))
    temporary = state.temporary_tokens.get(options.token)
    if temporary is not None:
        is_valid = temporary.member == who and temporary.admits(now)
    else:
        is_valid = member is not None and options.token in member.credentials
    if member is None or member.kicked or not is_valid:
        raise Unauthorized("this token is no longer valid")
    limit = state.token_limit(options.token)
    return msgspec.structs.replace(options, limited_to=None if limit is None else capability_pairs(limit))
