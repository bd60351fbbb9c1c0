"""What callers with a token may use up, and what one that was removed still gets: over real sockets."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.types import CancelTaskRequest, ListTasksRequest, SendMessageConfiguration, StreamResponse

from moot.net.counted_address import network_of
from moot.protocol.envelope import Envelope
from tests.agents.a2a.served_space import collect, request, served_space, service, space_with_coder
from tests.waiting import HANG_SECONDS, bounded, until, until_told

NOW = SendMessageConfiguration(return_immediately=True)
HEADERS = {"Authorization": "Bearer t-acme", "A2A-Version": "1.0"}


async def post(url: str, message: dict[str, Any], **configuration: Any) -> dict[str, Any]:
    """Send a message as somebody without the SDK does."""
    message = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "Go."}]} | message
    params = {"message": message, "configuration": {"returnImmediately": True} | configuration}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
    async with httpx.AsyncClient(headers=HEADERS, timeout=HANG_SECONDS) as http:
        answer: dict[str, Any] = (await http.post(f"{url}/coder/", json=body)).json()
    return answer


async def test_a_caller_that_is_removed_hears_nothing_more_in_its_stream_and_at_its_push_targets(
    tmp_path: Path,
) -> None:
    pushed: list[bytes] = []

    async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pushed.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async with (
        await asyncio.start_server(receive, "127.0.0.1", 0) as server,
        served_space(tmp_path, allow_private_push=True, share_reasoning=True) as served,
    ):
        client = await served.client()
        chats: list[Envelope] = []
        served.coder.on("chat")(chats.append)
        got: list[StreamResponse] = []
        target = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"

        async def follow() -> None:
            configuration = SendMessageConfiguration(task_push_notification_config={"url": target})
            async for event in client.send_message(request("Secret?", configuration=configuration)):
                got.append(event)

        following = asyncio.create_task(follow())
        await until(lambda: bool(chats and got))
        await served.coder.chats.acknowledge(chats[0])
        await until(lambda: bool(pushed) and len(got) == 2)
        await served.alice.admin.kick("acme")
        async with bounded():
            await following
        await served.coder.chat("Confidential.", about=chats[0].id)
        state = tmp_path / "state" / "tasks"
        await until(lambda: "Confidential." in next(state.glob("*.json")).read_text())
        await until(lambda: "COMPLETED" in next(state.glob("*.json")).read_text())
        assert "Confidential" not in str(got)
        assert target not in next(state.glob("*.json")).read_text()
        assert len(pushed) == 1


async def test_a_body_that_comes_slowly_counts_as_a_request_of_its_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.agents.a2a.callers.MAX_REQUESTS_AT_ONCE", 3)
    async with served_space(tmp_path) as served:
        port = int(served.url.rpartition(":")[2])
        head = "\r\n".join(f"{name}: {value}" for name, value in HEADERS.items())
        sent = f"POST /coder/ HTTP/1.1\r\nHost: x\r\n{head}\r\nContent-Length: 9\r\n\r\n".encode() + b"{"
        refused: list[bytes] = []

        async def hold() -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(sent)
                refused.append(await reader.readline())
            finally:
                writer.close()

        holding = [asyncio.create_task(hold()) for _ in range(8)]
        await until(lambda: len(refused) == 5)
        assert {line.split()[1] for line in refused} == {b"429"}
        for each in holding:
            each.cancel()
        await asyncio.wait(holding)
        # Those that went away are counted no more.
        async with httpx.AsyncClient(headers=HEADERS, timeout=HANG_SECONDS) as http:

            async def is_served() -> bool:
                return (await http.get(f"{served.url}/coder/rest/tasks")).status_code == 200

            await until_told(is_served)


async def test_what_a_caller_gives_to_keep_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.agents.a2a.message_parts.MAX_MESSAGE_BYTES", 2_000)
    monkeypatch.setattr("moot.agents.a2a.task_book.MAX_HISTORY_BYTES", 3_000)
    monkeypatch.setattr("moot.agents.a2a.request_handler.MAX_TASK_MESSAGES", 3)
    async with served_space(tmp_path) as served:
        for message, limit in (
            ({"messageId": "x" * 257}, "choose a shorter one"),
            ({"contextId": "x" * 257}, "choose a shorter one"),
            ({"metadata": {"x": "y" * 2_000}}, "send less at once"),
            ({"referenceTaskIds": ["y" * 500] * 4}, "send less at once"),
        ):
            assert limit in (await post(served.url, message))["error"]["message"]
        target = {"url": "https://example.com", "id": "x" * 20_000}
        refused = await post(served.url, {}, taskPushNotificationConfig=target)
        assert "a push target has at most" in refused["error"]["message"]
        state = tmp_path / "state" / "tasks"
        assert list(state.iterdir()) == []
        more = {"metadata": {"x": "y" * 1_500}}
        task = (await post(served.url, more))["result"]["task"]
        for number in (2, 3):
            message = more | {"messageId": f"m{number}", "taskId": task["id"]}
            kept = (await post(served.url, message))["result"]["task"]
        assert [each["messageId"] for each in kept["history"]] == ["m3"]
        message = {"messageId": "m4", "taskId": task["id"]}
        assert "send one without a task" in (await post(served.url, message))["error"]["message"]


async def test_a_caller_with_many_tasks_does_not_push_the_results_of_others_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.agents.a2a.task_book.MAX_TASKS", 4)
    async with space_with_coder(tmp_path) as lab, service(lab):
        other = await lab.client("t-other", streaming=False)
        acme = await lab.client(streaming=False)
        for client in (other, *[acme] * 6):
            task = (await collect(client, request("Go.", configuration=NOW)))[0].task
            await client.cancel_task(CancelTaskRequest(id=task.id))
        assert len((await other.list_tasks(ListTasksRequest())).tasks) == 1
        assert len((await acme.list_tasks(ListTasksRequest())).tasks) == 3


def test_a_network_of_ipv6_is_counted_as_one_address() -> None:
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:1") != network_of("2001:db8:0:1::1")
    assert network_of("::ffff:192.0.2.1") == network_of("192.0.2.1") != network_of("192.0.2.2")


async def test_who_asks_for_cards_in_a_loop_is_told_when_to_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.agents.a2a.a2a_server.MAX_CARDS_PER_MINUTE", 3)
    async with (
        served_space(tmp_path) as served,
        httpx.AsyncClient(timeout=HANG_SECONDS) as http,
    ):
        card = f"{served.url}/coder/.well-known/agent-card.json"
        for method in ("GET", "HEAD", "GET"):
            assert (await http.request(method, card)).status_code == 200
        # The service's own card is one of them, and a token makes no difference.
        for where in (card, f"{served.url}/.well-known/agent-card.json"):
            refused = await http.get(where, headers={"Authorization": "Bearer t-acme"})
            assert (refused.status_code, "too many cards" in refused.text) == (429, True)
            assert 1 < int(refused.headers["retry-after"]) <= 61
        # Callers are served all the same.
        body = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "x"}}
        headers = {"Authorization": "Bearer t-acme", "A2A-Version": "1.0"}
        assert (await http.post(f"{served.url}/coder/", json=body, headers=headers)).status_code == 200


async def test_a_body_that_is_said_to_be_no_json_is_refused_by_its_own_code(tmp_path: Path) -> None:
    """A2A 5.4, ContentTypeNotSupportedError; what a caller does not say is taken for JSON."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "x"}})
    async with served_space(tmp_path) as served, httpx.AsyncClient(timeout=HANG_SECONDS) as http:

        async def code(content_type: str | None) -> tuple[int, int]:
            headers = {"Authorization": "Bearer t-acme", "A2A-Version": "1.0"}
            headers |= {} if content_type is None else {"Content-Type": content_type}
            answer = await http.post(f"{served.url}/coder/", content=body, headers=headers)
            return answer.status_code, answer.json()["error"]["code"]

        assert await code("text/plain") == (415, -32005)
        for given in (None, "application/json; charset=utf-8", "application/a2a+json"):
            assert await code(given) == (200, -32001)
