"""`moot chat` at servers of others: Synapse with a client that is not ours, and npm's telegram-test-api.

They are large, so `make chat-servers` makes their environment and runs this; otherwise it is skipped.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from moot.chat.card_text import DECIDING
from moot.chat.matrix import MatrixPlatform
from moot.chat.platform import Card
from moot.chat.slack import message_of
from moot.chat.telegram import TelegramPlatform
from tests.chat.chat_space import chat_space
from tests.ports import held_port
from tests.waiting import HANG_SECONDS, bounded, until

SERVERS = Path(os.environ.get("MOOT_CHAT_SERVERS", "")).resolve()
pytestmark = pytest.mark.skipif(
    not os.environ.get("MOOT_CHAT_SERVERS"),
    reason="needs Synapse and telegram-test-api: `make chat-servers` installs them and runs this",
)


@asynccontextmanager
async def process(*words: str, folder: Path, **options: Any) -> AsyncIterator[asyncio.subprocess.Process]:
    with (folder / "server.log").open("ab") as log:
        started = await asyncio.create_subprocess_exec(
            *words, cwd=folder, stderr=log, **({"stdout": log} | options)
        )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.terminate()
        await started.wait()


async def answers(url: str) -> None:
    async with bounded(), httpx.AsyncClient() as client:
        while True:
            try:
                await client.get(url)
                return
            except httpx.HTTPError:
                await asyncio.sleep(0.2)


class Synapse:
    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url

    async def add_user(self, name: str) -> None:
        words = ["-c", "hs.yaml", "-u", name, "-p", f"pw-{name}", "--no-admin", self.url]
        made = await asyncio.create_subprocess_exec(
            str(SERVERS / "matrix/bin/register_new_matrix_user"), *words, cwd=self.folder
        )
        assert await made.wait() == 0

    async def token(self, name: str) -> str:
        asked = {
            "type": "m.login.password",
            "identifier": {"type": "m.id.user", "user": name},
            "password": f"pw-{name}",
        }
        async with httpx.AsyncClient(timeout=HANG_SECONDS) as client:
            answer = await client.post(f"{self.url}/_matrix/client/v3/login", json=asked)
        return str(answer.json()["access_token"])


@asynccontextmanager
async def synapse(folder: Path) -> AsyncIterator[Synapse]:
    python = str((SERVERS / "matrix/bin/python").absolute())
    words = [python, "-m", "synapse.app.homeserver", "--config-path", "hs.yaml"]
    generate = ["--server-name", "local.test", "--generate-config", "--report-stats=no"]
    async with process(*words, *generate, folder=folder) as made:
        assert await made.wait() == 0
    rates = "{per_second: 1000, burst_count: 1000}"
    with held_port() as port:
        config = (folder / "hs.yaml").read_text().replace("port: 8008", f"port: {port}")
        config += f"\nsuppress_key_server_warning: true\nrc_message: {rates}\n"
        config += f"rc_login: {{address: {rates}, account: {rates}}}\n"
        config += f"rc_invites: {{per_user: {rates}, per_room: {rates}, per_issuer: {rates}}}\n"
        (folder / "hs.yaml").write_text(config)
        url = f"http://127.0.0.1:{port}"
        async with process(*words, folder=folder):
            await answers(f"{url}/_matrix/client/versions")
            yield Synapse(folder, url)


class Person:
    """Somebody at matrix-nio, and all that their client saw."""

    def __init__(self, running: asyncio.subprocess.Process) -> None:
        self._running = running
        self.events: list[dict[str, Any]] = []
        self.id = ""

    async def read(self) -> Any:
        assert self._running.stdout is not None
        async with bounded():
            line = await self._running.stdout.readline()
        assert line, "the client has ended: see server.log"
        return json.loads(line)

    async def do(self, what: str, **fields: Any) -> Any:
        assert self._running.stdin is not None
        self._running.stdin.write(json.dumps({"do": what, **fields}).encode() + b"\n")
        return await self.read()

    async def say(self, room: str, text: str, **relates: Any) -> str:
        content = {"msgtype": "m.text", "body": text, **({"m.relates_to": relates} if relates else {})}
        return str(await self.do("send", room=room, type="m.room.message", content=content))

    async def react(self, room: str, event: str, key: str) -> None:
        relates = {"rel_type": "m.annotation", "event_id": event, "key": key}
        await self.do("send", room=room, type="m.reaction", content={"m.relates_to": relates})

    async def see(self, what: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        async with bounded():
            while True:
                found = next((each for each in self.events if what(each)), None)
                if found is not None:
                    return found
                self.events += await self.do("events")

    async def see_text(self, part: str) -> dict[str, Any]:
        return await self.see(lambda each: part in str(each["content"].get("body")))


@asynccontextmanager
async def person(server: Synapse, name: str, folder: Path) -> AsyncIterator[Person]:
    await server.add_user(name)
    words = [str((SERVERS / "matrix/bin/python").absolute()), str(Path(__file__).with_name("nio_person.py"))]
    pipes: dict[str, Any] = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
    async with process(*words, server.url, name, f"pw-{name}", folder=folder, **pipes) as running:
        made = Person(running)
        made.id = await made.read()
        yield made


async def test_matrix_with_synapse_and_matrix_nio(tmp_path: Path) -> None:
    folder = tmp_path / "synapse"
    folder.mkdir()
    async with synapse(folder) as server:
        await server.add_user("moot")
        platform = MatrixPlatform(server.url, await server.token("moot"))
        assert await platform.start() == "@moot:local.test"
        async with (
            chat_space(tmp_path, platform=platform) as chat,
            person(server, "ana", folder) as ana,
            person(server, "eve", folder) as eve,
        ):
            room = await ana.do("room", invite=["@moot:local.test"])
            await ana.see_text("Say “help”")
            await ana.say(room, f"bind {await chat.code('ana')}")
            await ana.see_text("now decides as ana")

            # A card, a reaction, and the card that changes.
            await chat.propose(path="notes.md", text="<b>@room</b>")
            card = await ana.see_text("agent proposes write_file on files")
            assert "text: <b>@room</b>" in card["content"]["body"]
            assert "&lt;b&gt;@room" in card["content"]["formatted_body"]
            assert card["content"]["m.mentions"] == {}
            await ana.see(lambda each: each["type"] == "m.reaction")
            await ana.react(room, card["event_id"], "✅")
            done = await ana.see_text("approved by ana, done")
            assert done["content"]["m.relates_to"] == {"rel_type": "m.replace", "event_id": card["event_id"]}
            assert chat.kept["notes.md"] == "<b>@room</b>"

            # Again on the same card: it is over.
            await ana.react(room, card["event_id"], "✅️")
            await ana.see_text("Not done: nothing was done: the proposal is approved by ana")

            # Words: a comment in the thread, an answer, a rejection.
            id = await chat.propose(path="second")
            second = await ana.see_text("path: second")
            thread = {"rel_type": "m.thread", "event_id": second["event_id"]}
            heard: list[str] = []
            chat.agent.on("chat")(lambda envelope: heard.append(envelope.payload["text"]))
            await ana.say(room, "why?", **thread)
            await until(lambda: "why?" in heard)
            await chat.agent.chat("because", about=id)
            answer = await ana.see_text("agent: because")
            assert answer["content"]["m.relates_to"]["event_id"] == second["event_id"]
            await ana.say(room, "reject not today", **{"m.in_reply_to": {"event_id": second["event_id"]}})
            await ana.see_text("rejected by ana")
            await until(lambda: "not today" in heard)

            # Somebody else joins the room: no card is shown, and nothing is decided there.
            third_id = await chat.propose(path="third")
            third = await ana.see_text("path: third")
            await ana.do("invite", room=room, user=eve.id)
            await eve.do("join", room=room)
            await eve.react(room, third["event_id"], "✅")
            await ana.see_text("Not done: this account is not bound")
            await ana.react(room, third["event_id"], "✅")
            await ana.see_text("Not done: others are in this room now")
            assert "third" not in chat.kept
            await chat.propose(path="fourth")
            await ana.see_text("others are in this room, so I show and decide nothing")
            assert not [each for each in ana.events if "path: fourth" in str(each["content"].get("body"))]
            await eve.do("leave", room=room)
            # A homeserver takes each reaction of a person once, so the second time is in words.
            await ana.say(room, "approve", **{"m.in_reply_to": {"event_id": third["event_id"]}})
            await ana.see(lambda each: _says(each, third["event_id"], "approved by ana, done"))
            assert chat.agent.proposals.get(third_id) is not None
            # Everything of it was said by the bot that is not ours to write for.
            assert {
                each["sender"] for each in ana.events if each["content"].get("msgtype") == "m.notice"
            } == {"@moot:local.test"}


def _says(event: dict[str, Any], card: str, part: str) -> bool:
    relates = event["content"].get("m.relates_to", {})
    return relates.get("event_id") == card and part in str(event["content"].get("body"))


TELEGRAM = """
const TelegramServer = require(process.argv[1] + "/node_modules/telegram-test-api");
new TelegramServer({port: Number(process.argv[2]), host: "127.0.0.1"}).start();
"""


async def test_telegram_with_the_test_server_of_others(tmp_path: Path) -> None:
    words = ["node", "-e", TELEGRAM, str(SERVERS.absolute())]
    with held_port() as port:
        url = f"http://127.0.0.1:{port}"
        async with process(*words, str(port), folder=tmp_path):
            await answers(f"{url}/botTOKEN/getMe")
            await _decide_at_telegram(tmp_path, url)


async def _decide_at_telegram(tmp_path: Path, url: str) -> None:
    platform = TelegramPlatform(url, "TOKEN")
    await platform.start()
    async with chat_space(tmp_path, platform=platform) as chat, httpx.AsyncClient(base_url=url) as http:

        async def send(path: str, **fields: Any) -> None:
            who = {"id": 5, "first_name": "Ana", "is_bot": False}
            shared = {"botToken": "TOKEN", "from": who, "chat": {"id": 5, "type": "private"}}
            answer = await http.post(path, json=shared | fields)
            assert answer.json()["ok"] is True

        async def sent() -> list[dict[str, Any]]:
            answer = await http.post("/getUpdatesHistory", json={"token": "TOKEN"})
            return [each for each in answer.json()["result"] if "message" in each]

        async def see(part: str) -> dict[str, Any]:
            async with bounded():
                while True:
                    for each in await sent():
                        if part in each["message"].get("text", "") and "from" not in each["message"]:
                            return each
                    await asyncio.sleep(0.2)

        now = int(time.time())
        await send("/sendMessage", text=f"/start {await chat.code('ana')}", date=now)
        await see("now decides as ana")
        await chat.propose(path="notes.md", text="*new*")
        card = await see("agent proposes write_file on files")
        message = card["message"]
        assert {"type": "pre", "offset": 35, "length": 26} in message["entities"]
        (buttons,) = message["reply_markup"]["inline_keyboard"]
        assert [each["text"] for each in buttons] == ["Approve", "Reject", "Ask back"]
        about = {"message_id": card["messageId"], "chat": {"id": 5, "type": "private"}}
        await send("/sendCallback", data="approve:made-up", message=about, date=now)
        await see("that button is not of this card")
        await send("/sendCallback", data=buttons[0]["callback_data"], message=about, date=now)
        await see("approved by ana, done")
        assert chat.kept["notes.md"] == "*new*"


async def test_a_card_of_slack_is_what_its_published_types_allow() -> None:
    """`@slack/types` from npm is the judge; the service itself was not tried."""
    cards = [
        Card(key="k", title="t", body="b", notes=("n",), link="https://c/#/x", verbs=DECIDING),
        Card(key="k", title="t", body="b", verbs=("show",)),
    ]
    made = json.dumps([message_of(each)["blocks"] for each in cards])
    file = SERVERS / "slack_cards.ts"
    file.write_text(
        f'import type {{ KnownBlock }} from "@slack/types";\nexport const cards: KnownBlock[][] = {made};\n'
    )
    compiler = [".node/node_modules/.bin/tsc", "--ignoreConfig", "--noEmit", "--strict", "--skipLibCheck"]
    checked = await asyncio.create_subprocess_exec(
        *compiler, "--module", "nodenext", str(file), stdout=asyncio.subprocess.PIPE
    )
    said, _ = await checked.communicate()
    assert checked.returncode == 0, said.decode()
