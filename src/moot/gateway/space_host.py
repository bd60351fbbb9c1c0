"""One space at work: what members and operators do becomes inputs of the space, in one order.

    bytes → decode → space (the ladder) → journal → delivery

Nothing here awaits between an input and its effects; `order` says when they go out.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from moot.errors import MalformedEnvelope, Refused, Unavailable, UsageError
from moot.gateway.error_reply_limiter import ErrorReplyLimiter
from moot.gateway.history_restore import recall
from moot.gateway.journaled_space import JournaledSpace
from moot.gateway.mint import FreshMint
from moot.gateway.space_records import ACCEPTED, RecordEncoder, filled_id, members, replay
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import DialectName, Envelope
from moot.protocol.frames import read_frame
from moot.protocol.operation import Json
from moot.protocol.patterns import Capability
from moot.space.config import SessionId, SpaceConfig
from moot.space.config_json import load_config
from moot.space.effects import Deliver, Effect, Reply, Result, Token
from moot.space.roster import Options
from moot.space.space import Space
from moot.store.database import Database
from moot.store.journal import JournalSettings
from moot.store.journal_reader import read_records

log = logging.getLogger(__name__)

# What gives or takes rights: seen by nobody before it is on disk.
_CHANGES_RIGHTS: Final = frozenset(
    {"capability/grant", "capability/revoke", "space/invite", "space/kick", "participant/pause"}
    | {"participant/resume", "participant/shutdown", "moot/approve"}
)
# D-85: these always work; their records find room in memory when the disk fails and others no longer do.
_SHRINKS_RIGHTS: Final = frozenset(
    {"space/kick", "capability/revoke", "participant/pause", "participant/shutdown"}
    | {"mcp/reject", "mcp/withdraw", "reasoning/cancel"}
)
_ABOUT_RIGHTS: Final = _CHANGES_RIGHTS | _SHRINKS_RIGHTS
_HASH: Final = ord("#")
# Some ten milliseconds of replay.
_REPLAY_SLICE: Final = 500


class SpaceHost(JournaledSpace):
    """Runs one space. All methods are called from the event loop."""

    def __init__(
        self, name: str, config: SpaceConfig, folder: Path, settings: JournalSettings, database: Database
    ) -> None:
        super().__init__(name, config, folder, settings, database)
        self._received = 0
        self.refusals: Counter[str] = Counter()
        # What malformed messages of one session are answered, and errors about one stream (D-36).
        self.patience = ErrorReplyLimiter(10.0)
        self._stream_patience = ErrorReplyLimiter(1.0)
        self._connected_at: dict[SessionId, float] = {}
        self._speakers: dict[SessionId, RecordEncoder] = {}
        self._mint = FreshMint()
        self._sessions = 0
        self._known_since: dict[str, float] = {}

    # Starting and stopping

    async def start(self, config: SpaceConfig) -> int:
        """Snapshot plus replay; returns how many records were played again."""
        ends_at = None if self._unwritten else self.journal.next_number - 1
        saved = await self._database.load_snapshot(self.name, at_most=ends_at)
        position = 0
        if saved is not None:
            position = saved.position
            kept = json.loads(saved.state)  # integers of any size
            # Under the rules of then: what they accepted, a kick above all, must come out the same.
            self.space = Space.restore(load_config(kept.pop("config")), kept)
        played = 0
        for record in read_records(self._folder, after=position):
            try:
                replay(self.space, record.line, config)
            except (Refused, UsageError) as fault:
                # Cannot happen under the same rules; a damaged record must not keep the gateway down.
                log.warning(
                    "not replayed", extra={"space": self.name, "record": record.number, "why": str(fault)}
                )
            played += 1
            if not played % _REPLAY_SLICE:
                # Nobody is let in yet; probes are answered meanwhile.
                await asyncio.sleep(0)
        known = set(self.space.state.roster.members)
        if saved is not None or played:
            self._known_since = recall(self.delivery.past, self._folder, config)
            self._step("restart", lambda now, mint: self.space.restart(now, mint))
            self._step("reload", lambda now, mint: self.space.reload(config, now, mint))
            # Who is new in the configuration was no member when all that was said.
            newcomers = [name for name in self.space.state.roster.members if name not in known]
            self._known_since |= dict.fromkeys(newcomers, self._clock())
        self.begin()
        await self.save_snapshot()
        return played

    def begin(self) -> None:
        """The start of a space that nobody has seen yet: there is nothing to play again."""
        if not self.space.state.journal_able:
            self._step("health", lambda _now, _mint: self.space.health(journal_able=True), able=True)

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

    @property
    def received(self) -> int:
        """How many envelopes came, by socket and by HTTP."""
        return self._received + self.lanes.heard

    @property
    def delivered(self) -> int:
        """How many messages that made for others."""
        return self.delivery.delivered + self.lanes.delivered

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
        self.lanes.close()
        now, mint = self._clock(), FreshMint()
        effects = self.space.join(session, who, dialect, options, now, mint)
        self._connected_at[session] = now
        if dialect == "mew":
            self.lanes.begin(session, self.space.state.roster.sessions[session].member.id)
        self._speakers[session] = RecordEncoder(session, who, dialect)
        attach()
        facts: dict[str, Json] = {"options": msgspec.to_builtins(options)}
        number = self._record("join", now, mint, session=session, who=who, dialect=dialect, **facts)
        self._carry_out(effects, number, now)

    def leave(self, session: SessionId) -> None:
        """A connection ended."""
        self.delivery.detach(session)
        self._connected_at.pop(session, None)
        self._speakers.pop(session, None)
        self.lanes.end(session)
        known = self.space.state.roster.sessions.get(session)
        if known is not None:
            log.info("left", extra={"space": self.name, "participant": known.member.name, "session": session})
            self._step(
                "leave",
                lambda now, mint: self.space.leave(session, now, mint),
                session=session,
                who=known.member.name,
            )

    def receive(self, session: SessionId, dialect: DialectName, data: bytes, binary: bool) -> None:
        """One message from a socket: an envelope, or a stream frame."""
        # Here and below, names of arguments are left out where every message would pay for them.
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
        self._received += 1
        kind = envelope.kind
        if len(effects) == 1 and effects[0].__class__ is Deliver and kind not in _ABOUT_RIGHTS:
            # Nearly all that is said: heard by everybody and nothing else.
            speaker = self._speakers[session]
            if self._unwritten:
                number = self.journal.append(b"")
            else:
                number = self.journal.append(speaker.record(now, envelope, ACCEPTED, mint), data)
            if not self._held and not self._strict:
                self.delivery.deliver(effects[0], now)
                if dialect == "mew":
                    due = self._snapshot_due
                    self.lanes.passed(space.state, session, envelope, speaker.common, self.clock, due)
                if space.state.scheduled != self._scheduled or number >= self._snapshot_due:
                    self._look_ahead(number)
                return
            self._carry_out(effects, number, now)
            return
        out = _outcome(effects)
        if out != ACCEPTED:
            data = self._refused(space_member(space, session), envelope, out, data)
        head = self._speakers[session].record(now, envelope, out, mint)
        number = self.journal.append(head, data, vital=kind in _SHRINKS_RIGHTS)
        self._carry_out(effects, number, now, waits=kind in _CHANGES_RIGHTS and out == ACCEPTED)

    def _refused(self, who: str, envelope: Envelope, code: str, raw: bytes) -> bytes:
        """Count a refusal; what is journaled of it. A join holds a token, and no record ever does."""
        self.refusals[code] += 1
        log.info("refused", extra={"space": self.name, "participant": who, "code": code})
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
            frame = read_frame(data, binary=binary, max_bytes=self.space.state.limits.max_frame_bytes)
        except MalformedEnvelope as refusal:
            self.refuse(session, refusal, len(data))
            return
        effects = self.space.frame(session, frame, now, FreshMint())
        if _outcome(effects) != ACCEPTED and not self._stream_patience.answers(
            (session, frame.stream_id), now
        ):
            return
        if self._held or self._strict:
            self._carry_out(effects, self.journal.next_number - 1, now)
        else:
            self.delivery.carry_out(effects, now)

    async def post(
        self, who: str, dialect: DialectName, body: bytes, options: Options
    ) -> list[Result] | Reply:
        """An envelope over HTTP, up the same ladder (D-40). A refusal is the answer it would have been."""
        self.lanes.close()
        now, mint, session = self._clock(), FreshMint(), self.new_session()
        space = self.space
        config = space.state.config
        try:
            envelope = DIALECTS[dialect].decode(
                body, config.limits.envelope, accept_protocols=config.accept_protocols
            )
        except MalformedEnvelope as refusal:
            size = len(body)
            self._record("malformed", now, mint, session=session, who=who, out=refusal.code, size=size)
            self.refusals[refusal.code] += 1
            raise
        if envelope.kind not in _SHRINKS_RIGHTS:
            # HTTP 200 says that it is kept (D-41), which nobody can say now; a socket is not told so much.
            self._check_journal()
        space.join(session, who, dialect, options, now, mint)
        effects = space.receive(session, envelope, now, mint)
        effects += space.leave(session, now, mint)
        out = _outcome(effects)
        self._received += 1
        id = envelope.id or filled_id(out, mint)
        facts: dict[str, Json] = {"kind": envelope.wire_kind or envelope.kind, "id": id}
        facts["options"] = msgspec.to_builtins(options)
        if out != ACCEPTED:
            body = self._refused(who, envelope, out, body)
        head = members("post", now, mint, session=session, who=who, dialect=dialect, out=out, **facts)
        vital = envelope.kind in _SHRINKS_RIGHTS
        number = self.journal.append(head + b',"raw":', body, vital=vital)
        if out != ACCEPTED:
            answer = effects[0]
            self._carry_out(effects[1:], number, now)
            assert isinstance(answer, Reply)  # noqa: S101  # that is how a refusal is known
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

    def _check_journal(self) -> None:
        """D-85: nothing that must be audited happens while it cannot be."""
        if not self.journal.able:
            raise Unavailable("the journal cannot be written: try again later")

    async def change_capabilities(
        self, who: str, add: Sequence[Capability], remove: Sequence[Capability], by: str
    ) -> list[Result]:
        if add:
            self._check_journal()
        facts: dict[str, Json] = {
            "add": [capability.original for capability in add],
            "remove": [capability.original for capability in remove],
        }
        return await self._settled(
            "capabilities",
            lambda now, mint: self.space.change_capabilities(who, add, remove, by, now, mint),
            who=who,
            by=by,
            **facts,
        )

    async def restore_member(self, who: str, by: str) -> list[Result]:
        self._check_journal()
        return await self._settled(
            "restore", lambda _now, mint: self.space.restore_member(who, mint), who=who, by=by
        )

    async def rotate_credential(self, who: str, token: Token, by: str, *, keep: bool) -> None:
        self._check_journal()
        await self._settled(
            "rotate",
            lambda _now, _mint: self.space.rotate_credential(who, token, keep=keep),
            who=who,
            by=by,
            keep=keep,
            tokens=[token.hash],
        )

    def reload(self, config: SpaceConfig) -> None:
        """Take a configuration over. The snapshot keeps what came of it: replay knows only the newest one."""
        self._step("reload", lambda now, mint: self.space.reload(config, now, mint), waits=True)
        self.save_snapshot()


def space_member(space: Space, session: SessionId) -> str:
    known = space.state.roster.sessions.get(session)
    return known.member.name if known is not None else ""


def _outcome(effects: list[Effect]) -> str:
    """`accepted`, or the code that the sender was answered with: a refusal is always the first effect."""
    if effects and effects[0].__class__ is not Deliver:
        first = effects[0]
        if isinstance(first, Reply) and first.notice.kind == "system/error":
            return str(first.notice.payload["error"])
    return ACCEPTED
