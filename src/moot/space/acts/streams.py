"""Opening, sharing, handing over and closing streams (MEW 3.10; D-33 to D-39)."""

from __future__ import annotations

from typing import Final

from moot.errors import (
    InvalidOperation,
    InvalidRequest,
    ParticipantNotFound,
    ResourceLimit,
    StreamNotFound,
    TargetNotFound,
    Unauthorized,
)
from moot.protocol import strict_json
from moot.protocol.envelope import Envelope, rfc3339
from moot.protocol.operation import Json, JsonValue
from moot.space.acts import Act, read_texts, without_none
from moot.space.config import Name
from moot.space.effects import Effect, Mint, Result
from moot.space.id_window import SeenEnvelope
from moot.space.members.listing import stream_bytes
from moot.space.members.member import Session, SpaceMember
from moot.space.state import State
from moot.space.stream_table import SERVER_FIELDS, StreamRecord

# D-39: how long a stream waits for its owner to come back, as after a reload of a page or a lost network.
OWNER_GRACE_SECONDS: Final = 60.0
# Members that one stream may be aimed at.
MAX_TARGETS: Final = 256
# What late joiners are told of a stream stays in memory and in every welcome.
MAX_REQUEST_BYTES: Final = 16_384
# Members that may write to one stream: its owner, and whom it let.
MAX_WRITERS: Final = 256
# What the open streams of one member may take of everybody's welcome.
MAX_BYTES_PER_MEMBER: Final = 65_536


def prepare_request(state: State, session: Session, envelope: Envelope) -> Act:
    payload = envelope.payload
    if not session.takes_frames:
        raise InvalidRequest("this connection takes no stream frames: connect with streams=1")  # D-57
    direction = payload.get("direction", "upload" if state.config.reference_compat else None)
    if direction not in ("upload", "download"):
        raise InvalidRequest("payload.direction must be upload or download")
    target = _targets(state, payload.get("target"))

    def check_limits() -> None:
        most = state.limits.max_streams_per_member
        if len(state.streams.owned_by(session.member.name)) >= most:
            raise ResourceLimit(f"{most} streams are open: close one first", limit="max_streams_per_member")
        if target is not None and len(target) > MAX_TARGETS:
            raise ResourceLimit(f"more than {MAX_TARGETS} targets", limit="max_stream_targets")
        if len(strict_json.encode(dict(payload))) > MAX_REQUEST_BYTES:
            raise ResourceLimit(
                f"the description of a stream is larger than {MAX_REQUEST_BYTES} bytes",
                limit="max_stream_request_bytes",
            )
        _check_stream_bytes(state, session.member.name, len(strict_json.encode(dict(payload))))

    def execute(record: SeenEnvelope, now: float, mint: Mint) -> list[Effect]:
        owner = session.member
        stream = StreamRecord(
            id=f"stream-{mint.id()}",
            owner=owner.name,
            direction=direction,
            created=rfc3339(now),
            request_id=envelope.id,
            open_id="",
            request={name: value for name, value in payload.items() if name not in SERVER_FIELDS},
            target=target,
            writers=[owner.name],
        )
        state.streams.open[stream.id] = stream
        state.window.pin(envelope.id, record)
        opened: dict[str, Json] = without_none(
            {
                "stream_id": stream.id,
                "encoding": stream.encoding,
                "owner": owner.id,
                "authorized_writers": [owner.id],
                "target": None if target is None else state.runtime_ids(target),
            }
        )
        news = state.announce("stream/open", opened, now, mint, to=[owner.id], correlation_id=[envelope.id])
        stream.open_id = news.message.id  # type: ignore[union-attr]  # announce always holds a notice
        effects: list[Effect] = [news]
        if session.options.injected:
            effects.append(Result(session.id, {"status": "stream_opened", "stream_id": stream.id}))
            if not owner.present:
                # Nobody is there to own it: the grace of D-39 starts at once.
                _orphan(state, stream, now)
        return effects

    return Act(execute, check_limits)


def _check_stream_bytes(state: State, owner: Name, more: int) -> None:
    """Whether a member may put so much more into everybody's welcome."""
    most = MAX_BYTES_PER_MEMBER
    if stream_bytes(state, state.streams.owned_by(owner)) + more > most:
        raise ResourceLimit(
            f"the open streams of {owner} are described in more than {most} bytes: close one, or say less",
            limit="max_stream_bytes_per_member",
        )


