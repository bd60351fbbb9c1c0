"""Who is here and which streams are open, as a newcomer is told: within a bound, the rest page by page.

A welcome lists members and streams (MEW 3.8.1), so whatever one member can put into it, everybody receives. A
client has a limit for one message, and one that cannot take its welcome cannot join. So a welcome has at
most MAX_WELCOME_BYTES, and one member at most MAX_MEMBER_BYTES of it. In nearly every space all of
it fits. Where it does not, everybody is listed by id first, then capabilities and streams as far as there is
room, and `more` counts what is missing. The client may ask for everything with `moot/roster`, over HTTP too,
and is answered in pages of the same size; a client that does not know this ignores `more`.

Sizes are those of the largest spelling among the dialects of the space, so that one description fits all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moot.errors import InvalidRequest
from moot.protocol import payloads, strict_json
from moot.protocol.dialects.translation import show_capabilities
from moot.protocol.envelope import DEFAULT_LIMITS
from moot.protocol.operation import Json, JsonValue
from moot.space.effects import Effect, Mint, Reply

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from moot.protocol.patterns import Capability
    from moot.space.config import SessionId
    from moot.space.members.member import Session, SpaceMember
    from moot.space.state import State
    from moot.space.stream_table import StreamRecord

# Around the lists: protocol, ids, time, sender, addressee and correlation, each at its longest.
_AROUND_BYTES: Final = 2_048
# A smaller bound would leave no room for one member with a name.
_LEAST_BYTES: Final = 8_192
_LONGEST_CURSOR: Final = 256
# What the gateway itself knows of a stream: shown also where its request does not fit.
_STREAM_FACTS: Final = ("stream_id", "owner", "direction", "created", "encoding")

Entry = dict[str, Json]
# What is shown of one member in welcomes and presence; the rest is in the pages of `moot/roster`.
MAX_MEMBER_BYTES: Final = 8_192
# One welcome, one page: a quarter of the 1 MiB that WebSocket libraries commonly take as one message.
MAX_WELCOME_BYTES: Final = 262_144


def describe_member(state: State, member: SpaceMember) -> Entry:
    """A member as others see it in welcomes and presence. The value is shared: do not change it."""
    if member.description is None:
        held = member.rights.capabilities
        entry = _fit_member(state, member, held, MAX_MEMBER_BYTES)
        member.description, member.description_bytes = entry, _size(state, entry)
    return member.description


def describe_welcome(state: State, session: Session) -> Entry:
    """The welcome's payload for one session."""
    room, member = _room(), session.member
    you = _fit_member(state, member, session.rights.capabilities, room // 2)
    room -= _size(state, you)
    others = _others(state, session)
    listed = [describe_member(state, other) for other in others]
    streams = list(state.streams.open.values()) if session.dialect == "mew" else []
    entries = [state.describe_stream(stream) for stream in streams]
    sizes = [_size(state, entry) for entry in entries]
    if sum(other.description_bytes for other in others) + sum(sizes) > room:
        # Streams have a quarter for themselves, and what members leave over.
        listed, taken = _shortest_first(state, others, room * 3 // 4)
        kept: list[Entry] = []
        for entry, size in zip(entries, sizes, strict=True):
            if taken + size <= room:
                kept.append(entry)
                taken += size
        entries = kept
    incomplete = sum("capabilities_omitted" in entry for entry in listed)
    missing = {
        "participants": len(others) - len(listed) + incomplete,
        "active_streams": len(streams) - len(entries),
    }
    payload = payloads.welcome(you, listed, entries)
    if state.limits.envelope.max_bytes != DEFAULT_LIMITS.max_bytes:
        payload["limits"] = {"max_bytes": state.limits.envelope.max_bytes}
    return payload | {"more": missing} if any(missing.values()) else payload


def welcome(
    state: State, member: SpaceMember, sessions: Iterable[SessionId], now: float, mint: Mint
) -> list[Effect]:
    """MEW 3.8.1, to some of a member's sessions: on joining, and whenever its rights change."""
    effects: list[Effect] = []
    for session in sessions:
        payload = describe_welcome(state, state.roster.sessions[session])
        effects.append(Reply(session, state.notice("system/welcome", payload, now, mint, to=[member.id])))
    return effects


def welcome_again(state: State, members: Iterable[SpaceMember], now: float, mint: Mint) -> list[Effect]:
    """D-88: an updated welcome goes to all sockets of each member."""
    effects: list[Effect] = []
    for member in members:
        effects += welcome(state, member, state.sessions_of([member]), now, mint)
    return effects


def describe_page(state: State, session: Session, after: JsonValue) -> Entry:
    """Some of those who are here and of the open streams, all of each, and where the next page begins.

    Members by name, then streams by id: who comes or goes in between is told by presence, and moves nobody
    else. Raises InvalidRequest for a place that no page named.
    """
    room = _room()
    start = _read_cursor(after)
    page: Entry = {"participants": [], "active_streams": []}
    last = ""
    for key, field, subject in _in_order(state, session):
        if key <= start:
            continue
        entry = (
            _fit_member(state, subject, subject.rights.capabilities, _room())
            if field == "participants"
            else _fit_stream(state, subject, _room())
        )
        size = _size(state, entry)
        if size > room:
            page["next"] = f"{last[0]}:{last[1:]}"
            break
        room -= size
        page[field].append(entry)
        last = key
    return page


def page_bytes(state: State, page: Entry) -> int:
    return _size(state, page)


def bytes_of(capabilities: Iterable[Capability | Json]) -> int:
    """How long capabilities are as JSON."""
    values = (getattr(capability, "original", capability) for capability in capabilities)
    return sum(len(strict_json.encode(value)) for value in values)


def stream_bytes(state: State, streams: Iterable[StreamRecord]) -> int:
    """How much of everybody's welcome these streams take."""
    return sum(_size(state, state.describe_stream(stream)) for stream in streams)


def _room() -> int:
    return max(MAX_WELCOME_BYTES, _LEAST_BYTES) - _AROUND_BYTES


def _size(state: State, entry: Entry) -> int:
    """The length of an entry of a list, and of the comma behind it."""
    shown = (show_capabilities(entry, dialect) for dialect in state.config.dialects)
    return max(len(strict_json.encode(each)) for each in shown) + 1


def _shortest_first(state: State, others: Sequence[SpaceMember], room: int) -> tuple[list[Entry], int]:
    """As many members as there is room for, and the capabilities of as many as there is room for then."""
    listed: list[Entry] = []
    sizes: list[int] = []
    taken = 0
    for other in others:
        entry = _without_capabilities(other, other.rights.capabilities)
        size = len(strict_json.encode(entry)) + 1
        if taken + size > room:
            break
        listed.append(entry)
        sizes.append(size)
        taken += size
    for at, other in enumerate(others[: len(listed)]):
        longer = other.description_bytes - sizes[at]
        if taken + longer <= room:
            listed[at] = describe_member(state, other)
            taken += longer
    return listed, taken


def _fit_member(state: State, member: SpaceMember, held: Sequence[Capability], room: int) -> Entry:
    """A member with as many capabilities as fit, and how many do not; always with its id."""
    whole = payloads.member(member.id, name=member.name, capabilities=held)
    if not held or _size(state, whole) <= room:
        return whole
    entry = _without_capabilities(member, held)
    taken = _size(state, entry)
    kept: list[Capability] = []
    for capability in held:
        taken += _size(state, {"": [capability]})
        if taken > room:
            break
        kept.append(capability)
    return entry | {"capabilities": kept, "capabilities_omitted": len(held) - len(kept)}


def _without_capabilities(member: SpaceMember, held: Sequence[Capability]) -> Entry:
    entry = payloads.member(member.id, name=member.name, capabilities=())
    return entry | {"capabilities_omitted": len(held)} if held else entry


def _fit_stream(state: State, stream: StreamRecord, room: int) -> Entry:
    entry = state.describe_stream(stream)
    if _size(state, entry) <= room:
        return entry
    return {name: entry[name] for name in _STREAM_FACTS} | {"shortened": True}


def _in_order(state: State, session: Session) -> Iterable[tuple[str, str, Json]]:
    """Everything that pages list: by a key that sorts and that a cursor can name."""
    present = {member.name: member for member in _others(state, session)}
    for name in sorted(present):
        yield f"p{name}", "participants", present[name]
    if session.dialect == "mew":
        for id in sorted(state.streams.open):
            yield f"s{id}", "active_streams", state.streams.open[id]


def _others(state: State, session: Session) -> list[SpaceMember]:
    """Who else is here, as far as this session is told."""
    here = state.audiences.heard_members() if session.hears_mine else state.roster.present()
    return [member for member in here if member is not session.member]


def _read_cursor(after: JsonValue) -> str:
    if after is None:
        return ""
    if isinstance(after, str) and len(after) <= _LONGEST_CURSOR and after[:2] in ("p:", "s:"):
        return after[0] + after[2:]
    raise InvalidRequest("payload.after must be the `next` of the page before, or be left out")
