"""Many people at one MCP endpoint, beside one `moot mcp` process for each of them.

Up to 5,000 people are connected to `gateway.mcp`, and some of them call a tool. Memory is what the process
grew by for each person; CPU of a call, of coming (with the first list of tools) and of a chat to everybody is
that of all processes of ours, as the kernel tells it, the gateway included. A process for each hears every
message, so a call costs more the more of them there are; people at one endpoint hear what is theirs
(decision 0243).
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec

from bench.idle import raise_file_limit
from bench.processes import SERVER_CORE, Process, started
from moot.participant import JoinedSpace, connect

STEPS: Final = (1, 10, 100, 1_000, 5_000)
MOST_CALL_MILLISECONDS: Final = 2.5
MOST_KIB: Final = 100
PROCESSES: Final = 10
CALLS: Final = 40
CHATS: Final = 400
_SETTLE_SECONDS: Final = 0.5
_IDLE_SECONDS: Final = 20.0
_TIMEOUT_SECONDS: Final = 600.0
_META: Final[dict[str, Any]] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
}


class Step(msgspec.Struct, frozen=True):
    """One row of the table."""

    way: str
    people: int
    memory_mib: float
    call_cpu_ms: float
    call_wait_ms: float
    join_cpu_ms: float | None = None
    chat_cpu_ms: float | None = None
    # Share of a core while nobody does anything: connections are looked after.
    idle: float | None = None


def _config(people: int) -> dict[str, Any]:
    everything = [{"kind": "*"}]
    names = ["tools", "lists", *(f"person-{number}" for number in range(people))]
    everybody = {name: {"tokens": [f"t-{name}-bench"], "capabilities": everything} for name in names}
    limits = {"messages_per_second": 0, "bytes_per_second": 0}
    return {
        "gateway": {
            "port": 0,
            "data": "data",
            "max_connections_per_address": 0,
            "mcp": {"server": "lists", "max_people": people},
        },
        "spaces": {"bench": {"participants": everybody, "limits": limits}},
    }


async def _ask(http: httpx.AsyncClient, url: str, token: str, method: str, **params: Any) -> Any:
    headers = {
        # `moot mcp` on loopback asks for none, and looks at none.
        "Authorization": f"Bearer {token or 'none'}",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": method,
    }
    if "name" in params:
        headers["Mcp-Name"] = params["name"]
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": _META}}
    answer = await http.post(url, json=body, headers=headers)
    if answer.status_code != 200:
        raise RuntimeError(f"{answer.status_code}: {answer.text[:300]}")
    return answer.json()["result"]


async def _wait_for_tool(http: httpx.AsyncClient, url: str, token: str) -> None:
    """Until the person is connected and sees the tool."""
    while not any(
        each["name"] == "reverse" for each in (await _ask(http, url, token, "tools/list"))["tools"]
    ):
        await asyncio.sleep(0.05)


async def _settle(processes: Sequence[Process]) -> None:
    """Until nothing more is done about those who have just come."""
    spent = -1.0
    while (now := sum(each.cpu_seconds for each in processes)) - spent > 0.05:
        spent = now
        await asyncio.sleep(_SETTLE_SECONDS)


async def _idle(process: Process) -> float:
    before = process.cpu_seconds
    await asyncio.sleep(_IDLE_SECONDS)
    return (process.cpu_seconds - before) / _IDLE_SECONDS


async def _calls(
    http: httpx.AsyncClient,
    addresses: Sequence[tuple[str, str]],
    processes: Sequence[Process],
    idle: float = 0.0,
) -> tuple[float, float]:
    """Milliseconds of CPU of a call beside being idle, and how long its client waits, people in turns."""
    loop = asyncio.get_running_loop()
    before, start = sum(each.cpu_seconds for each in processes), loop.time()
    for number in range(CALLS):
        url, token = addresses[number % len(addresses)]
        text = f"number {number}"
        result = await _ask(http, url, token, "tools/call", name="reverse", arguments={"text": text})
        if result["content"][0]["text"] != text[::-1]:
            raise RuntimeError(str(result))
    waited = loop.time() - start
    await _settle(processes)
    spent = sum(each.cpu_seconds for each in processes) - before - idle * (loop.time() - start)
    return spent / CALLS * 1e3, waited / CALLS * 1e3


async def _chats(host: JoinedSpace, gateway: Process, idle: float) -> float:
    """Milliseconds of CPU of a chat to everybody, of which people at the endpoint hear nothing."""
    before, start = gateway.cpu_seconds, time.monotonic()
    for number in range(CHATS):
        await host.chat(f"number {number}")
    await _settle([gateway])
    return (gateway.cpu_seconds - before - idle * (time.monotonic() - start)) / CHATS * 1e3


def _offer(space: JoinedSpace) -> None:
    @space.tool
    def reverse(text: str) -> str:
        """The text, the other way round."""
        return text[::-1]


async def _together(folder: Path, http: httpx.AsyncClient, most: int) -> list[Step]:
    """All people at the gateway's own endpoint."""
    rows: list[Step] = []
    async with AsyncExitStack() as stack:
        gateway, url, host = await _gateway(stack, folder, most)
        endpoint, there = f"{url}/mcp", 0
        await _settle([gateway])
        empty = gateway.resident_bytes
        for people in (each for each in STEPS if each <= most):
            before = gateway.cpu_seconds
            for number in range(there, people):
                await _wait_for_tool(http, endpoint, f"t-person-{number}-bench")
            await _settle([gateway])
            join = (gateway.cpu_seconds - before) / (people - there) * 1e3
            there = people
            memory = (gateway.resident_bytes - empty) / people / (1 << 20)
            who = [(endpoint, f"t-person-{number}-bench") for number in range(min(people, 10))]
            idle = await _idle(gateway)
            calls = await _calls(http, who, [gateway], idle)
            chat = await _chats(host, gateway, idle)
            rows.append(Step("one endpoint", people, memory, *calls, join, chat, idle))
    return rows


