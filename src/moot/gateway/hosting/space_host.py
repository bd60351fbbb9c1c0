"""Running one space: what members and operators do becomes inputs of the space, in one order.

    bytes → decode → space (the ladder) → journal → delivery

Nothing here awaits between an input and its effects; `journaled_space` says when they go out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec
import orjson

from moot.errors import MalformedEnvelope, OutcomeUnknown, RateLimited, Refused, Unavailable
from moot.gateway.hosting.error_reply_limiter import ErrorReplyLimiter
from moot.gateway.hosting.journaled_space import CarriedOut, JournaledSpace
from moot.gateway.hosting.message_refusals import MessageRefusals, space_member
from moot.gateway.hosting.mint import FreshMint
from moot.gateway.hosting.own_connections import invite_ack, tell_own_connections
from moot.gateway.hosting.refusal_log import RefusalLimits
from moot.gateway.hosting.rights_changes import RightsChanges
from moot.gateway.hosting.space_records import RecordEncoder, encode_record, filled_id, outcome_of
from moot.gateway.hosting.stored_input import ACCEPTED, LEFT_TO_OTHERS
from moot.gateway.hosting.token_check import check_token
from moot.protocol.close_codes import REMOVED
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import DialectName, Envelope
from moot.protocol.frames import read_frame
from moot.protocol.kinds import KINDS, UNKNOWN, Kind
from moot.protocol.operation import Json
from moot.space import membership
from moot.space.config import Name, SessionId
from moot.space.config_json import save_config
from moot.space.effects import Deliver, Disconnect, Effect, Reply
from moot.space.last_vote import made_requests
from moot.space.members import Options, Session
from moot.space.welcome import welcome

log = logging.getLogger(__name__)

_HASH: Final = ord("#")
# Smaller messages are decoded in no time; larger ones only if their sender is not too fast.
_LARGE_BYTES: Final = 16_384
# While more than this of its time is left, another poll of a member is not journaled.
_POLL_NOTED_SHARE: Final = 2 / 3


class StartedPost(NamedTuple):
    """An accepted post; `done` when it is on disk. `noted`: its record, if the position has to know of it."""

    id: str
    kind: str
    done: asyncio.Future[CarriedOut]
    noted: int = 0


class SpaceHost:
    """Runs one space. All methods are called from the event loop."""

    def __init__(
        self,
        journaled: JournaledSpace,
        *,
        errors_per_second: float,
        refusal_limits: RefusalLimits = RefusalLimits(),  # noqa: B008  # frozen
    ) -> None:
        self.journaled = journaled
        self.name = journaled.name
        self.space = journaled.space
        self.journal = journaled.journal
        # Values that are too large for an envelope.
        self.content_folder = journaled.folder.parent / "content"
        self.delivery = journaled.delivery
        self.fast_paths = journaled.fast_paths
        # What operators and sign-ins change.
        self.rights = RightsChanges(journaled, self.check_journal)
        self.refusals = MessageRefusals(journaled, refusal_limits, errors_per_second=errors_per_second)
        # How often errors about one stream are answered (D-36).
        self.stream_error_replies = ErrorReplyLimiter(1.0)
        # The first record of this run: what came later about members is known without the journal.
        self.opened_at_record = journaled.journal.next_number
        self._received = 0
        self._connected_at: dict[SessionId, float] = {}
        self._encoders: dict[SessionId, RecordEncoder] = {}
        self._sessions = 0
        # In a cluster: another gateway has brought a configuration, which may exclude members.
        self.on_reloaded: Callable[[SpaceHost], None] = lambda _host: None
        # Files that are members (`output_log`) and are welcomed once more when their participant first posts.
        self.welcome_at_first_post: dict[str, SessionId] = {}

    # Starting and stopping

    def record_state(self, why: str) -> None:
        """Journal the whole state: what came before is not in the journal, and replay needs it."""
        journaled = self.journaled
        state = self.space.save() | {"config": save_config(self.space.state.config)}
        journaled.step("state", lambda _now, _mint: [], why=why, state=state)

    async def stop(self) -> None:
        """Everything on disk; the last effects are out."""
        self.refusals.log.flush()
        await self.journaled.stop()

    # What members do

    @property
    def tells_outside(self) -> bool:
        """Whether this gateway notifies people of what happens here: in a cluster one of them does."""
        return True

    @property
    def received(self) -> int:
        """How many envelopes came, by socket and by HTTP."""
        return self._received + self.fast_paths.accepted

    @property
    def delivered(self) -> int:
        """How many messages that made for others."""
        return self.delivery.delivered + self.fast_paths.delivered

    def new_session(self) -> SessionId:
        self._sessions += 1
        return SessionId(f"{int(self.journaled.clock() * 1000):x}-{self._sessions}")

    def join(
        self,
        session: SessionId,
        who: str,
        dialect: DialectName,
        options: Options,
        attach: Callable[[], None],
        reject: Callable[[Refused], None],
    ) -> None:
        """Join a session. `attach` connects its outbox before anything is sent to it; one that may not join
        is told by `reject`, which in a cluster comes later."""
        try:
            self._join(session, who, dialect, options, attach)
        except Refused as refusal:
            reject(refusal)

    def _join(
        self,
        session: SessionId,
        who: str,
        dialect: DialectName,
        options: Options,
        attach: Callable[[], None],
    ) -> None:
        options = check_token(self.space.state, who, options, self.journaled.clock())
        now, mint = self.journaled.clock(), self.journaled.next_mint()
        effects = self.space.join(session, who, dialect, options, now, mint)
        self._connected_at[session] = now
        if dialect == "mew":
            self.fast_paths.begin(session, self.space.state.roster.sessions[session].member.id)
        self._encoders[session] = RecordEncoder(session, who, dialect)
        attach()
        facts: dict[str, Json] = {"options": msgspec.to_builtins(options)}
        number = self.journaled.record("join", now, mint, session=session, who=who, dialect=dialect, **facts)
        self.journaled.carry_out(effects, number, now)

    def find_token_owner(self, token_hash: str) -> Name | None:
        """Whom a token admits now."""
        temporary = self.space.state.temporary_tokens.get(token_hash)
        if temporary is not None and not temporary.admits(self.journaled.clock()):
            return None
        return self.space.find_token_owner(token_hash)

    def note_poll(self, who: str) -> None:
        """A member polls over HTTP, so that it can be given approved calls. Journaled now and then only."""
        member, now = self.space.state.roster.members.get(Name(who)), self.journaled.clock()
        seconds = membership.POLL_PRESENCE_SECONDS
        if member is None or member.present or not seconds:
            return
        if member.polling_until - now > seconds * _POLL_NOTED_SHARE:
            # A poll of a moment ago was noted.
            return
        with suppress(Refused):
            self.check_journal()
            self.journaled.step("poll", lambda now, _mint: self.space.note_poll(who, now), who=who)

    def leave(self, session: SessionId) -> None:
        """A connection ended."""
        self.delivery.detach(session)
        self._connected_at.pop(session, None)
        self._encoders.pop(session, None)
        self.fast_paths.end(session)
        known = self.space.state.roster.sessions.get(session)
        if known is not None:
            log.info("left", extra={"space": self.name, "participant": known.member.name, "session": session})
            self.journaled.step(
                "leave",
                lambda now, mint: self.space.leave(session, now, mint),
                session=session,
                who=known.member.name,
            )

    def end_session(self, session: SessionId, reason: str) -> None:
        """Close a connection that is not let in any more; nothing that it still sends is heard."""
        self.delivery.carry_out([Disconnect(session, REMOVED, reason)], self.journaled.clock())
        self.leave(session)

    def receive(self, session: SessionId, dialect: DialectName, data: bytes, binary: bool) -> None:
        """One message from a socket: an envelope, or a stream frame."""
        # Here and below, names of arguments are left out where every message would pay for them.
        journaled, space = self.journaled, self.space
        now = journaled.clock()
        if session not in space.state.roster.sessions:
            # The space has let go of it; the close that says so still waits for the disk.
            return
        if data and data[0] == _HASH:
            self._frame(session, data, binary, now)
            return
        config = space.state.config
        try:
            if len(data) >= _LARGE_BYTES:
                self.check_rate_ahead(space_member(space, session), data)
            envelope = DIALECTS[dialect].decode(
                data, config.limits.envelope, accept_protocols=config.accept_protocols
            )
        except RateLimited as refusal:
            self._received += 1
            self.refusals.answer_undecoded(session, refusal, data)
            return
        except MalformedEnvelope as refusal:
            space.count_malformed(session, len(data), now)
            self.refusals.answer(session, refusal, len(data))
            return
        row = KINDS.get(envelope.kind, UNKNOWN)
        if not (self.journal.writable or row.shrinks_rights) and self._has_no_room(session, envelope, data):
            return
        unsaved = journaled.unsaved
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
        self._received += 1
        only = effects[0] if len(effects) == 1 else None
        if (
            isinstance(only, Deliver)
            and not row.changes_verdict
            and not row.shrinks_rights
            and not only.waits_for_disk
        ):
            # Nearly everything: it is delivered, and nothing else happens.
            encoder = self._encoders[session]
            journal = self.journal
            if journal.is_written:
                number = journal.append(encoder.record(now, envelope, ACCEPTED, mint), data)
            else:
                number = journal.append(b"")
            if not journaled.sends_at_once:
                journaled.carry_out(effects, number, now, is_audited=row.audited)
                return
            journaled.deliver_at_once(only, number, now)
            if dialect == "mew":
                clock, due = journaled.clock, journaled.snapshot_due
                self.fast_paths.learn(session, envelope, encoder.common, clock, due)
            return
        out = outcome_of(effects)
        if out == LEFT_TO_OTHERS:
            self.journal.append(self._encoders[session].record(now, envelope, out, mint), data)
            return
        if out != ACCEPTED:
            who = space_member(space, session)
            number = self.refusals.record_envelope(
                "receive", session, who, dialect, envelope, out, data, now, mint
            )
            journaled.carry_out(effects, number, now)
            return
        head = self._encoders[session].record(now, envelope, out, mint, made_requests(envelope, effects))
        number = self.journal.append(head, data, vital=row.shrinks_rights)
        waits = self._mark(row, effects, number)
        journaled.carry_out(
            effects, number, now, waits=waits, shrinks_rights=row.shrinks_rights, is_audited=row.audited
        )
        if unsaved is not None and (row.changes_verdict or row.shrinks_rights):
            unsaved.note_envelope(session, envelope, number, journaled.saved)
            journaled.tell_unsaved()

    def _mark(self, row: Kind, effects: list[Effect], number: int) -> bool:
        """Note how far the space has come if a loss of that would matter; whether it waits for the disk."""
        if row.changes_verdict or row.shrinks_rights:
            self.journaled.snapshots.mark_rights_change(number)
            return row.changes_verdict
        if _waits_for_disk(effects):
            self.journaled.snapshots.mark_fulfilment(number)
            return True
        return False

    def _has_no_room(self, session: SessionId, envelope: Envelope, data: bytes) -> bool:
        """Refuse what could be neither delivered nor kept: `strict` delivers only what is on disk."""
        if not (self.journaled.withholds and self.journal.is_full):
            return False
        refusal = Unavailable("the journal cannot be written, and no room is left to keep messages for it")
        self._answer_unavailable(session, envelope, data, refusal)
        return True

    def _answer_unavailable(
        self, session: SessionId, envelope: Envelope, data: bytes, refusal: Unavailable
    ) -> None:
        refusal.about, refusal.kind = envelope.id or None, envelope.kind
        self.refusals.answer(session, refusal, len(data))

    def check_rate_ahead(self, who: str, data: bytes) -> None:
        """Raises RateLimited for a large message of a member who is too fast, before it is decoded."""
        if len(data) >= _LARGE_BYTES:
            self.space.check_rate_ahead(who, self.journaled.clock())

    def _frame(self, session: SessionId, data: bytes, binary: bool, now: float) -> None:
        """Frames are not journaled: they read the state and never change it (D-89)."""
        try:
            frame = read_frame(data, binary=binary, max_bytes=self.space.state.limits.max_frame_bytes)
        except MalformedEnvelope as refusal:
            self.refusals.answer(session, refusal, len(data))
            return
        unsaved = self.journaled.unsaved
        if unsaved is not None and unsaved.gives_rights:
            try:
                unsaved.check_member(Name(space_member(self.space, session)), self.journaled.saved)
            except Unavailable as refusal:
                self.refusals.answer(session, refusal, len(data))
                return
        if self.journaled.withholds:
            # Frames are not kept, so they cannot be delivered later.
            if self.stream_error_replies.allows((session, frame.stream_id), now):
                why = "the journal cannot be written, and this space delivers nothing until it can"
                self.refusals.answer(session, Unavailable(why, stream_id=frame.stream_id), len(data))
            return
        effects = self.space.frame(session, frame, now, FreshMint())
        if outcome_of(effects) != ACCEPTED and not self.stream_error_replies.allows(
            (session, frame.stream_id), now
        ):
            return
        if self.journaled.sends_at_once:
            self.delivery.carry_out(effects, now)
        else:
            self.journaled.carry_out(effects, self.journal.next_number - 1, now)

    async def post(self, who: str, dialect: DialectName, body: bytes, options: Options) -> CarriedOut | Reply:
        """Process an envelope from HTTP by the same ladder (D-40); a refusal is returned as the reply.

        Raises OutcomeUnknown when it was accepted but the journal failed before it was on disk.
        """
        self._welcome_output_log(who)
        started = self._start_post(self.new_session(), who, dialect, body, options)
        if isinstance(started, Reply):
            return started
        # HTTP 200 is an acknowledgement, so it waits for the disk in every mode (D-41).
        try:
            done = await started.done
        except OutcomeUnknown as unknown:
            unknown.details["id"] = started.id
            raise
        await self.journaled.wait_noted(started.noted, done)
        if started.kind == "space/invite" and done.results:
            ack = invite_ack(done.results[0].fields, who, started.id)
            tell_own_connections(self.space, self.delivery, who, ack)
        return done

    def _welcome_output_log(self, who: str) -> None:
        """Tell the file of whoever posts for the first time what the space is like now."""
        session = self.welcome_at_first_post.pop(who, None)
        here = None if session is None else self.space.state.roster.sessions.get(session)
        if here is not None:
            now = self.journaled.clock()
            effects = welcome(self.space.state, here.member, [here.id], now, FreshMint())
            # Not before the disk has what it tells of.
            self.journaled.carry_out(effects, self.journal.next_number - 1, now)

    def _start_post(
        self, session: SessionId, who: str, dialect: DialectName, body: bytes, options: Options
    ) -> StartedPost | Reply:
        """Apply the envelope of a post; its effects wait for the disk. A refusal is returned as the reply."""
        options = check_token(self.space.state, who, options, self.journaled.clock())
        now, mint = self.journaled.clock(), self.journaled.next_mint()
        space = self.space
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
            self.check_journal()
        unsaved = self.journaled.unsaved
        if unsaved is not None and unsaved.gives_rights:
            rights = space.state.token_rights(options.token)
            posting = Session(session, space.state.roster.find(who), dialect, options, 0, rights)
            unsaved.check(posting, envelope, self.journaled.saved)
        space.join(session, who, dialect, options, now, mint)
        effects = space.receive(session, envelope, now, mint)
        effects += space.leave(session, now, mint)
        out = outcome_of(effects)
        self._received += 1
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
            tell_own_connections(space, self.delivery, who, answer.notice)
            return answer
        if made := made_requests(envelope, effects):
            facts["made"] = [orjson.Fragment(each) for each in made]
        head = encode_record("post", now, mint, session=session, who=who, dialect=dialect, out=out, **facts)
        number = self.journal.append(head + b',"raw":', body, vital=vital)
        self._mark(row, effects, number)
        if unsaved is not None and row.changes_verdict and not vital:
            unsaved.note_envelope(session, envelope, number, self.journaled.saved)
        done = self.journaled.hold_until_durable(effects, number, now, shrinks_rights=vital)
        return StartedPost(id, envelope.kind, done, number if row.changes_verdict or vital else 0)

    def connected_at(self, session: SessionId) -> float:
        return self._connected_at.get(session, 0.0)

    def check_current(self) -> None:
        """In a cluster: raises Unavailable while what is known here may be old, as who was removed."""

    def check_journal(self) -> None:
        """D-85: nothing that must be audited happens while it cannot be."""
        if not self.journal.writable:
            raise Unavailable("the journal cannot be written: try again later")


def _waits_for_disk(effects: list[Effect]) -> bool:
    """A crash must not forget a fulfilment that a host has seen: it would be carried out twice."""
    return any(isinstance(effect, Deliver) and effect.waits_for_disk for effect in effects)
