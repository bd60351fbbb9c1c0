"""What platforms do not take, and what they do not tell: long texts, and when a button was pressed."""

from __future__ import annotations

import asyncio
import time

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from moot.chat.card_text import proposal_card
from moot.chat.json_api import MAX_ANSWER_BYTES
from moot.chat.matrix import MatrixPlatform
from moot.chat.matrix import content_of as matrix_content
from moot.chat.platform import ChatAct
from moot.chat.slack import SlackPlatform, message_of
from moot.chat.telegram import TelegramPlatform
from moot.chat.telegram import _message as telegram_message
from moot.net.http_listener import bind_socket, serve_http
from moot.participant.calls.outcome import Rejection
from moot.resilience.task_set import end_tasks
from tests.chat.test_attacks import proposal
from tests.rows import for_each_row
from tests.waiting import until


@for_each_row("sign", ["\U0001f600", "字", "&", '"', "\\", "\u202e", "x\n"])
def test_a_card_fits_whatever_it_is_made_of(sign: str) -> None:
    """A platform refuses a message that is too long as a whole, and nobody would see the proposal."""
    for count in (100, 700, 1_400, 2_400, 4_800):
        seen = proposal(text=sign * count)
        seen.rejections = [Rejection("r", f"ben{each}", sign * 60) for each in range(count // 50)]
        limits = (
            TelegramPlatform.max_card_chars,
            SlackPlatform.max_card_chars,
            MatrixPlatform.max_card_chars,
        )
        telegram, slack, matrix = (
            proposal_card(
                seen,
                key="k",
                viewers=(),
                console="https://c.example.org",
                space="lab",
                link_above="bad",
                max_chars=limit,
            )
            for limit in limits
        )
        assert len(telegram_message(telegram)["text"].encode("utf-16-le")) // 2 <= 4_096
        blocks = [each["text"]["text"] for each in message_of(slack)["blocks"] if each["type"] == "section"]
        assert all(len(each.encode("utf-16-le")) // 2 < 3_000 for each in blocks)
        assert "\n".join(slack.notes) in blocks
        content = matrix_content(matrix)
        assert len(orjson.dumps({**content, "m.new_content": content})) < 63_000
        for card in (telegram, slack, matrix):
            assert bool(card.body) == bool(card.verbs)


async def test_a_press_of_telegram_is_as_old_as_it_can_be() -> None:
    """It has no time: one that waited while others were done, or while nobody asked, is not taken for new."""
    pages: list[int] = []
    asked: list[float] = []

    async def answer(request: Request) -> JSONResponse:
        if request.path_params["method"] != "getUpdates":
            return JSONResponse({"ok": True, "result": True})
        asked.append(time.time())
        number = len(asked)
        if number > len(pages):
            await asyncio.Event().wait()
        press = {"from": {"id": 5}, "data": "approve:k", "message": {"message_id": 1, "chat": {"id": 5}}}
        found = [
            {"update_id": 1_000 * number + each, "callback_query": press} for each in range(pages[number - 1])
        ]
        return JSONResponse({"ok": True, "result": found})

    acts: list[ChatAct] = []

    async def take(act: ChatAct) -> None:
        acts.append(act)

    # The first was asked for by nobody; a full page leaves others behind.
    pages += [1, 1, 100, 1]
    app = Starlette(routes=[Route("/bott/{method}", answer, methods=["POST"])])
    with bind_socket("127.0.0.1", 0) as listening:
        async with serve_http(app, listening):
            platform = TelegramPlatform(f"http://127.0.0.1:{listening.getsockname()[1]}", "t")
            running = asyncio.create_task(platform.run(take, "", lambda _: None))
            await until(lambda: len(acts) == 103)
            await end_tasks([running])
    first, second, third, last = (acts[each].at for each in (0, 1, 2, 102))
    assert first == 0.0
    assert asked[0] <= second <= asked[1] <= third <= asked[2]
    assert last == third


async def test_a_page_of_matrix_that_is_too_large_stops_nobody_for_ever() -> None:
    """Strangers can fill rooms while nobody looks."""
    event = {
        "type": "m.reaction",
        "event_id": "$e",
        "sender": "@ana:x",
        "origin_server_ts": 1,
        "content": {"m.relates_to": {"rel_type": "m.annotation", "event_id": "$c", "key": "✅"}},
    }
    asked: list[str] = []

    async def sync(request: Request) -> Response:
        since = request.query_params.get("since", "")
        asked.append(since)
        if since == "old":
            return Response(b" " * (MAX_ANSWER_BYTES + 1))
        if since == "now":
            rooms = {"join": {"!r": {"timeline": {"events": [event]}}}}
            return JSONResponse({"next_batch": "later", "rooms": rooms})
        if since == "":
            wanted = orjson.loads(request.query_params["filter"])
            assert wanted["room"]["timeline"]["types"] == []
            return JSONResponse({"next_batch": "now"})
        await asyncio.Event().wait()
        return JSONResponse({})

    async def members(_: Request) -> Response:
        return JSONResponse({"joined": {"": {}, "@ana:x": {}}})

    acts: list[ChatAct] = []

    async def take(act: ChatAct) -> None:
        acts.append(act)

    base = "/_matrix/client/v3"
    routes = [Route(f"{base}/sync", sync), Route(f"{base}/rooms/{{room}}/joined_members", members)]
    with bind_socket("127.0.0.1", 0) as listening:
        async with serve_http(Starlette(routes=routes), listening):
            platform = MatrixPlatform(f"http://127.0.0.1:{listening.getsockname()[1]}", "t")
            running = asyncio.create_task(platform.run(take, "old", lambda _: None))
            await until(lambda: acts)
            await end_tasks([running])
    assert asked[:3] == ["old", "", "now"]
    assert [(act.verb, act.is_private) for act in acts] == [("approve", True)]
