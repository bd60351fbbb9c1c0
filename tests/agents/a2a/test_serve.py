"""Members as A2A agents, called by the official SDK's client over real sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.types import (
    CancelTaskRequest,
    GetExtendedAgentCardRequest,
    GetTaskRequest,
    ListTasksRequest,
    SendMessageConfiguration,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.errors import A2AError, InvalidParamsError, TaskNotCancelableError, TaskNotFoundError

from moot.protocol.envelope import Envelope
from tests.agents.a2a.served_space import (
    answering,
    collect,
    request,
    served_space,
    service,
    space_with_coder,
)
from tests.waiting import HANG_SECONDS, until

WRITE = {"tool": "write", "arguments": {"name": "a.txt", "lines": 3}}
NOW = SendMessageConfiguration(return_immediately=True)
BINDINGS: list[dict[str, Any]] = [
    {},
    {"streaming": False},
    {"supported_protocol_bindings": ["HTTP+JSON"], "use_client_preference": True},
]


@pytest.mark.parametrize("config", BINDINGS)
async def test_a_message_is_a_chat_of_the_caller_and_the_answer_is_an_artifact(
    tmp_path: Path, config: dict[str, Any]
) -> None:
    async with served_space(tmp_path) as served:
        answering(served)
        client = await served.client(**config)
        events = await collect(client, request("Write it."))
        assert events[0].HasField("task")
        id = events[0].task.id
        task = await client.get_task(GetTaskRequest(id=id))
        assert task.status.state == TaskState.TASK_STATE_COMPLETED
        assert [part.text for each in task.artifacts for part in each.parts] == ["Done."]
        assert "secret thought" not in str(events)
        chat = next(each for each in served.heard if each.kind == "chat" and each.sender == "acme")
        assert chat.payload["text"] == "Write it."
        assert list(chat.to) == ["coder"]
        if config.get("streaming", True):
            states = [each.status_update.status.state for each in events if each.HasField("status_update")]
            assert states == [TaskState.TASK_STATE_WORKING, TaskState.TASK_STATE_COMPLETED]
            assert any(each.HasField("artifact_update") for each in events)
        listed = await client.list_tasks(ListTasksRequest())
        assert [each.id for each in listed.tasks] == [id]
        # Others see nothing of it.
        other = await served.client("t-other")
        with pytest.raises(TaskNotFoundError):
            await other.get_task(GetTaskRequest(id=id))
        assert not (await other.list_tasks(ListTasksRequest())).tasks


async def test_the_old_protocol_works_at_the_same_address(tmp_path: Path) -> None:
    async with served_space(tmp_path) as served, httpx.AsyncClient(timeout=HANG_SECONDS) as http:
        answering(served)
        message = {
            "messageId": "m1",
            "role": "user",
            "kind": "message",
            "parts": [{"kind": "text", "text": "Hi"}],
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message}}
        headers = {"Authorization": "Bearer t-acme"}
        answer = (await http.post(f"{served.url}/coder/", json=body, headers=headers)).json()
        assert answer["result"]["status"]["state"] == "completed"
        assert answer["result"]["artifacts"][0]["parts"][0]["text"] == "Done."
        # Sent again, it is the same task: nothing is done twice.
        again = (await http.post(f"{served.url}/coder", json=body, headers=headers)).json()
        assert again["result"]["id"] == answer["result"]["id"]
        assert sum(each.kind == "chat" and each.sender == "acme" for each in served.heard) == 1
        card = (await http.get(f"{served.url}/coder/.well-known/agent-card.json")).json()
        assert card["url"] == f"{served.url}/coder/"
        assert card["protocolVersion"].startswith("0.3")


@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_who_does_not_want_to_wait_is_answered_at_once(
    tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A2A 3.2.2, and `blocking: false` of 0.3. Who waits for this member waits for ever."""
    message: dict[str, Any] = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "Hi"}]}
    method, wanted = "SendMessage", {"returnImmediately": True}
    if version == "0.3":
        message |= {"role": "user", "kind": "message", "parts": [{"kind": "text", "text": "Hi"}]}
        method, wanted = "message/send", {"blocking": False}
    body = {
        "jsonrpc": "2.0", "id": 1, "method": method,
        "params": {"message": message, "configuration": wanted},
    }  # fmt: skip
    headers = {"Authorization": "Bearer t-acme", "A2A-Version": version}
    monkeypatch.setattr("moot.agents.a2a.request_handler.BLOCKING_SECONDS", 2 * HANG_SECONDS)
    async with (
        served_space(tmp_path) as served,
        httpx.AsyncClient(timeout=HANG_SECONDS) as http,
    ):
        result = (await http.post(f"{served.url}/coder/", json=body, headers=headers)).json()["result"]
        assert result.get("task", result)["status"]["state"] in ("TASK_STATE_SUBMITTED", "submitted")
        await until(lambda: any(each.kind == "chat" and each.sender == "acme" for each in served.heard))


