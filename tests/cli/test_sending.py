"""`moot send`, `moot tail` and who one is, as a person types them."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path

import httpx
import pytest

from moot.cli import main
from moot.participant import JoinedSpace
from moot.protocol.envelope import Envelope
from tests.cli.space_with_members import SpaceWithMembers
from tests.waiting import HANG_SECONDS, bounded


async def received_queue(space: JoinedSpace, kind: str) -> asyncio.Queue[Envelope]:
    queue: asyncio.Queue[Envelope] = asyncio.Queue()
    space.on(kind)(queue.put_nowait)
    return queue


async def next_of(queue: asyncio.Queue[Envelope]) -> Envelope:
    async with bounded():
        return await queue.get()


def test_what_is_sent_is_heard_by_everybody(lab: SpaceWithMembers) -> None:
    bob = lab.join("bob")
    chats = lab.do(received_queue(bob, "chat"))
    assert lab.output_of("send", "the build", "is green") == ""
    chat = lab.do(next_of(chats))
    assert (chat.sender, chat.payload, list(chat.to)) == ("alice", {"text": "the build is green"}, [])
    sent = lab.value("send", "--to", "bob", "--markdown", "*look*")
    chat = lab.do(next_of(chats))
    assert (chat.id, list(chat.to)) == (sent["id"], ["bob"])
    assert chat.payload == {"text": "*look*", "format": "markdown"}


def test_words_can_come_from_standard_input(lab: SpaceWithMembers, monkeypatch: pytest.MonkeyPatch) -> None:
    bob = lab.join("bob")
    chats = lab.do(received_queue(bob, "chat"))
    monkeypatch.setattr("sys.stdin", io.StringIO("two\nlines\n"))
    lab.output_of("send", "-")
    assert lab.do(next_of(chats)).payload["text"] == "two\nlines\n"


def test_any_kind_can_be_sent_and_its_refusal_is_told(lab: SpaceWithMembers) -> None:
    bob = lab.join("bob")
    others = lab.do(received_queue(bob, "acme/*"))
    lab.output_of("send", "--kind", "acme/ping", '{"n": 1}', "--to", "bob", "--about", "x")
    ping = lab.do(next_of(others))
    assert (ping.payload, list(ping.to), list(ping.correlation_id)) == ({"n": 1}, ["bob"], ["x"])
    code, words = lab.fails("send", "--kind", "system/presence", "{}")
    assert code in (2, 3)
    assert words
    assert lab.fails("send", "--kind", "acme/ping", "{")[0] == 2
    assert lab.fails("send", "  ")[1] == "moot: there is no text to send: moot send TEXT\n"


def test_a_chat_is_acknowledged_and_cancelled(lab: SpaceWithMembers) -> None:
    bob = lab.join("bob")
    news = lab.do(received_queue(bob, "chat/*"))
    id = lab.do(bob.chat("is anybody there?")).id
    lab.output_of("message", "ack", id, "--status", "read")
    answer = lab.do(next_of(news))
    assert (answer.kind, answer.payload["status"], list(answer.correlation_id)) == (
        "chat/acknowledge",
        "read",
        [id],
    )
    lab.output_of("message", "cancel", id, "--reason", "answered")
    answer = lab.do(next_of(news))
    assert (answer.kind, answer.payload["reason"]) == ("chat/cancel", "answered")


def test_tail_shows_the_past_and_ends_after_a_count(lab: SpaceWithMembers) -> None:
    bob = lab.join("bob")
    for number in range(3):
        lab.do(bob.chat(f"number {number}"))
    answer = lab.output_of("tail", "-n", "100", "--kind", "chat", "--count", "2")
    assert [line[9:] for line in answer.splitlines()] == ["bob: number 0", "bob: number 1"]
    lines = lab.output_of("tail", "-n", "1", "--kind", "ch*", "--from", "bob", "--count", "1", "--json")
    assert json.loads(lines)["payload"] == {"text": "number 2"}


def test_tail_shows_what_programs_of_the_reference_implementation_send(lab: SpaceWithMembers) -> None:
    """D-95: bodies without `jsonrpc` and `id`, reasoning without `message`."""
    token = lab.token("bob").read_text("ascii").strip()
    call = {"method": "tools/call", "params": {"name": "add", "arguments": {"a": 2}}}
    sent = [
        {"id": "r1", "kind": "mcp/request", "to": ["alice"], "payload": call},
        {"id": "s1", "kind": "reasoning/start", "payload": {"input": "what is 2 + 3?"}},
        {"kind": "reasoning/thought", "context": "s1", "payload": {"reasoning": "easy", "action": "add"}},
        {"kind": "reasoning/conclusion", "context": "s1", "payload": {}},
    ]
    for envelope in sent:
        answer = httpx.post(
            f"{lab.gateway.url}/participants/bob/messages?space=lab",
            json=envelope,
            headers={"Authorization": f"Bearer {token}"},
            timeout=HANG_SECONDS,
        )
        assert answer.status_code == 200, answer.text
    reply = lab.output_of("tail", "-n", "100", "--from", "bob", "--count", "4").splitlines()
    assert reply[0][9:] == 'bob calls add on alice {"a": 2}'
    assert reply[1][9:].startswith("bob starts reasoning: what is 2 + 3?")
    assert reply[2][9:] == "bob thinks: easy → add"
    assert reply[3][9:] == "bob concludes: the reasoning is over"


def test_tail_obeys_no_escape_sequence(lab: SpaceWithMembers) -> None:
    """D-86."""
    bob = lab.join("bob")
    lab.do(bob.chat("red \x1b[31m and \u202e back\nforged line"))
    answer = lab.output_of("tail", "-n", "9", "--kind", "chat", "--count", "1")
    assert "\x1b" not in answer
    assert "\u202e" not in answer
    first, second = answer.splitlines()
    assert first[9:] == "bob: red \\x1b[31m and \\u202e back"
    assert second == "         forged line"
    raw = lab.output_of("tail", "-n", "9", "--kind", "chat", "--count", "1", "--json")
    assert "\x1b" not in raw
    assert json.loads(raw)["payload"]["text"].startswith("red \x1b[31m")


def test_tail_goes_on_with_what_comes(lab: SpaceWithMembers) -> None:
    bob = lab.join("bob")

    async def talk() -> None:
        await bob.roster.wait_for("alice", timeout_seconds=HANG_SECONDS)
        await bob.chat("now")

    talking = lab.begin(talk())
    assert lab.output_of("tail", "--kind", "chat", "--count", "1")[9:] == "bob: now\n"
    talking.result(HANG_SECONDS)


def test_one_is_the_default_participant_unless_one_says_otherwise(lab: SpaceWithMembers) -> None:
    bob = lab.join("bob")
    chats = lab.do(received_queue(bob, "chat"))
    lab.output_of("send", "--as", "agent", "hello")
    assert lab.do(next_of(chats)).sender == "agent"
    file = str(lab.token("host"))
    lab.output_of("send", "--gateway", lab.gateway.url, "--space", "lab", "--token-file", file, "hello")
    assert lab.do(next_of(chats)).sender == "host"
    code, words = lab.fails("send", "--as", "nobody", "hello")
    assert (code, "no participant nobody" in words) == (2, True)


def test_the_environment_says_who_one_is_as_for_members(
    lab: SpaceWithMembers, monkeypatch: pytest.MonkeyPatch
) -> None:
    bob = lab.join("bob")
    chats = lab.do(received_queue(bob, "chat"))
    monkeypatch.setenv("MOOT_URL", lab.gateway.url)
    monkeypatch.setenv("MOOT_TOKEN", lab.token("agent").read_text("ascii").strip())
    monkeypatch.chdir("/")
    lab.output_of("send", "from anywhere")
    assert lab.do(next_of(chats)).sender == "agent"


def test_a_chat_or_a_thought_that_nobody_knows_is_not_answered(lab: SpaceWithMembers) -> None:
    lab.output_of("send", "hello")
    (chat,) = [
        json.loads(line)
        for line in lab.output_of("tail", "-n", "9", "--kind", "chat", "--count", "1", "--json").splitlines()
    ]
    for words, answer in (
        (["message", "ack", "nosuch"], "the gateway has no recent chat message nosuch"),
        (["message", "cancel", "nosuch"], "the gateway has no recent chat message nosuch"),
        (["message", "stop", "nosuch"], "unknown reasoning nosuch: none is active"),
    ):
        code, output = lab.fails(*words)
        assert (code, answer in output) == (2, True)
    assert lab.output_of("message", "ack", chat["id"][:8]) == f"acknowledged {chat['id'][:8]}\n"


def test_who_is_named_and_not_there_is_noted(lab: SpaceWithMembers) -> None:
    assert (
        lab.output_of("send", "--to", "bob", "hello")
        == "note: bob is not in the space and did not receive it\n"
    )
    lab.join("bob")
    assert lab.output_of("send", "--to", "bob", "hello") == ""


def test_no_way_in_is_exit_code_5_and_says_what_to_check(lab: SpaceWithMembers, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.token"
    wrong.write_text("nonsense")
    wrong.chmod(0o600)
    code, words = lab.fails("send", "--gateway", lab.gateway.url, "--token-file", str(wrong), "hello")
    assert (code, str(wrong) in words) == (5, True)
    code, words = lab.fails("send", "--gateway", lab.gateway.url, "--token-file", str(wrong), "hi", "--json")
    assert json.loads(words)["error"] == "not_admitted"


def test_nobody_there_is_exit_code_5(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    token = tmp_path / "a.token"
    token.write_text("t")
    token.chmod(0o600)
    # A port that nobody can listen on.
    assert main(["members", "--gateway", "http://127.0.0.1:9", "--token-file", str(token)]) == 5
    assert "cannot be reached" in capsys.readouterr().err


def test_without_a_space_it_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["send", "hello"]) == 2
    assert "`moot init` makes one" in capsys.readouterr().err
