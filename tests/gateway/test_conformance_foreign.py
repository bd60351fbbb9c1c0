"""`moot conformance URL` on a gateway that others wrote: a whole report, and the right rows are blamed.

The gateway here has the traits of the reference implementation's (reference-facts.md): it looks at join
frames alone, answers a request for a stream before it relays it, tells a joiner nothing of its own presence,
has no text in its errors, refuses empty chats without saying which, and relays false names.
"""

from __future__ import annotations

import itertools
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import Server, ServerConnection, serve

from moot.cli import main
from moot.conformance.blocking_client import GatewayAddress
from moot.protocol.operation import Json
from moot.protocol.patterns import read_capability
from tests.conformance_vectors import all_vectors
from tests.waiting import HANG_SECONDS


class ForeignGateway:
    """One space in memory, one thread a connection."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.sockets: dict[str, ServerConnection] = {}
        self.rights: dict[str, list[Json]] = {"t-root": [{"kind": "*"}]}
        self.numbers = itertools.count(1)
        # The payload of every welcome is this, if it is not None.
        self.odd_welcome: Json = None
        # What every welcome lists besides the rights that were given.
        self.extra_rights: list[Json] = []
        # How long a grant is on its way, when everything else has been said.
        self.grant_seconds = 0.0
        # How many connections it takes before it stops answering.
        self.max_connections: int | None = None
        # How long it takes from telling one member of a departure to telling the next.
        self.leave_seconds = 0.0

    def serve(self, socket: ServerConnection) -> None:
        join = json.loads(socket.recv())
        if self.max_connections is not None:
            self.max_connections -= 1
            if self.max_connections < 0:
                with suppress(ConnectionClosed):
                    socket.recv()
                return
        me, rights = join.get("participantId", "somebody"), self.rights.get(join.get("token"), [])
        with self.lock:
            others = [{"id": each, "capabilities": []} for each in self.sockets]
            you = {"id": me, "capabilities": rights + self.extra_rights}
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
            if kind == "capability/grant" and self.grant_seconds:
                later = threading.Timer(self.grant_seconds, self.relay, [filled])
                later.daemon = True
                later.start()
            else:
                self.relay(filled)

    def relay(self, envelope: Json) -> None:
        with self.lock:
            for each in self.sockets.values():
                self.send(each, envelope)

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
    wanted = [each.name for _, each in all_vectors() if any(row.startswith(only) for row in each.rows)]
    # Whole, whatever happened on the way.
    assert [line["name"] for line in lines] == wanted
    assert all(line["message"] for line in lines if line["passed"] is not True)
    return {line["name"]: line for line in lines}


def text_of(lines: dict[str, Json]) -> str:
    return "\n".join(f"{line['passed']} {line['message']}" for line in lines.values())


def test_what_mew_leaves_open_is_blamed_on_nobody(
    gateway: tuple[ForeignGateway, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The order within a step, a joiner's own presence, the text of an error, and how soon who is told."""
    foreign, url = gateway
    foreign.leave_seconds = 0.3
    streams = report(url, tmp_path, capsys, "MEW-3.10.2-5")
    assert streams["asking the gateway for a stream opens one, and everyone is told"]["passed"] is True, (
        text_of(streams)
    )
    refusals = report(url, tmp_path, capsys, "MEW-3.10.1-11")
    assert refusals["a stream needs its capability before anything else"]["passed"] is True, text_of(refusals)
    joins = report(url, tmp_path, capsys, "MEW-3.7-1")
    assert joins["a disconnect is told to everyone who stays"]["passed"] is True, text_of(joins)
    assert joins["presence is broadcast and so has no addressee"]["passed"] is True, text_of(joins)
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
    assert all("no answer" not in str(line["message"]) for line in forged.values()), text_of(forged)


