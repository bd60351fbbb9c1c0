"""Inputs of a space as journal records, and back (D-41).

A record has the input, its time, the ids that were drawn for it and its outcome. An accepted one can be
replayed; a refused one is there to be read. No record contains a token: mints journal hashes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
from orjson import Fragment, dumps

from moot.errors import AlreadyAnswered, UsageError
from moot.gateway.hosting.mint import FreshMint, ReplayMint
from moot.gateway.hosting.rights_reduction import reduce_rights
from moot.gateway.hosting.stored_input import (
    ACCEPTED,
    LEFT_TO_OTHERS,
    StoredInput,
    read_input,
    stored_capabilities,
)
from moot.protocol import strict_json
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import DialectName, Envelope
from moot.protocol.operation import Json
from moot.space.config import SessionId, SpaceConfig
from moot.space.config_json import load_config
from moot.space.effects import Deliver, Effect, LeftToOthers, Mint, Reply, Token
from moot.space.space import Space

# A sender may make kinds up; this many are kept ready.
_KINDS_KEPT: Final = 64
_TIME: Final = re.compile(rb'\{"n":\d+,"t":([\d.e+]+)')


def encode_record(input: str, now: float, mint: FreshMint, **facts: Json) -> bytes:
    """Encode a record without an envelope, without the braces around it."""
    fields: dict[str, Json] = {"t": now, "in": input} | facts
    if mint.ids:
        fields["mint"] = mint.ids
    if mint.tokens:
        fields["tokens"] = mint.tokens
    return strict_json.encode(fields)[1:-1]


def filled_id(out: str, mint: FreshMint) -> str:
    """The id that an accepted envelope without one was given: the first that was drawn for it."""
    return mint.ids[0] if out == ACCEPTED and mint.ids else ""


class RecordEncoder:
    """Encodes the records of one session. What they have in common is encoded once: a busy space writes
    little but envelopes from sockets."""

    __slots__ = ("_about", "_accepted")

    def __init__(self, session: SessionId, who: str, dialect: DialectName) -> None:
        self._about = dumps({"in": "receive", "session": session, "who": who, "dialect": dialect})[1:-1]
        # By kind: all that stands between the id and the envelope.
        self._accepted: dict[str, bytes] = {}

    def record(
        self, now: float, envelope: Envelope, out: str, mint: FreshMint, made: Sequence[bytes] = ()
    ) -> bytes:
        """The record of one envelope up to the envelope itself, which goes in verbatim behind it."""
        kind = envelope.wire_kind or envelope.kind
        middle = self._accepted.get(kind)
        if middle is None or out != ACCEPTED or mint.ids or mint.tokens or made:
            middle = self._middle(kind, out, mint, made)
        id = envelope.id or filled_id(out, mint)
        # orjson writes a float twenty times quicker than repr.
        return b"".join((b'"t":', dumps(now), b',"id":', dumps(id), middle))

    def common(self, kind: str) -> bytes:
        """What accepted records of this kind, for which nothing was drawn, say between id and envelope."""
        return self._accepted.get(kind) or self._middle(kind, ACCEPTED, FreshMint())

    def _middle(self, kind: str, out: str, mint: FreshMint, made: Sequence[bytes] = ()) -> bytes:
        facts: dict[str, Json] = {"kind": kind, "out": out}
        if made:
            facts["made"] = [Fragment(each) for each in made]
        if mint.ids:
            facts["mint"] = mint.ids
        if mint.tokens:
            facts["tokens"] = mint.tokens
        middle = b',%b,%b,"raw":' % (self._about, dumps(facts)[1:-1])
        if len(facts) == 2 and out == ACCEPTED:
            if len(self._accepted) >= _KINDS_KEPT:
                self._accepted.clear()
            self._accepted[kind] = middle
        return middle


def recorded_time(line: bytes) -> float:
    """The space's time of a record, without parsing the rest; 0 if it has none.

    What stands for lost records has none: the journal wrote it, and that knows only the wall clock.
    """
    found = _TIME.match(line)
    return 0.0 if found is None or line.startswith(b',"in":"lost"', found.end()) else float(found[1])


def place_in_time(line: bytes) -> float:
    """The time of a record in a cluster, where all have one: what stands for lost records has the log's."""
    found = _TIME.match(line)
    return 0.0 if found is None else float(found[1])


def is_gap(line: bytes, *, is_copy: bool) -> bool:
    """Whether messages are missing before this record: they were lost, or a copy of a log goes on later."""
    found = _TIME.match(line)
    if found is None:
        return False
    return line.startswith(b',"in":"lost"', found.end()) or (
        is_copy and line.startswith(b',"in":"state"', found.end())
    )


def replay(space: Space, line: bytes, config: SpaceConfig) -> list[Effect]:
    """Replay one record; refused inputs changed nothing and are skipped."""
    record = read_input(line)
    if record.out not in (ACCEPTED, LEFT_TO_OTHERS):
        return []
    space.state.set_replaying(True)
    try:
        return _apply(space, record, config)
    finally:
        space.state.set_replaying(False)