async def test_only_tokens_of_participants_are_served_and_only_cards_are_public(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.agents.a2a.a2a_server.MAX_BODY_BYTES", 1_000)
    monkeypatch.setattr("moot.agents.a2a.callers.MAX_WRONG_TOKENS_PER_MINUTE", 5)
    async with (
        served_space(tmp_path) as served,
        httpx.AsyncClient(timeout=HANG_SECONDS) as http,
    ):
        rpc = f"{served.url}/coder/"
        body = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "x"}}
        version = {"A2A-Version": "1.0"}
        for path in ("/.well-known/agent-card.json", "/coder/.well-known/agent-card.json"):
            card = (await http.get(served.url + path)).json()
            assert card["name"] == "coder"
            assert card["securitySchemes"]["bearer"]["httpAuthSecurityScheme"]["scheme"] == "bearer"
            assert [each["id"] for each in card["skills"]] == ["chat", "read", "write"]
        denied = await http.post(rpc, json=body)
        assert denied.status_code == 401
        assert denied.headers["www-authenticate"].startswith("Bearer")
        for header, status in (("Bearer wrong", 401), ("Basic t-acme", 401), ("Bearer t-coder", 403)):
            assert (await http.post(rpc, json=body, headers={"Authorization": header})).status_code == status
        good = {"Authorization": "Bearer t-acme", **version}
        known = (await http.post(rpc, json=body, headers=good)).json()
        assert known["error"]["code"] == -32001
        assert (await http.post(rpc, content=b"x" * 2_000, headers=good)).status_code == 413
        assert (await http.post(f"{served.url}/alice/", json=body, headers=good)).status_code == 404
        # Guessing ends; who is known is still served, and so is who comes for the first time.
        guesses = [
            (await http.post(rpc, json=body, headers={"Authorization": f"Bearer g{n}"})) for n in range(6)
        ]
        assert guesses[-1].status_code == 429
        assert "retry-after" in guesses[-1].headers
        assert (await http.post(rpc, json=body, headers=good)).json()["error"]["code"] == -32001
        fresh = {"Authorization": "Bearer t-other", **version}
        assert (await http.post(rpc, json=body, headers=fresh)).json()["error"]["code"] == -32001


async def test_wrong_tokens_take_no_place_of_a_right_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.agents.a2a.callers.MAX_CALLERS", 1)
    monkeypatch.setattr("moot.agents.a2a.callers.MAX_WRONG_TOKENS_PER_MINUTE", 1)
    async with (
        served_space(tmp_path) as served,
        httpx.AsyncClient(timeout=HANG_SECONDS) as http,
    ):
        body = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "x"}}

        async def status_of(token: str) -> int:
            headers = {"Authorization": f"Bearer {token}", "A2A-Version": "1.0"}
            return (await http.post(f"{served.url}/coder/", json=body, headers=headers)).status_code

        tokens = [*(f"wrong-{number}" for number in range(40)), "t-acme"]
        statuses = await asyncio.gather(*map(status_of, tokens))
        assert statuses[-1] == 200
        assert sorted(statuses[:-1]) == [401] + [429] * 39
        assert await status_of("t-other") == 503


