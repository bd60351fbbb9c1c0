"""What callers may not do: limits, tokens that are refused, and requests that were refused and come again."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    SendMessageConfiguration,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.errors import A2AError, InternalError

from moot.agents.a2a import callers, task_book
from moot.agents.a2a.task_book import TaskBook
from moot.agents.a2a.task_tracker import TaskTracker
from moot.errors import TimedOut
from moot.participant.connection.envelope_sender import EnvelopeSender, SentEnvelope
from moot.protocol.envelope import Envelope
from tests.agents.a2a.served_space import ServedSpace, answering, collect, request, served_space
from tests.waiting import HANG_SECONDS, bounded, until

NOW = SendMessageConfiguration(return_immediately=True)
GET: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "x"}}


def headers(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}", "A2A-Version": "1.0"}


async def ask(served: ServedSpace, http: httpx.AsyncClient, token: str = "t-acme", **body: Any) -> Any:
    return await http.post(f"{served.url}/coder/", json=GET | body, headers=headers(token))


def chats(served: ServedSpace) -> list[str]:
    return [each.payload["text"] for each in served.heard if each.kind == "chat" and each.sender == "acme"]


async def test_a_token_of_the_member_itself_or_of_the_service_is_refused_and_harms_neither(
    tmp_path: Path,
) -> None:
    async with served_space(tmp_path) as served, httpx.AsyncClient(timeout=HANG_SECONDS) as http:
        answering(served)
        for token in ("t-coder", "t-a2a"):
            denied = await ask(served, http, token)
            assert denied.status_code == 403
            assert "published, or of this service" in denied.json()["error"]
        for given in ("", "Bearer", "Bearer t-acme x", "Bearer " + "x" * 5_000, "t-acme"):
            denied = await http.post(f"{served.url}/coder/", json=GET, headers={"Authorization": given})
            assert denied.status_code == 401, given
        # By every way in, and for every member of that name.
        for path in ("/coder/rest/tasks", "/coder/rest/extendedAgentCard", "/coder", "/nobody/"):
            assert (await http.get(served.url + path)).status_code == 401, path
        # Both are still there, and at work.
        client = await served.client(streaming=False)
        task = (await collect(client, request("Still there?")))[0].task
        assert task.status.state == TaskState.TASK_STATE_COMPLETED


async def test_a_caller_that_is_removed_or_idle_is_gone_from_the_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callers, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr("moot.agents.a2a.callers.IDLE_SECONDS", 0.05)
    async with (
        served_space(tmp_path) as served,
        httpx.AsyncClient(timeout=HANG_SECONDS) as http,
    ):
        assert (await ask(served, http)).status_code == 200
        await until(lambda: "acme" not in served.alice.roster)
        # It is back with its next request, and stays while it has an open task.
        client = await served.client(streaming=False)
        task = (await collect(client, request("Wait.", configuration=NOW)))[0].task
        assert (await ask(served, http, "t-other")).status_code == 200
        await until(lambda: "other" not in served.alice.roster)
        assert "acme" in served.alice.roster
        await client.cancel_task(CancelTaskRequest(id=task.id))
        await until(lambda: "acme" not in served.alice.roster)


async def test_callers_and_requests_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moot.agents.a2a.callers.MAX_CALLERS", 1)
    async with (
        served_space(tmp_path, max_requests_per_minute=3) as served,
        httpx.AsyncClient(timeout=HANG_SECONDS) as http,
    ):
        assert (await ask(served, http)).status_code == 200
        other = await ask(served, http, "t-other")
        assert (other.status_code, "1 callers are connected" in other.text) == (503, True)
        for _ in range(2):
            assert (await ask(served, http)).status_code == 200
        refused = await ask(served, http)
        assert (refused.status_code, "max_requests_per_minute" in refused.text) == (429, True)
        assert int(refused.headers["retry-after"]) > 1


async def test_a_body_that_does_not_come_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.agents.a2a.a2a_server.BODY_SECONDS", 0.05)
    async with served_space(tmp_path) as served, bounded():
        host, port = served.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            b"POST /coder/ HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer t-acme\r\nContent-Length: 9\r\n\r\n{"
        )
        answer = await reader.readuntil(b"send it again")
        assert answer.startswith(b"HTTP/1.1 408")
        writer.close()


async def test_waiting_calls_skills_and_push_targets_have_their_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.agents.a2a.request_handler.MAX_PUSH_TARGETS", 1)
    monkeypatch.setattr("moot.agents.a2a.published_card.MAX_SKILLS", 1)
    monkeypatch.setattr("moot.agents.a2a.request_handler.CALL_SECONDS", 0.05)
    monkeypatch.setattr("moot.agents.a2a.request_handler.BLOCKING_SECONDS", 0.05)
    async with served_space(tmp_path, allow_private_push=True) as served:
        stop = asyncio.Event()

        @served.coder.tool
        async def read(name: str) -> str:
            await stop.wait()
            return name

        client = await served.client(streaming=False)
        # Nobody answers: the request does, with the task as it is.
        waiting = (await collect(client, request("Hello?")))[0].task
        assert waiting.status.state == TaskState.TASK_STATE_SUBMITTED
        call = request(data={"tool": "read", "arguments": {"name": "b"}}, configuration=NOW)
        made = (await collect(client, call))[0].task
        failed = await served.task(client, made.id, TaskState.TASK_STATE_FAILED)
        assert "0.05" in failed.status.message.parts[0].text
        stop.set()
        async with httpx.AsyncClient(timeout=HANG_SECONDS) as http:
            card = (await http.get(f"{served.url}/coder/.well-known/agent-card.json")).json()
        # What it can always be asked, and one tool.
        assert len(card["skills"]) == 2
        target = TaskPushNotificationConfig(task_id=waiting.id, url="http://127.0.0.1:9/", id="a")
        await client.create_task_push_notification_config(target)
        target.id = "b"
        with pytest.raises(A2AError, match="push targets: delete one"):
            await client.create_task_push_notification_config(target)
        # A message that is refused was never there: it is not taken for one that came before.
        more = request("More.", task_id=waiting.id, configuration=NOW)
        more.configuration.task_push_notification_config.CopyFrom(target)
        for _ in range(2):
            with pytest.raises(A2AError, match="push targets: delete one"):
                await collect(client, more)
        assert chats(served) == ["Hello?"]
        kept = await client.get_task(GetTaskRequest(id=waiting.id))
        assert [each.parts[0].text for each in kept.history] == ["Hello?"]


async def test_the_tools_of_a_card_are_asked_for_anew_only_after_their_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A card costs nothing to ask for, so asking for it again and again must cost the member nothing."""

    async def skills(served: ServedSpace, http: httpx.AsyncClient) -> set[str]:
        card = await http.get(f"{served.url}/coder/.well-known/agent-card.json")
        return {each["id"] for each in card.json()["skills"]}

    async def asked(served: ServedSpace, times: int) -> None:
        await until(
            lambda: sum(each.kind == "mcp/request" and each.sender == "a2a" for each in served.heard) == times
        )

    for seconds, then in ((1e6, {"chat", "read", "write"}), (0.0, {"chat", "read", "write", "late"})):
        folder = tmp_path / str(seconds)
        folder.mkdir()
        monkeypatch.setattr("moot.agents.a2a.published_card.SKILLS_SECONDS", seconds)
        async with (
            served_space(folder) as served,
            httpx.AsyncClient(timeout=HANG_SECONDS) as http,
        ):
            assert await skills(served, http) == {"chat", "read", "write"}

            @served.coder.tool
            def late() -> str:
                """A tool that comes later."""
                return ""

            for _ in range(3):
                assert await skills(served, http) == then
            await asked(served, 1 if seconds else 4)


