"""A space under test, and beside it a second, naive memory of what it was told.

Every input goes through `ReferenceModel.put`, which notes what was true before it (`Step`), applies it and
then brings the naive memory up to date. `random_moves` draws the inputs, `invariants` compares the two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from moot.errors import MalformedEnvelope, Refused
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import DialectName, Envelope
from moot.protocol.frames import Frame
from moot.protocol.operation import Json
from moot.protocol.patterns import Capability, covered_by
from moot.space.acts import control
from moot.space.config import SessionId, SpaceConfig
from moot.space.effects import Effect, Reply, Result
from moot.space.members.member import Options, load_capabilities
from moot.space.proposals import proposal_ledger
from moot.space.space import Space
from moot.space.tokens.temporary_tokens import SignIn
from tests.config.former_constants import change_constants

from .client_encoding import body_of, encode_envelope
from .inputs import APPROVALS_FOR_DELETING, CONFIG, SMALL, Input, RecordingMint, feed
from .verdicts import verdicts


@dataclass(frozen=True)
class Listener:
    """One session as it was before a step."""

    session: str
    member: str
    id: str
    dialect: DialectName
    options: Options

    @property
    def listens(self) -> bool:
        return not self.options.injected

    @property
    def takes_frames(self) -> bool:
        return self.dialect == "mew" or self.options.streams


@dataclass(frozen=True)
class Proposed:
    """What we remember of a proposal ourselves."""

    proposer: str
    to: frozenset[str]
    payload: Json
    body: Json
    needed: int
    expires: float
    state: str = "open"
    approvals: frozenset[str] = frozenset()


@dataclass
class Step:
    """One input, what was true before it, and what came of it."""

    given: Input
    listeners: dict[str, Listener]
    effects: list[Effect] = field(default_factory=list)
    refusal: str | None = None
    # Of an envelope or a frame:
    speaker: Listener | None = None
    envelope: Envelope | None = None
    accepted: bool = False
    to: tuple[str, ...] = ()
    # All that it may do at that time, and all that its member may.
    rights: tuple[Capability, ...] = ()
    held: tuple[Capability, ...] = ()
    paused: bool = False
    closing_at: float | None = None
    seen: bool = False
    proposals: dict[str, Proposed] = field(default_factory=dict)
    asked: dict[str, frozenset[str]] = field(default_factory=dict)
    streams: dict[str, tuple[list[str], list[str] | None]] = field(default_factory=dict)
    # What the verdict on relayed envelopes depends on.
    verdicts: Any = None
    epoch: int = 0


class ReferenceModel:
    """The space, a clock, and the naive memory."""

    def __init__(self, config: SpaceConfig = CONFIG) -> None:
        change_constants(SMALL)
        self.space = Space(config)
        self.mint = RecordingMint()
        self.now = 1_760_000_000.0
        self.journal: list[Input] = []
        self.last: Step | None = None
        self.made = 0
        # The naive memory.
        self.accepted: list[str] = []
        self.proposals: dict[str, Proposed] = {}
        self.settled: list[str] = []
        self.requests: dict[str, frozenset[str]] = {}
        self.pauses: dict[str, float | None] = {}
        self.closing: dict[str, float] = {}
        self.shut_down: dict[str, float] = {}
        self.kicked: set[str] = set()
        self.configured = {name: set(p.capabilities) for name, p in config.participants.items()}
        self.static_capabilities = {name: set(rights) for name, rights in self.configured.items()}
        # Member and client → what the newest token gave, and when it was issued.
        self.signed_in: dict[tuple[str, str], tuple[float, set[Capability]]] = {}

    # What the moves need

    @property
    def sessions(self) -> list[str]:
        return list(self.space.state.roster.sessions)

    def fresh(self, prefix: str) -> str:
        self.made += 1
        return f"{prefix}{self.made}"

    def name(self, id: str) -> str:
        """The logical name for an id, as far as anybody here bears it."""
        return next((m.name for m in self.space.state.roster if m.id == id), id)

    def send(
        self,
        session: str,
        kind: str,
        payload: Json,
        *,
        to: Sequence[str] = (),
        about: Sequence[str] = (),
        id: str = "",
        method: str = "tools/call",
    ) -> Step:
        """One envelope, spelled as this session's dialect wants it."""
        live = self.space.state.roster.sessions[SessionId(session)]
        id = id or self.fresh("e")
        raw = encode_envelope(live.dialect, id, live.member.id, kind, payload, to, about, method)
        return self.say(session, raw)

    def say(self, session: str, raw: bytes) -> Step:
        dialect = self.space.state.roster.sessions[SessionId(session)].dialect
        try:
            envelope = DIALECTS[dialect].decode(raw)
        except MalformedEnvelope as refusal:
            raise AssertionError(f"the move itself is malformed: {refusal.message}: {raw!r}") from refusal
        return self.put("receive", SessionId(session), envelope)

    def open_ids(self) -> Counter[str]:
        """The ids of all that must stay known, as often as something of that name is open.

        Proposals count for as long as the ledger remembers them: it answers for them by id.
        """
        state = self.space.state
        known = (state.window.pinned | state.window.recent).items()
        return Counter(
            [
                *state.ledger.proposals,
                *state.grants.by_id,
                *(stream.request_id for stream in state.streams.open.values()),
                *(member.pause.id for member in state.roster if member.pause is not None),
                *(id for id, record in known if record.owed),
                # A request that fulfils proposals, once for each that it may still decide.
                *(id for id, running in state.ledger._executions.items() for _ in running),
            ]
        )

    # One input

    def put(self, what: str, *arguments: Any) -> Step:
        given = Input(what, arguments, self.now)
        state = self.space.state
        step = Step(given, self._listeners(), verdicts=verdicts(state), epoch=state.verdict_epoch)
        if what in ("receive", "frame"):
            self._look_at_speaker(step, str(arguments[0]))
        self.mint.draws = []
        try:
            step.effects = feed(self.space, given, self.mint)
        except Refused as refusal:
            step.refusal = refusal.code
        if what == "receive":
            self._judge(step)
        step.given = replace(given, draws=tuple(self.mint.draws), refused=step.refusal is not None)
        self.journal.append(step.given)
        self._remember(step)
        self.last = step
        return step

    def _listeners(self) -> dict[str, Listener]:
        sessions = self.space.state.roster.sessions.values()
        return {s.id: Listener(s.id, s.member.name, s.member.id, s.dialect, s.options) for s in sessions}

    def _look_at_speaker(self, step: Step, session: str) -> None:
        step.speaker = speaker = step.listeners[session]
        state, live = self.space.state, self.space.state.roster.sessions[SessionId(session)]
        member = live.member
        held = [*state.static_of(member.name)]
        for grant in state.grants.to(member.name):
            held += () if grant.is_over(self.now) else grant.capabilities
        # As much as the token carries that it came with.
        limit = live.options.limited_to
        step.rights = tuple(held if limit is None else load_capabilities(limit))
        step.held = tuple(held)
        until = self.pauses.get(speaker.member, 0.0)
        step.paused = speaker.member in self.pauses and (until is None or until > self.now)
        step.closing_at = self.closing.get(session)
        message = step.given.arguments[1]
        if isinstance(message, Frame):
            streams = self.space.state.streams.open.values()
            step.streams = {s.id: ([*s.writers], None if s.target is None else [*s.target]) for s in streams}
            return
        step.envelope = message
        step.to = tuple(self.name(id) for id in message.to)
        recent = self.accepted[-self.space.state.limits.max_recent_ids :]
        step.seen = message.id in recent or message.id in self.open_ids()
        for id in message.correlation_id:
            if id in self.proposals:
                known = self.proposals[id]
                lapsed = known.state == "open" and known.expires <= self.now
                step.proposals[id] = replace(known, state="expired") if lapsed else known
            if id in self.requests:
                step.asked[id] = self.requests[id]

    def _judge(self, step: Step) -> None:
        """Accepted or refused, from the effects alone; and a refusal answers nobody but the sender."""
        answers = [e.notice.payload for e in step.effects if isinstance(e, Reply)]
        codes = [payload["error"] for payload in answers if "error" in payload and "status" not in payload]
        answer = {"revoke_incomplete", "unsupported_by_recipient"}
        refusals = [code for code in codes if code not in answer]
        step.refusal = refusals[0] if refusals else None
        step.accepted = not refusals

    # The naive memory

    def _remember(self, step: Step) -> None:
        match step.given.what:
            case "receive" if step.accepted:
                self._remember_envelope(step)
            case "join" if step.refusal is None:
                session, _, _, options = step.given.arguments
                name = self.space.state.roster.sessions[session].member.name
                if options.injected and name in self.shut_down:
                    self.closing[session] = self.shut_down[name]
                elif not options.injected:
                    self.shut_down.pop(name, None)
                if options.anonymous:
                    self.static_capabilities[name] = set(self.space.state.config.anonymous or ())
            case "restore_member" if step.refusal is None:
                self.kicked.discard(step.given.arguments[0])
                self._forget_sign_ins(step.given.arguments[0])
            case "change_capabilities" if step.refusal is None:
                name, add, remove = step.given.arguments[:3]
                held = self.static_capabilities[self.name(name)]
                held -= set(remove)
                held |= set(add)
                for (member_name, _), (_, given) in self.signed_in.items():
                    if member_name == self.name(name):
                        given -= set(remove)
            case "sign_in" if step.refusal is None:
                who: SignIn = step.given.arguments[0]
                if who.capabilities is not None:
                    token = who.token
                    self.static_capabilities.setdefault(token.member, set())
                    key = (token.member, token.client)
                    if key not in self.signed_in or token.issued_at >= self.signed_in[key][0]:
                        self.signed_in[key] = (token.issued_at, set(load_capabilities(who.capabilities)))
            case "expire":
                waiting = [id for id, proposal in self.proposals.items() if proposal.state == "open"]
                for id in waiting:
                    if self.proposals[id].expires <= self.now:
                        self._settle(id, "expired")
            case "reload":
                config: SpaceConfig = step.given.arguments[0]
                # A participant whom the configuration no longer names is unknown, kicked or not.
                self.kicked &= {name for name in self.kicked if name in self.space.state.roster.members}
                for listener in step.listeners.values():
                    if listener.options.anonymous and listener.member in config.participants:
                        self._gone(listener.member)
                # What an operator changed since stays, unless the configuration itself says something new.
                answer = {name: set(p.capabilities) for name, p in config.participants.items()}
                for named, rights in answer.items():
                    if rights != self.configured.get(named):
                        self.static_capabilities[named] = set(rights)
                    self._forget_sign_ins(named)
                self.configured = answer
            case _:
                pass
        here = self.space.state.roster.sessions
        self.closing = {session: at for session, at in self.closing.items() if session in here}
        self.pauses = {n: u for n, u in self.pauses.items() if u is None or u > self.now}
        for unknown in self.static_capabilities.keys() - self.space.state.roster.members.keys():
            self._gone(unknown)
            self._forget_sign_ins(unknown)
            del self.static_capabilities[unknown]

    def _forget_sign_ins(self, name: str) -> None:
        self.signed_in = {key: given for key, given in self.signed_in.items() if key[0] != name}

    def _gone(self, name: str) -> None:
        """Kicked, or a guest that left: nothing of it stays."""
        self.pauses.pop(name, None)
        self.shut_down.pop(name, None)
        for id, proposal in list(self.proposals.items()):
            if proposal.state == "open":
                kept = replace(proposal, approvals=proposal.approvals - {name})
                self.proposals[id] = kept
                if proposal.proposer == name:
                    self._settle(id, "withdrawn")

    def _note_last_vote(self, id: str) -> None:
        """D-103: the vote that completes a quorum makes the call, unless something else refuses it."""
        record, known = self.space.state.ledger.get(id), self.proposals[id]
        if record is None or record.state != "fulfilled" or record.settled_by is None:
            return
        assert len(known.approvals) >= known.needed > 0, f"{id} ran without its quorum"
        self.requests[record.settled_by] = known.to
        self._settle(id, "fulfilled")

    def _settle(self, id: str, state: str) -> None:
        self.proposals[id] = replace(self.proposals[id], state=state)
        self.settled.append(id)
        # Half of what the ledger has to remember: of several that end in one step we do not know the order.
        remembered = proposal_ledger.MAX_SETTLED // 2
        for old in self.settled[:-remembered]:
            del self.proposals[old]
        del self.settled[:-remembered]

    def _remember_envelope(self, step: Step) -> None:
        envelope, speaker = step.envelope, step.speaker
        assert envelope is not None
        assert speaker is not None
        self.accepted.append(envelope.id)
        payload, me = envelope.payload, speaker.member
        listening = {listener.member for listener in step.listeners.values() if listener.listens}
        meant = set(step.to) or listening - {me}
        match envelope.kind:
            case "mcp/proposal":
                body = body_of(envelope)
                deleting = body["method"] == "tools/call" and body["params"].get("name") == "delete_file"
                self.proposals[envelope.id] = Proposed(
                    me,
                    frozenset(step.to),
                    payload,
                    body,
                    APPROVALS_FOR_DELETING if deleting else 0,
                    self.now + self.space.state.limits.proposal_seconds,
                )
            case "mcp/request":
                self.requests[envelope.id] = frozenset(step.to)
                for id in step.proposals:
                    self._settle(id, "fulfilled")
            case "mcp/withdraw":
                for id in step.proposals:
                    self._settle(id, "withdrawn")
            case "moot/approve":
                for id, proposal in step.proposals.items():
                    self.proposals[id] = replace(proposal, approvals=proposal.approvals | {me})
                    self._note_last_vote(id)
            case "participant/pause":
                seconds = payload.get("timeout_seconds")
                for name in meant:
                    until = None if seconds is None else self.now + seconds
                    already = self.pauses.get(name, 0.0)
                    self.pauses[name] = None if until is None or already is None else max(until, already)
            case "participant/resume":
                for name in meant - {me}:
                    self.pauses.pop(name, None)
            case "participant/shutdown":
                at = self.now + control.SHUTDOWN_GRACE_SECONDS
                for name in meant - self.shut_down.keys():
                    self.shut_down[name] = at
                    for session in [
                        listener.session for listener in step.listeners.values() if listener.member == name
                    ]:
                        self.closing.setdefault(session, at)
            case "space/kick":
                # By then its runtime id is free: what stood before the step tells whom it meant.
                ids = {listener.id: listener.member for listener in step.listeners.values()}
                kicked = str(ids.get(payload["participant_id"], payload["participant_id"]))
                self.kicked.add(kicked)
                self._gone(kicked)
            case "space/invite" if any(_created(effect) for effect in step.effects):
                invitee = payload["participant_id"]
                self.kicked.discard(invitee)
                baseline = self.space.state.config.invite_baseline
                member = self.space.state.roster.members[invitee]
                self.configured.pop(invitee, None)
                self._forget_sign_ins(invitee)
                self.static_capabilities[invitee] = {
                    c for c in member.static_capabilities if covered_by(c, baseline)
                }
            case _:
                pass


def _created(effect: Effect) -> bool:
    if isinstance(effect, Reply):
        return effect.notice.payload.get("status") == "created"
    return isinstance(effect, Result) and effect.fields.get("status") == "created"