def _targets(state: State, value: JsonValue) -> list[Name] | None:
    if value is None or value == []:
        return None
    names = read_texts(value)
    if names is None:
        raise InvalidRequest("payload.target must be a list of participant ids")
    missing = [name for name in names if state.roster.resolve(name) is None]
    if missing:
        raise TargetNotFound(f"not in this space: {', '.join(missing)}", targets=missing)
    members = list(dict.fromkeys(state.roster.find(name).name for name in names))
    legacy_only = [
        state.roster.members[name].id
        for name in members
        if (sessions := state.roster.members[name].sessions)
        and not any(s.takes_frames for s in sessions.values())
    ]
    if legacy_only:
        raise TargetNotFound(
            f"takes no stream frames: {', '.join(legacy_only)} (connect with streams=1)",
            targets=legacy_only,
            detail="no_frames",
        )
    return members


def prepare_close(state: State, session: Session, envelope: Envelope) -> Act | None:
    try:
        stream = state.streams.named_by(envelope.payload, tuple(envelope.correlation_id))
    except StreamNotFound:
        # D-10: existing clients close streams that the gateway never opened.
        if state.config.reference_compat:
            return None
        raise
    if stream.owner != session.member.name:
        raise Unauthorized("only its owner or the gateway closes a stream", stream_id=stream.id)

    def execute(record: SeenEnvelope, now: float, mint: Mint) -> list[Effect]:
        _forget(state, stream)
        return []

    return Act(execute)


def prepare_grant_write(state: State, session: Session, envelope: Envelope) -> Act:
    stream = _owned(state, session, envelope)
    writer = _named(state, envelope, "participant_id")

    def check_limits() -> None:
        if writer.name in stream.writers:
            return
        most = MAX_WRITERS
        if len(stream.writers) >= most:
            raise ResourceLimit(
                f"{most} members may write to this stream already", limit="max_stream_writers"
            )
        _check_stream_bytes(state, stream.owner, len(writer.id) + 3)

    def execute(record: SeenEnvelope, now: float, mint: Mint) -> list[Effect]:
        for names in (stream.writers, stream.granted):
            if writer.name not in names:
                names.append(writer.name)
        return [_acknowledge_writers(state, "stream/write-granted", stream, writer, envelope, now, mint)]

    return Act(execute, check_limits)


def prepare_revoke_write(state: State, session: Session, envelope: Envelope) -> Act:
    stream = _owned(state, session, envelope)
    name: JsonValue = envelope.payload.get("participant_id")
    if not isinstance(name, str):
        raise InvalidRequest("payload.participant_id must name a participant")
    member = state.roster.resolve(name)
    if member is not None and member.name == stream.owner:
        raise InvalidOperation("the owner always writes: transfer the stream instead", stream_id=stream.id)

    def execute(record: SeenEnvelope, now: float, mint: Mint) -> list[Effect]:
        # Idempotent also for somebody who is gone: then only the list is told again.
        gone = member or SpaceMember(Name(name))
        _remove_writer(stream, gone.name)
        return [_acknowledge_writers(state, "stream/write-revoked", stream, gone, envelope, now, mint)]

    return Act(execute)


def prepare_transfer(state: State, session: Session, envelope: Envelope) -> Act:
    stream = _owned(state, session, envelope)
    heir = _named(state, envelope, "new_owner")
    if heir.name == stream.owner:
        raise InvalidOperation("you own this stream already", stream_id=stream.id)

    def check_limits() -> None:
        most = state.limits.max_streams_per_member
        if len(state.streams.owned_by(heir.name)) >= most:
            raise ResourceLimit(f"{heir.id} owns {most} streams already", limit="max_streams_per_member")
        _check_stream_bytes(state, heir.name, stream_bytes(state, [stream]))

    def execute(record: SeenEnvelope, now: float, mint: Mint) -> list[Effect]:
        previous = stream.owner
        # D-38: writing goes with ownership, unless it was granted by itself.
        if previous not in stream.granted:
            stream.writers.remove(previous)
        stream.owner = heir.name
        if heir.name not in stream.writers:
            stream.writers.append(heir.name)
        stream.closes_at = None
        payload: dict[str, Json] = {
            "stream_id": stream.id,
            "previous_owner": state.runtime_ids([previous])[0],
            "new_owner": heir.id,
            "authorized_writers": state.runtime_ids(stream.writers),
        }
        return [_announce(state, "stream/ownership-transferred", payload, envelope, now, mint)]

    return Act(execute, check_limits)


