"""Members of the SDK around a real gateway, and peers without an SDK who may misbehave.

async with gateway_with(tmp_path, alice=["*"], bob=["chat"]) as gateway:
    alice, bob = await gateway.join("alice"), await gateway.join("bob")
    mallory = await gateway.raw("mallory")
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from moot.participant import JoinedSpace, ParticipantLimits, connect
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from tests.gateway.running_gateway import Client, LocalGateway, participants, running_gateway
from tests.waiting import HANG_SECONDS, bounded, until

# Quick in what has to pass by in many tests; whatever waits for somebody else has all the time it needs.
QUICK = ParticipantLimits(
    request_seconds=HANG_SECONDS,
    answer_seconds=HANG_SECONDS,
    host_return_seconds=0.2,
)

# What members of different trust hold in these tests.
PROPOSER: Sequence[Json] = ("mcp/proposal", "mcp/withdraw", "chat")
TOOL_HOST: Sequence[Json] = ({"kind": "mcp/request", "payload": {"method": "notifications/*"}},)


class GatewayWithMembers:
    """A running gateway with one space `lab`."""

    def __init__(self, gateway: LocalGateway, stack: AsyncExitStack) -> None:
        self.gateway = gateway
        self._stack = stack

    @property
    def url(self) -> str:
        return self.gateway.url

    async def join(self, name: str, **options: Any) -> JoinedSpace:
        """A member until the end of the test."""
        options.setdefault("limits", QUICK)
        space = options.pop("space", "lab")
        return await self._stack.enter_async_context(connect(self.url, space, f"t-{name}", **options))

    async def raw(self, name: str, query: str = "") -> Client:
        """A peer that says whatever it is told to."""
        return await self.gateway.join(name, query)


@asynccontextmanager
async def gateway_with(
    folder: Path,
    *,
    rules: Mapping[str, Json] | None = None,
    people: Json = None,
    gateway: Mapping[str, Json] | None = None,
    **rights: Any,
) -> AsyncIterator[GatewayWithMembers]:
    """Members by name with their capabilities; or `people` as a configuration has them."""
    async with (
        running_gateway(
            folder, people or participants(**rights), rules=rules, **dict(gateway or {})
        ) as running,
        AsyncExitStack() as stack,
    ):
        yield GatewayWithMembers(running, stack)


class ReceivedEnvelopes:
    """All that a member hears from now on, own echoes included."""

    def __init__(self, space: JoinedSpace) -> None:
        self.envelopes: list[Envelope] = []
        self._news = asyncio.Event()
        space.on("*", own=True)(self._take)

    def _take(self, envelope: Envelope) -> None:
        self.envelopes.append(envelope)
        self._news.set()

    def of(self, kind: str) -> list[Envelope]:
        return [envelope for envelope in self.envelopes if envelope.kind == kind]

    async def wait(self, what: str | Callable[[Envelope], bool], count: int = 1) -> Envelope:
        """The n-th envelope of a kind, or that something holds for."""

        def wanted(envelope: Envelope) -> bool:
            return envelope.kind == what if isinstance(what, str) else what(envelope)

        try:
            async with bounded():
                while len(found := [envelope for envelope in self.envelopes if wanted(envelope)]) < count:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            heard = "".join(f"\n{each.sender} {each.kind} {each.payload}"[:300] for each in self.envelopes)
            raise AssertionError(f"{what} did not come; what came:{heard}") from None
        return found[count - 1]


@asynccontextmanager
async def away(member: JoinedSpace) -> AsyncIterator[None]:
    """The connection of a member is lost, and it does not try to come back before the block ends."""
    over = asyncio.Event()
    rest = member._session.link._wait_before_retry

    async def stay_away(seconds: float) -> None:
        await over.wait()

    member._session.link._wait_before_retry = stay_away  # type: ignore[method-assign]
    member._sender.socket._drop()
    await until(lambda: member.state == "reconnecting")
    try:
        yield
    finally:
        member._session.link._wait_before_retry = rest  # type: ignore[method-assign]
        over.set()


async def settled(space: JoinedSpace) -> None:
    """Everything that was said before has been received: the gateway keeps one order."""
    sent = await space.send("x-test/fence", {})
    echoed = asyncio.Event()

    def look(envelope: Envelope) -> None:
        if envelope.id == sent.id:
            echoed.set()

    space.on("x-test/fence", own=True)(look)
    async with bounded():
        await echoed.wait()
