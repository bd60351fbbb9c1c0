"""A drop-in for the clients of the MEW reference implementation (reference-facts.md; D-10, D-14, D-33)."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from moot.protocol.operation import Json
from tests.gateway.disk import file_mode
from tests.gateway.running_gateway import (
    CALL,
    Client,
    LocalGateway,
    fields,
    participants,
    running_gateway,
    write_config,
)
from tests.waiting import until

TIME = "2026-11-15T19:13:55.770Z"

SPACE_YAML: Json = {
    "space": {"id": "demo", "name": "Demo", "description": "as there", "default_participant": "human"},
    "participants": {
        "human": {"tokens": ["human-token"], "capabilities": [{"kind": "*"}], "fancy_key": 1},
        "agent": {
            "tokens": ["agent-token"],
            "command": "node",
            "args": ["agent.js", "--port", "${PORT}", "--token", "${TOKEN}"],
            "auto_start": True,
            "capabilities": [
                {"id": "chatty", "kind": "chat"},
                {"kind": "mcp/proposal"},
                {"kind": "mcp/request", "payload": {"method": "!tools/call"}, "to": ["*"]},
            ],
        },
        "files": {"tokens": ["files-token"], "capabilities": [{"kind": "mcp/response"}]},
        "recorder": {"tokens": ["rec-token"], "output_log": "logs/everything.jsonl", "auto_connect": True},
    },
    "defaults": {"capabilities": [{"kind": "chat"}]},
}


@asynccontextmanager
async def demo(folder: Path) -> AsyncIterator[LocalGateway]:
    async with running_gateway(folder, file=write_config(folder, SPACE_YAML, "space.yaml")) as gateway:
        yield gateway


async def come(gateway: LocalGateway, name: str, form: str = "type") -> Client:
    """As the reference's clients do: no header, a bare path, and a join frame."""
    client = await gateway.open("/")
    token = f"{name}-token"
    if form == "type":
        join: Json = {
            "type": "join",
            "participantId": name,
            "space": "demo",
            "token": token,
            "capabilities": [],
        }
    else:
        join = {"kind": "system/join", "payload": {form: name, "space": "demo", "token": token}}
    await client.send(join)
    await client.fence()
    assert client.kinds()[0] == "system/welcome"
    return client


async def test_a_space_yaml_runs_and_its_clients_come_in_as_they_are_used_to(tmp_path: Path) -> None:
    async with demo(tmp_path) as gateway:
        for form in ("type", "participantId", "participant"):
            human = await come(gateway, "human", form)
            assert human.received[0]["payload"]["you"]["id"] == "human"
        # Several sockets of one identity, everything to everybody, the sender included.
        agent = await come(gateway, "agent")
        await agent.say("chat", {"text": "hi"}, to=["files"])
        assert (await agent.hear("chat"))["from"] == "agent"
        assert (await human.hear("chat"))["to"] == ["files"]


async def test_everyone_shows_the_literal_mcp_response_that_tool_discovery_looks_for(tmp_path: Path) -> None:
    """D-14: visibly, and in this format only."""
    async with demo(tmp_path) as gateway:
        human, agent = await come(gateway, "human"), await come(gateway, "agent")
        for client in (human, agent):
            assert {"kind": "mcp/response"} in client.received[0]["payload"]["you"]["capabilities"]
        others = agent.received[0]["payload"]["participants"]
        assert {"kind": "mcp/response"} in others[0]["capabilities"]
        await human.ask("mcp/request", {"method": "tools/list"}, id="r1", to=["agent"])
        answer: Json = {"result": {"tools": []}}
        assert await agent.refused("mcp/response", answer, to=["human"], about=["r1"]) is None
    folder = tmp_path / "ours"
    folder.mkdir()
    async with running_gateway(folder, participants(alice=["*"])) as gateway:
        alice = await gateway.join("alice")
        assert alice.received[0]["payload"]["you"]["capabilities"] == [{"kind": "*"}]


