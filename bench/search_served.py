"""How well tools are found by those who ask: over a relay at an adapter, and with an MCP client in a space.

`python -m bench.search_served` starts everything as people do, in processes of their own: MCP servers with
the tools of a benchmark, `xprotocol-adapter start` on a `moot xp relay`, a `moot serve` with `moot bridge`
and `moot mcp`. Then it asks every question. MRR is one divided by the place of
the first right tool, 0 if it is not among the first ten, on average.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import uvloop
import yaml

from bench.endpoint_calls import listen
from bench.processes import LOAD_CORE, ROOT, SERVER_CORE, started
from bench.search import figures
from bench.search_sets import SAMPLE, SearchSet, sets
from mcp import Client, StdioServerParameters
from moot.errors import MootError
from moot.xprotocol.adapter.config.config_loader import control_path, store_path
from moot.xprotocol.adapter.operations.control_socket import send_control_request
from moot.xprotocol.contracts.contract_catalog import DESCRIBE_KIND
from moot.xprotocol.endpoint.endpoint_caller import CalledEndpoint, EndpointCaller
from moot.xprotocol.endpoint.relay_client import RelayClient
from moot.xprotocol.identity.keys import Identity

# Of one server: a space takes a thousand tools of a member.
TOOLS_EACH: Final = 900
NAMESPACE: Final = "org.bench"
BIN: Final = Path(sys.executable).parent
PATIENCE_SECONDS: Final = 300.0

# A question, and the names of the tools that are answered, best first.
Search = Callable[[str], Awaitable[list[str]]]


@dataclass
class Served:
    """How one way of asking did."""

    figures: list[tuple[float, float, float]] = field(default_factory=list)
    milliseconds: list[float] = field(default_factory=list)
    first_seconds: float = 0.0
    resident_bytes: list[int] = field(default_factory=list)

    def means(self) -> list[float]:
        return [statistics.fmean(column) for column in zip(*self.figures, strict=True)]


def mrr(ranked: list[str], right: frozenset[str]) -> float:
    """One divided by the place of the first right one, within ten."""
    return next((1 / place for place, name in enumerate(ranked[:10], start=1) if name in right), 0.0)


def servers(each: SearchSet) -> Iterator[tuple[str, list[str]]]:
    """Names and command lines; the names say nothing about the tools."""
    for number, first in enumerate(range(0, len(each.documents), TOOLS_EACH), start=1):
        arguments = [each.name, str(first), str(TOOLS_EACH)]
        yield f"s{number}", [sys.executable, "-m", "bench.catalog_server", *arguments]


def environment() -> dict[str, str]:
    found = {"PYTHONPATH": str(ROOT)}
    if "MOOT_SHARED_DATA" in os.environ:
        found["MOOT_SHARED_DATA"] = os.environ["MOOT_SHARED_DATA"]
    return found


# At an adapter


@asynccontextmanager
async def adapter(folder: Path, each: SearchSet) -> AsyncIterator[tuple[Search, int]]:
    """Ask an adapter over a relay; the search and the process whose memory counts."""
    me = Identity.generate()
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        command = [str(BIN / "moot"), "xp", "relay", "--port", "0", "--data", str(folder / "relay")]
        relay = await enter(started([*command, "--no-rate-limits"], SERVER_CORE, folder / "relay.log"))
        url = (await relay.line_with(r"listening on (ws://\S+)"))[1]
        document = {
            "identity": {"key_file": str(folder / "adapter.key")},
            "relay": {"urls": [url]},
            "mcp_sources": [
                {
                    "name": name,
                    "transport": "stdio",
                    "command": " ".join(words),
                    "env": environment(),
                    "cwd": str(ROOT),
                    "xprotocol_namespace": f"{NAMESPACE}.{name}",
                }
                for name, words in servers(each)
            ],
            "mcp_server": {"transport": "none"},
            "discovery": {"well_known_port": 0},
            # Not to stdout, which nobody reads.
            "logging": {"output": str(folder / "adapter.jsonl")},
            "limits": {"requests_per_minute": 0},
        }
        config = folder / "adapter.yml"
        config.write_text(yaml.safe_dump(document))
        words = [str(BIN / "xprotocol-adapter"), "start", "--config", str(config)]
        process = await enter(started(words, SERVER_CORE, folder / "adapter.log"))
        status = await _all_published(control_path(store_path(folder / "adapter.key")))
        names = await asyncio.to_thread(_names_by_kind, status["well_known"])
        relays = await enter(RelayClient([url], me))
        caller = await enter(EndpointCaller(me))
        listening = asyncio.create_task(listen(relays, caller, me))
        stack.callback(listening.cancel)
        peer = CalledEndpoint(key=status["key"], enc_key=status["encryption_key"])

        async def search(text: str) -> list[str]:
            answer = await caller.call(
                peer, DESCRIBE_KIND, {"intent": text}, relays=relays, timeout_seconds=PATIENCE_SECONDS
            )
            return [names[match["kind"]] for match in answer["matches"] if match["kind"] in names]

        yield search, process.child.pid


async def _all_published(control: Path) -> dict[str, Any]:
    """The status, once every server has been asked for its tools."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                status = await send_control_request(control, "status")
            except MootError:  # it is still starting
                status = {"sources": []}
            if status["sources"] and all(each["kinds"] for each in status["sources"]):
                return status
            await asyncio.sleep(0.2)


