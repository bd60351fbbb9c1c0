"""Inputs of a space as journal records, and back (D-41).

A record has the input, its time, the ids that were drawn for it and its outcome. An accepted one can be
replayed; a refused one is there to be read. No record contains a token: mints journal hashes.
"""

from __future__ import annotations

from typing import Final

import msgspec
from orjson import dumps

from moot.errors import UsageError
from moot.gateway.mint import FreshMint, ReplayMint
from moot.protocol import strict_json
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import DialectName, Envelope
from moot.protocol.operation import Json
from moot.protocol.patterns import read_capabilities
from moot.space.config import SessionId, SpaceConfig
from moot.space.effects import Effect, Token
from moot.space.roster import Options
from moot.space.space import Space

ACCEPTED: Final = "accepted"
# A sender may make kinds up; this many are kept ready.
_KINDS_KEPT: Final = 64


class StoredInput(msgspec.Struct):
    """A record as replay needs it; the envelope keeps its very bytes, so that no digit of it is lost."""

    t: float
    input: str = msgspec.field(name="in")
    out: str = ACCEPTED
    session: str = ""
    who: str = ""
    dialect: DialectName = "mew"
    mint: list[str] = []
    tokens: list[str] = []
    raw: msgspec.Raw = msgspec.Raw()
    options: Options = Options()
    able: bool = True
    add: list[Json] = []
    remove: list[Json] = []
    by: str = ""
    keep: bool = False


_decoder = msgspec.json.Decoder(StoredInput)


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

    def record(self, now: float, envelope: Envelope, out: str, mint: FreshMint) -> bytes:
        """The record of one envelope up to the envelope itself, which goes in verbatim behind it."""
        kind = envelope.wire_kind or envelope.kind
        middle = self._accepted.get(kind)
        if middle is None or out != ACCEPTED or mint.ids or mint.tokens:
            middle = self._middle(kind, out, mint)
        id = envelope.id or filled_id(out, mint)
        # orjson writes a float twenty times quicker than repr.
        return b"".join((b'"t":', dumps(now), b',"id":', dumps(id), middle))

    def common(self, kind: str) -> bytes:
        """What accepted records of this kind, for which nothing was drawn, say between id and envelope."""
        return self._accepted.get(kind) or self._middle(kind, ACCEPTED, FreshMint())

    def _middle(self, kind: str, out: str, mint: FreshMint) -> bytes:
        facts: dict[str, Json] = {"kind": kind, "out": out}
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


def read_input(line: bytes) -> StoredInput:
    """A record as it was written; raises UsageError for a line that no gateway wrote."""
    try:
        return _decoder.decode(line)
    except msgspec.MsgspecError as fault:
        raise UsageError(f"no record of a gateway: {fault}") from None


def replay(space: Space, line: bytes, config: SpaceConfig) -> list[Effect]:
    """Replay one record; refused inputs changed nothing and are skipped."""
    record = read_input(line)
    if record.out != ACCEPTED:
        return []
    space.state.replaying = True
    try:
        return _apply(space, record, config)
    finally:
        space.state.replaying = False


def _apply(space: Space, record: StoredInput, config: SpaceConfig) -> list[Effect]:
    now, mint, session = record.t, ReplayMint(record.mint, record.tokens), SessionId(record.session)
    match record.input:
        case "receive":
            return _receive_again(space, record, session, now, mint)
        case "post":
            space.join(session, record.who, record.dialect, record.options, now, mint)
            effects = _receive_again(space, record, session, now, mint)
            return effects + space.leave(session, now, mint)
        case "join":
            return space.join(session, record.who, record.dialect, record.options, now, mint)
        case "leave":
            return space.leave(session, now, mint)
        case "expire":
            return space.expire(now, mint)
        case "restart":
            return space.restart(now, FreshMint())
        case "reload":
            # The configuration may be another one by now, and draw other ids; nothing depends on them.
            return space.reload(config, now, FreshMint())
        case "health":
            return space.health(journal_writable=record.able)
        case "capabilities":
            add, remove = read_capabilities(record.add), read_capabilities(record.remove)
            return space.change_capabilities(record.who, add, remove, record.by, now, mint)
        case "restore":
            return space.restore_member(record.who, mint)
        case "rotate":
            token = Token(record.tokens[0])
            return space.rotate_credential(record.who, token, now, mint, keep=record.keep)
        case _:
            return []


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
    return space.receive(session, envelope, now, mint)
