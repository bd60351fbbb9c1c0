"""A space whose proposals are decided in a chat that is in memory: real gateway, real service, no network
of others.

async with chat_space(tmp_path) as chat: await chat.bind("@ana", "ana") await chat.propose(text="new") card
= await chat.card("@ana") await chat.press("@ana", card, "approve")
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from moot.chat.chat_service import ChatService
from moot.chat.chat_settings import ChatSettings, ask_for_space
from moot.chat.chat_state import ChatState
from moot.chat.platform import Card, ChatAct, Platform, PlatformFault, Receive
from moot.participant import JoinedSpace, connect
from moot.resilience.task_set import end_tasks
from tests.bridges.served_space import HOST, PROPOSER, offer_files
from tests.gateway.running_gateway import LocalGateway, participants, running_gateway
from tests.waiting import HANG_SECONDS, until

CHANNEL = "team"


@dataclass
class Posted:
    room: str
    id: str
    card: Card
    versions: list[Card] = field(default_factory=list)


class MemoryPlatform:
    """A chat in memory: rooms are names, and `others` are in rooms where they should not be."""

    name = "Memory"
    max_card_chars = 2_000
    has_buttons = True
    how_to = "Press a button."

    def __init__(self) -> None:
        self.posted: list[Posted] = []
        self.told: list[tuple[str, str, str]] = []
        self.others: set[str] = set()
        self.is_down = False
        # Cards are taken when it is set.
        self.gate = asyncio.Event()
        self.gate.set()
        self.waiting = 0
        # Of one room.
        self.slow: dict[str, asyncio.Event] = {}
        # How often somebody asked whether a room is private.
        self.looks = 0
        # Cards with this in them are never taken.
        self.refused = "\0"
        # Told of a card while it is still being sent.
        self.on_sent: Callable[[Posted], Coroutine[Any, Any, None]] | None = None
        self._quick: asyncio.Task[None] | None = None
        self.receive: Receive
        self._ids = itertools.count(1)

    async def start(self) -> str:
        return "@moot"

    async def run(self, receive: Receive, cursor: str, keep_cursor: Callable[[str], None]) -> None:
        self.receive = receive
        await asyncio.Event().wait()

    async def send_card(self, room: str, card: Card) -> str:
        self._check()
        if self.refused in card.body:
            raise PlatformFault("it is refused", is_final=True)
        self.waiting += 1
        await self.gate.wait()
        await self.slow.get(room, self.gate).wait()
        self.waiting -= 1
        posted = Posted(room, f"m{next(self._ids)}", card, [card])
        self.posted.append(posted)
        if self.on_sent is not None:
            self._quick = asyncio.create_task(self.on_sent(posted))
            for _ in range(50):
                await asyncio.sleep(0)
        return posted.id

    async def change_card(self, room: str, message: str, card: Card) -> None:
        self._check()
        posted = next(each for each in self.posted if each.id == message)
        assert posted.room == room
        posted.card = card
        posted.versions.append(card)

    async def tell(self, room: str, text: str, *, about: str = "") -> None:
        self._check()
        self.told.append((room, text, about))

    async def is_private(self, room: str, account: str) -> bool:
        self.looks += 1
        return room == f"dm-{account}" and room not in self.others

    def _check(self) -> None:
        if self.is_down:
            raise PlatformFault("it is down", wait_seconds=0.01)


@dataclass
class ChatSpace:
    gateway: LocalGateway
    platform: MemoryPlatform
    state_file: Path
    stack: AsyncExitStack
    agent: JoinedSpace
    kept: dict[str, str]
    channels: tuple[str, ...]
    service: ChatService | None = None
    running: asyncio.Task[Any] | None = None

    async def start(self) -> None:
        """Run the service; again, after `stop`."""
        settings = ChatSettings(
            gateway=self.gateway.url,
            space="lab",
            token="t-bot",
            state_file=self.state_file,
            channels=self.channels,
            console="https://moot.example.org",
        )
        facts = await ask_for_space(settings)
        space = await self.stack.enter_async_context(connect(self.gateway.url, "lab", "t-bot"))
        self.service = ChatService(space, self.platform, ChatState(self.state_file), settings, facts)
        self.running = asyncio.create_task(self.service.run())
        await until(
            lambda: not isinstance(self.platform, MemoryPlatform) or hasattr(self.platform, "receive")
        )

    async def stop(self) -> None:
        assert self.running is not None
        await end_tasks([self.running])
        if isinstance(self.platform, MemoryPlatform):
            del self.platform.receive

    async def code(self, participant: str) -> str:
        async with httpx.AsyncClient(timeout=HANG_SECONDS) as client:
            answer = await client.post(
                f"{self.gateway.url}/sign-in-links",
                json={"for": "chat"},
                headers={"Authorization": f"Bearer t-{participant}"},
            )
        return str(answer.json()["code"])

    async def bind(self, account: str, participant: str) -> None:
        await self.say(account, f"bind {await self.code(participant)}")
        await until(
            lambda: any(f"decides as {participant}" in text for text in self.told_in(f"dm-{account}"))
        )

    async def propose(self, **arguments: Any) -> str:
        params = {"name": "write_file", "arguments": {"path": "b", "text": "new"} | arguments}
        return (await self.agent.propose("files", "tools/call", params)).id

    def cards(self, account: str) -> list[Posted]:
        return [each for each in self.platform.posted if each.room in (f"dm-{account}", account)]

    async def card(self, account: str, at: int = -1, count: int = 1) -> Posted:
        await until(lambda: len(self.cards(account)) >= count)
        return self.cards(account)[at]

    async def act(self, account: str, **fields: Any) -> None:
        room = fields.get("room", f"dm-{account}")
        given = {
            "event": f"e{time.monotonic_ns()}",
            "account": account,
            "room": room,
            "at": time.time(),
            "verb": "text",
            "is_private": await self.platform.is_private(room, account),
        }
        await self.platform.receive(ChatAct(**(given | fields)))

    async def say(self, account: str, text: str, about: str = "", **fields: Any) -> None:
        await self.act(account, text=text, message=about, **fields)

    async def press(self, account: str, card: Posted, verb: str, **fields: Any) -> None:
        await self.act(
            account, **({"verb": verb, "message": card.id, "key": card.card.key, "room": card.room} | fields)
        )

    def told_in(self, room: str) -> list[str]:
        return [text for where, text, _ in self.platform.told if where == room]

    async def told(self, room: str, part: str) -> None:
        await until(lambda: any(part in text for text in self.told_in(room)))


@asynccontextmanager
async def chat_space(
    folder: Path,
    *,
    channels: tuple[str, ...] = (),
    rules: dict[str, Any] | None = None,
    platform: Platform | None = None,
) -> AsyncIterator[ChatSpace]:
    """`platform`: another one than that in memory, started already."""
    people = participants(
        ana=["*"],
        ben=["chat", "mcp/reject", {"kind": "mcp/request", "to": ["notes"]}],
        agent=PROPOSER,
        files=HOST,
        bot=["moot/bind", "moot/list-proposals"],
    )
    async with running_gateway(folder, people, rules=rules) as gateway, AsyncExitStack() as stack:
        files = await stack.enter_async_context(connect(gateway.url, "lab", "t-files"))
        agent = await stack.enter_async_context(connect(gateway.url, "lab", "t-agent"))
        state = folder / "chat.json"
        used: Any = platform or MemoryPlatform()
        chat = ChatSpace(gateway, used, state, stack, agent, offer_files(files), channels)
        await chat.start()
        try:
            yield chat
        finally:
            await chat.stop()
