"""What must hold in a space after every step, whatever was done to it.

Each check is written from the rulings and computes its answer anew, the slow and obvious way: none of
them asks the code under test how it came to its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import Envelope
from moot.protocol.frames import Frame
from moot.protocol.kinds import KINDS, UNKNOWN
from moot.protocol.patterns import Capability, covered_by, covers
from moot.protocol.payloads import GatewayNotice
from moot.space.effects import Deliver, Disconnect, Effect, Reply, Result
from moot.space.members.member import Session, load_capabilities

from .client_encoding import body_of
from .reference_model import Listener, ReferenceModel, Step
from .verdicts import verdicts

# D-25 and D-26, word for word.
PASSES_A_PAUSE: Final = frozenset(
    {
        "chat/acknowledge",
        "chat/cancel",
        "reasoning/cancel",
        "mcp/withdraw",
        "mcp/reject",
        "capability/grant-ack",
        "participant/status",
        "participant/compact-done",
        "participant/resume",
        "stream/close",
    }
)
PASSES_A_SHUTDOWN: Final = frozenset({"chat/acknowledge", "participant/status", "stream/close"})
# D-23, D-34: the gateway takes these in and speaks itself.
CONSUMED: Final = frozenset(
    {"space/invite", "stream/grant-write", "stream/revoke-write", "stream/transfer-ownership"}
)
# D-15: what may be owed.
OWED: Final = frozenset(
    {
        "mcp/response",
        "capability/grant-ack",
        "participant/compact-done",
        "participant/status",
        "chat/acknowledge",
        "mcp/request",
    }
)
# What counts against max_open_requests: questions, not orders.
QUESTIONS: Final = frozenset(
    {
        "mcp/request",
        "participant/request-status",
        "participant/forget",
        "participant/compact",
        "participant/clear",
        "participant/restart",
    }
)
SECRET: Final = b"secret-"

Check = Callable[[ReferenceModel], None]


def every_right_has_a_chain(model: ReferenceModel) -> None:
    """D-16, D-18: a right is static, or a chain of grants leads to a static one."""
    state = model.space.state
    known: list[tuple[str, Capability]] = [
        (member.name, capability)
        for member in state.roster
        if not member.kicked
        for capability in model.static_capabilities[member.name]
    ]
    known += [
        (name, capability)
        for (name, _), (_, given) in model.signed_in.items()
        if name not in model.kicked
        for capability in given
    ]
    grants = [(g.granter, g.recipient, c) for g in state.grants.by_id.values() for c in g.capabilities]
    grown = True
    while grown:
        grown = False
        for granter, recipient, right in grants:
            if (recipient, right) not in known and any(n == granter and covers(h, right) for n, h in known):
                known.append((recipient, right))
                grown = True
    for member in state.roster:
        for right in member.rights.capabilities:
            assert (member.name, right) in known, f"{member.name} holds {right.original} out of nothing"
    for session in state.roster.sessions.values():
        guest = session.member.name if session.options.anonymous else None
        assert guest not in state.config.participants, f"guest {guest} bears a participant's name"
        _check_own_token(model, session)


def _check_own_token(model: ReferenceModel, session: Session) -> None:
    """Beyond grants, a connection may do what its own token gave, and the newest one of its client."""
    state, name = model.space.state, session.member.name
    token = state.temporary_tokens.get(session.options.token or "")
    if token is None or token.rights is None:
        return
    granted = [right for grant in state.grants.to(name) for right in grant.capabilities]
    newest = model.signed_in[name, token.client][1]
    for right in session.rights.capabilities:
        is_common = right in model.static_capabilities[name] or right in granted
        is_own = covered_by(right, load_capabilities(token.rights)) and covered_by(right, newest)
        assert is_common or is_own, f"{name} has {right.original} by another token"


def nobody_does_what_no_capability_allows(model: ReferenceModel) -> None:
    """MEW 4.2, D-15: what is accepted matches a right of its sender, or is an answer that can be owed."""
    step = model.last
    if step is None or step.envelope is None or not step.accepted:
        return
    answer = step.envelope
    asked = [model.space.state.window.get(id) for id in answer.correlation_id]
    operations = [record.operation for record in asked if record and record.kind == "mcp/request"] or [None]
    allowed = all(
        any(
            right.matches(answer.kind, answer.payload, step.to, asked=operation, claim=answer.claim)
            for right in rights
        )
        for operation in operations
        for rights in (step.rights, step.held)
    )
    assert allowed or (answer.kind in OWED and answer.correlation_id), f"{answer.kind} without a right to it"


def a_proposal_runs_once_and_as_it_was_reviewed(model: ReferenceModel) -> None:
    """D-28: at most one execution, of exactly what was proposed, by whom and when the rules allow."""
    step = model.last
    if step is None or step.envelope is None or step.speaker is None or not step.accepted:
        return

    for id, proposal in step.proposals.items():
        if step.envelope.kind == "mcp/request":
            assert proposal.state == "open", f"{id} was {proposal.state} and ran again"
            assert same(body_of(step.envelope), proposal.body), f"{id} ran as something else"
            assert not proposal.to or frozenset(step.to) == proposal.to, f"{id} ran elsewhere"
            assert len(proposal.approvals) >= proposal.needed, f"{id} ran without its quorum"
            assert proposal.proposer != step.speaker.member, f"{id} ran by its own proposer"
        elif step.envelope.kind == "mcp/withdraw":
            assert proposal.proposer == step.speaker.member, f"{id} was withdrawn by another"
            assert proposal.state == "open", f"{id} was {proposal.state} and withdrawn"
        elif step.envelope.kind == "moot/approve":
            assert proposal.proposer != step.speaker.member, f"{id} was approved by its proposer"


def same(one: Any, other: Any) -> bool:
    """Equal as JSON: true is not 1, and numbers are compared in full."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def only_the_asked_answer(model: ReferenceModel) -> None:
    """D-80: a request that names members is answered by one of them."""
    step = model.last
    if step is None or step.envelope is None or step.speaker is None or not step.accepted:
        return
    if step.envelope.kind == "mcp/response":
        for id, to in step.asked.items():
            assert not to or step.speaker.member in to, f"{id} was answered by {step.speaker.member}"