def _names_by_kind(address: str) -> dict[str, str]:
    """What each contract's tool is called at its server."""
    names: dict[str, str] = {}
    with urllib.request.urlopen(f"{address}/xp/schemas", timeout=60) as page:  # noqa: S310  # our own page
        for contract in json.load(page):
            tool = (contract.get("source") or {}).get("mcp_tool")
            if tool is not None:
                names[contract["kind"]] = tool
    return names


# In a space


@asynccontextmanager
async def space(folder: Path, each: SearchSet) -> AsyncIterator[tuple[Search, int]]:
    """Ask with an MCP client that takes part through `moot mcp`."""
    listed = dict(servers(each))
    people = {
        name: {"tokens": [f"t-{name}-bench"], "capabilities": [{"kind": "*"}]} for name in ("me", *listed)
    }
    limits = {"messages_per_second": 0, "bytes_per_second": 0}
    config = {
        "gateway": {"port": 0, "data": "data", "max_connections_per_address": 0},
        "spaces": {"bench": {"participants": people, "limits": limits}},
    }
    (folder / "moot.yaml").write_text(json.dumps(config))
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        command = [str(BIN / "moot"), "serve", str(folder / "moot.yaml")]
        gateway = await enter(started(command, SERVER_CORE, folder / "gateway.log"))
        url = (await gateway.line_with(r"listening on (http://\S+)"))[1]
        for name, words in listed.items():
            place = ["--gateway", url, "--space", "bench", "--token-file", _token(folder, name)]
            command = [str(BIN / "moot"), "bridge", *place, "--pins", str(folder / f"{name}.json")]
            for variable, value in environment().items():
                command += ["--env", f"{variable}={value}"]
            command += ["--cwd", str(ROOT), "--", *words]
            bridge = await enter(started(command, LOAD_CORE, folder / f"{name}.log"))
            await bridge.line_with(rf" is {name} in ")
        arguments = ["mcp", "--gateway", url, "--space", "bench", "--token-file", _token(folder, "me")]
        arguments += ["--names-file", "none"]
        client = await enter(Client(StdioServerParameters(command=str(BIN / "moot"), args=arguments)))
        await _all_listed(client, len(each.documents))

        async def search(text: str) -> list[str]:
            found = (await client.call_tool("moot_find_tools", {"query": text})).structured_content
            return [] if found is None else [hit["name"] for hit in found["found"]]

        yield search, _child_pid("mcp --gateway")


async def _all_listed(client: Client, count: int) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            tools, cursor = 0, None
            while True:
                page = await client.list_tools(cursor=cursor)
                tools, cursor = tools + len(page.tools), page.next_cursor
                if cursor is None:
                    break
            if tools > count:
                return
            await asyncio.sleep(0.2)


def _token(folder: Path, name: str) -> str:
    file = folder / f"{name}.token"
    file.write_text(f"t-{name}-bench")
    file.chmod(0o600)
    return str(file)


def _child_pid(words: str) -> int:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except (OSError, ValueError):
                continue
            if parent == os.getpid() and words in command:
                return int(entry.name)
    raise RuntimeError(f"no child runs {words}")


def _resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


WAYS: Final = {"adapter": adapter, "space": space}


async def measure(way: str, each: SearchSet, queries: int | None) -> Served:
    served = Served()
    by_key = {document.key: document.name for document in each.documents}
    with tempfile.TemporaryDirectory(prefix="moot-bench-") as name:
        async with WAYS[way](Path(name), each) as (search, pid):
            served.resident_bytes.append(_resident_bytes(pid))
            start = time.perf_counter()
            await search(each.queries[0].text)
            served.first_seconds = time.perf_counter() - start
            for query in each.queries[:queries]:
                start = time.perf_counter()
                ranked = await search(query.text)
                served.milliseconds.append((time.perf_counter() - start) * 1e3)
                right = frozenset(by_key[key] for key in query.right)
                recall_1, recall_5, _ = figures(ranked, right)
                served.figures.append((recall_1, recall_5, mrr(ranked, right)))
            served.resident_bytes.append(_resident_bytes(pid))
    return served


def main() -> None:
    all_sets, queries = sets(), int(sys.argv[1]) if len(sys.argv) > 1 else None
    if all_sets[0].name == SAMPLE:
        print("(our own sample: no public data sets here)\n")
    for each in all_sets:
        head = f"{each.name}: {len(each.documents):,} tools, {len(each.queries[:queries]):,} questions"
        print(f"{head:46}{'recall@1':>10}{'recall@5':>10}{'MRR@10':>10}   a question")
        for way in WAYS:
            served = uvloop.run(measure(way, each, queries))
            means = "".join(f"{mean:10.4f}" for mean in served.means())
            before, after = (size / 1e6 for size in served.resident_bytes)
            print(
                f"  {way:44}{means}   {statistics.median(served.milliseconds):.1f} ms, "
                f"the first {served.first_seconds:.1f} s; {before:.0f} → {after:.0f} MB",
                flush=True,
            )
        print()


if __name__ == "__main__":
    main()
