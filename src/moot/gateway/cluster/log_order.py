"""The order of a space's inputs in a cluster: a log that all gateways read.

    socket ─▶ form, rate, size ─▶ log          the log ─▶ InputApplier: the ladder, journal, delivery

Every gateway applies the inputs with the log's time, and with ids made of the log's seed, so that all come to
the same state. Refusals that need the state are decided then, by all of them alike; only the one that holds
the connection answers.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from moot.errors import MalformedEnvelope, OutcomeUnknown, RateLimited, Refused, Unavailable
from moot.gateway.cluster.nats.batch import LoggedInput
from moot.gateway.cluster.shared_input import SharedInput, encode_shared_input
from moot.gateway.hosting.input_applier import Applied, InputApplier, NewSession
from moot.gateway.hosting.input_order import Outcome, Reject, Tell, wait_applied
from moot.gateway.hosting.message_refusals import space_member
from moot.gateway.hosting.mint import FreshMint, SeededMint
from moot.gateway.hosting.space_records import is_gap
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import ANY_SIZE, DialectName
from moot.protocol.frames import Frame
from moot.protocol.operation import Json
from moot.space.config import Name, SessionId, SpaceLimits
from moot.space.effects import Deliver, Reply, Token
from moot.space.members.send_rate import UNLIMITED, SendRate, SendRateLimiter
from moot.space.space import Space
from moot.store.journal import SharedRecords
from moot.store.journal_backwards import records_before
from moot.store.record_chain import shared_number

if TYPE_CHECKING:
    from moot.gateway.cluster.cluster_node import ClusterNode
    from moot.gateway.cluster.cluster_shard import Shard

log = logging.getLogger(__name__)

_HASH: Final = ord("#")
# A deadline that the log's time has not reached yet is asked for again after this.
_MIN_TIMER_SECONDS: Final = 0.05


# How fast members may send in a cluster: counted by the gateway that they are connected to, before the log.
#
# What was counted is no part of a space's state, so that gateways would come to different verdicts.

# No participant can have a space in its name.
_ALL_GUESTS: Final = "all guests"


class EdgeRate:
    """Step 2 of the ladder, for what this gateway receives."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._limiters: dict[str, SendRateLimiter] = {}
        # The limits of which the rate was made: a reload brings others.
        self._limits: SpaceLimits | None = None
        self._known_rate = UNLIMITED
        space.state.limit_rate_at_edge()

    def check(self, who: str, size: int) -> None:
        """Count one message; raises RateLimited."""
        if self._rate == UNLIMITED:
            return
        rated = self._rated_as(who)
        limiter = self._limiters.get(rated)
        if limiter is None:
            members = self._space.state.roster.members
            if len(self._limiters) > 2 * len(members) + 64:
                kept = {*members, _ALL_GUESTS}
                self._limiters = {name: each for name, each in self._limiters.items() if name in kept}
            limiter = self._limiters[rated] = SendRateLimiter()
        limiter.check_rate(size, asyncio.get_running_loop().time(), self._rate)

    def check_ahead(self, who: str) -> None:
        """Raises RateLimited if whatever this member sends next is too fast. Counts nothing."""
        limiter = self._limiters.get(self._rated_as(who))
        if limiter is not None:
            limiter.check_rate_ahead(asyncio.get_running_loop().time(), self._rate)

    @property
    def _rate(self) -> SendRate:
        limits = self._space.state.limits
        if limits is not self._limits:
            self._limits, self._known_rate = limits, SendRate.of(limits)
        return self._known_rate

    def _rated_as(self, who: str) -> str:
        """Guests share a rate, as in a space without a cluster."""
        member = self._space.state.roster.members.get(Name(who))
        return _ALL_GUESTS if member is not None and member.anonymous else who


