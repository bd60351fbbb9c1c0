"""Real MCP servers from npm and PyPI, with and without the box that `moot init --from` gives them.

`python -m tests.box.real_servers NPM PYPI [STARTS [CALLS]]`: the folder of `node_modules`, and that of an
environment for each Python package. Each is called alike both ways, and has to answer alike; then starts and
calls are timed in turns.
"""

# ruff: noqa: S108

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from moot.box.box_support import why_not_confined
from moot.box.boxed_child import Box, boxed
from moot.config.box_config import BoxConfig, read_box
from moot.errors import McpError
from moot.mcp.stdio_child import Command
from moot.mcp.upstream import StdioServer, Upstream, open_upstream
from moot.protocol.operation import Json
from moot.up.imported_boxes import box_for, box_variables

Calls = list[tuple[str, dict[str, Json]]]


@dataclass(frozen=True, slots=True)
class RealServer:
    """One package: its program, its arguments and what it is asked, in a folder of its own."""

    name: str
    of: str
    program: str
    args: Callable[[Path], list[str]]
    calls: Callable[[Path], Calls]
    env: tuple[tuple[str, str], ...] = ()


def _nothing(_folder: Path) -> list[str]:
    return []


_WRITTEN: Final = "# Notes\n\nfirst line\n"
SERVERS: Final = (
    RealServer(
        "server-everything",
        "npm",
        "mcp-server-everything",
        _nothing,
        lambda _: [("echo", {"message": "hi"}), ("get-sum", {"a": 2, "b": 3})],
    ),
    RealServer(
        "server-filesystem",
        "npm",
        "mcp-server-filesystem",
        lambda f: [str(f)],
        lambda f: [
            ("write_file", {"path": f"{f}/a.md", "content": _WRITTEN}),
            ("read_text_file", {"path": f"{f}/a.md"}),
            ("edit_file", {"path": f"{f}/a.md", "edits": [{"oldText": "first", "newText": "second"}]}),
            ("list_directory", {"path": str(f)}),
        ],
    ),
    RealServer(
        "server-memory",
        "npm",
        "mcp-server-memory",
        _nothing,
        lambda _: [
            (
                "create_entities",
                {"entities": [{"name": "ana", "entityType": "person", "observations": ["here"]}]},
            ),
            ("search_nodes", {"query": "ana"}),
            ("delete_entities", {"entityNames": ["ana"]}),
        ],
    ),
    RealServer(
        "server-sequential-thinking",
        "npm",
        "mcp-server-sequential-thinking",
        _nothing,
        lambda _: [
            (
                "sequentialthinking",
                {"thought": "one", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1},
            ),
        ],
    ),
    RealServer(
        "mcp-hello-world", "npm", "mcp-hello-world", _nothing, lambda _: [("echo", {"message": "hi"})]
    ),
    RealServer(
        "mcp-server-code-runner",
        "npm",
        "mcp-server-code-runner",
        _nothing,
        lambda _: [
            ("run-code", {"code": "console.log(6*7)", "languageId": "javascript"}),
        ],
    ),
    RealServer(
        "@cyanheads/git-mcp-server",
        "npm",
        "git-mcp-server",
        _nothing,
        lambda f: [("git_status", {"path": str(f)})],
        (("MCP_TRANSPORT_TYPE", "stdio"), ("LOGS_DIR", "/tmp/logs")),
    ),
    RealServer(
        "mcp-server-git",
        "pypi",
        "mcp-server-git",
        lambda f: ["--repository", str(f)],
        lambda f: [
            ("git_status", {"repo_path": str(f)}),
            ("git_log", {"repo_path": str(f), "max_count": 3}),
            ("git_branch", {"repo_path": str(f), "branch_type": "local"}),
        ],
    ),
    RealServer(
        "mcp-server-time",
        "pypi",
        "mcp-server-time",
        lambda _: ["--local-timezone", "Europe/Berlin"],
        lambda _: [
            (
                "convert_time",
                {"source_timezone": "Europe/Berlin", "time": "12:00", "target_timezone": "Asia/Tokyo"},
            ),
        ],
    ),
    RealServer(
        "mcp-server-sqlite",
        "pypi",
        "mcp-server-sqlite",
        lambda f: ["--db-path", str(f / "data.sqlite")],
        lambda _: [
            ("create_table", {"query": "CREATE TABLE IF NOT EXISTS t (a INTEGER)"}),
            ("write_query", {"query": "INSERT INTO t VALUES (1)"}),
            ("read_query", {"query": "SELECT max(a) FROM t"}),
        ],
    ),
    RealServer(
        "mcp-server-calculator",
        "pypi",
        "mcp-server-calculator",
        _nothing,
        lambda _: [("calculate", {"expression": "6*7"})],
    ),
    RealServer(
        "mcp-server-fetch",
        "pypi",
        "mcp-server-fetch",
        lambda _: ["--ignore-robots-txt", "--allow-private-ips"],
        lambda f: [
            ("fetch", {"url": f.joinpath("address").read_text("ascii")}),
        ],
    ),
)