async def _apart(folder: Path, http: httpx.AsyncClient) -> list[Step]:
    """A process for each person."""
    rows: list[Step] = []
    async with AsyncExitStack() as stack:
        gateway, url, _ = await _gateway(stack, folder, PROCESSES)
        processes, who = [], []
        for number in range(PROCESSES):
            token = folder / f"person-{number}.token"
            token.write_text(f"t-person-{number}-bench")
            token.chmod(0o600)
            place = ["--gateway", url, "--space", "bench", "--token-file", str(token)]
            command = [_moot(), "mcp", *place, "--http", "127.0.0.1:0", "--calls-file", "none"]
            served = started(command, SERVER_CORE, folder / f"person-{number}.log")
            process = await stack.enter_async_context(served)
            address = (await process.line_with(r"listening on (http://\S+)"))[1]
            await _wait_for_tool(http, address, "")
            processes.append(process)
            who.append((address, ""))
            if number + 1 in STEPS:
                await _settle([gateway, *processes])
                memory = sum(each.resident_bytes for each in processes) / len(processes) / (1 << 20)
                measured = await _calls(http, who, [gateway, *processes])
                rows.append(Step("a process for each", number + 1, memory, *measured))
    return rows


async def _gateway(stack: AsyncExitStack, folder: Path, people: int) -> tuple[Process, str, JoinedSpace]:
    folder.mkdir()
    (folder / "moot.yaml").write_text(json.dumps(_config(people)))
    (folder / "moot.yaml").chmod(0o600)
    command = [_moot(), "serve", str(folder / "moot.yaml")]
    gateway = await stack.enter_async_context(started(command, SERVER_CORE, folder / "gateway.log"))
    url = (await gateway.line_with(r"listening on (http://\S+)"))[1]
    host = await stack.enter_async_context(connect(url, "bench", "t-tools-bench"))
    _offer(host)
    return gateway, url, host


def _moot() -> str:
    return str(Path(sys.executable).parent / "moot")


async def run(most: int = STEPS[-1]) -> list[Step]:
    # A connection has two ends here, and what else is open is little.
    most = min(most, max(raise_file_limit() - 1_000, 0) // 2)
    with tempfile.TemporaryDirectory(prefix="moot-bench-") as name:
        folder = Path(name)
        async with httpx.AsyncClient(timeout=_TIMEOUT_SECONDS) as http:
            return [*await _apart(folder / "apart", http), *await _together(folder / "together", http, most)]


def lines_of(rows: Sequence[Step]) -> list[str]:
    """The table, and how busy the machine was."""
    head = f"{'':22}{'people':>8}{'MiB each':>12}{'CPU of a call, ms':>20}{'client waits, ms':>18}"
    lines = [f"{head}{'CPU of coming':>15}{'of a chat':>11}{'idle':>8}"]
    for row in rows:
        line = f"{row.way:22}{row.people:>8,}{row.memory_mib:>12.2f}"
        line += f"{row.call_cpu_ms:>20.1f}{row.call_wait_ms:>18.1f}"
        if row.idle is not None:
            line += f"{row.join_cpu_ms:>15.1f}{row.chat_cpu_ms:>11.2f}{row.idle:>8.1%}"
        lines.append(line)
    busy = f"load of the machine at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    return [
        *lines,
        busy,
        f"one endpoint: at most {MOST_CALL_MILLISECONDS:g} ms a call, {MOST_KIB} KiB a person",
    ]


def main() -> None:
    print(*lines_of(asyncio.run(run())), sep="\n")


if __name__ == "__main__":
    main()
