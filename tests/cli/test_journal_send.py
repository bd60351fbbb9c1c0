"""`moot journal send`: what a SIEM gets, and that nothing is lost when it is away."""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from moot.cli import main
from moot.cli.journal.journal_send import EventSending
from moot.errors import UsageError
from moot.operations.siem.targets import SecurityLine, target_of
from moot.participant import connect
from moot.store.journal_reader import read_records
from tests.gateway.running_gateway import participants, running_gateway
from tests.store.journals import SMALL, envelope_record, folder_in, segments, write_now
from tests.waiting import bounded

GUEST: list[Any] = ["mcp/proposal", "mcp/withdraw", "chat"]


async def journaled(folder: Path) -> None:
    """A space in which a guest proposes, is refused, is given a right and is paused."""
    async with (
        running_gateway(folder, participants(guest=GUEST, alice=["*"])) as gateway,
        connect(gateway.url, "lab", "t-guest") as guest,
        connect(gateway.url, "lab", "t-alice") as alice,
        bounded(),
    ):
        made = await guest.propose("alice", "tools/call", {"name": "pay", "arguments": {"secret": "hush"}})
        await alice.reject(made.id)
        await alice.admin.grant("guest", [{"kind": "mcp/request"}])
        await alice.admin.pause("guest")


class Receiver:
    """Syslog over TCP: messages by their counted octets. The first connections are cut in the middle."""

    def __init__(self, cuts: int) -> None:
        self.messages: list[bytes] = []
        self._cuts = cuts
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection:
                if self._cuts:
                    self._cuts -= 1
                    connection.recv(16)
                    # Not read to its end: the sender is told that it is gone.
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
                    continue
                text = b""
                while data := connection.recv(65536):
                    text += data
                while text:
                    size, _, rest = text.partition(b" ")
                    self.messages.append(rest[: int(size)])
                    text = rest[int(size) :]

    def close(self) -> None:
        self._listening.close()


def events_in(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


async def test_a_file_gets_each_event_once_and_no_argument(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await journaled(tmp_path)
    file = tmp_path / "events.jsonl"
    for _ in range(2):
        assert main(["journal", "send", f"file:{file}", "--data", str(tmp_path / "data")]) == 0
    assert capsys.readouterr().out.endswith("sent 0 events\n")
    events = events_in(file)
    assert {"joined", "proposed", "rejected", "granted", "paused"} <= {each["event"] for each in events}
    assert len({each["id"] for each in events}) == len(events)
    proposed = next(each for each in events if each["event"] == "proposed")
    assert (proposed["who"], proposed["tool"]) == ("guest", "pay")
    assert "hush" not in file.read_text()


async def test_syslog_gets_everything_again_that_it_did_not_read(tmp_path: Path) -> None:
    await journaled(tmp_path)
    receiver = Receiver(cuts=1)
    words = [
        "journal",
        "send",
        f"syslog://127.0.0.1:{receiver.port}",
        "--ocsf",
        "--data",
        str(tmp_path / "data"),
    ]
    try:
        assert main(words) == 1
        assert main(words) == 0
        assert main(words) == 0
    finally:
        receiver.close()
    assert receiver.messages
    for message in receiver.messages:
        head, _, body = message.partition(b" - {")
        assert head.startswith(b"<109>1 ")
        event = json.loads(b"{" + body)
        assert event["type_uid"] == event["class_uid"] * 100 + event["activity_id"]
        assert event["metadata"]["version"] == "1.9.0"
    classes = {json.loads(b"{" + each.partition(b" - {")[2])["class_uid"] for each in receiver.messages}
    assert classes == {3002, 3007, 6003}


def _line(number: int) -> SecurityLine:
    return SecurityLine(f"lab/{number}", "2026-11-18T00:00:00.000Z", b'{"id":"lab/%d"}' % number)


def test_a_line_that_was_cut_off_swallows_none_that_follows(tmp_path: Path) -> None:
    """The disk was full, or the power went, in the middle of a line."""
    file = tmp_path / "events.jsonl"
    send = target_of(f"file:{file}")
    send([_line(1), _line(2)])
    file.write_bytes(file.read_bytes()[:-5])
    send([_line(2), _line(3)])
    lines = file.read_text().splitlines()
    assert [json.loads(each)["id"] for each in lines if each.endswith("}")] == ["lab/1", "lab/2", "lab/3"]


class Redirecting(BaseHTTPRequestHandler):
    """Sends whoever comes elsewhere, and says yes there."""

    seen: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.seen.append(f"POST {self.path} {self.headers.get('Authorization')}")
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(302)
        self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        self.seen.append(f"GET {self.path} {self.headers.get('Authorization')}")
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_redirect_is_no_receipt_and_gets_no_token() -> None:
    with HTTPServer(("127.0.0.1", 0), Redirecting) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with pytest.raises(OSError, match="302"):
                target_of(f"http://127.0.0.1:{server.server_port}/in", "secret")([_line(1)])
        finally:
            server.shutdown()
            thread.join()
    assert Redirecting.seen == ["POST /in Bearer secret"]


def test_a_token_goes_in_the_clear_to_nobody_else() -> None:
    with pytest.raises(UsageError, match="use https"):
        target_of("http://siem.example.org/in", "secret")


def test_what_was_removed_before_it_was_sent_is_told(tmp_path: Path) -> None:
    """Retention waits for no SIEM; a gap that nobody is told of would look like nothing happened."""
    folder = folder_in(tmp_path)
    write_now(folder, [envelope_record(f"e{each}", out="forbidden") for each in range(1, 21)], SMALL)
    position, told = tmp_path / "sent.json", list[SecurityLine]()
    position.write_text('{"after": 3}')
    while next(read_records(folder)).number < 10:
        segments(folder)[0].unlink()
    first = next(read_records(folder)).number
    sending = EventSending(folder, position, told.extend, as_ocsf=False)
    assert sending.send_new() == 1 + 21 - first
    found = json.loads(told[0].json)
    assert (found["event"], found["id"]) == ("records_missing", f"lab/4-{first - 1}")
    assert json.loads(told[1].json)["id"] == f"lab/{first}"
    assert EventSending(folder, position, told.extend, as_ocsf=True).send_new() == 0


def test_a_place_that_is_none_is_a_mistake_in_the_call(tmp_path: Path) -> None:
    (tmp_path / "spaces/lab/journal").mkdir(parents=True)
    assert main(["journal", "send", "ftp://x", "--data", str(tmp_path)]) == 2
