"""A gateway and some members on a loop of their own thread, so that a test can type commands beside them."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
import uvloop
import yaml

from moot.cli import main
from moot.config import load
from moot.gateway.app import Gateway
from moot.participant import JoinedSpace, connect
from tests.waiting import HANG_SECONDS

T = TypeVar("T")

SETTINGS: dict[str, Any] = {
    "default_participant": "alice",
    "dialects": ["mew", "mcpx"],
    "quorum": [{"payload": {"method": "tools/call", "params": {"name": "launch"}}, "approvals_needed": 2}],
    "budgets": {"payments": {"tool": "pay", "sum": "arguments.amount", "ask_at": 400, "at_most": 500}},
    "effects": {
        "transfer": {
            "tool": "transfer",
            "key": "{invoice}",
            "compensate": {
                "tool": "refund",
                "arguments": {"transfer": "{result.id}", "amount": "{amount}"},
            },
        }
    },
    "participants": {
        "alice": {"capabilities": [{"kind": "*"}]},
        "bob": {"capabilities": [{"kind": "*"}]},
        "agent": {
            "capabilities": [
                {"kind": kind} for kind in ("chat", "mcp/proposal", "mcp/withdraw", "reasoning/*", "stream/*")
            ]
        },
        "host": {"capabilities": [{"kind": "mcp/response"}, {"kind": "chat"}]},
    },
}


@dataclass
class SpaceWithMembers:
    """A running space in a folder; `type` is what a person types there."""

    folder: Path
    loop: asyncio.AbstractEventLoop
    gateway: Gateway
    capsys: pytest.CaptureFixture[str]
    _stays: list[tuple[asyncio.Event, Future[None]]] = field(default_factory=list)

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on the gateway's loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(HANG_SECONDS)

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def token(self, name: str) -> Path:
        return self.gateway.configuration.spaces["lab"].token_files[name]

    def join(self, name: str, **more: Any) -> JoinedSpace:
        """A member of the SDK, until the end of the test."""
        token = self.token(name).read_text("ascii").strip()
        return self.stay(connect(self.gateway.url, "lab", token, **more))

    def stay(self, block: AbstractAsyncContextManager[T]) -> T:
        """Enter a block on the other loop, in a task of its own that leaves it at the end."""
        entered: Future[T] = Future()
        end = asyncio.Event()

        async def life() -> None:
            try:
                async with block as value:
                    entered.set_result(value)
                    await end.wait()
            except BaseException as fault:
                if entered.done():
                    raise
                entered.set_exception(fault)

        self._stays.append((end, self.begin(life())))
        return entered.result(HANG_SECONDS)

    def type(self, *words: str) -> int:
        """What a person types behind `moot`; the exit code."""
        return main([*words])

    def output_of(self, *words: str) -> str:
        """What a command that works prints."""
        self.capsys.readouterr()
        code = self.type(*words)
        printed = self.capsys.readouterr()
        assert code == 0, printed.err + printed.out
        return printed.out

    def value(self, *words: str) -> Any:
        """What a command that works prints for machines."""
        return json.loads(self.output_of(*words, "--json"))

    def fails(self, *words: str) -> tuple[int, str]:
        """The exit code of one that does not work, and what it says."""
        self.capsys.readouterr()
        code = self.type(*words)
        printed = self.capsys.readouterr()
        assert code != 0, printed.out
        return code, printed.err or printed.out

    def close(self) -> None:
        for end, life in reversed(self._stays):
            self.loop.call_soon_threadsafe(end.set)
            life.result(HANG_SECONDS)
        self.do(self.gateway.stop())


@contextmanager
def space_with_members(
    folder: Path, capsys: pytest.CaptureFixture[str], settings: dict[str, Any] | None = None
) -> Iterator[SpaceWithMembers]:
    """A space called lab in this folder, with a gateway that runs."""
    document = {"gateway": {"port": 0}, "spaces": {"lab": settings or SETTINGS}}
    (folder / "moot.yaml").write_text(yaml.safe_dump(document), "utf-8")
    started = threading.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    def live() -> None:
        loop = uvloop.new_event_loop()
        asyncio.set_event_loop(loop)
        loops.append(loop)
        loop.call_soon(started.set)
        loop.run_forever()
        loop.close()

    thread = threading.Thread(target=live)
    thread.start()
    started.wait(HANG_SECONDS)
    loop = loops[0]
    try:
        gateway = asyncio.run_coroutine_threadsafe(_started(folder), loop).result(HANG_SECONDS)
        here = SpaceWithMembers(folder, loop, gateway, capsys)
        _say_where(folder, gateway.url)
        try:
            yield here
        finally:
            here.close()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(HANG_SECONDS)


async def _started(folder: Path) -> Gateway:
    gateway = Gateway(load(folder / "moot.yaml", environ={}))
    await gateway.start()
    return gateway


def _say_where(folder: Path, url: str) -> None:
    """As `moot up` does, so that commands in the folder find a gateway on any port."""
    import os

    file = folder / ".moot" / "run" / "up.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"url": url, "pid": os.getpid()}), "utf-8")


async def all_of(work: Sequence[Awaitable[T]]) -> list[T]:
    return list(await asyncio.gather(*work))