async def test_what_is_missing_is_filled_a_lone_correlation_becomes_a_list_and_the_unknown_passes(
    tmp_path: Path,
) -> None:
    async with demo(tmp_path) as gateway:
        human, agent = await come(gateway, "human"), await come(gateway, "agent")
        await human.send(
            {"kind": "chat", "payload": {"text": "x"}, "correlation_id": "lone", "x_vendor": {"a": 1}}
        )
        received = await agent.hear("chat")
        assert received["correlation_id"] == ["lone"]
        assert received["x_vendor"] == {"a": 1}
        assert received["protocol"] == "mew/v0.4"
        assert received["from"] == "human"
        assert received["id"]
        assert received["ts"].endswith("Z")


async def test_binary_frames_that_hold_json_are_envelopes(tmp_path: Path) -> None:
    """Some of its clients send Buffers; what is delivered is text."""
    async with demo(tmp_path) as gateway:
        human, agent = await come(gateway, "human"), await come(gateway, "agent")
        await human.send(json.dumps({"id": "b1", "kind": "chat", "payload": {"text": "as bytes"}}).encode())
        assert (await agent.hear("chat"))["id"] == "b1"


async def test_its_patterns_mean_what_they_say(tmp_path: Path) -> None:
    """`!tools/call` passes everything else, unlike there."""
    async with demo(tmp_path) as gateway:
        await come(gateway, "human")
        agent = await come(gateway, "agent")
        assert await agent.refused("mcp/request", {"method": "tools/list"}, to=["files"]) is None
        assert await agent.refused("mcp/request", CALL, to=["files"]) == "capability_violation"
        assert await agent.refused("mcp/request", {"method": "tools/list"}) == "capability_violation"


async def test_its_stream_habits_work(tmp_path: Path) -> None:
    """No direction means upload; peers may say stream/open and close what was never opened (D-10, D-33)."""
    async with demo(tmp_path) as gateway:
        human, agent = await come(gateway, "human"), await come(gateway, "agent")
        await human.say("stream/request", {"description": "no direction"})
        opened = (await agent.hear("stream/open"))["payload"]
        assert opened.keys() >= {"stream_id", "encoding", "owner", "authorized_writers"}
        await human.send(f"#{opened['stream_id']}#mine")
        assert await human.hear_frame() == f"#{opened['stream_id']}#mine"
        assert await human.refused("stream/open", {"stream_id": "their-own"}) is None
        assert await human.refused("stream/close", {"stream_id": "their-own"}) is None
        await human.say("stream/request", {"direction": "upload", "stream_id": "mine", "owner": "agent"})
        opened = (await human.hear("stream/open"))["payload"]
        assert opened["owner"] == "human"
        assert opened["stream_id"] != "mine"


async def test_controls_reach_the_member_who_answers_without_a_capability(tmp_path: Path) -> None:
    async with demo(tmp_path) as gateway:
        human, agent = await come(gateway, "human"), await come(gateway, "agent")
        await human.ask("participant/request-status", {"fields": []}, id="s1", to=["agent"])
        await agent.hear("participant/request-status")
        status: Json = {"messages_in_context": 0}
        assert await agent.refused("participant/status", status, to=["human"], about=["s1"]) is None
        grant: Json = {"recipient": "agent", "capabilities": [{"kind": "reasoning/*"}]}
        await human.ask("capability/grant", grant, id="g1")
        await agent.hear("system/welcome")
        ack: Json = {"status": "accepted"}
        assert await agent.refused("capability/grant-ack", ack, to=["human"], about=["g1"]) is None