class LogOrder:
    """The order in which the log has the inputs of one space."""

    is_shared = True

    def __init__(self, applier: InputApplier, node: ClusterNode, shard: Shard, copied_until: float) -> None:
        self.applier = applier
        self.journaled = journaled = applier.journaled
        self.name = journaled.name
        self.space = space = journaled.space
        # The local journal has everything up to this time of the log.
        self.copied_until = copied_until
        id, count = shard.records.get(self.name, ("", 0))
        self.records = SharedRecords(id, count, _last_shared(journaled.folder) if copied_until else 0)
        # A configuration came, which may exclude members.
        self.on_reloaded: Callable[[], None] = lambda: None
        self._node = node
        self._shard = shard
        self._delivery = journaled.delivery
        self._refusals = applier.refusals
        self._rate = EdgeRate(space)
        self._delivery.find_member = lambda session: space_member(space, session) or None
        applier.frames.exchange = self
        self._fast_paths = journaled.fast_paths
        self._fast_paths.is_logged = True
        # Heads of what a session sends, which are all the same: they are encoded once.
        self._heads: dict[SessionId, bytes] = {}
        journaled.on_deadline = self._ask_expiry
        journaled.seconds_until = lambda when: max(_MIN_TIMER_SECONDS, shard.clock.seconds_until(when))
        for session in space.state.roster.sessions.values():
            # They joined before the snapshot from which this gateway began.
            applier.know_session(session.id, session.member.name, session.dialect)
            if session.dialect == "mew":
                self._fast_paths.begin(session.id, session.member.id)

    # To the log

    @property
    def is_first(self) -> bool:
        return self._shard.table.first == self._node.name

    def new_session(self) -> SessionId:
        return self._node.new_session(self._shard)

    def join(self, joining: NewSession, attach: Callable[[], None], reject: Reject) -> None:
        attached = False

        def tell(outcome: Outcome) -> None:
            if isinstance(outcome, Refused):
                if attached:
                    self._delivery.detach(joining.id)
                    self._heads.pop(joining.id, None)
                reject(outcome)
            elif self.space.state.config.access == "restricted":
                # A reload may have come before it in the log, and excluded them.
                asyncio.get_running_loop().call_soon(self.on_reloaded)

        # Whether its token is valid is decided in the log's order: a sign-in may be on its way there.
        try:
            self.submit("join", _facts_of(joining), tell)
        except Refused as refusal:
            reject(refusal)
            return
        # What it sends from now on comes behind its join in the log.
        attach()
        attached = True

    def leave(self, session: SessionId) -> None:
        self._heads.pop(session, None)
        # Its outbox is gone; the space lets go of it later.
        self._fast_paths.invalidate()
        # Queued even while the log cannot be reached: the others drop the session by themselves later.
        self.submit("leave", {"session": session})

    def receive(self, session: SessionId, dialect: DialectName, data: bytes, binary: bool) -> None:
        line = self._delivery.sessions.get(session)
        if line is None:
            return
        if data and data[0] == _HASH:
            if session in self.space.state.roster.sessions:
                self.applier.frames.receive(session, data, binary, self.journaled.clock())
            return
        secret: Token | None = None
        config = self.space.state.config
        try:
            self._rate.check(line.member, len(data))
            if not self._fast_paths.recognises(session, data):
                envelope = DIALECTS[dialect].decode(
                    data, config.limits.envelope, accept_protocols=config.accept_protocols
                )
                secret = _secret_for(envelope.kind)
        except RateLimited as refusal:
            self.applier.received += 1
            self._refusals.answer_undecoded(session, refusal, data)
            return
        except MalformedEnvelope as refusal:
            # One that has not joined yet is answered when it has.
            if session in self.space.state.roster.sessions or len(data) > config.limits.envelope.max_bytes:
                self._refusals.answer(session, refusal, len(data))
                return

        def tell(outcome: Outcome) -> None:
            if isinstance(outcome, Refused):
                outcome.about, outcome.kind = _about(data, dialect, config.accept_protocols)
                self._refusals.answer(session, outcome, len(data))

        try:
            if secret is None:
                head = self._heads.get(session)
                if head is None:
                    head = encode_shared_input(self.name, "receive", {"session": session})
                    self._heads[session] = head
                self._node.submit_encoded(self._shard, LoggedInput(head, data), tell)
            else:
                self._node.submit(
                    self._shard, self.name, "receive", {"session": session}, tell, raw=data, secret=secret
                )
        except Unavailable as refusal:
            tell(refusal)

    async def post(self, posting: NewSession, body: bytes) -> Applied | Reply:
        config = self.space.state.config
        self._rate.check(posting.who, len(body))
        envelope = DIALECTS[posting.dialect].decode(
            body, config.limits.envelope, accept_protocols=config.accept_protocols
        )
        facts, secret = _facts_of(posting), _secret_for(envelope.kind)
        try:
            outcome = await wait_applied(
                lambda tell: self._node.submit(
                    self._shard, self.name, "post", facts, tell, raw=body, secret=secret
                )
            )
        except OutcomeUnknown as unknown:
            unknown.details["id"] = envelope.id
            raise
        if outcome is None:
            raise TypeError("a post came to nothing")
        return outcome

    def submit(self, input: str, facts: dict[str, Json], tell: Tell | None = None) -> None:
        secret = FreshMint().token() if input == "restore" else None
        self._node.submit(self._shard, self.name, input, facts, tell, secret=secret)

    def check_available(self) -> None:
        self._node.check_available(self._shard)

    def check_current(self) -> None:
        self._node.check_current(self._shard)

    def check_rate_ahead(self, who: str, size: int) -> None:  # noqa: ARG002  # all sizes count here
        self._rate.check_ahead(who)

    def _ask_expiry(self) -> None:
        """Ask for the deadlines that have come. One gateway does; without it heartbeats see to that."""
        if self.is_first:
            self.submit("expire", {})

    # Frames are not in the log

    def check_frame(self, session: SessionId, size: int) -> None:
        self._rate.check(self._delivery.sessions[session].member, size)
        self._node.frames.check(self.name)

    def send_frame(self, session: SessionId, frame: Frame, effect: Deliver) -> None:
        if any(each not in self._delivery.sessions for each in effect.sessions):
            self._node.frames.send(self.name, session, frame)

    # From the log

    def apply(self, stored: SharedInput, input: LoggedInput, seed: bytes, secret: Token | None) -> Outcome:
        """Apply one input of the log; returns what came of it, for whoever waits on this gateway."""
        given = [Token(each) for each in stored.tokens]
        if secret is not None and given and given[0].hash == secret.hash:
            given[0] = secret
        session, applier = SessionId(stored.session), self.applier
        start = NewSession(session, stored.who, stored.dialect, stored.options)
        if stored.input in ("post", "poll"):
            # Whoever does reads what came of it in the history, at this gateway or the next one.
            self._delivery.history.polled_at = self._shard.clock.latest
        with self._applying(SeededMint(seed, given)):
            try:
                match stored.input:
                    case "join":
                        applier.join(start)
                    case "leave":
                        self._delivery.detach(session)
                        applier.leave(session)
                    case "receive":
                        known = self.space.state.roster.sessions.get(session)
                        if known is not None:
                            applier.receive(session, known.dialect, input.raw, False)
                    case "post":
                        return applier.post(start, input.raw)
                    case "expire":
                        # Its deadlines have acted before it, if there were any.
                        self.journaled.set_timer()
                    case _:
                        if stored.input == "reload":
                            # Not while it is applied: whom it ends leaves by the log, too.
                            asyncio.get_running_loop().call_soon(self.on_reloaded)
                        facts = json.loads(input.head)
                        for name in ("space", "t", "in"):
                            del facts[name]
                        return applier.act(stored, facts)
            except Refused as refusal:
                return refusal
        return None

    def apply_fast(self, session: SessionId, raw: bytes) -> bool:
        """Apply an envelope that the fast path takes, with no deadline before it; False: `apply` has to."""
        now, records = self._shard.clock.latest, self.records
        if self.space.is_due(now) or now <= self.copied_until:
            return False
        records.is_copied, records.seed = False, self._shard.seed
        ending = records.next_ending()
        try:
            if ending is not None and self._fast_paths.accept_logged(session, raw, now, ending):
                return True
        except Exception:
            # As whatever else cannot be applied: `LogApplier` goes on.
            log.exception("an input of the log could not be applied", extra={"space": self.name})
            return True
        records.count -= 1
        return False

    def expire(self, seed: bytes) -> None:
        """Let the deadlines act that have come by the log's time."""
        if self.space.is_due(self.journaled.clock()):
            with self._applying(SeededMint(seed)):
                self.journaled.step("expire", self.space.expire)

    def drop(self, sessions: Sequence[SessionId], seed: bytes) -> None:
        """A gateway is gone that held these connections."""
        with self._applying(SeededMint(seed)):
            self.applier.drop(sessions)

    @contextmanager
    def _applying(self, mint: SeededMint) -> Iterator[None]:
        """Draw the ids that all gateways draw, and record only what the local journal does not have."""
        journaled, records = self.journaled, self.records
        records.is_copied, records.seed = journaled.clock() <= self.copied_until, self._shard.seed
        journaled.mint, journaled.journal.shared = mint, records
        try:
            yield
        finally:
            journaled.mint, journaled.journal.shared = FreshMint(), None


def _last_shared(journal: Path) -> int:
    """The last record of a copy that all gateways have; 0 where it has none since it began."""
    for record in records_before(journal):
        number = shared_number(record.line)
        if number or is_gap(record.line, is_copy=True):
            # Records before a gap may be of an earlier cluster.
            return number
    return 0


def _facts_of(start: NewSession) -> dict[str, Json]:
    options = msgspec.to_builtins(start.options)
    return {"session": start.id, "who": start.who, "dialect": start.dialect, "options": options}


def _about(data: bytes, dialect: DialectName, protocols: frozenset[str]) -> tuple[str | None, str | None]:
    """The id and the kind of an envelope that came to nothing, as far as it has them."""
    try:
        envelope = DIALECTS[dialect].decode(data, ANY_SIZE, accept_protocols=protocols)
    except MalformedEnvelope:
        return None, None
    return envelope.id or None, envelope.kind


def _secret_for(kind: str) -> Token | None:
    """The token of whom an envelope invites: all gateways get its hash, and this one tells it."""
    return FreshMint().token() if kind == "space/invite" else None