async def test_a_task_without_an_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trackers: list[TaskTracker] = []
    books: list[TaskBook] = []
    start = TaskTracker.start

    async def note(self: TaskTracker) -> None:
        trackers.append(self)
        books.append(self._book)
        await start(self)

    monkeypatch.setattr(TaskTracker, "start", note)
    monkeypatch.setattr("moot.agents.a2a.task_book.TASK_SECONDS", 10_000.0)
    async with served_space(tmp_path) as served:
        client = await served.client(streaming=False)
        id = (await collect(client, request("Wait.", configuration=NOW)))[0].task.id
        trackers[0].tick()
        assert (await client.get_task(GetTaskRequest(id=id))).status.state == TaskState.TASK_STATE_SUBMITTED
        books[0].clock.advance_to(books[0].clock() + 10_001.0)
        trackers[0].tick()
        ended = await client.get_task(GetTaskRequest(id=id))
        assert ended.status.state == TaskState.TASK_STATE_FAILED
        assert "no end within 10000 s" in ended.status.message.parts[0].text


async def test_a_message_that_could_not_be_written_down_can_be_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was done, and it was said so. The same message is then a new one."""

    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    calls = {"tool": "write", "arguments": {"name": "a", "lines": 1}}
    async with served_space(tmp_path) as served:
        client = await served.client(streaming=False)
        known = (await collect(client, request("First.", configuration=NOW)))[0].task
        sent = [
            request("Second.", configuration=NOW),
            request("Third.", task_id=known.id, configuration=NOW),
            request(data=calls, configuration=NOW),
        ]
        with monkeypatch.context() as patched:
            patched.setattr(task_book, "write_atomically", full)
            for each in sent:
                with pytest.raises(InternalError):
                    await collect(client, each)
        assert chats(served) == ["First."]
        assert [each.id for each in (await client.list_tasks(ListTasksRequest())).tasks] == [known.id]
        for each in sent:
            await collect(client, each)
        await until(lambda: any(each.kind == "mcp/proposal" for each in served.heard))
        assert chats(served) == ["First.", "Second.", "Third."]
        assert len((await client.list_tasks(ListTasksRequest())).tasks) == 3


async def test_a_status_that_does_not_exist_is_no_filter_for_everything(tmp_path: Path) -> None:
    async with served_space(tmp_path) as served, httpx.AsyncClient(timeout=HANG_SECONDS) as http:
        client = await served.client(streaming=False)
        id = (await collect(client, request("Wait.", configuration=NOW)))[0].task.id

        async def listed(status: Any) -> Any:
            answer = await ask(served, http, method="ListTasks", params={"status": status})
            return answer.json()

        for status in ("NOPE", "working", 99, -1):
            error = (await listed(status))["error"]
            assert error["code"] == -32602
            assert "TASK_STATE_WORKING" in json.dumps(error)
        for known in ("TASK_STATE_SUBMITTED", 1, "TASK_STATE_UNSPECIFIED", None):
            assert [each["id"] for each in (await listed(known))["result"]["tasks"]] == [id]
        assert (await listed("TASK_STATE_WORKING"))["result"]["tasks"] == []
        rest = f"{served.url}/coder/rest/tasks"
        for query, code in (("?status=NOPE", 400), ("?status=TASK_STATE_SUBMITTED", 200), ("", 200)):
            answer = await http.get(rest + query, headers=headers("t-acme"))
            assert (answer.status_code, id in answer.text) == (code, code == 200)
        # By this binding a body means nothing.
        answer = await http.request("GET", rest, content=b"no JSON", headers=headers("t-acme"))
        assert answer.status_code == 200


@pytest.mark.parametrize("how", ["message/send", "tasks/pushNotificationConfig/set"])
async def test_who_speaks_the_old_protocol_gets_the_whole_task_pushed(tmp_path: Path, how: str) -> None:
    got: list[Any] = []

    async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.split("content-length:")[1].split("\r\n")[0])
        got.append(json.loads(await reader.readexactly(length)))
        writer.write(b"HTTP/1.1 200 X\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async with (
        await asyncio.start_server(receive, "127.0.0.1", 0) as server,
        served_space(tmp_path, allow_private_push=True) as served,
        httpx.AsyncClient(timeout=HANG_SECONDS, headers={"Authorization": "Bearer t-acme"}) as http,
    ):
        target = {"url": f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", "id": "c", "token": "t"}
        parts = [{"kind": "text", "text": "Go."}]
        params: dict[str, Any] = {
            "message": {"messageId": "m", "role": "user", "kind": "message", "parts": parts},
            "configuration": {"blocking": False},
        }
        if how == "message/send":
            params["configuration"]["pushNotificationConfig"] = target

        async def call(method: str, params: Any) -> Any:
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            return (await http.post(f"{served.url}/coder/", json=body)).json()["result"]

        task = await call("message/send", params)
        if how != "message/send":
            await call(how, {"taskId": task["id"], "pushNotificationConfig": target})
        chat = next(each for each in served.heard if each.kind == "chat" and each.sender == "acme")
        await served.coder.chat("Gone.", about=chat.id)
        await until(lambda: len(got) >= 2)
        assert [each["kind"] for each in got] == ["task", "task"]
        assert got[-1]["id"] == task["id"]
        assert got[-1]["status"]["state"] == "completed"
        assert got[-1]["artifacts"][0]["parts"] == [{"kind": "text", "text": "Gone."}]


async def test_what_the_space_may_have_taken_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateway's word on a proposal is lost: a task that had ended would be carried out all the same."""

    async def hear_nothing(sender: EnvelopeSender, sent: SentEnvelope) -> Envelope:
        if sent.kind in ("chat", "mcp/proposal") and sender.me == "acme":
            raise TimedOut("the gateway's answer did not come within 10 s")
        return await wait_for_echo(sender, sent)

    wait_for_echo = EnvelopeSender.wait_for_echo
    monkeypatch.setattr(EnvelopeSender, "wait_for_echo", hear_nothing)
    async with served_space(tmp_path) as served:
        client = await served.client(streaming=False)
        chat = (await collect(client, request("Hello?", configuration=NOW)))[0].task
        told = await served.task(client, chat.id, TaskState.TASK_STATE_SUBMITTED)
        assert "is not known" in told.status.message.parts[0].text
        write = {"tool": "write", "arguments": {"name": "a.txt", "lines": 3}}
        call = (await collect(client, request(data=write)))[0].task
        assert call.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
        assert served.written == []
        await served.alice.approve(_id_of(served, "mcp/proposal"))
        done = await served.task(client, call.id, TaskState.TASK_STATE_COMPLETED)
        assert done.artifacts[0].parts[0].text == "written"
        await served.coder.chat("Here.", to="acme", about=_id_of(served, "chat"))
        await served.task(client, chat.id, TaskState.TASK_STATE_COMPLETED)


def _id_of(served: ServedSpace, kind: str) -> str:
    return next(each.id for each in served.heard if each.kind == kind and each.sender == "acme")