async def test_its_http_answers_are_as_there(tmp_path: Path) -> None:
    async with demo(tmp_path) as gateway:

        async def post(envelope: Json, token: str | None = "human-token") -> tuple[int, Any]:
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            answer = await gateway.http.post("/participants/human/messages", json=envelope, headers=headers)
            return answer.status_code, answer.json()

        status, body = await post({"kind": "chat", "payload": {"text": "x"}})
        assert (status, body["status"]) == (200, "accepted")
        assert (await post({"kind": "chat"}, None))[0] == 401
        assert (await post({"kind": "chat"}, "wrong"))[0] == 403
        assert (await post({"payload": {}}))[0] == 400
        assert (await post({"kind": "system/register"}))[0] == 400
        assert (await post(fields("space/invite", {"participant_id": "agent"})))[0] == 409
        status, body = await post({"kind": "stream/request", "payload": {}})
        assert (status, body["status"]) == (200, "stream_opened")
        assert body["stream_id"]
        assert (await gateway.http.get("/health")).json()["status"] == "ok"


async def test_an_output_log_member_is_a_file_that_hears_what_a_member_hears(tmp_path: Path) -> None:
    """One JSON line each, in MEW's words; its own welcome, but no error, welcome or token of others."""
    path = tmp_path / "logs" / "everything.jsonl"
    async with demo(tmp_path) as gateway:
        human, agent = await come(gateway, "human"), await come(gateway, "agent")
        present = [each["id"] for each in human.received[0]["payload"]["participants"]]
        assert present == ["recorder"]
        await agent.say("chat", {"text": "line one\nline two"})
        await human.send('{"kind":"chat",\n "id":"n1",\n "payload":{}}')
        invited = await human.ask("space/invite", {"participant_id": "zoe"})
        await agent.refused("mcp/request", CALL)
        await human.fence()
        await gateway.http.post(
            "/participants/human/messages",
            json={"kind": "chat", "id": "posted"},
            headers={"Authorization": "Bearer human-token"},
        )
        await until(lambda: b'"posted"' in path.read_bytes())
        text = path.read_text("utf-8")
        lines = [json.loads(line) for line in text.splitlines()]
        kinds = [line["kind"] for line in lines]
        assert kinds.count("chat") == 3
        assert kinds.count("system/presence") >= 3
        welcomes = [line["payload"]["you"]["id"] for line in lines if line["kind"] == "system/welcome"]
        assert welcomes == ["recorder"]
        assert not {"system/error", "space/invite-ack"} & set(kinds)
        assert invited["payload"]["token"] not in text
        assert "human-token" not in text
        assert file_mode(path) == 0o600
    # A restart goes on in the same file.
    before = len(text.splitlines())
    async with demo(tmp_path) as gateway:
        await come(gateway, "human")
    assert len(path.read_text("utf-8").splitlines()) > before


async def test_an_output_log_member_is_welcomed_again_when_it_first_posts(tmp_path: Path) -> None:
    """Without `auto_connect` the reference lets it join only then, and tells it of open streams."""
    settings = json.loads(json.dumps(SPACE_YAML))
    settings["participants"]["late"] = {"tokens": ["late-token"], "output_log": "logs/late.jsonl"}
    async with running_gateway(tmp_path, file=write_config(tmp_path, settings, "space.yaml")) as gateway:
        human = await come(gateway, "human")
        await human.say("stream/request", {"direction": "upload", "description": "a picture"}, to=["gateway"])
        opened = await human.hear("stream/open")
        for name, text in (("late", "first"), ("rec", "first"), ("late", "second")):
            member = "recorder" if name == "rec" else name
            await gateway.http.post(
                f"/participants/{member}/messages",
                json={"kind": "chat", "payload": {"text": text}},
                headers={"Authorization": f"Bearer {name}-token"},
            )

        def kinds_in(file: str) -> list[tuple[str, Any]]:
            lines = [json.loads(line) for line in (tmp_path / "logs" / file).read_text("utf-8").splitlines()]
            return [(line["kind"], line["payload"]) for line in lines]

        await until(lambda: ("chat", {"text": "second"}) in kinds_in("late.jsonl"))
        received = kinds_in("late.jsonl")
        streams = [payload["active_streams"] for kind, payload in received if kind == "system/welcome"]
        assert [len(each) for each in streams] == [0, 1]
        assert streams[1][0]["stream_id"] == opened["payload"]["stream_id"]
        assert streams[1][0]["description"] == "a picture"
        # Before what it posted.
        kinds = [kind for kind, _ in received]
        assert kinds.index("system/welcome", 1) < kinds.index("chat")
        assert [kind for kind, _ in kinds_in("everything.jsonl")].count("system/welcome") == 1