def _apply(space: Space, record: StoredInput, config: SpaceConfig) -> list[Effect]:
    now, mint, session = record.t, ReplayMint(record.mint, record.tokens), SessionId(record.session)
    match record.input:
        case "receive":
            return _receive_again(space, record, session, now, mint)
        case "post":
            space.join(session, record.who, record.dialect, record.options, now, mint)
            try:
                effects = _receive_again(space, record, session, now, mint)
            finally:
                left = space.leave(session, now, mint)
            return effects + left
        case "join":
            return space.join(session, record.who, record.dialect, record.options, now, mint)
        case "leave":
            return space.leave(session, now, mint)
        case "expire":
            return space.expire(now, mint)
        case "gateway_gone":
            return space.drop_sessions([SessionId(each) for each in record.sessions], now, mint)
        case "restart":
            return space.restart(now, FreshMint(), clock_lost=record.clock_lost)
        case "clock":
            return space.note_wall_clock(record.wall, now, mint)
        case "reload":
            # It may draw other ids than then; nothing depends on them.
            taken = config if record.config is None else load_config(record.config)
            return space.reload(taken, now, FreshMint())
        case "state" | "repair":
            if bytes(record.state):
                space.state = load_state(bytes(record.state)).space.state
            for act in record.acts:
                reduce_rights(space, read_input(bytes(act)))
            return []
        case "health":
            return space.health(journal_writable=record.able)
        case _:
            return apply_act(space, record, now, mint) or []


def apply_act(space: Space, record: StoredInput, now: float, mint: Mint) -> list[Effect] | None:
    """What an operator or a provider of identities did, or a poll, applied; None for any other input."""
    match record.input:
        case "capabilities":
            add, remove = stored_capabilities(record.add), stored_capabilities(record.remove)
            return space.change_capabilities(record.who, add, remove, record.by, now, mint)
        case "restore":
            return space.restore_member(record.who, mint, drops_added=record.drops_added)
        case "rotate":
            token = Token(record.tokens[0])
            return space.rotate_credential(record.who, token, now, mint, keep=record.keep)
        case "reload" if record.config is not None:
            return space.reload(load_config(record.config), now, mint)
        case "sign_in" if record.sign_in is not None:
            return space.sign_in(record.sign_in, now, mint)
        case "temporary_token" if record.temporary_token is not None:
            return space.add_token(record.temporary_token)
        case "passkey_add" if record.passkey is not None:
            return space.add_passkey(record.passkey, now)
        case "passkey_remove" if record.passkey is not None:
            return space.remove_passkeys(record.passkey.ids, now, mint)
        case "passkey_sign_in" if record.passkey is not None:
            return space.sign_in_with_passkey(record.passkey, now)
        case "sign_out":
            return space.sign_out(
                record.keys,
                issued_before=record.issued_before,
                forget_at=record.forget_at,
                now=now,
                mint=mint,
                tokens=record.tokens,
            )
        case "poll":
            return space.note_poll(record.who, now)
        case "renew":
            return space.renew(SessionId(record.session), record.tokens[0], now, mint)
        case _:
            return None


class SavedState(NamedTuple):
    """A space as a snapshot or a record has it."""

    space: Space
    generation: int = 0
    journaled: bool = True  # whether everything in it is also in the journal
    time: float = 0.0  # of the space, when it was saved


def load_state(encoded: bytes) -> SavedState:
    """A saved state, under the rules of then: a kick that they accepted must come out the same."""
    state = msgspec.json.decode(encoded)  # integers of any size
    generation, journaled = state.pop("generation", 0), state.pop("journaled", True)
    time = state.pop("time", 0.0)
    return SavedState(Space(load_config(state.pop("config")), saved=state), generation, journaled, time)


def _receive_again(
    space: Space, record: StoredInput, session: SessionId, now: float, mint: ReplayMint
) -> list[Effect]:
    config = space.state.config
    dialect = DIALECTS[record.dialect]
    envelope = dialect.decode(
        # It was accepted, perhaps by a version that counted nothing.
        bytes(record.raw),
        msgspec.structs.replace(config.limits.envelope, max_containers=len(record.raw)),
        accept_protocols=config.accept_protocols,
    )
    effects = space.receive(session, envelope, now, mint, made=[bytes(each) for each in record.made])
    if (out := outcome_of(effects)) != record.out:
        raise UsageError(f"it was {record.out} then, and now it is: {out}")
    return effects


def outcome_of(effects: list[Effect]) -> str:
    """`accepted`, or the code that the sender was answered with: a refusal is always the first effect."""
    if effects and effects[0].__class__ is not Deliver:
        first = effects[0]
        if isinstance(first, Reply) and first.notice.kind == "system/error":
            return str(first.notice.payload["error"])
        if isinstance(first, LeftToOthers):
            return AlreadyAnswered.code if first.late else LEFT_TO_OTHERS
    return ACCEPTED
