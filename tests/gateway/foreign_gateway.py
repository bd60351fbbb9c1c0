"""A small MEW gateway as somebody else might write it from the document: it shares no code with ours.

Where MEW names a code or a form it has that one. Where MEW leaves it open it does something else than ours:
its own error codes without a text, other ids, its own name in all it says, no echo to the sender, no filling
in of what an envelope lacks, ids that may be used twice, pauses that bind nobody. `faults` switches real
mistakes on, each named after what it does.
"""

from __future__ import annotations

import fnmatch
import itertools
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve

FAULTS: Final = frozenset(
    {
        "believes_names",  # `from` is not looked at
        "relays_system",  # a member's system/* is heard by the others
        "any_version",  # `protocol` is not looked at
        "shows_tokens",  # everybody hears an invite-ack
        "keeps_closed_streams",  # frames of a closed stream go on
        "unknown_targets",  # a stream may have targets that nobody knows
        "grants_anything",  # nobody is asked whether they hold what they grant
        "ignores_kicks",  # whoever is kicked stays
        "forgets_rights",  # a welcome lists no rights
        "leaks_targeted",  # everybody hears the frames of a stream with targets
        "rejects_quietly",  # a violation gets no answer
    }
)
Message = dict[str, Any]


class Refusal(Exception):
    def __init__(self, code: str, **more: Any) -> None:
        super().__init__(code)
        self.payload = {"error": code, **more}


class Person:
    """Somebody with a token; `sockets` while connected."""

    def __init__(self, name: str, rights: list[Message]) -> None:
        self.name = name
        self.rights = rights
        # Rights by the id of their grant.
        self.granted: dict[str, list[Message]] = {}
        self.sockets: list[ServerConnection] = []
        self.is_stopped = False

    def all_rights(self) -> list[Message]:
        return [*self.rights, *(right for given in self.granted.values() for right in given)]

    def described(self, *, rights: bool = True) -> Message:
        return {"id": self.name, "capabilities": self.all_rights() if rights else []}


class Stream:
    def __init__(self, id: str, owner: str, request: Message) -> None:
        self.id, self.owner, self.request = id, owner, request
        self.writers = [owner]
        # Who was given it by hand keeps it when the ownership moves on.
        self.given: set[str] = set()
        self.opened_by: list[str] = []

    def described(self) -> Message:
        return {
            **self.request,
            "stream_id": self.id,
            "owner": self.owner,
            "created": "2026-11-16T09:00:00Z",
            "authorized_writers": list(self.writers),
        }


