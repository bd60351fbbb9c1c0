"""Slack, against a server of our own that speaks its wire format: not tried against the service itself."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import itertools
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import websockets
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from websockets.asyncio.server import ServerConnection, serve

from moot.chat.platform import Card
from moot.chat.slack import SlackPlatform, message_of
from moot.chat.slack_requests import slack_app
from moot.net.http_listener import bind_socket, serve_http
from tests.chat.chat_space import chat_space
from tests.waiting import HANG_SECONDS, until

SECRET = "8f742231b10e8888abcd99yyyzzz85a5"


class WireSlack:
    """What Slack's Web API does for one direct message with one user, U1 of team T1 in D1."""

    def __init__(self) -> None:
        self.url = ""
        self.messages: dict[str, dict[str, Any]] = {}
        self.members_of_d1 = "U1"
        self.socket: ServerConnection | None = None
        self.acknowledged: list[str] = []
        self.socket_url = ""
        self._numbers = itertools.count(1)

    async def call(self, request: Request) -> JSONResponse:
        # What writes takes JSON; what reads takes it from the address, and overlooks a body.
        asked = await request.json() if request.method == "POST" else {}
        assert request.headers["authorization"] in ("Bearer xoxb-1", "Bearer xapp-1")
        match request.path_params["method"]:
            case "auth.test":
                return JSONResponse(
                    {"ok": True, "team_id": "T1", "user_id": "U0", "user": "moot", "team": "x"}
                )
            case "conversations.info" if request.query_params.get("channel") != "D1":
                return JSONResponse({"ok": False, "error": "invalid_arguments"})
            case "conversations.info":
                return JSONResponse({"ok": True, "channel": {"is_im": True, "user": self.members_of_d1}})
            case "chat.postMessage":
                ts = f"{next(self._numbers)}.000100"
                self.messages[ts] = asked
                return JSONResponse({"ok": True, "ts": ts, "channel": asked["channel"]})
            case "chat.update":
                self.messages[asked["ts"]] = asked
                return JSONResponse({"ok": True})
            case "apps.connections.open":
                return JSONResponse({"ok": True, "url": self.socket_url})
        return JSONResponse({"ok": False, "error": "unknown_method"})

    def find(self, part: str) -> str | None:
        return next((ts for ts, said in self.messages.items() if part in json.dumps(said)), None)

    async def see(self, part: str) -> str:
        return await until(lambda: self.find(part)) or ""

    def press(self, ts: str, verb: str, **fields: Any) -> dict[str, Any]:
        """As the example of `block_actions` in Slack's documentation has it."""
        blocks = {each["block_id"]: each for each in self.messages[ts]["blocks"] if "block_id" in each}
        value = next(each["value"] for each in blocks["acts"]["elements"] if each["action_id"] == verb)
        action = {"type": "button", "action_id": verb, "block_id": "acts", "value": value}
        return {
            "type": "block_actions",
            "team": {"id": "T1", "domain": "x"},
            "user": {"id": "U1", "username": "somebody", "team_id": "T1"},
            "container": {"type": "message", "message_ts": ts, "channel_id": "D1", "is_ephemeral": False},
            "channel": {"id": "D1", "name": "directmessage"},
            "state": {"values": {"words": {"words": {"type": "plain_text_input", "value": "not today"}}}},
            "actions": [action | {"action_ts": f"{time.time():.6f}"}],
        } | fields


def said(text: str, **fields: Any) -> dict[str, Any]:
    event = {"type": "message", "channel": "D1", "channel_type": "im", "user": "U1", "text": text}
    event |= {"ts": f"{time.time():.6f}"} | fields
    return {"type": "event_callback", "team_id": "T1", "event_id": f"Ev{time.monotonic_ns()}", "event": event}


@asynccontextmanager
async def wire_slack() -> AsyncIterator[WireSlack]:
    made = WireSlack()

    async def accept(socket: ServerConnection) -> None:
        made.socket = socket
        await socket.send('{"type": "hello", "num_connections": 1}')
        try:
            async for message in socket:
                made.acknowledged.append(json.loads(message)["envelope_id"])
        except websockets.ConnectionClosed:
            return

    app = Starlette(routes=[Route("/api/{method}", made.call, methods=["GET", "POST"])])
    with bind_socket("127.0.0.1", 0) as listening:
        made.url = f"http://127.0.0.1:{listening.getsockname()[1]}/api"
        async with serve_http(app, listening), serve(accept, "127.0.0.1", 0) as sockets:
            made.socket_url = f"ws://127.0.0.1:{sockets.sockets[0].getsockname()[1]}/?ticket=t"
            yield made