def a_kicked_member_is_nowhere(model: ReferenceModel) -> None:
    """D-24: no session, grant, stream, open proposal, and on no list."""
    state = model.space.state
    for name in model.kicked:
        member = state.roster.members[name]  # type: ignore[index]
        assert member.kicked, f"{name} is back without invitation"
        assert not member.sessions
        assert not member.credentials
        assert not member.rights.capabilities
        assert all(session.member.name != name for session in state.roster.sessions.values())
        assert all(name not in (g.granter, g.recipient) for g in state.grants.by_id.values())
        assert all(token.member != name for token in state.temporary_tokens.by_hash.values())
        for stream in state.streams.open.values():
            assert name not in (stream.owner, *stream.writers, *stream.granted, *(stream.target or ()))
        assert all(p.proposer != name or p.state != "open" for p in state.ledger.proposals.values())
        assert state.roster.resolve(name) is None
    if model.last is not None:
        for notice in _notices(model.last.effects):
            shown = notice.payload["participants"] if notice.kind == "system/welcome" else []
            assert not {p["id"] for p in shown} & model.kicked, "a kicked member is in a welcome"
            if notice.kind == "system/presence" and notice.payload["event"] != "leave":
                assert notice.payload["participant"]["id"] not in model.kicked


def the_paused_keep_quiet(model: ReferenceModel) -> None:
    """D-25: a paused member says only what the list allows, on every session; and who is paused is known."""
    step = model.last
    if step is not None and step.paused:
        if step.envelope is not None:
            assert not step.accepted or step.envelope.kind in PASSES_A_PAUSE, step.envelope.kind
        else:
            assert not any(isinstance(effect, Deliver) for effect in step.effects), "a paused member's frame"
    paused = {
        m.name for m in model.space.state.roster if m.pause is not None and not m.pause_is_over(model.now)
    }
    assert paused == set(model.pauses), (paused, model.pauses)


def the_shut_down_keep_quiet(model: ReferenceModel) -> None:
    """D-26: five seconds for three kinds, then nothing on that session."""
    step = model.last
    if step is not None and step.closing_at is not None:
        if step.envelope is not None and step.accepted:
            assert step.envelope.kind in PASSES_A_SHUTDOWN
            assert model.now < step.closing_at
        if step.envelope is None:
            assert not any(isinstance(effect, Deliver) for effect in step.effects)
    closing = {
        s.id: s.closing_at for s in model.space.state.roster.sessions.values() if s.closing_at is not None
    }
    assert closing == model.closing


def everyone_hears_once(model: ReferenceModel) -> None:
    """D-01, D-02, D-54: an accepted envelope reaches each listening session once; a refused one nobody."""
    step = model.last
    if step is None or step.envelope is None or step.speaker is None:
        return
    relayed = [e for e in step.effects if isinstance(e, Deliver) and isinstance(e.message, Envelope)]
    if not step.accepted:
        assert not relayed
        for effect in step.effects:
            assert isinstance(effect, Reply), f"a refusal had an effect: {effect}"
            assert effect.session == step.speaker.session
        return
    if step.envelope.kind in CONSUMED:
        assert not relayed
        return
    assert len(relayed) == 1, f"{step.envelope.kind} was relayed {len(relayed)} times"
    message = relayed[0].message
    assert isinstance(message, Envelope)
    assert message.id == step.envelope.id
    assert message.sender == step.speaker.id
    heard = set(relayed[0].sessions)
    assert len(heard) == len(relayed[0].sessions)
    for listener in step.listeners.values():
        expected: bool | None = _hears(listener, step, relayed[0].proposer)
        if expected and listener.options.hears == "mine":
            expected = _is_its_own(listener, step)
            if expected is None:
                continue
        assert (listener.session in heard) == expected, (step.envelope.kind, step.to, listener)


