"""What a tool call costs as signed and sealed events: caller, relay, adapter, beside the bare cryptography.

A caller, `moot xp relay` and `xprotocol-adapter start` as processes of their own, and an MCP server behind
the adapter whose own CPU is not counted. Each call is two events, the request and its answer, and each has to
be signed, sealed, verified and opened once: that is the floor, measured in the same run on payloads of the
same size. Everything else is ours: the relay's own verification and its disk, checks, translation, JSON-RPC.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import uvloop
import yaml

from bench.events import Post
from bench.processes import ROOT, SERVER_CORE, Process, started
from moot.xprotocol.endpoint.endpoint_caller import CalledEndpoint, EndpointCaller, EndpointFault
from moot.xprotocol.endpoint.relay_client import RelayClient
from moot.xprotocol.identity import keyfile
from moot.xprotocol.identity.keys import Identity

CALLS: Final = 800
ROUNDS: Final = 5
# On the way at once: with many, a commit of the relay and a read of the adapter hold several.
AT_ONCE: Final = 64
# Caller, relay and adapter together, beside the primitives of both events, by how many are on the way.
MOST: Final = {AT_ONCE: 2.0, 1: 3.5}
KIND: Final = "org.bench.text.reverse"
TEXT: Final = "lorem ipsum dolor sit amet " * 8
WHO: Final = ("caller", "relay", "adapter")


@dataclass
class Costs:
    """Microseconds of CPU a call, one value a round."""

    floor: list[float] = field(default_factory=list)
    parts: dict[str, list[float]] = field(default_factory=dict)

    def median(self, who: str) -> float:
        return statistics.median(self.parts[who])

    @property
    def whole(self) -> float:
        return sum(self.median(who) for who in WHO)

    @property
    def ratio(self) -> float:
        return self.whole / statistics.median(self.floor)


def _document(folder: Path, relay: str, caller: str) -> dict[str, Any]:
    return {
        "identity": {"key_file": str(folder / "adapter.key")},
        "relay": {"urls": [relay]},
        "mcp_sources": [
            {
                "name": "text",
                "transport": "stdio",
                "command": f"{sys.executable} -m bench.tool_server",
                "env": {"PYTHONPATH": str(ROOT)},
                "cwd": str(ROOT),
                "xprotocol_namespace": "org.bench.text",
            }
        ],
        "access": {caller: ["org.bench.text.*"]},
        "mcp_server": {"transport": "none"},
        "discovery": {"well_known_port": 0},
        "logging": {"level": "info", "format": "json"},
        "limits": {"requests_per_minute": 0, "max_calls_per_sender": 2 * AT_ONCE},
    }


@asynccontextmanager
async def _endpoint(
    folder: Path, me: Identity
) -> AsyncIterator[tuple[str, CalledEndpoint, Process, Process]]:
    """A relay, an adapter on it, and how the adapter is written to."""
    tools = Path(sys.executable).parent
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        words = [str(tools / "moot"), "xp", "relay", "--port", "0", "--data", str(folder / "relay")]
        relay = await enter(started([*words, "--no-rate-limits"], SERVER_CORE, folder / "relay.log"))
        url = (await relay.line_with(r"listening on (ws://\S+)"))[1]
        config = folder / "adapter.yml"
        config.write_text(yaml.safe_dump(_document(folder, url, me.key.text)))
        command = [str(tools / "xprotocol-adapter"), "start", "--config", str(config)]
        adapter = await enter(started(command, SERVER_CORE, folder / "adapter.log"))
        await adapter.line_with(r'"announced"|msg":"announced')
        them = keyfile.load(folder / "adapter.key")
        yield url, CalledEndpoint(key=them.key.text, enc_key=them.enc_key.text), relay, adapter


async def run(at_once: int = AT_ONCE, calls: int = CALLS, rounds: int = ROUNDS) -> Costs:
    costs = Costs()
    with tempfile.TemporaryDirectory(prefix="moot-bench-") as name:
        folder = Path(name)
        me = Identity.generate()
        async with AsyncExitStack() as stack:
            enter = stack.enter_async_context
            url, peer, relay, adapter = await enter(_endpoint(folder, me))
            relays = await enter(RelayClient([url], me))
            caller = await enter(EndpointCaller(me, max_calls=at_once))
            listening = asyncio.create_task(listen(relays, caller, me))
            stack.callback(listening.cancel)
            payload = {"text": TEXT}
            post = Post(len(json.dumps(payload)))
            await _until_answered(caller, peer, relays, payload)
            await _call(caller, peer, relays, payload, 4 * AT_ONCE, at_once)
            for _ in range(rounds):
                costs.floor.append(_floor(post))
                before = (time.process_time(), relay.cpu_seconds, adapter.cpu_seconds)
                await _call(caller, peer, relays, payload, calls, at_once)
                after = (time.process_time(), relay.cpu_seconds, adapter.cpu_seconds)
                for who, start, end in zip(WHO, before, after, strict=True):
                    costs.parts.setdefault(who, []).append((end - start) / calls * 1e6)
    return costs


async def listen(relays: RelayClient, caller: EndpointCaller, me: Identity) -> None:
    async with relays.subscribe([{"recipients": [me.key.text]}]) as events:
        async for raw in events:
            caller.receive(raw)


async def _until_answered(
    caller: EndpointCaller, peer: CalledEndpoint, relays: RelayClient, payload: Any
) -> None:
    """An adapter announces its tools before their server has started once more."""
    while True:
        try:
            await caller.call(peer, KIND, payload, relays=relays, timeout_seconds=30.0)
        except EndpointFault as fault:
            if fault.fault.code != "ENDPOINT_UNAVAILABLE":
                raise
            await asyncio.sleep(0.2)
        else:
            return


async def _call(
    caller: EndpointCaller, peer: CalledEndpoint, relays: RelayClient, payload: Any, count: int, at_once: int
) -> None:
    left = iter(range(count))

    async def one_after_the_other() -> None:
        for _ in left:
            answer = await caller.call(peer, KIND, payload, relays=relays, timeout_seconds=30.0)
            if TEXT[::-1] not in json.dumps(answer):
                raise RuntimeError(f"another answer than expected: {answer}")

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(one_after_the_other())


def _floor(post: Post, count: int = 100) -> float:
    """The primitives of a request and its answer, in microseconds."""
    start = time.process_time()
    for number in range(count):
        post.sign_and_seal(number)
        post.verify_and_open(number)
    return 2 * (time.process_time() - start) / count * 1e6


def lines_of(costs: Costs, at_once: int) -> list[str]:
    words = "one call at a time" if at_once == 1 else f"{at_once} calls at once"
    lines = [f"{words + ', each two events':40}{'µs of CPU':>12}"]
    lines.append(f"{'sign, seal, verify, open of both, alone':40}{statistics.median(costs.floor):12.0f}")
    lines += [f"{who:40}{costs.median(who):12.0f}" for who in WHO]
    lines.append(f"{'all three':40}{costs.whole:12.0f}  {1e6 / costs.whole:,.0f} calls per CPU second")
    most = MOST[at_once]
    verdict = "met" if costs.ratio <= most else "MISSED"
    lines.append(f"beside the floor: {costs.ratio:.2f} times, at most {most:g}: {verdict}")
    return lines


def main() -> None:
    for at_once in MOST:
        # As the adapter's own calls run.
        print(*lines_of(uvloop.run(run(at_once)), at_once), sep="\n")


if __name__ == "__main__":
    main()