class Rudder:
    """One space in memory, a thread for each connection."""

    def __init__(self, faults: set[str] | None = None) -> None:
        self.faults = frozenset(faults or ())
        assert self.faults <= FAULTS
        self.lock = threading.RLock()
        self.numbers = itertools.count(1000)
        self.people = {"root": Person("root", [{"kind": "*"}])}
        self.tokens = {"t-root": "root"}
        self.streams: dict[str, Stream] = {}

    # Connections

    def admit(self, connection: ServerConnection, request: Request) -> Response | None:
        url = urlsplit(request.path)
        if url.path != "/ws":
            return connection.respond(HTTPStatus.NOT_FOUND, "no such page\n")
        if parse_qs(url.query).get("space", ["deck"]) != ["deck"]:
            return connection.respond(HTTPStatus.NOT_FOUND, "no such space\n")
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or token not in self.tokens:
            return connection.respond(HTTPStatus.UNAUTHORIZED, "token?\n")
        connection.name = self.tokens[token]  # type: ignore[attr-defined]
        return None

    def serve(self, socket: ServerConnection) -> None:
        with self.lock:
            person = self.people.get(socket.name)  # type: ignore[attr-defined]
            if person is None:
                return
            first = not person.sockets
            person.sockets.append(socket)
            person.is_stopped = False
            self.welcome(person, socket)
            if first:
                self.announce("join", person)
        try:
            with suppress(ConnectionClosed):
                for data in socket:
                    with self.lock:
                        if socket in person.sockets:
                            self.take(person, socket, data)
        finally:
            with self.lock:
                if socket in person.sockets:
                    person.sockets.remove(socket)
                    if not person.sockets:
                        self.gone(person)

    def gone(self, person: Person) -> None:
        self.announce("leave", person)
        for stream in list(self.streams.values()):
            if person.name != stream.owner and person.name in stream.writers:
                stream.writers.remove(person.name)
                self.tell_writers("stream/write-revoked", stream, person.name, None, "gone")

    def welcome(self, person: Person, *sockets: ServerConnection) -> None:
        others = [each.described() for each in self.present() if each is not person]
        payload = {
            "you": person.described(rights="forgets_rights" not in self.faults),
            "participants": others,
            "active_streams": [stream.described() for stream in self.streams.values()],
        }
        for socket in sockets or person.sockets:
            self.say(socket, "system/welcome", payload, to=[person.name])

    def announce(self, event: str, person: Person) -> None:
        payload = {"event": event, "participant": person.described()}
        for other in self.present():
            if other is not person:
                for socket in other.sockets:
                    self.say(socket, "system/presence", payload)

    def present(self) -> list[Person]:
        return [person for person in self.people.values() if person.sockets]

    # What comes in

    def take(self, person: Person, socket: ServerConnection, data: str | bytes) -> None:
        raw = data.encode("utf-8", "replace") if isinstance(data, str) else data
        if raw.startswith(b"#"):
            self.frame(person, socket, data, raw)
            return
        sent: Message = {}
        try:
            sent = self.read(raw)
            self.check(person, sent)
            self.carry_out(person, socket, sent)
        except Refusal as refusal:
            if "rejects_quietly" in self.faults and refusal.payload["error"] == "capability_violation":
                return
            id = sent.get("id")
            about = {"correlation_id": [id]} if isinstance(id, str) and id else {}
            self.say(socket, "system/error", refusal.payload, to=[person.name], **about)

    def read(self, raw: bytes) -> Message:
        def no_twins(pairs: list[tuple[str, Any]]) -> Message:
            if len({key for key, _ in pairs}) < len(pairs):
                raise ValueError
            return dict(pairs)

        def no_constants(_: str) -> Any:
            raise ValueError

        try:
            sent = json.loads(raw, object_pairs_hook=no_twins, parse_constant=no_constants)
            json.dumps(sent, ensure_ascii=False).encode()
        except (ValueError, RecursionError):
            raise Refusal("E_SYNTAX") from None
        if not isinstance(sent, dict):
            raise Refusal("E_SHAPE")
        return sent

    def check(self, person: Person, sent: Message) -> None:
        if sent.get("protocol") != "mew/v0.4" and "any_version" not in self.faults:
            raise Refusal("E_VERSION")
        texts = ("id", "ts", "from", "kind")
        if not all(isinstance(sent.get(key), str) and sent[key] for key in texts):
            raise Refusal("E_SHAPE")
        try:
            if "T" not in sent["ts"] or datetime.fromisoformat(sent["ts"]).tzinfo is None:
                raise Refusal("E_SHAPE")
        except ValueError:
            raise Refusal("E_SHAPE") from None
        for key in ("to", "correlation_id"):
            listed = sent.get(key, [])
            if not isinstance(listed, list) or not all(isinstance(each, str) and each for each in listed):
                raise Refusal("E_SHAPE")
        if not isinstance(sent.get("payload", {}), dict) or not isinstance(sent.get("context", "-"), str):
            raise Refusal("E_SHAPE")
        if sent["from"] != person.name and "believes_names" not in self.faults:
            raise Refusal("E_IDENTITY")
        kind = sent["kind"]
        if kind.startswith("system/"):
            if "relays_system" in self.faults and any(allows(each, sent) for each in person.all_rights()):
                return
            raise Refusal("E_RESERVED")
        if kind == "space/invite-ack" or not any(allows(each, sent) for each in person.all_rights()):
            mine = person.all_rights()
            raise Refusal("capability_violation", attempted_kind=kind, your_capabilities=mine)
        if person.is_stopped:
            raise Refusal("E_STOPPED")

    def carry_out(self, person: Person, socket: ServerConnection, sent: Message) -> None:
        payload = sent.get("payload", {})
        act = {
            "space/invite": self.invite,
            "space/kick": self.kick,
            "capability/grant": self.grant,
            "capability/revoke": self.revoke,
            "stream/request": self.open_stream,
            "stream/close": self.close_stream,
            "stream/grant-write": self.grant_write,
            "stream/revoke-write": self.revoke_write,
            "stream/transfer-ownership": self.transfer,
        }.get(sent["kind"])
        if act is None:
            self.relay(person, sent)
            if sent["kind"] == "participant/shutdown":
                for other in self.present():
                    meant = other.name in sent["to"] if sent.get("to") else other is not person
                    other.is_stopped = other.is_stopped or meant
        else:
            act(person, socket, sent, payload)

    def relay(self, person: Person, sent: Message) -> None:
        for other in self.present():
            if other is not person:
                for socket in other.sockets:
                    self.send(socket, sent)

    # People

    def invite(self, person: Person, socket: ServerConnection, sent: Message, payload: Message) -> None:
        name = payload.get("participant_id")
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][\w.-]{0,127}", name):
            raise Refusal("E_NAME")
        if name == "gateway" or name.startswith("system"):
            raise Refusal("E_NAME")
        ack: Message = {"participant_id": name}
        if name in self.people:
            ack["status"] = "already_exists"
        else:
            rights = checked_rights(payload.get("initial_capabilities", []))
            self.check_handing_on(person, rights)
            token = f"pass-{next(self.numbers)}"
            self.people[name] = Person(name, rights)
            self.tokens[token] = name
            ack |= {"status": "created", "token": token}
            for other in self.present():
                if other is not person:
                    for each in other.sockets:
                        self.say(each, "system/presence", {"event": "invite", "participant": {"id": name}})
        hearing = [socket]
        if "shows_tokens" in self.faults:
            hearing = [each for other in self.present() for each in other.sockets]
        for each in hearing:
            self.say(each, "space/invite-ack", ack, to=[person.name], correlation_id=[sent["id"]])

    def kick(self, person: Person, socket: ServerConnection, sent: Message, payload: Message) -> None:
        target = self.known(payload.get("participant_id"))
        self.relay(person, sent)
        if "ignores_kicks" in self.faults and not target.name.startswith("conductor"):
            return
        del self.people[target.name]
        self.tokens = {token: name for token, name in self.tokens.items() if name != target.name}
        sockets, target.sockets = target.sockets, []
        for id, stream in list(self.streams.items()):
            if stream.owner == target.name:
                del self.streams[id]
                for other in self.present():
                    for each in other.sockets:
                        closed = {"stream_id": id, "reason": "owner_removed"}
                        self.say(each, "stream/close", closed, correlation_id=stream.opened_by)
        if sockets:
            self.gone(target)
        for each in sockets:
            # Not here: it waits for the other side, and the lock is ours.
            threading.Thread(target=each.close, args=(4009, "removed"), daemon=True).start()

    def known(self, name: Any) -> Person:
        person = self.people.get(name) if isinstance(name, str) else None
        if person is None:
            raise Refusal("E_WHO")
        return person

    def grant(self, person: Person, socket: ServerConnection, sent: Message, payload: Message) -> None:
        target = self.known(payload.get("recipient"))
        rights = checked_rights(payload.get("capabilities"))
        if not rights:
            raise Refusal("E_SHAPE")
        self.check_handing_on(person, rights)
        target.granted[sent["id"]] = rights
        self.relay(person, sent)
        self.welcome(target)

    def check_handing_on(self, person: Person, rights: list[Message]) -> None:
        if "grants_anything" in self.faults:
            return
        mine = person.all_rights()
        if not all(any(includes(own, right) for own in mine) for right in rights):
            raise Refusal("E_NOT_YOURS")

    def revoke(self, person: Person, socket: ServerConnection, sent: Message, payload: Message) -> None:
        target = self.known(payload.get("recipient"))
        if "grant_id" in payload:
            if payload["grant_id"] not in target.granted:
                raise Refusal("E_GRANT")
            del target.granted[payload["grant_id"]]
        else:
            gone = checked_rights(payload.get("capabilities"))
            if not gone:
                raise Refusal("E_SHAPE")
            for id, given in list(target.granted.items()):
                left = [right for right in given if not any(includes(each, right) for each in gone)]
                target.granted[id] = left
        self.relay(person, sent)
        self.welcome(target)

    # Streams

    def open_stream(self, person: Person, socket: ServerConnection, sent: Message, payload: Message) -> None:
        if payload.get("direction") not in ("upload", "download"):
            raise Refusal("E_DIRECTION")
        target = payload.get("target") or []
        if not isinstance(target, list):
            raise Refusal("E_SHAPE")
        missing = [name for name in target if not isinstance(name, str) or name not in self.people]
        if missing and "unknown_targets" not in self.faults:
            raise Refusal("target_not_found", targets=missing)
        stream = Stream(f"flow.{next(self.numbers)}", person.name, payload)
        self.streams[stream.id] = stream
        self.relay(person, sent)
        opened = {"stream_id": stream.id, "owner": person.name, "authorized_writers": [person.name]}
        opened |= {"target": target} if target else {}
        for other in self.present():
            for each in other.sockets:
                about = {"to": [person.name], "correlation_id": [sent["id"]]}
                id = self.say(each, "stream/open", opened, **about)
                stream.opened_by += [id, sent["id"]]

    def stream_of(self, person: Person, sent: Message, payload: Message) -> Stream:
        named = payload.get("stream_id")
        found = self.streams.get(named) if isinstance(named, str) else None
        if named is None:
            ids = set(sent.get("correlation_id", []))
            found = next((each for each in self.streams.values() if ids & set(each.opened_by)), None)
        if found is None:
            raise Refusal("stream_not_found")
        if found.owner != person.name:
            raise Refusal("unauthorized")
        return found

    def close_stream(self, person: Person, socket: ServerConnection, sent: Message, payload: Message) -> None:
        stream = self.stream_of(person, sent, payload)
        if "keeps_closed_streams" not in self.faults:
            del self.streams[stream.id]
        self.relay(person, sent)

    def grant_write(self, person: Person, socket: ServerConnection, sent: Message, payload: Message) -> None:
        stream = self.stream_of(person, sent, payload)
        name = self.member(payload.get("participant_id"))
        stream.given.add(name)
        if name not in stream.writers:
            stream.writers.append(name)
        self.tell_writers("stream/write-granted", stream, name, sent, payload.get("reason"))

    def revoke_write(self, person: Person, socket: ServerConnection, sent: Message, payload: Message) -> None:
        stream = self.stream_of(person, sent, payload)
        name = payload.get("participant_id")
        if name == person.name:
            raise Refusal("invalid_operation")
        if name in stream.writers:
            stream.writers.remove(name)
        stream.given.discard(str(name))
        self.tell_writers("stream/write-revoked", stream, str(name), sent, payload.get("reason"))

    def transfer(self, person: Person, socket: ServerConnection, sent: Message, payload: Message) -> None:
        stream = self.stream_of(person, sent, payload)
        name = self.member(payload.get("new_owner"))
        if person.name not in stream.given:
            stream.writers.remove(person.name)
        stream.owner = name
        if name not in stream.writers:
            stream.writers.append(name)
        news: Message = {"stream_id": stream.id, "previous_owner": person.name, "new_owner": name}
        news |= {"authorized_writers": list(stream.writers)}
        news |= {"reason": payload["reason"]} if "reason" in payload else {}
        for other in self.present():
            for each in other.sockets:
                self.say(each, "stream/ownership-transferred", news, correlation_id=[sent["id"]])

    def member(self, name: Any) -> str:
        if not isinstance(name, str) or name not in self.people or not self.people[name].sockets:
            raise Refusal("participant_not_found")
        return name

    def tell_writers(self, kind: str, stream: Stream, name: str, sent: Message | None, reason: Any) -> None:
        news = {"stream_id": stream.id, "participant_id": name, "authorized_writers": list(stream.writers)}
        news |= {} if reason is None else {"reason": reason}
        about = {} if sent is None else {"correlation_id": [sent["id"]]}
        for other in self.present():
            for each in other.sockets:
                self.say(each, kind, news, **about)

    def frame(self, person: Person, socket: ServerConnection, data: str | bytes, raw: bytes) -> None:
        id, end, _ = raw[1:].decode("utf-8", "replace").partition("#")
        stream = self.streams.get(id) if end else None
        if stream is None or person.name not in stream.writers:
            code = "E_NO_STREAM" if stream is None else "E_NOT_A_WRITER"
            self.say(socket, "system/error", {"error": code, "stream_id": id}, to=[person.name])
            return
        target = stream.request.get("target") or []
        for other in self.present():
            hears = other.name in target if target else other is not person
            if hears or "leaks_targeted" in self.faults:
                for each in other.sockets:
                    self.send(each, data)

    # What goes out

    def say(self, socket: ServerConnection, kind: str, payload: Message, **more: Any) -> str:
        id = f"rudder:{next(self.numbers)}"
        envelope = {"protocol": "mew/v0.4", "id": id, "ts": "2026-11-16T09:00:00.5Z", "from": "rudder"}
        self.send(socket, envelope | more | {"kind": kind, "payload": payload})
        return id

    def send(self, socket: ServerConnection, message: Message | str | bytes) -> None:
        with suppress(ConnectionClosed):
            socket.send(json.dumps(message) if isinstance(message, dict) else message)


