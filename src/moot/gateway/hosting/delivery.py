"""Carrying effects out: bytes once per dialect, in order, and the message history for polling (D-40)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, assert_never

import msgspec
import orjson

from moot.net.outbox import Outbox, Outgoing
from moot.net.websocket_frame import BINARY, TEXT, encode_frame
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import ANY_SIZE, DialectName, Envelope
from moot.protocol.frames import Frame
from moot.protocol.operation import Operation
from moot.protocol.payloads import GatewayNotice
from moot.space.config import SessionId
from moot.space.effects import Credential, Deliver, Disconnect, Effect, LeftToOthers, Mail, Reply, Result

# Presence and the like; a welcome is counted as long as it was.
_NOTICE_BYTES: Final = 512
# One a member that asks and answers without its echo, in a space of some agents and tools.
_AUDIENCES_KEPT: Final = 16


class HistoryEntry(msgspec.Struct, frozen=True, gc=False):
    """One message of the history. `members`: whom it was for; None: every member.

    An envelope is kept as its bytes and parsed again when somebody polls in another dialect: most
    never are, and a thousand parsed ones would crowd the processor's cache.
    """

    at: float
    message: bytes | GatewayNotice
    members: frozenset[str] | None
    size: int
    dialect: DialectName = "mew"
    operation: Operation | None = None
    proposer: str | None = None
    hidden_from: str | None = None


class MessageHistory:
    """The latest messages of a space, bounded by count and bytes, for HTTP polling."""

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        self.max_messages = max_messages
        self.max_bytes = max_bytes
        self.bytes = 0
        # The fast path adds to `stored` itself and counts later: how many bytes it has added since.
        self.stored: deque[HistoryEntry] = deque()
        self.count_stored: Callable[[], int] = lambda: 0
        # When the last record of earlier runs was written, if any were read.
        self.restored_until = 0.0
        # In a cluster: up to when another gateway had messages that are not here; 0 if all are that would be.
        self.known_since = 0.0
        # When somebody last read it, by the space's time.
        self.polled_at = 0.0
        self.hidden_before: dict[str, float] = {}

    @property
    def entries(self) -> deque[HistoryEntry]:
        """What is kept, oldest first."""
        self.trim(self.count_stored())
        return self.stored

    def add(
        self, at: float, effect: Deliver, members: frozenset[str] | None, notice_bytes: int = _NOTICE_BYTES
    ) -> None:
        """`notice_bytes`: how long a notice was when it was sent. A welcome lists all that are present."""
        message = effect.message
        if isinstance(message, Envelope):
            raw, dialect = message.raw, message.dialect
            size = len(raw)
            entry = HistoryEntry(at, raw, members, size, dialect, effect.operation, effect.proposer)
        elif isinstance(message, GatewayNotice):
            size = notice_bytes
            entry = HistoryEntry(at, message, members, size, hidden_from=effect.hidden_from)
        else:
            return
        self.stored.append(entry)
        self.trim(size + self.count_stored())

    def trim(self, added_bytes: int) -> None:
        """Count what was added, and drop the oldest messages beyond the bounds."""
        stored = self.stored
        over, left = len(stored) - self.max_messages, self.bytes + added_bytes
        while over > 0 or left > self.max_bytes:
            left -= stored.popleft().size
            over -= 1
            # What came before has no room here any more, wherever it was.
            self.known_since = 0.0
        self.bytes = left

    def hide_before(self, member: str, moment: float) -> None:
        """Earlier messages are not for this member: it joined the space or got its token then (D-40)."""
        self.hidden_before[member] = moment

    def visible_since(self, member: str) -> float:
        """From when on this member may see the history; 0 for all of it."""
        return self.hidden_before.get(member, 0.0)

    def is_whole(self, moment: float) -> bool:
        """Whether whoever would have been polled all the time has no more that came after a moment."""
        self.trim(self.count_stored())
        return moment >= self.known_since

    def since(self, moment: float, member: str) -> Iterator[HistoryEntry]:
        """The messages for this member strictly after a moment, oldest first."""
        for entry in self.entries:
            meant_for = entry.members is None or member in entry.members
            if entry.at > moment and meant_for and entry.hidden_from != member:
                yield entry


class SessionOutbox(msgspec.Struct, gc=False):
    """One connected session: where its bytes go, and how to end it."""

    outbox: Outbox
    dialect: DialectName
    member: str
    close: Callable[[int, str], None]


class DeliveryAudience(msgspec.Struct, frozen=True):
    """Some sessions, looked up: where their bytes go, and what they speak."""

    # Kept, so that no other tuple has its identity. None: not even the empty one, which everybody shares.
    sessions: Sequence[SessionId] | None
    outboxes: list[Outbox]
    dialects: tuple[DialectName, ...]
    only_dialect: DialectName | None
    members: frozenset[str]


_NOBODY: Final = DeliveryAudience(None, [], (), None, frozenset())


class Delivery:
    """The sending side of one space."""

    def __init__(
        self,
        outgoing: Outgoing,
        history: MessageHistory,
        *,
        on_mail: Callable[[Mail], None],
    ) -> None:
        self.sessions: dict[SessionId, SessionOutbox] = {}
        self.outgoing = outgoing
        self.history = history
        self._on_mail = on_mail
        # In a cluster: whose session this is, also of one that another gateway holds.
        self.find_member: Callable[[SessionId], str | None] | None = None
        # Most messages go to the same audience as the last one, and nearly all to one of a few.
        self._last = _NOBODY
        self._audiences: dict[int, DeliveryAudience] = {}
        self.delivered = 0

    def attach(self, session: SessionId, line: SessionOutbox) -> None:
        self.sessions[session] = line
        self._forget_audiences()

    def detach(self, session: SessionId) -> None:
        line = self.sessions.pop(session, None)
        if line is not None:
            line.outbox.detach()
        self._forget_audiences()

    def flush(self) -> None:
        """Write now what waits for the end of the tick."""
        self.outgoing.flush()

    def carry_out(self, effects: Iterable[Effect], now: float) -> list[Result]:
        """Carry effects out in order; returns the results for a caller without a socket."""
        results: list[Result] = []
        for effect in effects:
            match effect:
                case Deliver():
                    self.deliver(effect, now)
                case Reply():
                    self._reply(effect, now)
                case Disconnect():
                    self.outgoing.flush()
                    line = self.sessions.get(effect.session)
                    if line is not None:
                        line.close(effect.code, effect.reason)
                        self.detach(effect.session)
                case Credential():
                    self.history.hide_before(effect.participant, now)
                case Mail():
                    self._on_mail(effect)
                case Result():
                    results.append(effect)
                case LeftToOthers():
                    pass
                case _:
                    assert_never(effect)
        return results

    def deliver(self, effect: Deliver, now: float) -> None:
        """Send one message to many sessions."""
        audience = self._last
        if effect.sessions is not audience.sessions:
            audience = self._last = self.audience_of(effect.sessions)
        message, outboxes = effect.message, audience.outboxes
        self.delivered += len(outboxes)
        if message.__class__ is not Frame:
            self.history.add(now, effect, audience.members if effect.private else None)
        if message.__class__ is Envelope and message.dialect == audience.only_dialect:
            # Most spaces speak one dialect: the sender's own bytes for everybody.
            self.outgoing.append(outboxes, message.dialect, encode_frame(message.raw))
        else:
            for dialect in audience.dialects:
                frame = _frame(effect, dialect)
                if frame is not None:
                    self.outgoing.append(outboxes, dialect, frame)

    def audience_of(self, sessions: Sequence[SessionId]) -> DeliveryAudience:
        """The outboxes and dialects of these sessions."""
        # By identity: the space gives one object for one audience, and to hash a hundred ids takes long.
        known = self._audiences.get(id(sessions))
        if known is not None and known.sessions is sessions:
            return known
        lines = [line for session in sessions if (line := self.sessions.get(session)) is not None]
        dialects = tuple(dict.fromkeys(line.dialect for line in lines))
        audience = DeliveryAudience(
            sessions,
            [line.outbox for line in lines],
            dialects,
            dialects[0] if len(dialects) == 1 else None,
            frozenset(line.member for line in lines)
            if self.find_member is None
            else frozenset(member for session in sessions if (member := self.find_member(session))),
        )
        if len(self._audiences) >= _AUDIENCES_KEPT:
            self._audiences.clear()
        self._audiences[id(sessions)] = audience
        return audience

    def _forget_audiences(self) -> None:
        self._last = _NOBODY
        self._audiences.clear()

    def _reply(self, effect: Reply, now: float) -> None:
        line = self.sessions.get(effect.session)
        if line is None:
            member = None if self.find_member is None else self.find_member(effect.session)
            if member is not None and effect.kept:
                # Another gateway has told it; here it can be polled.
                deliver = Deliver((), _without_token(effect.notice))
                size = len(DIALECTS["mew"].encode_notice(effect.notice) or b"")
                self.history.add(now, deliver, frozenset({member}), size)
            return
        raw = DIALECTS[line.dialect].encode_notice(effect.notice)
        if raw is not None:
            self.outgoing.send(line.outbox, encode_frame(raw))
        if not effect.kept:
            return
        deliver = Deliver((), _without_token(effect.notice))
        self.history.add(now, deliver, frozenset({line.member}), len(raw) if raw else _NOTICE_BYTES)


def _without_token(notice: GatewayNotice) -> GatewayNotice:
    """What the history keeps of an answer: a token is told once, to the socket that asked for it."""
    if "token" not in notice.payload:
        return notice
    payload = {name: value for name, value in notice.payload.items() if name != "token"}
    return msgspec.structs.replace(notice, payload=payload)


def _frame(effect: Deliver, dialect: DialectName) -> bytes | None:
    message = effect.message
    if isinstance(message, Frame):
        return encode_frame(message.raw, BINARY if message.binary else TEXT)
    raw = _encode_message(effect, dialect)
    return None if raw is None else encode_frame(raw)


def _encode_message(effect: Deliver, dialect: DialectName) -> bytes | None:
    message = effect.message
    if isinstance(message, Envelope):
        return DIALECTS[dialect].encode(message, operation=effect.operation, proposer=effect.proposer)
    if isinstance(message, GatewayNotice):
        return DIALECTS[dialect].encode_notice(message)
    return None


def id_of(entry: HistoryEntry) -> str:
    """The id of a message of the history."""
    if isinstance(entry.message, GatewayNotice):
        return entry.message.id
    return str(orjson.loads(entry.message).get("id", ""))


def encode_entry(entry: HistoryEntry, dialect: DialectName) -> bytes | None:
    """Encode a message of the history in a dialect; None if that has no way to say it."""
    raw = entry.message
    if isinstance(raw, GatewayNotice):
        return DIALECTS[dialect].encode_notice(raw)
    if entry.dialect == dialect:
        return raw
    # It was accepted once, under whatever limits held then.
    protocols = frozenset({orjson.loads(raw)["protocol"]})
    envelope = DIALECTS[entry.dialect].decode(raw, ANY_SIZE, accept_protocols=protocols)
    return DIALECTS[dialect].encode(envelope, operation=entry.operation, proposer=entry.proposer)
