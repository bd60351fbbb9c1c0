"""A driver over real sockets: vectors on a gateway that runs somewhere, judged as on the pure space.

When has everything arrived that a step causes? A gateway takes inputs one after the other and writes to each
connection in order, but some of what it says waits for its disk, so a WebSocket ping overtakes it. The
mark that we send instead is an envelope under a false name: MEW 4.1 has it refused, whoever sends it and
however paused it may be, and a refusal changes nothing. Whoever acted sends a mark first: its answer means
that the step has been taken. Then everybody else does: the answer of each means that it has heard all of it.
A gateway that lets false names pass relays the mark; that is an answer too, and nobody counts it. What others
do with it is learned once (`traits`).
"""

from __future__ import annotations

import json
import secrets
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec
import orjson

from moot.conformance.blocking_client import (
    BlockingClient,
    ConnectionEnded,
    GatewayAddress,
    HandshakeRefused,
    NoReply,
    WireMessage,
    WirePong,
)
from moot.conformance.gateway_traits import (
    LEARN_POLL_SECONDS,
    LEARN_SECONDS,
    NOBODY,
    PING_SECONDS,
    PREFIX,
    GatewayTraits,
    is_nameless_error,
)
from moot.conformance.http_members import HttpMember, HttpMembers, read_message
from moot.conformance.runner import NotJudged, ReceivedMessages
from moot.errors import UsageError
from moot.protocol import strict_json
from moot.protocol.operation import Json

# A little more, so that a clock of the other side agrees.
_ERROR_SECONDS: Final = 1.05
# How long a gateway may take to tell others that somebody left, and how often we look.
_LEAVE_SECONDS: Final = 5.0
_LEAVE_POLL_SECONDS: Final = 0.05
# The same where nobody is to be told, because the member is still there or never was: long enough for a
# gateway that tells it all the same.
_SILENT_LEAVE_SECONDS: Final = 0.3
# How long we wait for what did not come with the answer to our mark, each time.
_LATE_POLL_SECONDS: Final = 0.1


class GatewayControl(msgspec.Struct, frozen=True):
    """What only whoever runs the gateway can do: let time pass, and take its disk away."""

    wait: Callable[[float], None]
    journal: Callable[[bool], None]


class LiveSession:
    """One connection of the story, and what it has heard since it was last asked."""

    def __init__(self, name: str, who: str, wire: BlockingClient, dialect: str) -> None:
        self.name = name
        # The member whose connection it is; others of the same story may be its, too.
        self.who = who
        self.wire = wire
        self.dialect = dialect
        self.received: list[Json] = []
        self.is_open = True
        # What the gateway calls us.
        self.own_id = who