async def test_what_an_output_log_member_posts_is_answered_in_its_file(tmp_path: Path) -> None:
    """Its error and its invite-ack, as the reference's own checks read them there; nobody else hears them."""
    path = tmp_path / "logs" / "everything.jsonl"
    settings = json.loads(json.dumps(SPACE_YAML))
    settings["participants"]["recorder"]["capabilities"] = [{"kind": "space/invite"}, {"kind": "chat"}]
    limited = {"token": "less", "capabilities": [{"kind": "chat"}]}
    settings["participants"]["recorder"]["tokens"].append(limited)
    async with running_gateway(tmp_path, file=write_config(tmp_path, settings, "space.yaml")) as gateway:
        human = await come(gateway, "human")
        own = await gateway.open("/ws?space=demo", token="rec-token")
        less = await gateway.open("/ws?space=demo", token="less")
        for socket in (own, less):
            await socket.hear("system/welcome")

        async def post(envelope: Json) -> Any:
            headers = {"Authorization": "Bearer rec-token"}
            return await gateway.http.post("/participants/recorder/messages", json=envelope, headers=headers)

        def lines(kind: str) -> list[Any]:
            reply = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
            return [line for line in reply if line["kind"] == kind]

        refused = await post({"id": "r1", "kind": "system/register", "payload": {}})
        assert refused.status_code == 400
        assert "system/register is reserved for the gateway" in refused.json()["message"]
        await until(lambda: lines("system/error") != [])
        assert lines("system/error")[0]["correlation_id"] == ["r1"]
        assert "system/register is reserved for the gateway" in lines("system/error")[0]["payload"]["message"]

        answer = (
            await post({"id": "i1", "kind": "space/invite", "payload": {"participant_id": "zoe"}})
        ).json()
        await until(lambda: lines("space/invite-ack") != [])
        for ack in (lines("space/invite-ack")[0], await own.hear("space/invite-ack")):
            assert (ack["correlation_id"], ack["payload"]["token"]) == (["i1"], answer["token"])
        for name in ("../../etc/passwd", "foo/bar"):
            odd = await post({"kind": "space/invite", "payload": {"participant_id": name}})
            assert (odd.status_code, "invalid characters" in odd.json()["message"]) == (400, True)
        # Not a token that carries less than its participant's rights, and nobody else.
        for other in (human, less):
            await other.fence()
            assert answer["token"] not in str(other.received)
            assert "space/invite-ack" not in other.kinds()