def test_what_a_story_only_uses_is_blamed_by_its_own_row(
    gateway: tuple[ForeignGateway, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """This gateway lists a right too much, and lets everybody in."""
    foreign, url = gateway
    addressed = report(url, tmp_path, capsys, "MEW-3-7")
    story = addressed["a control without to, or with an empty one, means everybody else"]
    # A gateway may enforce a pause, and need not.
    assert (story["passed"], story["breaks"]) == (None, []), story
    assert "MEW does not say that this is refused (ours says participant_paused)" in story["message"]
    strangers = report(url, tmp_path, capsys, "MEW-3-23")[
        "nobody comes in uninvited, and nobody forges an invite-ack"
    ]
    assert strangers["breaks"] == ["MEW-5.2-2"], strangers
    foreign.extra_rights = [{"kind": "mcp/response"}]
    arrivals = report(url, tmp_path, capsys, "MEW-3.7-5")
    assert {row for line in arrivals.values() for row in line["breaks"]} == {"MEW-5.2-4"}, text_of(arrivals)
    # In the table the other rows of a broken story are not judged, and it says what they would need.
    token = str(tmp_path / "root.token")
    assert main(["conformance", url, "--token-file", token, "--only", "MEW-3.7-5"]) == 1
    table = capsys.readouterr().out
    assert "failed        MEW-5.2-4" in table
    assert "not runnable  MEW-3.7-5" in table
    assert "needs MEW-5.2-4: " in table


def test_what_comes_late_has_come(
    gateway: tuple[ForeignGateway, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """MEW does not say how soon an envelope is relayed, or that streams of who left are closed."""
    foreign, url = gateway
    foreign.grant_seconds = 0.1
    seen = report(url, tmp_path, capsys, "MEW-3.6.1-12")
    line = seen["everyone sees who grants what to whom, and why"]
    assert "does not hear {'id': 'g1" not in str(line["message"]), line


class SoonImpatient(GatewayAddress):
    """One that waits as long as it takes for whatever this gateway still answers, and 0.3 s for the rest."""

    opened = 0

    def ask(self, method: str, path: str, **more: Any) -> tuple[HTTPConnection, HTTPResponse]:
        self.seconds = HANG_SECONDS
        answer = super().ask(method, path, **more)
        self.opened += path == "/ws"
        if path == "/ws" and self.opened > 2:
            self.seconds = 0.3
            answer[0].sock.settimeout(self.seconds)
        return answer


def test_a_gateway_that_falls_silent_is_not_asked_for_ever(
    gateway: tuple[ForeignGateway, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    foreign, url = gateway
    monkeypatch.setattr("moot.cli.conformance.GatewayAddress", SoonImpatient)
    # It lets us in, and once more when its traits are known.
    foreign.max_connections = 2
    lines = report(url, tmp_path, capsys, "MEW-3.6.1")
    asked = [line["message"] for line in lines.values() if "needs " not in line["message"]]
    assert all("was not welcomed within 0.3 s" in message for message in asked[:3])
    assert len(asked) > 4
    assert all("not tried: the gateway did not answer" in message for message in asked[3:])


class QuietHandler(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """It says nothing on the stderr that is looked at."""


def serve_http() -> tuple[str, Callable[[], None]]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), QuietHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def stop() -> None:
        server.shutdown()
        server.server_close()

    return f"http://127.0.0.1:{server.server_port}", stop


def serve_silence() -> tuple[str, Callable[[], None]]:
    listener = socket.create_server(("127.0.0.1", 0))
    return f"http://127.0.0.1:{listener.getsockname()[1]}", listener.close


def serve_reset() -> tuple[str, Callable[[], None]]:
    """As a port with TLS answers plain HTTP."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                connection.recv(16)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.close()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()

    def stop() -> None:
        # Closing alone does not wake a thread that waits in accept.
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(HANG_SECONDS)
        listener.close()
        assert not thread.is_alive()

    return f"http://127.0.0.1:{listener.getsockname()[1]}", stop


def serve_websocket(handler: Callable[[ServerConnection], None]) -> tuple[str, Callable[[], None]]:
    server = serve(handler, "127.0.0.1", 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.socket.getsockname()[1]}", server.shutdown


def echo(connection: ServerConnection) -> None:
    with suppress(ConnectionClosed):
        for message in connection:
            connection.send(message)


def close_after_join(connection: ServerConnection) -> None:
    with suppress(ConnectionClosed):
        connection.recv()
        connection.close(1008, "not today")


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (serve_http, "does not let us in: HTTP 501"),
        (serve_silence, "no answer within 0.3 s. Is this a MEW gateway?"),
        (serve_reset, "If it has TLS, use https://"),
        (lambda: serve_websocket(echo), "Is this a MEW gateway?"),
        (lambda: serve_websocket(close_after_join), "not today"),
    ],
)
def test_what_is_no_gateway_is_told_in_one_line_without_the_token(
    start: Callable[[], tuple[str, Callable[[], None]]],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds = 0.3 if start is serve_silence else HANG_SECONDS
    monkeypatch.setattr("moot.cli.conformance.GatewayAddress", partial(GatewayAddress, seconds=seconds))
    token = tmp_path / "root.token"
    token.write_text("t-very-secret")
    token.chmod(0o600)
    url, stop = start()
    try:
        assert main(["conformance", url, "--token-file", str(token)]) == 5
    finally:
        stop()
    output = capsys.readouterr().err
    assert words in output
    assert len(output.splitlines()) == 1
    assert "<" not in output
    assert "t-very-secret" not in output
    assert "should not have happened" not in output


def test_odd_answers_end_no_report(
    gateway: tuple[ForeignGateway, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign, url = gateway
    for odd in ([1], "welcome", {"you": {}, "participants": {"a": 1}}, {"participants": [None, 5]}):
        foreign.odd_welcome = odd
        report(url, tmp_path, capsys, "MEW-3.4-1")