async def test_a_call_that_needs_approval_waits_for_input_and_a_restart_does_not_lose_it(
    tmp_path: Path,
) -> None:
    async with space_with_coder(tmp_path) as lab:
        async with service(lab):
            client = await lab.client(streaming=False)
            sent = request(data=WRITE)
            task = (await collect(client, sent))[0].task
            assert task.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
            text = task.status.message.parts[0].text
            assert "acme proposes to call write of coder" in text
            assert "https://moot.example/#/lab/approvals/" in text
            proposal = next(each for each in lab.heard if each.kind == "mcp/proposal")
            # Whole numbers stay whole.
            assert proposal.payload["params"] == {"name": "write", "arguments": {"name": "a.txt", "lines": 3}}
            # For origins: who calls is elsewhere, and this is their task.
            assert proposal.context == f"a2a/{task.id}"
        assert lab.written == []
        await lab.alice.approve(proposal.id)
        async with service(lab):
            client = await lab.client(streaming=False)
            done = await lab.task(client, task.id, TaskState.TASK_STATE_COMPLETED)
            assert done.artifacts[0].parts[0].text == "written"
            again = (await collect(client, sent))[0].task
            assert again.id == task.id
        assert lab.written == ["a.txt 3"]


async def test_a_rejection_ends_the_task_with_its_reason_and_a_call_that_is_allowed_is_made(
    tmp_path: Path,
) -> None:
    async with served_space(tmp_path) as served:
        client = await served.client()
        stream = client.send_message(request(data=WRITE))
        async for event in stream:
            if event.status_update.status.state == TaskState.TASK_STATE_INPUT_REQUIRED:
                proposal = next(each for each in served.heard if each.kind == "mcp/proposal")
                await served.alice.reject(proposal.id, "unsafe", explanation="not on Fridays")
            last = event
        assert last.status_update.status.state == TaskState.TASK_STATE_REJECTED
        assert "Rejected by alice (unsafe): not on Fridays" in last.status_update.status.message.parts[0].text
        read = await collect(client, request(data={"tool": "read", "arguments": {"name": "b.txt"}}))
        artifact = next(each.artifact_update for each in read if each.HasField("artifact_update"))
        assert artifact.artifact.parts[0].text == "content of b.txt"
        assert served.written == []
        mute = await served.client("t-mute", streaming=False)
        refused = (await collect(mute, request(data=WRITE)))[0].task
        assert refused.status.state == TaskState.TASK_STATE_REJECTED
        refused = (await collect(mute, request("Hello")))[0].task
        assert refused.status.state == TaskState.TASK_STATE_REJECTED
        assert "did not take" in refused.status.message.parts[0].text
        extended = await mute.get_extended_agent_card(GetExtendedAgentCardRequest())
        # As this caller sees it: it may not even list tools.
        assert [each.id for each in extended.skills] == ["chat"]


async def test_a_call_that_is_allowed_waits_where_others_have_to_approve_it(tmp_path: Path) -> None:
    """D-103: a right does not lift a quorum."""
    rules = {"quorum": [{"payload": {"params": {"name": "read"}}, "approvals_needed": 1}]}
    async with space_with_coder(tmp_path, rules) as lab, service(lab):
        client = await lab.client(streaming=False)
        sent = request(data={"tool": "read", "arguments": {"name": "b.txt"}})
        task = (await collect(client, sent))[0].task
        waiting = await lab.task(client, task.id, TaskState.TASK_STATE_INPUT_REQUIRED)
        assert "acme proposes to call read of coder" in waiting.status.message.parts[0].text
        await lab.alice.approve(next(each.id for each in lab.heard if each.kind == "mcp/proposal"))
        done = await lab.task(client, task.id, TaskState.TASK_STATE_COMPLETED)
        assert done.artifacts[0].parts[0].text == "content of b.txt"


async def test_a_proposal_of_the_member_keeps_the_task_waiting(tmp_path: Path) -> None:
    async with served_space(tmp_path) as served:

        @served.coder.on("chat")
        async def work(chat: Envelope) -> None:
            if "coder" in chat.to:
                async with served.coder.reasoning("working", about=chat.id) as reasoning:
                    await reasoning.perform(
                        "coder", "tools/call", {"name": "write", "arguments": {"name": "c", "lines": 1}}
                    )
                await served.coder.chat("Written.", to=chat.sender, about=chat.id)

        client = await served.client(streaming=False)
        task = (await collect(client, request("Write it.")))[0].task
        assert task.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
        assert "coder proposes to call write" in task.status.message.parts[0].text
        streaming = await served.client()
        states = []
        async for event in streaming.subscribe(SubscribeToTaskRequest(id=task.id)):
            if event.HasField("task"):
                await served.alice.approve(
                    next(each.id for each in served.heard if each.kind == "mcp/proposal")
                )
            else:
                states.append(event.status_update.status.state)
        assert states[0] == TaskState.TASK_STATE_WORKING
        assert states[-1] == TaskState.TASK_STATE_COMPLETED
        assert served.written == ["c 1"]


