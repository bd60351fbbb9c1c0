"""What a tool call costs from an MCP client through `moot mcp`, the gateway and `moot bridge` to a server.

The official client calls the same tool in turns: directly, through a proxy that is written with the SDK, and
through a space with its journal on and five members who watch. CPU is that of the processes in between, as
the kernel tells it: what the client and the server take is the same in all three.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.processes import ROOT, SERVER_CORE, started
from mcp import Client, StdioServerParameters

WATCHERS: Final = 5
CALLS: Final = 400
ROUNDS: Final = 5
# Beyond the direct call, for all of Moot's processes together.
MOST_MILLISECONDS: Final = 2.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_SERVER: Final = [sys.executable, "-m", "bench.tool_server"]
WAYS: Final = ("direct", "SDK proxy", "moot")


@dataclass
class Calls:
    """Milliseconds of one call, one value a round: CPU in between, and what the client waited."""

    cpu: dict[str, list[float]] = field(default_factory=dict)
    waited: dict[str, list[float]] = field(default_factory=dict)

    def cost(self, way: str) -> float:
        return statistics.median(self.cpu[way])

    def wait(self, way: str) -> float:
        return statistics.median(self.waited[way])


def _config() -> dict[str, Any]:
    names = ["caller", "tools", *(f"watcher-{n}" for n in range(WATCHERS))]
    people = {name: {"tokens": [f"t-{name}-bench"], "capabilities": [{"kind": "*"}]} for name in names}
    limits = {"messages_per_second": 0, "bytes_per_second": 0}
    return {
        "gateway": {"port": 0, "data": "data", "max_connections_per_address": 0},
        "spaces": {"bench": {"participants": people, "limits": limits}},
    }


def _token(folder: Path, name: str) -> str:
    file = folder / f"{name}.token"
    file.write_text(f"t-{name}-bench")
    file.chmod(0o600)
    return str(file)


@asynccontextmanager
async def _space(folder: Path) -> AsyncIterator[tuple[str, list[int]]]:
    """A gateway, a bridged server and watchers; the URL and the processes that count."""
    (folder / "moot.yaml").write_text(json.dumps(_config()))
    moot = str(Path(sys.executable).parent / "moot")
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        serve = [moot, "serve", str(folder / "moot.yaml")]
        gateway = await enter(started(serve, SERVER_CORE, folder / "gateway.log"))
        url = (await gateway.line_with(r"listening on (http://\S+)"))[1]
        place = ["--gateway", url, "--space", "bench"]
        pins = ["--pins", str(folder / "pins.json")]
        command = [moot, "bridge", *place, "--token-file", _token(folder, "tools"), *pins]
        # The server imports this benchmark, which is not installed.
        command += ["--env", f"PYTHONPATH={ROOT}", "--cwd", str(ROOT), "--", *_SERVER]
        bridge = await enter(started(command, SERVER_CORE, folder / "bridge.log"))
        await bridge.line_with(r" is tools in ")
        for number in range(WATCHERS):
            tail = [moot, "tail", *place, "--token-file", _token(folder, f"watcher-{number}"), "--json"]
            watcher = await enter(started(tail, 1, folder / f"watcher-{number}.log"))
            # Its own arrival: whoever still starts costs nothing yet, and would make calls look cheap.
            await watcher.line()
            stack.callback(_read_on(watcher.child.stdout).cancel)
        yield url, [gateway.child.pid, bridge.child.pid]


def _read_on(stream: asyncio.StreamReader | None) -> asyncio.Task[None]:
    async def read() -> None:
        while stream is not None and await stream.read(65_536):
            pass

    return asyncio.create_task(read())


def _children(words: str) -> list[int]:
    """Our own children whose command line holds these words."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (OSError, ValueError):
            continue
        if parent == os.getpid() and words in command:
            found.append(int(entry.name))
    return found


def _cpu(pids: list[int]) -> float:
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / _TICKS


async def run(calls: int = CALLS, rounds: int = ROUNDS) -> Calls:
    measured = Calls()
    with tempfile.TemporaryDirectory(prefix="moot-bench-") as name:
        folder = Path(name)
        async with AsyncExitStack() as stack:
            enter = stack.enter_async_context
            url, pids = await enter(_space(folder))
            here = {"env": {**os.environ, "PYTHONPATH": str(ROOT)}, "cwd": str(ROOT)}
            faced = ["mcp", "--gateway", url, "--space", "bench", "--token-file", _token(folder, "caller")]
            moot = str(Path(sys.executable).parent / "moot")
            clients = {
                "direct": await enter(Client(_parameters(_SERVER, here))),
                "SDK proxy": await enter(Client(_parameters([*_SERVER, "--proxy"], here))),
                "moot": await enter(Client(_parameters([moot, *faced], here))),
            }
            between = {
                "direct": [],
                "SDK proxy": _children("bench.tool_server --proxy"),
                "moot": [*pids, *_children(" mcp --gateway ")],
            }
            for way, client in clients.items():
                await _call(client, way, 20)
            for _ in range(rounds):
                for way, client in clients.items():
                    before, start = _cpu(between[way]), time.perf_counter()
                    await _call(client, way, calls)
                    spent, waited = _cpu(between[way]) - before, time.perf_counter() - start
                    measured.cpu.setdefault(way, []).append(spent / calls * 1e3)
                    measured.waited.setdefault(way, []).append(waited / calls * 1e3)
    return measured


def _parameters(command: list[str], here: dict[str, Any]) -> StdioServerParameters:
    return StdioServerParameters(command=command[0], args=command[1:], **here)


async def _call(client: Client, way: str, count: int) -> None:
    for number in range(count):
        result = await client.call_tool("reverse", {"text": f"number {number}"})
        (block,) = result.content
        if getattr(block, "text", None) != f"number {number}"[::-1]:
            raise RuntimeError(f"{way}: {result}")


def lines_of(measured: Calls) -> list[str]:
    """The table, one line a way."""
    lines = [f"{'a tool call, ms':32}{'CPU in between':>16}{'client waits':>14}"]
    lines += [f"{way:32}{measured.cost(way):16.2f}{measured.wait(way):14.2f}" for way in WAYS]
    cost = measured.cost("moot")
    verdict = "met" if cost <= MOST_MILLISECONDS else "MISSED"
    lines.append(
        f"moot, journal on, {WATCHERS} watchers: {cost:.2f} ms, at most {MOST_MILLISECONDS:g}: {verdict}"
    )
    return lines


def main() -> None:
    print(*lines_of(asyncio.run(run())), sep="\n")


if __name__ == "__main__":
    main()
