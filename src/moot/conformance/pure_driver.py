"""A driver without a socket: the pure space, its effects carried out in memory, a clock in our hands."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import orjson

from moot.config.space.space_reader import read_space
from moot.conformance.runner import ReceivedMessages
from moot.errors import MalformedEnvelope, Refused
from moot.protocol import strict_json
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import Envelope, rfc3339
from moot.protocol.frames import Frame, is_frame, read_frame
from moot.protocol.operation import Json
from moot.protocol.payloads import GatewayNotice
from moot.space.config import SessionId
from moot.space.effects import (
    Credential,
    Deliver,
    Disconnect,
    Effect,
    LeftToOthers,
    Mail,
    Reply,
    Result,
    Token,
)
from moot.space.members.member import Options
from moot.space.space import Space


class CountingMint:
    """Ids and tokens that are the same in every run."""

    def __init__(self) -> None:
        self._count = 0

    def id(self) -> str:
        self._count += 1
        return f"minted-{self._count}"

    def token(self) -> Token:
        self._count += 1
        secret = f"secret-{self._count}"
        return Token(hashlib.sha256(secret.encode()).hexdigest(), secret)


class PureDriver:
    """One space; every member has one session, named after it (or `name/2` for a second one)."""

    def __init__(self, settings: Mapping[str, Json]) -> None:
        self.space = Space(read_space("lab", settings))
        self.mint = CountingMint()
        self.now = 1_760_000_000.0
        self.effects: list[Effect] = []
        self._received: ReceivedMessages = {}
        self._present: dict[str, None] = {}  # in the order of joining

    def join(self, name: str, options: Mapping[str, Json]) -> ReceivedMessages:
        chosen = dict(options)
        dialect = chosen.pop("dialect", "mew")
        member = chosen.pop("as", name)
        self._present[name] = None
        try:
            effects = self.space.join(
                SessionId(name), member, dialect, Options(**chosen), self.now, self.mint
            )
        except Refused as refusal:
            self._present.pop(name, None)
            return self._carry_out([]) | {name: [{"refused": refusal.code, "message": refusal.message}]}
        return self._carry_out(effects)

    def leave(self, name: str) -> ReceivedMessages:
        self._present.pop(name, None)
        return self._carry_out(self.space.leave(SessionId(name), self.now, self.mint))

    def send(self, name: str, envelope: Mapping[str, Json]) -> ReceivedMessages:
        return self.raw(name, strict_json.encode(dict(envelope)).decode())

    def raw(self, name: str, text: str) -> ReceivedMessages:
        return self.raw_bytes(name, text.encode("utf-8", "surrogatepass"))

    def raw_bytes(self, name: str, raw: bytes) -> ReceivedMessages:
        session = SessionId(name)
        config = self.space.state.config
        dialect = DIALECTS[self.space.state.roster.sessions[session].dialect]
        try:
            envelope = dialect.decode(raw, config.limits.envelope, accept_protocols=config.accept_protocols)
        except MalformedEnvelope as refusal:
            return self._carry_out(self.space.refuse(session, refusal, self.now, self.mint))
        return self._carry_out(self.space.receive(session, envelope, self.now, self.mint))

    def frame(self, name: str, text: str) -> ReceivedMessages:
        session = SessionId(name)
        raw = text.encode()
        if not is_frame(raw):
            return self.raw_bytes(name, raw)
        try:
            frame = read_frame(raw, binary=False, max_bytes=self.space.state.limits.max_frame_bytes)
        except MalformedEnvelope as refusal:
            return self._carry_out(self.space.refuse(session, refusal, self.now, self.mint))
        return self._carry_out(self.space.frame(session, frame, self.now, self.mint))

    def wait(self, seconds: float) -> ReceivedMessages:
        self.now += seconds
        return self._carry_out(self.space.expire(self.now, self.mint))

    def journal(self, able: bool) -> ReceivedMessages:
        return self._carry_out(self.space.health(journal_writable=able))

    def _carry_out(self, effects: list[Effect]) -> ReceivedMessages:
        self.effects = effects
        self._received = {name: [] for name in self._present}
        for effect in effects:
            match effect:
                case Deliver():
                    for session in effect.sessions:
                        self._receive(session, self._spelled(effect, session))
                case Reply():
                    self._receive(effect.session, self._spelled(Deliver((), effect.notice), effect.session))
                case Disconnect():
                    self._received.setdefault(effect.session, []).append(
                        {"closed": effect.code, "reason": effect.reason}
                    )
                    self._present.pop(effect.session, None)
                case Credential() | Mail() | Result() | LeftToOthers():
                    pass
        return self._received

    def _spelled(self, effect: Deliver, session_id: SessionId) -> Any:
        session = self.space.state.roster.sessions.get(session_id)
        # Gone by now, but told something before: everyone starts as MEW here.
        dialect = DIALECTS["mew" if session is None else session.dialect]
        match effect.message:
            case Frame():
                return {"frame": effect.message.raw.decode("utf-8", "replace")}
            case GatewayNotice():
                raw = dialect.encode_notice(effect.message)
            case Envelope():
                raw = dialect.encode(effect.message, operation=effect.operation, proposer=effect.proposer)
        return None if raw is None else orjson.loads(raw)

    def _receive(self, session: SessionId, message: Json) -> None:
        if message is not None:
            self._received.setdefault(session, []).append(message)

    @property
    def clock(self) -> str:
        return rfc3339(self.now)