def _hears(listener: Listener, step: Step, proposer: str | None) -> bool:
    assert step.speaker is not None
    if not listener.listens or (listener.session == step.speaker.session and not listener.options.echo):
        return False
    named = (*step.to, *((proposer,) if step.envelope and step.envelope.kind == "mcp/response" else ()))
    return (
        listener.options.routing == "all" or not step.to or listener.member in named or listener.id in named
    )


def _is_its_own(listener: Listener, step: Step) -> bool | None:
    """Decision 0243, without looking at what a message is about: None where that decides."""
    assert step.speaker is not None
    assert step.envelope is not None
    kind, is_addressed = step.envelope.kind, listener.member in step.to or listener.id in step.to
    if is_addressed or listener.member == step.speaker.member or (kind == "mcp/request" and not step.to):
        return True
    traffic = ("mcp/request", "mcp/response", "chat", "chat/acknowledge", "reasoning/start")
    if kind not in (*traffic, "reasoning/thought", "reasoning/conclusion"):
        return True
    return None if step.envelope.correlation_id else False


def frames_reach_their_targets(model: ReferenceModel) -> None:
    """D-36, D-57: from a writer alone; to the targets, or to all who take frames; never to anybody else."""
    step = model.last
    if step is None or step.speaker is None or step.envelope is not None:
        return
    frames = [e for e in step.effects if isinstance(e, Deliver) and isinstance(e.message, Frame)]
    writers, target = step.streams.get(step.given.arguments[1].stream_id, ([], None))
    if not frames:
        return
    assert step.speaker.member in writers, "a frame from somebody who may not write"
    expected = [
        listener.session
        for listener in step.listeners.values()
        if listener.listens
        and listener.takes_frames
        and (target is None or listener.member in target)
        and (listener.options.echo or listener.session != step.speaker.session)
    ]
    assert len(frames) == 1
    assert sorted(frames[0].sessions) == sorted(expected)


def secrets_go_to_the_inviter_alone(model: ReferenceModel) -> None:
    """MEW 3.6.6: a token stands in the invite-ack of the asking session and nowhere else."""
    if model.last is None:
        return
    for effect in model.last.effects:
        if isinstance(effect, Deliver):
            assert SECRET not in _bytes(effect.message), "a token was delivered to all"
        elif isinstance(effect, Reply) and SECRET in _bytes(effect.notice):
            assert effect.notice.kind == "space/invite-ack"
            assert model.last.speaker is not None
            assert effect.session == model.last.speaker.session
        elif isinstance(effect, Result) and SECRET in str(effect.fields).encode():
            # An operator's restore has no session to answer to.
            assert effect.session is None or effect.session == model.last.given.arguments[0]


def only_the_gateway_speaks_for_itself(model: ReferenceModel) -> None:
    """D-10: what reserved kinds are delivered comes from the gateway."""
    if model.last is not None:
        for effect in model.last.effects:
            if isinstance(effect, Deliver) and isinstance(effect.message, Envelope):
                kind = effect.message.kind
                assert not kind.startswith("system/"), kind
                assert kind not in ("space/invite-ack", "stream/open", "stream/write-granted"), kind


def no_id_is_taken_twice(model: ReferenceModel) -> None:
    """D-07: not within the window, and never while what it names is open."""
    step = model.last
    if step is not None and step.envelope is not None and step.accepted:
        assert not step.seen, f"{step.envelope.id} was taken twice"
    state = model.space.state
    for id in model.open_ids():
        assert id in state.window, f"{id} is open and was forgotten"
    for id in model.accepted[-state.limits.max_recent_ids :]:
        assert id in state.window, f"{id} is recent and was forgotten"


def time_moves_on(model: ReferenceModel) -> None:
    """After `expire` nothing that is due is left, and whatever waits for somebody has an end."""
    state, now = model.space.state, model.now
    for stream in state.streams.open.values():
        assert state.roster.members[stream.owner].present or stream.closes_at is not None, stream.id
    if model.last is None or model.last.given.what != "expire":
        return
    deadline = model.space.next_deadline()
    assert deadline is None or deadline > now
    ends = [
        *(stream.closes_at for stream in state.streams.open.values()),
        *(session.closing_at for session in state.roster.sessions.values()),
        *(member.pause.until for member in state.roster if member.pause is not None),
        *(proposal.expires for proposal in state.ledger.proposals.values() if proposal.state == "open"),
        *(record.expires for record in state.window.pinned.values() if record.owed),
        *(grant.expires for grant in state.grants.by_id.values()),
        *(token.expires_at for token in state.temporary_tokens.by_hash.values()),
    ]
    assert all(end is None or end > now for end in ends)


