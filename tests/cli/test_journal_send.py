"""`moot journal send`: what a SIEM gets, and that nothing is lost when it is away."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from moot.cli import main
from moot.participant import connect
from tests.gateway.running_gateway import participants, running_gateway
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


def test_a_place_that_is_none_is_a_mistake_in_the_call(tmp_path: Path) -> None:
    (tmp_path / "spaces/lab/journal").mkdir(parents=True)
    assert main(["journal", "send", "ftp://x", "--data", str(tmp_path)]) == 2