async def test_who_writes_to_a_task_that_waits_gets_what_comes_of_it(tmp_path: Path) -> None:
    """The member takes its proposal back and answers; it was still waiting when the message came."""
    async with served_space(tmp_path) as served:
        first: list[Envelope] = []

        @served.coder.on("chat")
        async def work(chat: Envelope) -> None:
            if chat.sender == "acme" and not first:
                first.append(chat)
                call = {"name": "write", "arguments": {"name": "c", "lines": 1}}
                await served.coder.send(
                    "mcp/proposal", {"method": "tools/call", "params": call}, to="coder", about=chat.id
                )
            elif chat.sender == "acme":
                await served.coder.send(
                    "mcp/withdraw", {"reason": "no_longer_needed"}, about=chat.correlation_id
                )
                await served.coder.chat("As you like.", to=chat.sender, about=[first[0].id, chat.id])

        client = await served.client(streaming=False)
        task = (await collect(client, request("Write it.")))[0].task
        assert task.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
        after = (await collect(client, request("Leave it.", task_id=task.id)))[0].task
        assert after.id == task.id
        assert after.status.state == TaskState.TASK_STATE_COMPLETED
        assert [part.text for each in after.artifacts for part in each.parts] == ["As you like."]


async def test_comments_on_a_proposal_are_told_and_answered_through_its_task(tmp_path: Path) -> None:
    async with served_space(tmp_path) as served:
        client, alice = await served.client(streaming=False), served.alice
        task = (await collect(client, request(data=WRITE)))[0].task
        proposal = next(each.id for each in served.heard if each.kind == "mcp/proposal")
        await alice.comment(proposal, "which folder is that?")

        async def said() -> list[str]:
            now = await client.get_task(GetTaskRequest(id=task.id))
            assert now.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
            return [part.text for each in now.history for part in each.parts if part.text]

        while "alice about the proposal to call write: which folder is that?" not in await said():
            await asyncio.sleep(0)
        await collect(client, request("The one for drafts.", task_id=task.id, configuration=NOW))
        seen = alice.proposals.get(proposal)
        assert seen is not None
        await until(lambda: "The one for drafts." in [each.text for each in seen.comments])
        await alice.comment(proposal, "fine then")
        while not any("fine then" in each for each in await said()):
            await asyncio.sleep(0)
        # Each once, and not the caller's own.
        assert len([each for each in await said() if "about the proposal" in each]) == 2
        await alice.approve(proposal)
        await served.task(client, task.id, TaskState.TASK_STATE_COMPLETED)


async def test_cancelling_takes_chats_and_proposals_back(tmp_path: Path) -> None:
    async with served_space(tmp_path) as served:
        client = await served.client(streaming=False)
        chat = (await collect(client, request("Wait.", configuration=NOW)))[0].task
        assert chat.status.state == TaskState.TASK_STATE_SUBMITTED
        call = (await collect(client, request(data=WRITE)))[0].task
        for task in (chat, call):
            cancelled = await client.cancel_task(CancelTaskRequest(id=task.id))
            assert cancelled.status.state == TaskState.TASK_STATE_CANCELED
            with pytest.raises(TaskNotCancelableError):
                await client.cancel_task(CancelTaskRequest(id=task.id))
        await until(lambda: {"chat/cancel", "mcp/withdraw"} <= {each.kind for each in served.heard})
        with pytest.raises(A2AError, match="ended"):
            await collect(client, request("More.", task_id=chat.id))


