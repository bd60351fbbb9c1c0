"""One space at work: inputs in one order, journaled with their outcome, effects carried out in that order.

    bytes → decode → space (the ladder) → journal → delivery

Nothing here awaits between an input and its effects. Most effects go out at once and the journal is synced
behind them. Effects of inputs that change rights wait until their record is on disk (D-41), and so does
everything after them, so that order is kept; under `strict` all of them wait. When the journal cannot be
written, the space is told and refuses what must be audited (D-85); what it still accepts goes out at once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec
import orjson

from moot.errors import MalformedEnvelope, Refused, UsageError
from moot.gateway.delivery import Delivery
from moot.gateway.mint import FreshMint
from moot.gateway.patience import Patience
from moot.gateway.records import ACCEPTED, members, replay, speaker, spoken, with_envelope
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import DialectName, Envelope
from moot.protocol.frames import read_frame
from moot.protocol.operation import Json
from moot.protocol.patterns import Capability
from moot.space.config import SessionId, SpaceConfig
from moot.space.effects import Answer, Deliver, Effect, Result, Token
from moot.space.roster import Options
from moot.space.space import Space
from moot.store.database import Database
from moot.store.journal import Journal, JournalSettings
from moot.store.records import read_records

log = logging.getLogger(__name__)

# What gives or takes rights: seen by nobody before it is on disk.
_CHANGES_RIGHTS: Final = frozenset(
    {"capability/grant", "capability/revoke", "space/invite", "space/kick", "participant/pause"}
    | {"participant/resume", "participant/shutdown", "moot/approve"}
)
_HASH: Final = ord("#")


class Held(msgspec.Struct):
    """Effects that wait for their record to be on disk."""

    number: int
    effects: list[Effect]
    now: float
    results: asyncio.Future[list[Result]] | None = None


class SpaceHost:
    """Runs one space. All methods are called from the event loop."""

    def __init__(
        self, name: str, config: SpaceConfig, folder: Path, settings: JournalSettings, database: Database
    ) -> None:
        self.name = name
        journal = Journal.open(folder, settings)
        self.space = Space(config)
        self.journal = journal
        self.delivery: Delivery
        self.received = 0
        self.snapshot_records = 10_000
        # What malformed messages of one session are answered, and errors about one stream (D-36).
        self.patience = Patience(10.0)
        self._stream_patience = Patience(1.0)
        self.refusals: Counter[str] = Counter()
        # The space's time; whoever runs vectors has it stand still.
        self.clock: Callable[[], float] = time.time
        self._database = database
        self._folder = folder
        self._strict = settings.mode == "strict"
        self._held: deque[Held] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: float | None = None
        self._unwritten = settings.mode == "off"
        self._connected_at: dict[SessionId, float] = {}
        self._speakers: dict[SessionId, bytes] = {}
        self._mint = FreshMint()
        self._snapshot_at = 0
        self._committed = 0
        self._sessions = 0
        self._known_since: dict[str, float] = {}
        journal.on_health = self._journal_health

    # Starting and stopping

    async def start(self, config: SpaceConfig) -> int:
        """Snapshot plus replay; returns how many records were played again."""
        ends_at = None if self._unwritten else self.journal.next_number - 1
        saved = await self._database.load_snapshot(self.name, at_most=ends_at)
        position = 0
        if saved is not None:
            position = saved.position
            self.space = Space.restore(config, orjson.loads(saved.state))
        played = 0
        for record in read_records(self._folder, after=position):
            try:
                replay(self.space, record.line, config)
            except (Refused, UsageError) as fault:
                # The configuration has changed since: whoever it no longer names cannot come in again.
                log.warning(
                    "not replayed", extra={"space": self.name, "record": record.number, "why": str(fault)}
                )
            played += 1
        if saved is not None or played:
            self._step("restart", lambda now, mint: self.space.restart(now, mint))
            self._step("reload", lambda now, mint: self.space.reload(config, now, mint))
        if not self.space.state.journal_able:
            self._step("health", lambda _now, _mint: self.space.health(journal_able=True), able=True)
        await self.save_snapshot()
        return played

    def save_snapshot(self) -> asyncio.Future[None]:
        """The state as it is, with the number of the last record that it covers."""
        position = self.journal.next_number - 1
        saving = self._database.save_snapshot(self.name, position, orjson.dumps(self.space.save()))
        self._snapshot_at = position
        saving.add_done_callback(lambda done: self._saved(position, done))
        return saving

    def _saved(self, position: int, done: asyncio.Future[None]) -> None:
        if not done.cancelled() and done.exception() is None:
            self._committed = position
            self.journal.covered(position)
        self._release()

    async def stop(self) -> None:
        """Everything on disk; the last effects are out."""
        if self._timer is not None:
            self._timer.cancel()
        position = self.journal.next_number - 1
        await self.journal.close()
        self._release(anyway=True)
        if self._unwritten or self.journal.durable >= position:
            await self.save_snapshot()

    # What members do

    def new_session(self) -> SessionId:
        self._sessions += 1
        return SessionId(f"{int(self._clock() * 1000):x}-{self._sessions}")

    def join(
        self,
        session: SessionId,
        who: str,
        dialect: DialectName,
        options: Options,
        attach: Callable[[], None],
    ) -> None:
        """Let somebody in; raises Refused. `attach` connects the line before anything is sent to it."""
        now, mint = self._clock(), FreshMint()
        effects = self.space.join(session, who, dialect, options, now, mint)
        attach()
        self._connected_at[session] = now
        self._speakers[session] = speaker(session, who, dialect)
        facts: dict[str, Json] = {"options": msgspec.to_builtins(options)}
        number = self._record("join", now, mint, session=session, who=who, dialect=dialect, **facts)
        self._carry_out(effects, number, now)

    def leave(self, session: SessionId) -> None:
        """A connection ended."""
        self.delivery.detach(session)
        self._connected_at.pop(session, None)
        self._speakers.pop(session, None)
        known = self.space.state.roster.sessions.get(session)
        if known is not None:
            log.info("left", extra={"space": self.name, "participant": known.member.name, "session": session})
            self._step(
                "leave",
                lambda now, mint: self.space.leave(session, now, mint),
                session=session,
                who=known.member.name,
            )

    def receive(self, session: SessionId, dialect: DialectName, data: bytes, *, binary: bool) -> None:
        """One message from a socket: an envelope, or a stream frame."""
        now = self.clock()
        space = self.space
        if session not in space.state.roster.sessions:
            # The space has let go of it; the close that says so still waits for the disk.
            return
        if data and data[0] == _HASH:
            self._frame(session, data, binary, now)
            return
        config = space.state.config
        try:
            envelope = DIALECTS[dialect].decode(
                data, config.limits.envelope, accept_protocols=config.accept_protocols
            )
        except MalformedEnvelope as refusal:
            self.refuse(session, refusal, len(data))
            return
        mint = self._mint
        if mint.ids or mint.tokens:
            # Most envelopes draw nothing, so that one mint does for many.
            mint = self._mint = FreshMint()
        effects = space.receive(session, envelope, now, mint)
        out = _outcome(effects)
        self.received += 1
        if out != ACCEPTED:
            data = self._refused(session, envelope, out, data)
        record = b"" if self._unwritten else spoken(now, self._speakers[session], envelope, out, mint, data)
        number = self.journal.append(record)
        self._carry_out(effects, number, now, waits=envelope.kind in _CHANGES_RIGHTS and out == ACCEPTED)

    def _refused(self, session: SessionId, envelope: Envelope, code: str, raw: bytes) -> bytes:
        """Count a refusal; what is journaled of it. A join holds a token, and no record ever does."""
        self.refusals[code] += 1
        log.info("refused", extra={"space": self.name, "session": session, "code": code})
        return b"null" if envelope.kind.startswith("system") else raw

    def refuse(self, session: SessionId, refusal: Refused, size: int) -> None:
        """Answer something that never became an envelope; its bytes are not journaled, only that it came."""
        now, mint = self._clock(), FreshMint()
        if session not in self.space.state.roster.sessions or not self.patience.answers(session, now):
            return
        effects = self.space.refuse(session, refusal, now, mint)
        who = space_member(self.space, session)
        number = self._record("malformed", now, mint, session=session, who=who, out=refusal.code, size=size)
        self.refusals[refusal.code] += 1
        self._carry_out(effects, number, now)

    def _frame(self, session: SessionId, data: bytes, binary: bool, now: float) -> None:
        """Frames are not journaled: they read the state and never change it (D-89)."""
        try:
            frame = read_frame(data, binary=binary, max_bytes=self.space.state.limits.frame_bytes)
        except MalformedEnvelope as refusal:
            self.refuse(session, refusal, len(data))
            return
        effects = self.space.frame(session, frame, now, FreshMint())
        if _outcome(effects) != ACCEPTED and not self._stream_patience.answers(
            (session, frame.stream_id), now
        ):
            return
        self._carry_out(effects, self.journal.next_number - 1, now)

    async def post(
        self, who: str, dialect: DialectName, body: bytes, options: Options
    ) -> list[Result] | Answer:
        """An envelope over HTTP, up the same ladder (D-40). A refusal is the answer it would have been."""
        now, mint, session = self._clock(), FreshMint(), self.new_session()
        space = self.space
        config = space.state.config
        envelope = DIALECTS[dialect].decode(
            body, config.limits.envelope, accept_protocols=config.accept_protocols
        )
        space.join(session, who, dialect, options, now, mint)
        effects = space.receive(session, envelope, now, mint)
        effects += space.leave(session, now, mint)
        out = _outcome(effects)
        facts: dict[str, Json] = {"kind": envelope.wire_kind or envelope.kind, "id": envelope.id}
        facts["options"] = msgspec.to_builtins(options)
        if out != ACCEPTED:
            body = self._refused(session, envelope, out, body)
        head = members("post", now, mint, session=session, who=who, dialect=dialect, out=out, **facts)
        number = self.journal.append(with_envelope(head, body))
        if out != ACCEPTED:
            answer = effects[0]
            self._carry_out(effects[1:], number, now)
            assert isinstance(answer, Answer)  # noqa: S101  # that is how a refusal is known
            return answer
        # HTTP 200 is an acknowledgement, so it waits for the disk in every mode (D-41).
        done: asyncio.Future[list[Result]] = asyncio.get_running_loop().create_future()
        self._carry_out(effects, number, now, waits=True, results=done)
        return await done

    def known_since(self, name: str) -> float:
        """When a member that came after the start became one; nobody polls for what was before (D-40)."""
        return self._known_since.get(name, 0.0)

    def credential_changed(self, name: str) -> None:
        self._known_since[name] = self._clock()

    def connected_at(self, session: SessionId) -> float:
        return self._connected_at.get(session, 0.0)

    # What operators do

    def change_capabilities(
        self, who: str, add: Sequence[Capability], remove: Sequence[Capability], by: str
    ) -> list[Result]:
        facts: dict[str, Json] = {
            "add": [capability.original for capability in add],
            "remove": [capability.original for capability in remove],
        }
        return self._step(
            "capabilities",
            lambda now, mint: self.space.change_capabilities(who, add, remove, by, now, mint),
            who=who,
            by=by,
            **facts,
        )

    def restore_member(self, who: str, by: str) -> list[Result]:
        return self._step("restore", lambda _now, mint: self.space.restore_member(who, mint), who=who, by=by)

    def rotate_credential(self, who: str, token: Token, *, keep: bool) -> None:
        self._step(
            "rotate",
            lambda _now, _mint: self.space.rotate_credential(who, token, keep=keep),
            who=who,
            keep=keep,
            tokens=[token.hash],
        )

    def reload(self, config: SpaceConfig) -> None:
        """Take a configuration over. The snapshot keeps what came of it: replay knows only the newest one."""
        self._step("reload", lambda now, mint: self.space.reload(config, now, mint))
        self.save_snapshot()

    # The order of things

    def _step(
        self, input: str, act: Callable[[float, FreshMint], list[Effect]], **facts: Json
    ) -> list[Result]:
        now, mint = self._clock(), FreshMint()
        effects = act(now, mint)
        number = self._record(input, now, mint, **facts)
        results = [effect for effect in effects if isinstance(effect, Result)]
        self._carry_out(effects, number, now)
        return results

    def _record(self, input: str, now: float, mint: FreshMint, **facts: Json) -> int:
        return self.journal.append(members(input, now, mint, **facts))

    def _carry_out(
        self,
        effects: list[Effect],
        number: int,
        now: float,
        *,
        waits: bool = False,
        results: asyncio.Future[list[Result]] | None = None,
    ) -> None:
        if self._held or ((waits or self._strict) and self.journal.able):
            self._held.append(Held(number, effects, now, results))
            if self._unwritten:
                # D-41: without a journal the state itself is committed first.
                self.save_snapshot()
            else:
                self.journal.when_durable(number, self._release)
        else:
            found = self.delivery.carry_out(effects, now)
            if results is not None:
                results.set_result(found)
        self._set_timer()
        if number - self._snapshot_at >= self.snapshot_records:
            self.save_snapshot()

    def _release(self, *, anyway: bool = False) -> None:
        """Carry out what is on disk by now, in order; or all of it, when waiting is over."""
        safe = self._committed if self._unwritten else self.journal.durable
        while self._held and (anyway or self._held[0].number <= safe):
            held = self._held.popleft()
            found = self.delivery.carry_out(held.effects, held.now)
            if held.results is not None and not held.results.done():
                held.results.set_result(found)

    def _journal_health(self, able: bool) -> None:
        self._step("health", lambda _now, _mint: self.space.health(journal_able=able), able=able)
        if not able:
            # What waits for the disk would hold back chat and presence; its record is kept and written later.
            self._release(anyway=True)

    # Time

    def _clock(self) -> float:
        return self.clock()

    def _set_timer(self) -> None:
        when = self.space.state.next_deadline()
        if when == self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = when
        if when is not None:
            delay = max(0.0, when - self._clock())
            # A day at most: a deadline far away is looked at again then.
            self._timer = asyncio.get_running_loop().call_later(min(delay, 86_400.0), self._expire)

    def _expire(self) -> None:
        self._timer = self._timer_at = None
        when = self.space.next_deadline()
        if when is not None and when <= self._clock():
            self._step("expire", lambda now, mint: self.space.expire(now, mint))
        self._set_timer()


def space_member(space: Space, session: SessionId) -> str:
    known = space.state.roster.sessions.get(session)
    return known.member.name if known is not None else ""


def _outcome(effects: list[Effect]) -> str:
    """`accepted`, or the code that the sender was answered with: a refusal is always the first effect."""
    if effects and effects[0].__class__ is not Deliver:
        first = effects[0]
        if isinstance(first, Answer) and first.notice.kind == "system/error":
            return str(first.notice.payload["error"])
    return ACCEPTED