async def test_slack_by_signed_requests(tmp_path: Path) -> None:
    async with wire_slack() as slack:
        platform = SlackPlatform(slack.url, "xoxb-1", signing_secret=SECRET)
        assert await platform.start() == "moot in x"
        with bind_socket("127.0.0.1", 0) as listening:
            url = f"http://127.0.0.1:{listening.getsockname()[1]}/slack"
            async with (
                serve_http(slack_app(platform), listening),
                chat_space(tmp_path, platform=platform) as chat,
                httpx.AsyncClient(timeout=HANG_SECONDS) as http,
            ):

                async def post(
                    payload: dict[str, Any], *, is_form: bool = False, secret: str = SECRET
                ) -> int:
                    body = json.dumps(payload)
                    body = urlencode({"payload": body}) if is_form else body
                    stamp = str(int(time.time()))
                    signed = hmac.new(secret.encode(), f"v0:{stamp}:{body}".encode(), hashlib.sha256)
                    kind = "application/x-www-form-urlencoded" if is_form else "application/json"
                    headers = {"X-Slack-Request-Timestamp": stamp, "Content-Type": kind}
                    headers["X-Slack-Signature"] = f"v0={signed.hexdigest()}"
                    return (await http.post(url, content=body, headers=headers)).status_code

                assert await post(said("hi"), secret="guessed") == 401
                assert await post(said(f"bind {await chat.code('ana')}")) == 200
                await slack.see("now decides as ana")
                await chat.propose(path="notes.md")
                card = await slack.see("agent proposes write_file on files")
                pressed = slack.press(card, "approve")
                other = pressed | {"user": {"id": "U2", "team_id": "T1"}}
                assert await post(other, is_form=True) == 200
                await slack.see("this account is not bound")
                assert await post(pressed, is_form=True) == 200
                await slack.see("approved by ana, done")
                assert await post(pressed, is_form=True) == 200
                await slack.see("counted already")
                assert chat.kept["notes.md"] == "new"


async def test_slack_by_socket_mode(tmp_path: Path) -> None:
    async with wire_slack() as slack:
        platform = SlackPlatform(slack.url, "xoxb-1", app_token="xapp-1")
        await platform.start()
        async with chat_space(tmp_path, platform=platform) as chat:
            heard: list[str] = []
            chat.agent.on("chat")(lambda envelope: heard.append(envelope.payload["text"]))

            async def send(payload: dict[str, Any], id: str) -> None:
                socket = await until(lambda: slack.socket)
                assert socket is not None
                await socket.send(json.dumps({"envelope_id": id, "type": "interactive", "payload": payload}))
                await until(lambda: id in slack.acknowledged)

            await send(said(f"bind {await chat.code('ana')}"), "a")
            await slack.see("now decides as ana")
            await chat.propose()
            card = await slack.see("agent proposes write_file on files")
            await send(said("why &amp; how?", thread_ts=card), "b")
            await until(lambda: "why & how?" in heard)
            slack.members_of_d1 = "U9"
            await send(slack.press(card, "reject"), "c")
            await slack.see("others are in this room now")
            slack.members_of_d1 = "U1"
            # Slack closes sockets now and then: the next one is opened.
            first = slack.socket
            assert first is not None
            await first.send('{"type": "disconnect", "reason": "refresh_requested"}')
            await until(lambda: slack.socket is not first)
            await send(slack.press(card, "reject"), "d")
            await slack.see("rejected by ana")
            await until(lambda: "not today" in heard)


def test_a_card_of_slack_keeps_to_its_limits() -> None:
    card = Card(
        key="k", title="t" * 300, body="b" * 2_900, notes=("n" * 200,), link="https://c/#/x", verbs=("show",)
    )
    blocks = message_of(card)["blocks"]
    assert [each["type"] for each in blocks] == ["section", "rich_text", "section", "section", "actions"]
    assert all(len(each["text"]["text"]) <= 3_000 for each in blocks if each["type"] == "section")


async def test_a_full_queue_is_told_to_slack() -> None:
    platform = SlackPlatform("http://127.0.0.1:9", "xoxb-1", signing_secret=SECRET)
    platform._waiting = asyncio.Queue(1)
    assert [platform.queue_act({}), platform.queue_act({})] == [True, False]