async def test_a_chat_task_goes_on_after_a_restart(tmp_path: Path) -> None:
    async with space_with_coder(tmp_path) as lab:
        async with service(lab):
            client = await lab.client(streaming=False)
            task = (await collect(client, request("Slowly.", configuration=NOW)))[0].task
        chat = next(each for each in lab.heard if each.kind == "chat" and each.sender == "acme")
        # Answered while the service was away.
        await lab.coder.chat("Now.", about=chat.id)
        async with service(lab):
            client = await lab.client(streaming=False)
            done = await lab.task(client, task.id, TaskState.TASK_STATE_COMPLETED)
            assert done.artifacts[0].parts[0].text == "Now."
        assert sum(each.kind == "chat" and each.sender == "acme" for each in lab.heard) == 1


async def test_limits_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moot.agents.a2a.message_parts.MAX_MESSAGE_CHARS", 50)
    monkeypatch.setattr("moot.agents.a2a.callers.MAX_REQUESTS_AT_ONCE", 1)
    async with served_space(tmp_path, max_open_tasks=2) as served:
        client = await served.client(streaming=False)
        for _ in range(2):
            await collect(client, request("Wait.", configuration=NOW))
        with pytest.raises(A2AError, match="max_open_tasks"):
            await collect(client, request("Wait.", configuration=NOW))
        with pytest.raises(InvalidParamsError, match="send it in parts"):
            await collect(client, request("x" * 51))
        streaming = await served.client()
        first = (await client.list_tasks(ListTasksRequest())).tasks[0]
        events = streaming.subscribe(SubscribeToTaskRequest(id=first.id))
        assert (await anext(events)).HasField("task")
        with pytest.raises(A2AError, match="429"):
            await client.get_task(GetTaskRequest(id=first.id))
        await events.aclose()  # type: ignore[attr-defined]


PRIVATE = [
    "http://127.0.0.1:1/x",
    "https://127.0.0.1/x",
    "https://169.254.169.254/latest",
    "https://[::1]/",
    "ftp://a/",
]


async def test_push_notifications_go_to_checked_targets_only(tmp_path: Path) -> None:
    async with served_space(tmp_path) as served:
        client = await served.client(streaming=False)
        task = (await collect(client, request("Wait.", configuration=NOW)))[0].task
        for url in PRIVATE:
            with pytest.raises(InvalidParamsError):
                await client.create_task_push_notification_config(
                    TaskPushNotificationConfig(task_id=task.id, url=url)
                )
            configuration = SendMessageConfiguration(task_push_notification_config={"url": url})
            with pytest.raises(InvalidParamsError):
                await collect(client, request("Wait.", configuration=configuration))
        assert sum(each.kind == "chat" and each.sender == "acme" for each in served.heard) == 1


async def test_push_notifications_tell_every_change(tmp_path: Path) -> None:
    got: list[tuple[str, bytes]] = []

    async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(
            next(line for line in head.splitlines() if line.lower().startswith("content-length")).split()[1]
        )
        got.append((head, await reader.readexactly(length)))
        # The first one is tried again.
        writer.write(b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n" % (500 if len(got) == 1 else 200))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(receive, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with served_space(tmp_path, allow_private_push=True) as served:
            client = await served.client(streaming=False)
            bad = TaskPushNotificationConfig(url=f"http://127.0.0.1:{port}/hook", token="a\r\nX: y")
            with pytest.raises(InvalidParamsError):
                await collect(
                    client,
                    request("x", configuration=SendMessageConfiguration(task_push_notification_config=bad)),
                )
            config = TaskPushNotificationConfig(url=f"http://127.0.0.1:{port}/hook", token="tok", id="c1")
            sent = SendMessageConfiguration(task_push_notification_config=config, return_immediately=True)
            task = (await collect(client, request("Go.", configuration=sent)))[0].task
            chat = next(each for each in served.heard if each.kind == "chat" and each.sender == "acme")
            await served.coder.chat("Gone.", about=chat.id)
            await until(lambda: len(got) >= 3)
            assert b"artifactUpdate" in got[0][1]
            assert got[0][1] == got[1][1]
            assert b"TASK_STATE_COMPLETED" in got[2][1]
            assert task.id.encode() in got[2][1]
            assert "X-A2A-Notification-Token: tok" in got[0][0]
