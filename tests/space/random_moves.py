"""Everything that members, guests and operators do in a space, each move drawn at random.

A move looks for something to act on (an open proposal, a stream, a grant), now and then takes a wrong
one, and does nothing when there is nothing to do. Who draws is open: a `random.Random` in a long walk,
Hypothesis in the state machine.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

from moot.config.space.space_reader import read_space
from moot.protocol.frames import write_frame
from moot.protocol.operation import Json
from moot.protocol.patterns import read_capability
from moot.space.config import SessionId
from moot.space.members.member import Options

from . import random_tokens
from .inputs import SETTINGS
from .reference_model import ReferenceModel

T = TypeVar("T")


class Draw(Protocol):
    """Where chance comes from."""

    def one(self, choices: Sequence[T], /) -> T: ...


Move = Callable[[ReferenceModel, Draw], None]

CONFIGURED: Final = ("human", "boss", "agent", "tool", "scribe", "dot")
INVITED: Final = ("ivy", "ian")
GUESTS: Final = ("gus", "gil")
EVERYBODY: Final = (*CONFIGURED, *INVITED, *GUESTS, *random_tokens.SIGNED_IN)
RUNTIME_IDS: Final = (None, None, None, None, "agent-7f", "boss:desk", "human", "gateway", "ivy", "gus")
BODIES: Final[tuple[Json, ...]] = (
    {"method": "tools/call", "params": {"name": "read_file", "arguments": {"n": 1}}},
    {"method": "tools/call", "params": {"name": "read_file", "arguments": {"n": 2}}},
    {"method": "tools/call", "params": {"name": "delete_file", "arguments": {"force": True}}},
    {"method": "tools/list", "params": {}},
    {"method": "notifications/progress", "params": {"n": 9007199254740993}},
)
RIGHTS: Final[tuple[Json, ...]] = (
    {"kind": "mcp/request", "payload": {"method": "tools/*"}},
    {"kind": "mcp/request", "payload": {"method": "tools/call", "params": {"name": "read_file"}}},
    {"kind": "mcp/*"},
    {"kind": "capability/grant"},
    {"kind": "capability/*"},
    {"kind": "moot/approve"},
    {"kind": "participant/*"},
    {"kind": "space/invite"},
    {"kind": "chat"},
    {"kind": "*"},
)
# Most grants end by themselves, or nobody would meet the end of one.
GRANT_LIMITS: Final[tuple[Json, ...]] = (
    {},
    {},
    {"expires_in_seconds": 4},
    {"expires_in_seconds": 40},
    {"max_uses": 1},
    {"max_uses": 2, "expires_in_seconds": 40},
    {"max_uses": 0},
)


def _changed(body: Json) -> Json:
    other: Json = copy.deepcopy(body)
    other["params"]["extra"] = 1
    return other


def _session(model: ReferenceModel, draw: Draw, *likely: str) -> str | None:
    """Somebody's session; every other time of one of those who are likely to be allowed what follows."""
    sessions = model.space.state.roster.sessions
    fitting = [id for id, session in sessions.items() if session.member.name in likely]
    preferred = draw.one((True, False))
    if preferred and fitting:
        return draw.one(fitting)
    return draw.one(model.sessions) if sessions else None


def seldom(move: Move) -> Move:
    """What empties a room is done one time in four, or nothing else would be met there."""

    def sometimes(model: ReferenceModel, draw: Draw) -> None:
        if draw.one((True, False, False, False)):
            move(model, draw)

    return sometimes


def populate(model: ReferenceModel, draw: Draw) -> None:
    """Everybody who is configured comes in, so that there is somebody to meet."""
    for name in CONFIGURED:
        _join(model, draw, name)


def _somebody(model: ReferenceModel, draw: Draw) -> str:
    """A name, likely of somebody who is here, as logical name or runtime id."""
    here = [name for member in model.space.state.roster.present() for name in (member.name, member.id)]
    return draw.one([*here, *EVERYBODY])


def _addressees(model: ReferenceModel, draw: Draw) -> list[str]:
    return [_somebody(model, draw) for _ in range(draw.one((0, 1, 1, 2)))]


def _earlier_id(model: ReferenceModel, draw: Draw, kind: str) -> str:
    """The id of something of that kind that was said; sometimes of something else, or nothing."""
    state = model.space.state
    ids = [id for id, record in (state.window.pinned | state.window.recent).items() if record.kind == kind]
    return draw.one([*(ids[-8:] * 2), "never-was"])