# Rights


def checked_rights(given: Any) -> list[Message]:
    if not isinstance(given, list):
        raise Refusal("E_SHAPE")
    for right in given:
        if not isinstance(right, dict) or not isinstance(right.get("kind"), str) or not right["kind"]:
            raise Refusal("E_PATTERN")
    return given


def allows(right: Message, sent: Message) -> bool:
    if not text_fits(right["kind"], sent["kind"]):
        return False
    if "to" in right and not (
        sent.get("to") and all(any(text_fits(each, name) for each in right["to"]) for name in sent["to"])
    ):
        return False
    return "payload" not in right or fits(right["payload"], sent.get("payload", {}))


def fits(pattern: Any, value: Any) -> bool:
    if isinstance(pattern, str):
        return isinstance(value, str) and text_fits(pattern, value)
    if isinstance(pattern, list):
        return any(fits(each, value) for each in pattern)
    if isinstance(pattern, dict):
        return isinstance(value, dict) and all(field_fits(key, each, value) for key, each in pattern.items())
    return type(pattern) is type(value) and pattern == value


def field_fits(key: str, pattern: Any, value: Message) -> bool:
    if key == "**":
        return any(fits(pattern, each) for each in everything_in(value))
    if key.startswith("$."):
        found: list[Any] = [value]
        for name, star in re.findall(r"([^.\[\]]+)(\[\*\])?", key[2:]):
            found = [each[name] for each in found if isinstance(each, dict) and name in each]
            if star:
                found = [item for each in found if isinstance(each, list) for item in each]
        return any(fits(pattern, each) for each in found)
    return key in value and fits(pattern, value[key])


def everything_in(value: Any) -> Iterator[Any]:
    yield value
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from everything_in(each)


def text_fits(pattern: str, text: str) -> bool:
    if pattern.startswith("!"):
        return not text_fits(pattern[1:], text)
    if len(pattern) > 2 and pattern.startswith("/") and pattern.endswith("/"):
        return re.search(pattern[1:-1], text) is not None
    return fnmatch.fnmatchcase(text, pattern)


def includes(own: Message, right: Message) -> bool:
    """Whether who holds `own` holds `right` as well; where it is hard to say, no."""
    if own == right or own == {"kind": "*"}:
        return True
    if own.keys() - {"kind", "payload"} or not text_fits(own["kind"], right["kind"]):
        return False
    return "payload" not in own or own["payload"] == right.get("payload")


@contextmanager
def running_rudder(*faults: str) -> Iterator[str]:
    """Its address; the token of `root`, who may do everything, is t-root and the space is called deck."""
    rudder = Rudder(set(faults))
    server = serve(rudder.serve, "127.0.0.1", 0, process_request=rudder.admit)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.socket.getsockname()[1]}"
    finally:
        server.shutdown()
        thread.join()