def close_streams_of(state: State, owner: Name, reason: str, now: float, mint: Mint) -> list[Effect]:
    effects: list[Effect] = []
    for stream in state.streams.owned_by(owner):
        effects += close_by_gateway(state, stream, reason, now, mint)
    return effects


def close_by_gateway(state: State, stream: StreamRecord, reason: str, now: float, mint: Mint) -> list[Effect]:
    """D-37: the gateway's own close names the stream and says why."""
    _forget(state, stream)
    payload: dict[str, Json] = {"stream_id": stream.id, "reason": reason}
    to = state.runtime_ids([stream.owner])
    return [state.announce("stream/close", payload, now, mint, to=to, correlation_id=[stream.open_id])]


def drop_writer(state: State, member: SpaceMember, reason: str, now: float, mint: Mint) -> list[Effect]:
    """MEW 3.10.6: who leaves loses write access, but for the owner."""
    effects: list[Effect] = []
    for stream in state.streams.open.values():
        if member.name in stream.writers and stream.owner != member.name:
            _remove_writer(stream, member.name)
            payload: dict[str, Json] = {
                "stream_id": stream.id,
                "participant_id": member.id,
                "authorized_writers": state.runtime_ids(stream.writers),
                "reason": reason,
            }
            effects.append(state.announce("stream/write-revoked", payload, now, mint))
    return effects


def drop_target(state: State, name: Name) -> None:
    """D-39: a removed member hears nothing more; a stream without targets left goes to nobody."""
    for stream in state.streams.open.values():
        if stream.target is not None and name in stream.target:
            stream.target.remove(name)


def owner_left(state: State, owner: Name, now: float) -> None:
    """D-39: a stream outlives its owner's socket for a while."""
    for stream in state.streams.owned_by(owner):
        _orphan(state, stream, now)


def owner_returned(state: State, owner: Name) -> None:
    for stream in state.streams.owned_by(owner):
        stream.closes_at = None


def _orphan(state: State, stream: StreamRecord, now: float) -> None:
    stream.closes_at = now + OWNER_GRACE_SECONDS
    state.deadlines.schedule(stream.closes_at, "stream", stream.id)


def _forget(state: State, stream: StreamRecord) -> None:
    del state.streams.open[stream.id]
    state.window.unpin(stream.request_id)


def _remove_writer(stream: StreamRecord, name: Name) -> None:
    for names in (stream.writers, stream.granted):
        if name in names:
            names.remove(name)


def _owned(state: State, session: Session, envelope: Envelope) -> StreamRecord:
    stream = state.streams.find(envelope.payload.get("stream_id"))
    if stream.owner != session.member.name:
        raise Unauthorized("only the owner of a stream decides who writes to it", stream_id=stream.id)
    return stream


def _named(state: State, envelope: Envelope, field: str) -> SpaceMember:
    name: JsonValue = envelope.payload.get(field)
    if not isinstance(name, str):
        raise InvalidRequest(f"payload.{field} must name a participant")
    member = state.roster.resolve(name)
    if member is None or not member.present:
        raise ParticipantNotFound(f"{name!r} is not in this space now", participant_id=name)
    return member


def _acknowledge_writers(
    state: State,
    kind: str,
    stream: StreamRecord,
    member: SpaceMember,
    envelope: Envelope,
    now: float,
    mint: Mint,
) -> Effect:
    payload: dict[str, Json] = {
        "stream_id": stream.id,
        "participant_id": member.id,
        "authorized_writers": state.runtime_ids(stream.writers),
    }
    return _announce(state, kind, payload, envelope, now, mint)


def _announce(
    state: State, kind: str, payload: dict[str, Json], envelope: Envelope, now: float, mint: Mint
) -> Effect:
    reason: JsonValue = envelope.payload.get("reason")
    if isinstance(reason, str):
        payload["reason"] = reason
    to = [member.id for member in state.roster.present()]
    return state.announce(kind, payload, now, mint, to=to, correlation_id=[envelope.id])