# Coming and going


def join(model: ReferenceModel, draw: Draw) -> None:
    for _ in range(draw.one((1, 2, 3))):
        _join(model, draw, draw.one((*CONFIGURED, *CONFIGURED, *INVITED)))


def _join(model: ReferenceModel, draw: Draw, name: str) -> None:
    dialect = {"scribe": "mcpx", "dot": "m3p"}.get(name) or draw.one(("mew", "mew", "mew", "mcpx"))
    options = Options(
        echo=draw.one((True, True, False)),
        routing="all" if dialect == "mew" else draw.one(("all", "directed")),
        hears=draw.one(("all", "all", "mine")),
        streams=draw.one((True, False)),
        runtime_id=draw.one(RUNTIME_IDS),
    )
    model.put("join", SessionId(model.fresh("s")), name, dialect, options)


def join_as_guest(model: ReferenceModel, draw: Draw) -> None:
    name = draw.one((*GUESTS, *GUESTS, "agent", "ivy"))
    options = Options(anonymous=True, runtime_id=draw.one(RUNTIME_IDS))
    model.put("join", SessionId(model.fresh("s")), name, draw.one(("mew", "m3p")), options)


def leave(model: ReferenceModel, draw: Draw) -> None:
    session = _session(model, draw)
    model.put("leave", SessionId(session or "nobody"))


def post_over_http(model: ReferenceModel, draw: Draw) -> None:
    """D-40: speaks without being present."""
    session = SessionId(model.fresh("http"))
    name = draw.one(CONFIGURED)
    if model.put("join", session, name, "mew", Options(injected=True)).refusal is None:
        _speak(model, draw, session)
        if session in model.space.state.roster.sessions:
            model.put("leave", session)


def _speak(model: ReferenceModel, draw: Draw, session: str) -> None:
    kind = draw.one(("chat", "mcp/request", "mcp/proposal", "participant/status", "stream/request"))
    payload: Json = draw.one(BODIES) if kind.startswith("mcp/") else {"direction": "upload", "text": "hi"}
    model.send(session, kind, payload, to=_addressees(model, draw))


def wait(model: ReferenceModel, draw: Draw) -> None:
    model.now += draw.one((0.5, 1.0, 5.0, 6.0, 31.0, 61.0))
    model.put("expire")


# Speaking, asking, answering


def chat(model: ReferenceModel, draw: Draw) -> None:
    if session := _session(model, draw):
        kind = draw.one(("chat", "chat", "chat/acknowledge", "reasoning/cancel", "vendor/kind"))
        id = draw.one(["", "", "", *model.accepted[-60:][:2], *list(model.open_ids())[:2]])
        model.send(session, kind, {"text": "hi"}, to=_addressees(model, draw), id=id)


def forge(model: ReferenceModel, draw: Draw) -> None:
    """What only the gateway says."""
    if session := _session(model, draw):
        kind = draw.one(("system/welcome", "system/presence", "space/invite-ack", "stream/open"))
        model.send(session, kind, {"event": "join", "participant": {"id": "mallory"}})


def request(model: ReferenceModel, draw: Draw) -> None:
    if session := _session(model, draw, "human", "boss"):
        model.send(session, "mcp/request", draw.one(BODIES), to=_addressees(model, draw))


def respond(model: ReferenceModel, draw: Draw) -> None:
    if session := _session(model, draw):
        about = [_earlier_id(model, draw, "mcp/request")]
        model.send(session, "mcp/response", {"result": {}}, to=_addressees(model, draw), about=about)


def answer(model: ReferenceModel, draw: Draw) -> None:
    """By somebody who owes the answer."""
    window = model.space.state.window
    owed = [(id, record) for id, record in window.pinned.items() if record.owed]
    if not owed:
        return
    id, record = draw.one(owed)
    member = model.space.state.roster.members.get(draw.one(record.owed))
    if member is None or not member.sessions:
        return
    kinds = {"mcp/request": "mcp/response", "capability/grant": "capability/grant-ack"}
    kind = kinds.get(record.kind, draw.one(("participant/status", "chat/acknowledge")))
    model.send(draw.one(list(member.sessions)), kind, {"result": {}}, to=[record.author], about=[id])