class LiveDriver:
    """One space of a running gateway. `tokens` admit its participants; tokens of invitations are added."""

    def __init__(
        self,
        address: GatewayAddress,
        tokens: Mapping[str, str],
        *,
        space: str | None = None,
        control: GatewayControl | None = None,
        is_stranger: Callable[[str], bool] = lambda _: False,
        old_streams: Collection[str] = (),
        traits: GatewayTraits | None = None,
        completes: bool = False,
    ) -> None:
        self._address = address
        self._space = space
        self._control = control
        # Presence of these is no part of the story: whoever left before it began may be told of late.
        self._is_stranger = is_stranger
        # Streams that were open before the story began are no part of it either.
        self._old_streams = frozenset(old_streams)
        self.tokens = dict(tokens)
        self._sessions: dict[str, LiveSession] = {}
        self._posts = HttpMembers(address, space)
        # Who was told of an error about which stream.
        self._faulty: set[tuple[str, str]] = set()
        # Told apart from those of other drivers: some gateways keep them as messages.
        self._mark = f"{PREFIX}{secrets.token_hex(4)}-"
        self._marks = 0
        self._habits = traits or GatewayTraits(wants_join_frame=True)
        # MEW has all fields in an envelope; ours fills in what a member leaves out, others need not.
        self._completes = completes

    def close(self) -> None:
        """Leave with everybody who is still there."""
        for session in self._sessions.values():
            session.wire.close()
        self._sessions.clear()

    # What the runner asks for

    def join(self, name: str, options: Mapping[str, Json]) -> ReceivedMessages:
        chosen = dict(options)
        who, dialect = str(chosen.pop("as", name)), str(chosen.pop("dialect", "mew"))
        token = self.tokens.get(who, "nobody-has-this-token")
        if chosen.pop("injected", False):
            admitted = self._posts.admit(name, HttpMember(who, token, dialect))
            words = {"refused": "participant_not_found", "message": "the token opens nothing"}
            return self._settle(None) | ({} if admitted else {name: [words]})
        try:
            wire = self._connect(who, token, dialect, chosen)
        except HandshakeRefused as refusal:
            # At the door nobody is told who exists: a token that opens nothing is nobody's.
            unknown = refusal.status in (401, 403)
            code = "participant_not_found" if unknown else f"http_{refusal.status}"
            return self._settle(None) | {name: [{"refused": code, "message": str(refusal)}]}
        if name in self._sessions:
            # The story says that it was thrown out, and this gateway has not done it.
            self._sessions[name].wire.close()
        session = self._sessions[name] = LiveSession(name, who, wire, dialect)
        if dialect == "mew":
            self._await_first(session)
        received = self._settle(session)
        return received if session.is_open else received | {name: [_refusal(received[name])]}

    def leave(self, name: str) -> ReceivedMessages:
        left = None
        if not self._posts.remove(name) and name in self._sessions:
            left = self._sessions.pop(name)
            left.wire.close()
        is_news = left is not None and all(other.who != left.who for other in self._sessions.values())
        received = self._settle(None)
        deadline = time.monotonic() + (_LEAVE_SECONDS if is_news else _SILENT_LEAVE_SECONDS)
        while self._control is None and not all(received.values()) and time.monotonic() < deadline:
            # Nothing says when another gateway has noticed; a mark may be answered before it has, and one
            # member's mark before it has told that member.
            time.sleep(_LEAVE_POLL_SECONDS)
            for other, messages in self._settle(None).items():
                received.setdefault(other, []).extend(messages)
        return received

    def look_again(self) -> ReceivedMessages:
        """What has arrived a little later: a gateway may answer our mark before it is through with a step."""
        time.sleep(_LATE_POLL_SECONDS)
        return self._settle(None)

    def send(self, name: str, envelope: Mapping[str, Json]) -> ReceivedMessages:
        return self.raw(name, strict_json.encode(dict(envelope)).decode())

    def _with_all_fields(self, text: str, sender: str) -> str:
        """The text of an object with what it lacks in front, and otherwise as it is written."""
        try:
            sent = json.loads(text)
        except ValueError:
            return text
        if not isinstance(sent, dict) or not sent:
            return text
        lacking = {key: value for key, value in self._completed(sender).items() if key not in sent}
        if not lacking:
            return text
        return f"{json.dumps(lacking)[:-1]},{text.lstrip()[1:]}"

    def _completed(self, sender: str) -> dict[str, Json]:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        return {"protocol": "mew/v0.4", "id": str(uuid.uuid4()), "ts": now, "from": sender}

    def raw(self, name: str, text: str) -> ReceivedMessages:
        if name in self._posts:
            return self._post(name, text)
        session = self._sessions.get(name)
        if session is None:
            raise NotJudged(f"{name} is not in the space, and the story needs it there")
        if self._completes:
            text = self._with_all_fields(text, session.own_id)
        try:
            session.wire.send(text.encode())
        except UnicodeEncodeError:
            # A text message that is no UTF-8 ends the connection before any envelope is looked at.
            session.wire.send(text.encode("utf-8", "surrogatepass"), binary=True)
        return self._settle(session)

    def frame(self, name: str, text: str) -> ReceivedMessages:
        stream = (name, text[1:].partition("#")[0])
        if stream in self._faulty:
            # D-36: a second error about the same stream is told no sooner than a second later.
            self._faulty.remove(stream)
            self._let_pass(_ERROR_SECONDS)
        received = self.raw(name, text)
        if any(str(message.get("kind", "")).startswith("system") for message in received.get(name, [])):
            self._faulty.add(stream)
        return received

    def _let_pass(self, seconds: float) -> None:
        if self._control is None:
            time.sleep(seconds)
        else:
            self._control.wait(seconds)

    def wait(self, seconds: float) -> ReceivedMessages:
        self._own_control().wait(seconds)
        return self._settle(None)

    def journal(self, able: bool) -> ReceivedMessages:
        self._own_control().journal(able)
        return self._settle(None)

    def _own_control(self) -> GatewayControl:
        if self._control is None:
            raise UsageError("the clock and the disk of this gateway are not in our hands")
        return self._control

    # Sockets

    def _connect(self, who: str, token: str, dialect: str, options: Mapping[str, Json]) -> BlockingClient:
        # dialects.md section 1: a space of MEW is a topic of MCPx.
        query = {} if self._space is None else {"space" if dialect == "mew" else "topic": self._space}
        if dialect == "m3p" or (dialect == "mcpx" and not query):
            query["dialect"] = dialect
        if "routing" in options:
            query["routing"] = str(options["routing"])
        if options.get("echo") is False:
            query["echo"] = "0"
        if options.get("streams"):
            query["streams"] = "1"
        wished = options.get("runtime_id")
        # D-20: an id of one's own is proposed in a join frame, and nothing else.
        headers = {"Authorization": f"Bearer {token}"} if wished is None else {}
        wire = BlockingClient(self._address, query=query, headers=headers)
        if wished is not None or (dialect == "mew" and self._habits.wants_join_frame):
            # Beside a header it changes nothing, but some gateways look at it alone.
            self._send_join_frame(wire, str(wished or who), token)
        return wire

    def _send_join_frame(self, wire: BlockingClient, id: str, token: str) -> None:
        join = {"type": "join", "space": self._space, "token": token, "participantId": id}
        wire.send(orjson.dumps({key: value for key, value in join.items() if value is not None}))

    def _settle(self, actor: LiveSession | None) -> ReceivedMessages:
        """Wait until everybody has heard everything; returns what that is."""
        present = list(self._sessions.values())
        if actor is not None:
            self._await_mark(actor, self._send_mark(actor))
        if self._habits.by_ping:
            time.sleep(PING_SECONDS)
        marked = [
            (session, self._send_mark(session))
            for session in present
            if session is not actor or self._habits.by_ping
        ]
        for session, mark in marked:
            self._await_mark(session, mark)
        received = self._posts.removals()
        for session in present:
            received[session.name] = session.received
            session.received = []
            if not session.is_open:
                del self._sessions[session.name]
        return received

    def _send_mark(self, session: LiveSession) -> str:
        self._marks += 1
        mark = f"{self._mark}{self._marks}"
        if self._habits.by_ping:
            session.wire.ping(mark.encode())
            return mark
        kind = "chat.message" if session.dialect == "m3p" else "chat"
        whole = self._completed(NOBODY) if self._completes else {}
        envelope = whole | {"id": mark, "from": NOBODY, "kind": kind, "payload": {"text": "?"}}
        session.wire.send(orjson.dumps(envelope))
        return mark

    def learn_habits(self, who: str) -> None:
        """See how this gateway lets us in and what it does with a mark; it may throw us out for that."""
        token = self.tokens[who]
        try:
            wire = self._connect(who, token, "mew", {})
        except HandshakeRefused:
            # Why is told when somebody joins in earnest.
            return
        session = self._sessions[who] = LiveSession(who, who, wire, "mew")
        if not self._hears(session, lambda: bool(session.received)):
            self._habits.wants_join_frame = True
            self._send_join_frame(wire, who, token)
            self._await_first(session)
        heard = len(session.received)
        mark = self._send_mark(session)
        about: list[str] = []
        named = self._hears(session, lambda: mark in about, about)
        errors = [message for message in session.received[heard:] if is_nameless_error(message)]
        if not named and errors and session.is_open:
            self._habits.nameless = errors[-1].get("payload")
        elif not named:
            self._habits.by_ping = True

    def _hears(
        self, session: LiveSession, is_enough: Callable[[], bool], about: list[str] | None = None
    ) -> bool:
        """Read what comes within a time, without a wait for what may never come."""
        began = time.monotonic()
        while session.is_open and time.monotonic() - began < LEARN_SECONDS:
            ping = f"{self._mark}{time.monotonic()}"
            session.wire.ping(ping.encode())
            noted: list[str] = []
            while session.is_open and ping not in noted:
                noted = self._note(session, session.wire.receive())
                if about is not None:
                    about += noted
                if is_enough():
                    return True
            time.sleep(LEARN_POLL_SECONDS)
        return False

    def _await_first(self, session: LiveSession) -> None:
        """The welcome, or how the join was refused: some gateways take what comes meanwhile before it."""
        try:
            found = session.wire.receive()
        except NoReply:
            seconds = self._address.seconds
            raise NoReply(f"{session.name} was not welcomed within {seconds:g} s of its join") from None
        self._note(session, found)
        welcome = session.received[-1].get("payload") if session.received else None
        you = welcome.get("you") if isinstance(welcome, dict) else None
        session.own_id = _field(you, "id") or session.who

    def _await_mark(self, session: LiveSession, mark: str) -> None:
        deadline = time.monotonic() + self._address.seconds
        while session.is_open:
            try:
                found = session.wire.receive()
            except NoReply:
                found = None
            if found is None or time.monotonic() > deadline:
                what = (
                    "a ping"
                    if self._habits.by_ping
                    else "an envelope under a false name, which is to be refused (MEW 4.1)"
                )
                raise NoReply(f"{session.name} had no answer within {self._address.seconds:g} s to {what}")
            if mark in self._note(session, found, mark):
                return

    def _note(
        self, session: LiveSession, found: WireMessage | WirePong | ConnectionEnded, mark: str | None = None
    ) -> list[str]:
        """Keep what a session heard; returns the marks that it is about, which are not kept."""
        if isinstance(found, WirePong):
            return [found.data.decode("utf-8", "replace")]
        if isinstance(found, ConnectionEnded):
            session.received.append({"closed": found.code, "reason": found.reason})
            session.is_open = False
            return []
        message = self._without_strangers(read_message(found.data))
        about = self._habits.marks_in(message, mark)
        if not about and not self._is_stranger(_subject_of(message)):
            self._note_token(message)
            session.received.append(message)
        return about

    def _without_strangers(self, message: Json) -> Json:
        """A welcome without what others left behind: members, and streams that were never closed."""
        payload = message.get("payload") if message.get("kind") == "system/welcome" else None
        if not isinstance(payload, dict):
            return message
        cleared = dict(payload)
        if isinstance(members := payload.get("participants"), list):
            cleared["participants"] = [each for each in members if not self._is_stranger(_field(each, "id"))]
        if isinstance(streams := payload.get("active_streams"), list):
            cleared["active_streams"] = [
                each for each in streams if _field(each, "stream_id") not in self._old_streams
            ]
        return message | {"payload": cleared}

    def _note_token(self, message: Json) -> None:
        """Invitations bring the token of somebody who may join later in the story."""
        payload = message.get("payload")
        if message.get("kind") in ("space/invite-ack", "space.invite-ack") and isinstance(payload, dict):
            self._note_invitation(payload)

    def _note_invitation(self, payload: Mapping[str, Json]) -> None:
        who, token = payload.get("participant_id"), payload.get("token")
        if isinstance(who, str) and isinstance(token, str) and token:
            self.tokens[who] = token

    def _post(self, name: str, text: str) -> ReceivedMessages:
        body, error = self._posts.post(name, text)
        received = self._settle(None)
        self._note_invitation(body)
        if error is not None:
            received.setdefault(name, []).insert(0, error)
        return received


def _field(entry: Json, name: str) -> str:
    return str(entry.get(name, "")) if isinstance(entry, dict) else ""


def _subject_of(message: Json) -> str:
    """Whose presence a message tells of; empty for anything else."""
    payload = message.get("payload") if message.get("kind") == "system/presence" else None
    participant = payload.get("participant") if isinstance(payload, dict) else None
    return str(participant.get("id", "")) if isinstance(participant, dict) else ""


def _refusal(received: list[Json]) -> Json:
    """D-21: a join that is refused hears an error and is closed."""
    for message in received:
        payload = message.get("payload")
        if isinstance(payload, dict) and "error" in payload:
            return {"refused": payload["error"], "message": payload.get("message")}
    return {"refused": "closed", "message": str(received)}