def _server(of: RealServer, folder: Path, npm: Path, pypi: Path, *, in_box: bool) -> StdioServer:
    places = {"npm": npm / "node_modules" / ".bin", "pypi": pypi / f"v-{of.program}" / "bin"}
    program, args = str(places[of.of] / of.program), of.args(folder)
    settings: dict[str, Json] = {"command": program, "args": [*args], "cwd": str(folder)}
    environ = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    variables = {name: str(value) for name, value in box_variables(settings).items()} if in_box else {}
    env = environ | dict(of.env) | variables
    command = Command(argv=(program, *args), env=env, cwd=str(folder))
    server = StdioServer(command=command)
    if not in_box:
        return server
    given, note = box_for(settings, folder, missing=why_not_confined(), environ=())
    box = read_box(given, of.name)
    if not isinstance(box, BoxConfig):
        raise SystemExit(f"{of.name}: {note}")
    if of.program == "mcp-server-fetch":
        # The page that it gets is in our own network, which no list of public hosts has.
        from msgspec.structs import replace

        host = folder.joinpath("address").read_text("ascii").removeprefix("http://").rstrip("/")
        box = replace(box, network=(*box.network, host))
    return boxed(server, Box(config=box, folder=folder, home=folder.parent / "home"))


async def _answers(upstream: Upstream, calls: Calls) -> list[str]:
    answers = []
    for tool, arguments in calls:
        try:
            result = await upstream.request("tools/call", {"name": tool, "arguments": arguments})
        except McpError as fault:
            answers.append(f"error: {fault}")
            continue
        text = str(result.get("content"))
        answers.append(f"{'error: ' if result.get('isError') else ''}{text}")
    return answers


async def _serve_page(folder: Path) -> asyncio.Server:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        page = b"<html><body><h1>Found</h1></body></html>"
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n")
        writer.write(b"Content-Length: %d\r\n\r\n" % len(page) + page)
        await writer.drain()
        writer.close()

    # Not on loopback: in a box that is its own, and no program asks a proxy for it.
    address = _own_address()
    made = await asyncio.start_server(answer, address, 0)
    folder.joinpath("address").write_text(f"http://{address}:{made.sockets[0].getsockname()[1]}/", "ascii")
    return made


def _own_address() -> str:
    """Under which others reach this machine; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.connect(("192.0.2.1", 9))
        return str(asking.getsockname()[0])


def _percentile(values: Sequence[float], share: float) -> str:
    ordered = sorted(values)
    return f"{1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]:.0f}"


async def _compare(of: RealServer, npm: Path, pypi: Path, starts: int, calls: int) -> str:
    with tempfile.TemporaryDirectory(prefix="servers-", dir=Path.home()) as made:
        folder = Path(made) / "work"
        folder.mkdir()
        git = shutil.which("git") or "git"
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        for words in (
            ("init", "--quiet", "--initial-branch=main"),
            (*who, "commit", "--quiet", "--allow-empty", "--message=first"),
        ):
            subprocess.run([git, *words], cwd=folder, check=True)  # noqa: S603
        folder.joinpath("data.sqlite").touch()
        times: dict[bool, list[float]] = {False: [], True: []}
        call_times: dict[bool, list[float]] = {False: [], True: []}
        answers: dict[bool, list[str]] = {}
        async with await _serve_page(folder):
            for number in range(starts):
                for in_box in (False, True):
                    began = perf_counter()
                    async with open_upstream(_server(of, folder, npm, pypi, in_box=in_box)) as upstream:
                        await upstream.wait_until_ready()
                        times[in_box].append(perf_counter() - began)
                        if number == 0:
                            answers[in_box] = await _answers(upstream, of.calls(folder))
                            last = of.calls(folder)[-1:]
                            for _ in range(calls):
                                began = perf_counter()
                                await _answers(upstream, last)
                                call_times[in_box].append(perf_counter() - began)
    good = sum(
        one == other and not one.startswith("error")
        for one, other in zip(answers[False], answers[True], strict=True)
    )
    if good != len(answers[False]):
        print(of.name, answers, file=sys.stderr)
    cells: list[Any] = [of.name, of.of, f"{good} of {len(answers[False])}"]
    cells += [
        f"{_percentile(times[which], 0.5)} / {_percentile(times[which], 0.99)}" for which in (False, True)
    ]
    cells += [
        f"{_percentile(call_times[which], 0.5)} / {_percentile(call_times[which], 0.99)}"
        for which in (False, True)
    ]
    return f"| {' | '.join(map(str, cells))} |"


async def main(npm: Path, pypi: Path, starts: int, calls: int) -> None:
    print("| server | from | calls alike | start without | start in a box | call without | call in a box |")
    print("|---|---|---|---|---|---|---|")
    for each in SERVERS:
        try:
            print(await _compare(each, npm, pypi, starts, calls), flush=True)
        except Exception as fault:  # noqa: BLE001  # the others are looked at all the same
            print(f"{each.name}: {type(fault).__name__}: {fault}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    numbers = [int(each) for each in sys.argv[3:]] + [10, 50][len(sys.argv[3:]) :]
    asyncio.run(main(Path(sys.argv[1]).absolute(), Path(sys.argv[2]).absolute(), *numbers))