# Proposing and deciding


def propose(model: ReferenceModel, draw: Draw) -> None:
    if session := _session(model, draw):
        model.send(session, "mcp/proposal", draw.one(BODIES), to=_addressees(model, draw))


def _fulfil(model: ReferenceModel, draw: Draw, *, altered: bool) -> None:
    open_ones = [id for id, proposal in model.proposals.items() if proposal.state == "open"]
    ids = [*open_ones, *open_ones, *model.proposals]
    session = _session(model, draw, "human", "boss", "scribe")
    if not ids or session is None:
        return
    proposal = model.proposals[id := draw.one(ids)]
    body = proposal.payload
    to = sorted(proposal.to) or _addressees(model, draw)
    body, to = draw.one(((_changed(body), to), (body, ["human"]))) if altered else (body, to)
    model.send(session, "mcp/request", body, to=to, about=[id, *draw.one(((), (id,)))])


def fulfil(model: ReferenceModel, draw: Draw) -> None:
    _fulfil(model, draw, altered=False)


def fulfil_something_else(model: ReferenceModel, draw: Draw) -> None:
    _fulfil(model, draw, altered=True)


def decide(kind: str) -> Move:
    """Withdrawing, rejecting and approving differ in their kind only."""

    def move(model: ReferenceModel, draw: Draw) -> None:
        if session := _session(model, draw, "human", "agent", "scribe"):
            model.send(session, kind, {"reason": "because"}, about=[_earlier_id(model, draw, "mcp/proposal")])

    return move


# Rights and membership


def grant(model: ReferenceModel, draw: Draw) -> None:
    if session := _session(model, draw, "human", "boss"):
        rights = [draw.one(RIGHTS) for _ in range(draw.one((1, 2)))]
        payload = {"recipient": _somebody(model, draw), "capabilities": rights}
        model.send(session, "capability/grant", payload | draw.one(GRANT_LIMITS))


def use_grant(model: ReferenceModel, draw: Draw) -> None:
    """By somebody who holds one that ends by itself."""
    state = model.space.state
    holders = [state.roster.members[g.recipient] for g in state.grants.by_id.values() if g.is_limited]
    sessions = [session for member in holders for session in member.sessions]
    if sessions:
        model.send(draw.one(sessions), "mcp/request", BODIES[0], to=_addressees(model, draw))


def restart(model: ReferenceModel, draw: Draw) -> None:
    """With a clock that can be believed or not; then everybody comes back."""
    model.put("restart", draw.one((True, False)))
    populate(model, draw)


def revoke_by_id(model: ReferenceModel, draw: Draw) -> None:
    if session := _session(model, draw, "human", "boss"):
        grants = [(g.id, g.recipient) for g in model.space.state.grants.by_id.values()]
        id, recipient = draw.one([*grants, ("never-was", "agent")])
        model.send(session, "capability/revoke", {"recipient": recipient, "grant_id": id})


def revoke_by_pattern(model: ReferenceModel, draw: Draw) -> None:
    if session := _session(model, draw, "human", "boss"):
        payload = {"recipient": _somebody(model, draw), "capabilities": [draw.one(RIGHTS)]}
        model.send(session, "capability/revoke", payload)


def invite(model: ReferenceModel, draw: Draw) -> None:
    if session := _session(model, draw, "human", "boss"):
        rights = [draw.one(RIGHTS)] if draw.one((True, False)) else []
        name = draw.one((*INVITED, *INVITED, *GUESTS, "agent", "agent-7f"))
        model.send(session, "space/invite", {"participant_id": name, "initial_capabilities": rights})


def kick(model: ReferenceModel, draw: Draw) -> None:
    if session := _session(model, draw, "human", "boss"):
        model.send(session, "space/kick", {"participant_id": _somebody(model, draw)})


def restore(model: ReferenceModel, draw: Draw) -> None:
    model.put("restore_member", draw.one(EVERYBODY))


def change_capabilities(model: ReferenceModel, draw: Draw) -> None:
    add, remove = (read_capability(draw.one(RIGHTS)) for _ in range(2))
    model.put("change_capabilities", draw.one(CONFIGURED), draw.one(((add,), ())), (remove,), "operator")