async def test_a_removed_output_log_member_records_no_more(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "everything.jsonl"
    async with demo(tmp_path) as gateway:
        human = await come(gateway, "human")
        await human.say("space/kick", {"participant_id": "recorder", "reason": "no recordings"})
        await human.hear(lambda each: each["payload"].get("event") == "leave")
        before = path.read_bytes()
        await human.say("chat", {"text": "off the record"})
        await human.fence()
    assert path.read_bytes() == before


async def test_a_space_id_is_any_text(tmp_path: Path) -> None:
    settings = SPACE_YAML | {"space": {"id": "My Project: {{é}}"}}
    async with running_gateway(tmp_path, file=write_config(tmp_path, settings, "space.yaml")) as gateway:
        for name in ("My Project: {{é}}", "My-Project", None):
            client = await gateway.open("/")
            await client.send(
                {"type": "join", "participantId": "human", "token": "human-token"}
                | ({} if name is None else {"space": name})
            )
            assert (await client.hear())["kind"] == "system/welcome"
        other = await gateway.open("/")
        await other.send({"type": "join", "space": "My Other Project", "token": "human-token"})
        assert (await other.hear())["kind"] == "system/error"
        answer = await gateway.http.post(
            "/participants/human/messages",
            params={"space": "My Project: {{é}}"},
            json={"kind": "chat", "payload": {"text": "x"}},
            headers={"Authorization": "Bearer human-token"},
        )
        assert answer.status_code == 200
    assert (tmp_path / ".moot" / "spaces" / "My-Project").is_dir()


async def test_an_output_log_that_was_moved_away_goes_on_under_its_name(tmp_path: Path) -> None:
    """As logrotate moves it, and as somebody deletes it with its folder."""
    path = tmp_path / "logs" / "everything.jsonl"
    async with demo(tmp_path) as gateway:
        human = await come(gateway, "human")
        await human.ask("chat", id="first")
        await until(lambda: b'"first"' in path.read_bytes())
        path.rename(path.with_name("everything.jsonl.1"))
        await human.ask("chat", id="second")
        await until(lambda: path.exists() and b'"second"' in path.read_bytes())
        assert b'"second"' not in path.with_name("everything.jsonl.1").read_bytes()
        assert file_mode(path) == 0o600
        shutil.rmtree(path.parent)
        await human.ask("chat", id="third")
        await until(lambda: path.exists() and b'"third"' in path.read_bytes())


async def test_an_output_log_that_cannot_be_written_holds_up_nobody(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "everything.jsonl").symlink_to("/dev/full")
    async with demo(tmp_path) as gateway:
        human = await come(gateway, "human")
        for _ in range(5):
            assert await human.refused("chat", {"text": "x"}) is None


def numbered(name: str) -> list[Json]:
    """What the recorded client of the reference sends, in the order in which its process numbers it."""
    return [
        fields("chat/acknowledge", {"status": "processing"}, id=f"{name}-1"),
        fields("reasoning/start", {"message": "reading"}, id=f"{name}-2"),
        fields("reasoning/thought", {"reasoning": "the answer", "action": "respond"}, id=f"{name}-4"),
        fields("chat", {"text": "the answer"}, id=f"{name}-5"),
        fields("chat", {"text": "and more"}, id=f"{name}-6"),
        fields("reasoning/conclusion", {}, id=f"{name}-7"),
        fields("stream/close", {"stream_id": "stream-123", "reason": "complete"}, id=f"{name}-8"),
    ]


async def test_a_reference_client_that_was_restarted_is_heard_with_the_same_ids(tmp_path: Path) -> None:
    """Its processes number their messages from 1; the gateway is restarted in between, too."""
    for _ in range(2):
        async with demo(tmp_path) as gateway:
            watcher = await come(gateway, "agent")
            for _ in range(3):
                human = await come(gateway, "human")
                for answer in numbered("human"):
                    await human.send(answer | {"protocol": "mew/v0.4", "from": "human", "ts": TIME})
                received = [
                    await watcher.hear(lambda each: each["from"] == "human") for _ in numbered("human")
                ]
                assert [(each["id"], each["kind"]) for each in received] == [
                    (answer["id"], answer["kind"]) for answer in numbered("human")
                ]
                await human.fence()
                # Not twice in one process, and nobody else.
                assert await human.refused("chat", {"text": "x"}, id="human-5") == "duplicate_id"
                assert await watcher.refused("chat", {"text": "x"}, id="human-5") == "duplicate_id"
                await human.leave()
                await watcher.hear(lambda each: each["payload"].get("event") == "leave")


async def test_a_restarted_reference_client_does_not_replace_what_is_under_review(tmp_path: Path) -> None:
    async with demo(tmp_path) as gateway:
        human, agent, _ = [await come(gateway, name) for name in ("human", "agent", "files")]
        await agent.ask("mcp/proposal", CALL, id="agent-1")
        await agent.leave()
        agent = await come(gateway, "agent")
        other: Json = {"method": "tools/call", "params": {"name": "rm"}}
        assert await agent.refused("mcp/proposal", other, id="agent-1") == "duplicate_id"
        assert await agent.refused("chat", {"text": "x"}, id="agent-1") == "duplicate_id"
        assert await human.refused("mcp/request", CALL, to=["files"], about=["agent-1"]) is None
