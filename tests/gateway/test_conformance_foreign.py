"""`moot conformance URL` on a gateway that others wrote: a whole report, and the right rows are blamed.

The gateway here has the habits of the reference implementation's (reference-facts.md): it looks at join
frames alone, answers a request for a stream before it relays it, tells a joiner nothing of its own presence,
has no text in its errors, refuses empty chats without saying which, and relays false names.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import Server, ServerConnection, serve

from moot.cli import main
from moot.conformance.vectors import load_vectors
from moot.protocol.operation import Json
from moot.protocol.patterns import read_capability

VECTORS = {vector.name: vector for _, vector in load_vectors()}


class ForeignGateway:
    """One space in memory, one thread a connection."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.sockets: dict[str, ServerConnection] = {}
        self.rights: dict[str, list[Json]] = {"t-root": [{"kind": "*"}]}
        self.numbers = itertools.count(1)
        # The payload of every welcome is this, if it is not None.
        self.odd_welcome: Json = None
        # How long it takes from telling one member of a departure to telling the next.
        self.leave_seconds = 0.0

    def serve(self, socket: ServerConnection) -> None:
        join = json.loads(socket.recv())
        me, rights = join.get("participantId", "somebody"), self.rights.get(join.get("token"), [])
        with self.lock:
            others = [{"id": each, "capabilities": []} for each in self.sockets]
            you = {"id": me, "capabilities": rights}
            welcome = {"you": you, "participants": others, "active_streams": []}
            self.tell(socket, "system/welcome", self.odd_welcome or welcome)
            news = {"event": "join", "participant": you}
            for other in self.sockets.values():
                self.tell(other, "system/presence", news)
            self.sockets[me] = socket
        try:
            for data in socket:
                with self.lock:
                    self.take(me, rights, socket, data)
        finally:
            with self.lock:
                # Whoever came back under this name has another socket by now.
                if self.sockets.get(me) is socket:
                    del self.sockets[me]
                staying = list(self.sockets.values())
            for other in staying:
                self.tell(other, "system/presence", {"event": "leave", "participant": {"id": me}})
                time.sleep(self.leave_seconds)

    def take(self, me: str, rights: list[Json], socket: ServerConnection, data: str | bytes) -> None:
        try:
            sent = json.loads(data)
            assert isinstance(sent, dict)
        except (ValueError, AssertionError):
            self.send(socket, {"kind": "system/error", "payload": {"error": "what?"}})
            return
        kind, payload = sent.get("kind", ""), sent.get("payload") or {}
        if kind == "chat" and not payload.get("text"):
            self.send(socket, {"kind": "system/error", "payload": {"error": "Chat needs a text"}})
        elif not any(read_capability(each).matches(kind, payload, to=sent.get("to", [])) for each in rights):
            self.tell(socket, "system/error", {"error": "capability_violation", "attempted_kind": kind}, sent)
        elif kind == "space/invite":
            token = f"token-{next(self.numbers)}"
            self.rights[token] = payload["initial_capabilities"]
            ack = {"status": "created", "participant_id": payload["participant_id"], "token": token}
            self.tell(socket, "space/invite-ack", ack, sent)
        else:
            if kind == "stream/request":
                opened = {"stream_id": f"s-{next(self.numbers)}", "encoding": "binary", "owner": me}
                for each in self.sockets.values():
                    self.tell(each, "stream/open", {**payload, **opened, "authorized_writers": [me]}, sent)
            filled = {"protocol": "mew/v0.4", "id": "x", "ts": "2026-11-16T09:00:00Z", "from": me} | sent
            for each in self.sockets.values():
                self.send(each, filled)

    def tell(self, socket: ServerConnection, kind: str, payload: Json, about: Json = None) -> None:
        envelope: dict[str, Json] = {
            "protocol": "mew/v0.4",
            "id": f"g-{next(self.numbers)}",
            "ts": "2026-11-16T09:00:00Z",
        }
        sender = "gateway" if kind.startswith("stream/") else "system:gateway"
        if isinstance(payload, dict) and kind in ("stream/open", "system/welcome"):
            envelope["to"] = [payload.get("owner") or payload.get("you", {}).get("id")]
        correlation = {} if about is None else {"correlation_id": [about.get("id")]}
        self.send(socket, envelope | {"from": sender, "kind": kind, "payload": payload} | correlation)

    def send(self, socket: ServerConnection, envelope: Json) -> None:
        with suppress(ConnectionClosed):
            socket.send(json.dumps(envelope))


def page_instead(connection: ServerConnection, request: Request) -> Response | None:
    """It has no HTTP interface for members."""
    if request.headers.get("Upgrade") is None:
        return connection.respond(HTTPStatus.NOT_FOUND, "<h1>nothing here</h1>")
    return None


@pytest.fixture
def gateway() -> Iterator[tuple[ForeignGateway, str]]:
    foreign = ForeignGateway()
    server: Server = serve(foreign.serve, "127.0.0.1", 0, process_request=page_instead)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield foreign, f"http://127.0.0.1:{server.socket.getsockname()[1]}"
    finally:
        server.shutdown()
        thread.join()


def report(url: str, folder: Path, capsys: pytest.CaptureFixture[str], only: str) -> dict[str, Json]:
    token = folder / "root.token"
    token.write_text("t-root")
    token.chmod(0o600)
    assert main(["conformance", url, "--token-file", str(token), "--json", "--only", only]) in (0, 1)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    wanted = [name for name, each in VECTORS.items() if any(row.startswith(only) for row in each.rows)]
    # Whole, whatever happened on the way.
    assert [line["name"] for line in lines] == wanted
    assert all(line["message"] for line in lines if line["passed"] is not True)
    return {line["name"]: line for line in lines}


def told(lines: dict[str, Json]) -> str:
    return "\n".join(f"{line['passed']} {line['message']}" for line in lines.values())


def test_what_mew_leaves_open_is_blamed_on_nobody(
    gateway: tuple[ForeignGateway, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The order within a step, a joiner's own presence, the text of an error, and how soon who is told."""
    foreign, url = gateway
    foreign.leave_seconds = 0.3
    streams = report(url, tmp_path, capsys, "MEW-3.10.2-5")
    assert streams["asking the gateway for a stream opens one, and everyone is told"]["passed"] is True, told(
        streams
    )
    refusals = report(url, tmp_path, capsys, "MEW-3.10.1-11")
    assert refusals["a stream needs its capability before anything else"]["passed"] is True, told(refusals)
    joins = report(url, tmp_path, capsys, "MEW-3.7-1")
    assert joins["a disconnect is told to everyone who stays"]["passed"] is True, told(joins)
    assert joins["presence is broadcast and so has no addressee"]["passed"] is True, told(joins)
    # What cannot be judged is said: this gateway has no way in over HTTP.
    posts = joins["a post without a socket is nobody's arrival"]
    assert posts["passed"] is None
    assert "GET /participants/" in posts["message"]


def test_a_rule_that_is_broken_is_blamed_with_what_was_heard(
    gateway: tuple[ForeignGateway, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, url = gateway
    forged = report(url, tmp_path, capsys, "MEW-4.1-1")
    assert any(line["passed"] is False for line in forged.values())
    assert all("no answer" not in str(line["message"]) for line in forged.values()), told(forged)


def test_odd_answers_end_no_report(
    gateway: tuple[ForeignGateway, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign, url = gateway
    for odd in ([1], "welcome", {"you": {}, "participants": {"a": 1}}, {"participants": [None, 5]}):
        foreign.odd_welcome = odd
        report(url, tmp_path, capsys, "MEW-3.4-1")