def reload(model: ReferenceModel, draw: Draw) -> None:
    """A participant comes, goes, or is called like a guest."""
    settings: Json = copy.deepcopy(dict(SETTINGS))
    left_out = draw.one((None, None, "agent", "tool", "boss"))
    settings["participants"].pop(left_out, None)
    added = draw.one((None, "gus", "agent-7f", "ana"))
    if added is not None:
        settings["participants"][added] = ["mcp/*", "chat"]
    model.put("reload", read_space("lab", settings))


def health(model: ReferenceModel, draw: Draw) -> None:
    model.put("health", draw.one((True, True, True, False)))


# Control


def control(kind: str) -> Move:
    """Pausing, resuming, shutting down and asking."""

    def move(model: ReferenceModel, draw: Draw) -> None:
        if session := _session(model, draw, "human", "boss"):
            payload = draw.one(({}, {"timeout_seconds": 3}, {"timeout_seconds": 40}))
            to = draw.one((*([name] for name in EVERYBODY), [], ["gateway"]))
            model.send(session, kind, payload, to=to)

    return move


def ask(model: ReferenceModel, draw: Draw) -> None:
    kind = draw.one(("participant/request-status", "participant/compact", "participant/forget"))
    control(kind)(model, draw)


# Streams


def _stream(model: ReferenceModel, draw: Draw) -> tuple[str, str]:
    """A stream and a session of its owner, more often than not."""
    streams = list(model.space.state.streams.open.values())
    if not streams:
        return "stream-never-was", _session(model, draw) or ""
    stream = draw.one(streams)
    return stream.id, _session(model, draw, stream.owner) or ""


def open_stream(model: ReferenceModel, draw: Draw) -> None:
    if session := _session(model, draw):
        target = draw.one((None, [_somebody(model, draw)], [_somebody(model, draw), "agent"]))
        payload = {"direction": draw.one(("upload", "download", "sideways")), "target": target, "owner": "me"}
        model.send(session, "stream/request", payload)


def use_stream(kind: str) -> Move:
    def move(model: ReferenceModel, draw: Draw) -> None:
        stream, session = _stream(model, draw)
        if session:
            name = _somebody(model, draw)
            payload = {"stream_id": stream, "participant_id": name, "new_owner": name}
            model.send(session, kind, payload)

    return move


def write_to_stream(model: ReferenceModel, draw: Draw) -> None:
    stream, session = _stream(model, draw)
    if session:
        model.put("frame", SessionId(session), write_frame(stream, b"data", binary=False))


MOVES: Final[dict[str, Move]] = {
    "join": join,
    "join_as_guest": join_as_guest,
    "leave": seldom(leave),
    "post_over_http": post_over_http,
    "wait": wait,
    "chat": chat,
    "forge": forge,
    "request": request,
    "respond": respond,
    "answer": answer,
    "propose": propose,
    "fulfil": fulfil,
    "fulfil_something_else": fulfil_something_else,
    "withdraw": decide("mcp/withdraw"),
    "reject": decide("mcp/reject"),
    "approve": decide("moot/approve"),
    "grant": grant,
    "use_grant": use_grant,
    "revoke_by_id": revoke_by_id,
    "revoke_by_pattern": revoke_by_pattern,
    "invite": invite,
    "kick": seldom(kick),
    "restore": seldom(restore),
    "change_capabilities": seldom(change_capabilities),
    "reload": seldom(reload),
    "health": seldom(health),
    "pause": seldom(control("participant/pause")),
    "resume": control("participant/resume"),
    "shutdown": seldom(control("participant/shutdown")),
    "ask": ask,
    "open_stream": open_stream,
    "close_stream": use_stream("stream/close"),
    "grant_write": use_stream("stream/grant-write"),
    "revoke_write": use_stream("stream/revoke-write"),
    "transfer": use_stream("stream/transfer-ownership"),
    "write_to_stream": write_to_stream,
    "sign_in": random_tokens.sign_in,
    "mint_token": random_tokens.mint_token,
    "join_with_token": random_tokens.join_with_token,
    "renew": random_tokens.renew,
    "sign_out": seldom(random_tokens.sign_out),
    "rotate": seldom(random_tokens.rotate),
    "be_late": random_tokens.be_late,
    "set_clock": seldom(random_tokens.set_clock),
    "lose_gateway": seldom(random_tokens.lose_gateway),
    "restart": seldom(restart),
}