def effects_name_living_sessions(model: ReferenceModel) -> None:
    """Every effect goes to a session that was there, and none to one that was just closed."""
    if model.last is None:
        return
    there = set(model.last.listeners)
    if model.last.given.what == "join":
        there.add(model.last.given.arguments[0])
    for effect in model.last.effects:
        named = _named(effect)
        assert set(named) <= there, f"{effect} names {set(named) - there}"
        assert len(set(named)) == len(named), f"{effect} names a session twice"
        if isinstance(effect, Disconnect):
            there.discard(effect.session)


def _named(effect: Effect) -> list[str]:
    if isinstance(effect, Deliver):
        return list(effect.sessions)
    if isinstance(effect, Reply | Disconnect):
        return [effect.session]
    return [effect.session] if isinstance(effect, Result) and effect.session is not None else []


def no_change_of_a_verdict_is_missed(model: ReferenceModel) -> None:
    """The fast path keeps verdicts for one epoch: a changed one needs a new epoch, a chat does not."""
    step, state = model.last, model.space.state
    if step is None:
        return
    assert state.verdict_epoch > step.epoch or verdicts(state) == step.verdicts
    used_up = any(notice.kind == "capability/revoke" for notice in _notices(step.effects))
    changes = step.envelope is not None and KINDS.get(step.envelope.kind, UNKNOWN).changes_verdict
    if step.envelope is not None and not changes and not used_up:
        assert state.verdict_epoch == step.epoch, f"{step.envelope.kind} began an epoch"


def tables_agree(model: ReferenceModel) -> None:
    """The tables hold what follows from each other: pins, counters, sessions, aliases, writers."""
    state = model.space.state
    roster, window = state.roster, state.window
    pins = Counter({id: window.pins_of(id) for id in window.pinned})
    assert pins == model.open_ids(), "pins and open objects differ"
    records = (window.pinned | window.recent).values()
    asking = Counter(record.author for record in records if record.owed and record.kind in QUESTIONS)
    for member in roster:
        waiting = asking[member.name]
        assert member.open_requests == waiting, f"{member.name}: {member.open_requests} != {waiting}"
        for id, session in member.sessions.items():
            token = session.options.token
            assert token is None or token in (*member.credentials, *state.temporary_tokens.by_hash), token
            assert roster.sessions[id] is session
            assert session.member is member
        assert member.sessions or member.id == member.name
    for id, session in roster.sessions.items():
        assert roster.members[session.member.name].sessions[id] is session
    assert roster.aliases == {m.id: m for m in roster if m.id != m.name}
    assert not roster.aliases.keys() & roster.members.keys(), "a runtime id is somebody's name"
    assert len(window.recent) <= window.size
    for stream in state.streams.open.values():
        assert {stream.owner, *stream.granted} == set(stream.writers)  # D-38
        assert len(set(stream.writers)) == len(stream.writers)
        assert stream.owner in roster.members
    for name, count in Counter(stream.owner for stream in state.streams.open.values()).items():
        assert count <= state.limits.max_streams_per_member, f"{name} owns {count} streams"
    open_ones = {p.id for p in state.ledger.proposals.values() if p.state == "open"}
    assert {id for ids in state.ledger._open.values() for id in ids} == open_ones


def _notices(effects: list[Effect]) -> Iterator[GatewayNotice]:
    for effect in effects:
        if isinstance(effect, Reply):
            yield effect.notice
        elif isinstance(effect, Deliver) and isinstance(effect.message, GatewayNotice):
            yield effect.message


def _bytes(message: Envelope | GatewayNotice | Frame) -> bytes:
    return (
        (DIALECTS["mew"].encode_notice(message) or b"") if isinstance(message, GatewayNotice) else message.raw
    )


CHEAP: Final[tuple[Check, ...]] = (
    nobody_does_what_no_capability_allows,
    a_proposal_runs_once_and_as_it_was_reviewed,
    only_the_asked_answer,
    the_paused_keep_quiet,
    the_shut_down_keep_quiet,
    everyone_hears_once,
    frames_reach_their_targets,
    secrets_go_to_the_inviter_alone,
    only_the_gateway_speaks_for_itself,
    time_moves_on,
    effects_name_living_sessions,
    no_change_of_a_verdict_is_missed,
)
ALL: Final[tuple[Check, ...]] = (
    *CHEAP,
    every_right_has_a_chain,
    a_kicked_member_is_nowhere,
    no_id_is_taken_twice,
    tables_agree,
)
