"""The limits of tasks that are kept, of what waits for a stream, and of push notifications."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from a2a.types import Message, Part, TaskPushNotificationConfig, TaskState
from a2a.utils.errors import UnsupportedOperationError

from moot.agents.a2a import push_sender, task_book
from moot.agents.a2a.a2a_settings import ServeSettings
from moot.agents.a2a.push_sender import PushSender
from moot.agents.a2a.task_book import ServedTask, TaskBook
from tests.waiting import bounded, until

DONE = TaskState.TASK_STATE_COMPLETED
WORKING = TaskState.TASK_STATE_WORKING


def book_in(folder: Path, max_open_tasks: int = 20) -> TaskBook:
    return TaskBook(folder, max_open_tasks)


def task_in(book: TaskBook, owner: str = "acme", id: str = "m") -> ServedTask:
    served = book.create(owner, "coder", "")
    book.add_message(served, Message(message_id=id, parts=[Part(text="Hi")]))
    book.save(served)
    return served


def test_the_oldest_ended_task_makes_room_and_open_ones_never_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.agents.a2a.task_book.MAX_TASKS", 2)
    book = book_in(tmp_path)
    first, second = task_in(book, "a"), task_in(book, "b")
    with pytest.raises(UnsupportedOperationError, match="there are 2 open tasks"):
        book.create("c", "coder", "")
    book.set_state(first, DONE)
    third = task_in(book, "c")
    kept = {second.task.id, third.task.id}
    assert {each.task.id for each in book} == kept
    # Neither on the disk, nor for who sends its message again.
    assert {path.stem for path in tmp_path.glob("*.json")} == kept
    assert book.of_message("a", "coder", "m") is None


def test_ended_tasks_are_forgotten_after_their_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moot.agents.a2a.task_book.KEEP_SECONDS", 10_000.0)
    book = book_in(tmp_path)
    ended, open_one = task_in(book, id="a"), task_in(book, id="b")
    book.set_state(ended, DONE)
    book.clock.advance_to(book.clock() + 5_000.0)
    book.prune()
    assert ended in list(book)
    book.clock.advance_to(book.clock() + 6_000.0)
    book.prune()
    assert list(book) == [open_one]


def test_history_and_artifacts_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_book, "MAX_HISTORY_MESSAGES", 3)
    monkeypatch.setattr(task_book, "MAX_ARTIFACTS", 2)
    monkeypatch.setattr(task_book, "MAX_ARTIFACT_BYTES", 100)
    book = book_in(tmp_path)
    served = task_in(book)
    for number in range(5):
        book.set_state(served, WORKING, f"step {number}")
        text = "x" * 1_000 if number == 1 else "small"
        book.add_artifact(served, [Part(text=text)], id=str(number), name="answer")
    assert [each.parts[0].text for each in served.task.history] == ["step 2", "step 3", "step 4"]
    assert [each.artifact_id for each in served.task.artifacts] == ["0", "1"]
    assert "left out: larger than" in served.task.artifacts[1].parts[0].text
    # As a restart reads it.
    (again,) = book_in(tmp_path)
    assert again.task == served.task


async def test_a_stream_that_is_behind_is_cut_and_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_book, "MAX_WAITING_EVENTS", 3)
    book = book_in(tmp_path)
    served = task_in(book)
    slow, quick = book.follow(served), book.follow(served)
    await anext(slow)
    await anext(quick)
    for number in range(4):
        book.set_state(served, WORKING, str(number))
        event: Any = await anext(quick)
        assert event.status.message.parts[0].text == str(number)
    async with bounded():
        assert [each async for each in slow] == []
    book.set_state(served, DONE)
    async with bounded():
        assert len([each async for each in quick]) == 1
    assert not served.watchers


async def push_to(folder: Path, port: int, events: int) -> PushSender:
    """Some changes of a task with one target there, and who posts them."""
    given: dict[str, Any] = {"gateway": "", "members": ("coder",), "public_url": "", "state_folder": folder}
    settings = ServeSettings(**given, allow_private_push=True)
    book, push = book_in(folder), PushSender(settings)
    served = task_in(book)
    served.push["c"] = TaskPushNotificationConfig(
        id="c", task_id=served.task.id, url=f"http://127.0.0.1:{port}/"
    )
    book.on_event = push.handle
    for number in range(events):
        book.set_state(served, WORKING, str(number))
    return push


async def test_pushes_that_nobody_takes_are_given_up_after_their_tries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push_sender, "MAX_PUSH_TRIES", 2)
    tries: list[bytes] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tries.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        push = await push_to(tmp_path, port, 1)
        await until(lambda: push.lost == 1)
        assert len(tries) == 2
        await push.close()


async def test_a_target_that_says_nothing_is_left_and_no_more_than_some_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push_sender, "MAX_PUSH_TRIES", 1)
    monkeypatch.setattr(push_sender, "PUSH_SECONDS", 0.1)
    monkeypatch.setattr(push_sender, "MAX_WAITING_PUSHES", 2)
    tries: list[bytes] = []

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tries.append(await reader.readuntil(b"\r\n\r\n"))
        await reader.read()
        writer.close()

    async with await asyncio.start_server(hang, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        push = await push_to(tmp_path, port, 5)
        # Two wait; the others are lost at once.
        assert push.lost == 3
        await until(lambda: push.lost == 5)
        # Fewer if the time was up before they were heard.
        assert len(tries) <= 2
        await push.close()
