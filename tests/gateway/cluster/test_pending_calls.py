"""Calls that wait for an answer outlive the gateway of whoever asked, and of whoever answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from moot.errors import ConnectionLost, MootError
from moot.participant import JoinedSpace, connect
from moot.participant.connection.link import Link
from tests.gateway.cluster.conftest import StartGateway
from tests.gateway.running_gateway import LocalGateway
from tests.waiting import HANG_SECONDS, bounded, until


class SlowTool:
    """A tool that answers when it is told to."""

    def __init__(self, space: JoinedSpace) -> None:
        self.started, self.finish = asyncio.Event(), asyncio.Event()
        self.calls = 0

        @space.tool
        async def slow(text: str) -> str:
            self.calls += 1
            self.started.set()
            await self.finish.wait()
            return f"done: {text}"


class LostGateway:
    """A gateway whose connections break, and that takes no new ones, as if it had been killed."""

    def __init__(self, gateway: LocalGateway) -> None:
        self._gateway = gateway.gateway

    def __enter__(self) -> None:
        handler = self._gateway._upgrade_handler
        assert handler is not None
        self._gateway.readiness.phase = "starting"
        for one in list(handler.sockets):
            assert one._connection is not None
            one._connection.abort()

    def __exit__(self, *_: object) -> None:
        self._gateway.readiness.phase = "running"


@asynccontextmanager
async def caller_and_tool(
    start: StartGateway, *, caller_first: bool = True
) -> AsyncIterator[tuple[LocalGateway, JoinedSpace, JoinedSpace, SlowTool]]:
    """The gateway that will be lost, who calls, who answers, and its tool; one of them is at that gateway."""
    async with start("a") as a, start("b") as b, AsyncExitStack() as stack:
        urls = f"{a.url},{b.url}"
        alice = await stack.enter_async_context(connect(urls if caller_first else b.url, "lab", "t-alice"))
        bob = await stack.enter_async_context(connect(b.url if caller_first else urls, "lab", "t-bob"))
        yield a, alice, bob, SlowTool(bob)


def call(alice: JoinedSpace) -> asyncio.Task[str]:
    async def ask() -> str:
        outcome = await alice.call("bob", "slow", {"text": "x"}, timeout_seconds=HANG_SECONDS)
        return str(outcome.text)

    return asyncio.create_task(ask())


@pytest.mark.parametrize("is_away", [False, True], ids=["after it is back", "while it is away"])
async def test_the_answer_to_a_call_comes_though_the_callers_gateway_is_lost(
    start: StartGateway, monkeypatch: pytest.MonkeyPatch, is_away: bool
) -> None:
    async with caller_and_tool(start) as (a, alice, bob, tool), bounded():
        waiting = call(alice)
        await tool.started.wait()
        back, gate = asyncio.Event(), asyncio.Event()
        alice.on_reconnected(back.set)
        run_once = Link._run_once

        async def gated(self: Link, try_seconds: float) -> MootError | None:
            await gate.wait()
            return await run_once(self, try_seconds)

        monkeypatch.setattr(Link, "_run_once", gated)
        answered = asyncio.Event()
        bob.on("mcp/response", own=True)(lambda _envelope: answered.set())
        with LostGateway(a):
            if is_away:
                tool.finish.set()
                await answered.wait()
                gate.set()
            else:
                gate.set()
                await back.wait()
                tool.finish.set()
            assert await waiting == "done: x"
        assert tool.calls == 1


async def test_the_answer_of_a_host_comes_though_its_gateway_is_lost(start: StartGateway) -> None:
    async with caller_and_tool(start, caller_first=False) as (a, alice, bob, tool), bounded():
        waiting = call(alice)
        await tool.started.wait()
        back = asyncio.Event()
        bob.on_reconnected(back.set)
        with LostGateway(a):
            await back.wait()
            tool.finish.set()
            assert await waiting == "done: x"
        assert tool.calls == 1


async def test_a_call_that_the_gateway_took_with_it_fails_and_its_outcome_is_not_known(
    start: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with caller_and_tool(start) as (a, alice, _, tool), bounded():
        await alice.chat("before")
        host = a.gateway.directory.hosts["lab"]
        taken: list[bytes] = []
        monkeypatch.setattr(host, "receive", lambda _session, _dialect, data, _binary: taken.append(data))
        waiting = call(alice)
        await until(lambda: any(b"slow" in each for each in taken))
        with LostGateway(a), pytest.raises(ConnectionLost, match="whether it was done is not known"):
            await waiting
        assert tool.calls == 0
