"""The scene that the screenshots show: a real gateway with real members, in the middle of some work.

All members connect over WebSocket with a token; nothing in the screenshots is faked. When
`run_scene` yields, the scene is complete: everything that it shows has been sent.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from moot.config import load
from moot.errors import MootError
from moot.gateway.app import Gateway
from moot.participant import Control, Controls, JoinedSpace, MissedMessages, StreamHandle, connect
from moot.protocol.operation import Json
from moot.trust.approver.approver import Approver
from moot.trust.history.proposal_history import ProposalHistory
from moot.trust.rules.rule_store import RuleStore

SPACE: Final = "workshop"
# Pause between two messages, so that their times differ.
_STEP_SECONDS: Final = 0.4
_PROPOSES: Final[list[Json]] = [
    {"kind": "mcp/proposal"},
    {"kind": "mcp/withdraw"},
    {"kind": "chat"},
    {"kind": "chat/*"},
    {"kind": "reasoning/*"},
    {"kind": "stream/*"},
    {"kind": "participant/status"},
    {"kind": "capability/grant"},
]
_PARTICIPANTS: Final[dict[str, list[Json]]] = {
    "maria": [{"kind": "*"}],
    "sam": [
        {"kind": "mcp/*"},
        {"kind": "chat"},
        {"kind": "chat/*"},
        {"kind": "participant/*"},
        {"kind": "space/invite"},
        {"kind": "trust/*"},
    ],
    "coder": _PROPOSES,
    "reviewer": _PROPOSES,
    "scout": _PROPOSES,
    # A coding agent, as `moot acp` joins it: what it asks permission for, it proposes to itself.
    "claude": _PROPOSES,
    # One that somebody has started in a terminal, with `moot hook`.
    "claude-code": [{"kind": "mcp/proposal"}, {"kind": "mcp/withdraw"}, {"kind": "chat"}],
    "files": [{"kind": "mcp/response"}, {"kind": "chat"}, {"kind": "stream/*"}],
    "approver": [
        {"kind": "mcp/request", "to": ["files"]},
        {"kind": "mcp/request", "payload": {"method": "tools/list"}},
        {"kind": "mcp/reject"},
        {"kind": "mcp/response"},
        {"kind": "chat"},
        {"kind": "trust/*"},
    ],
}
# Files that are read with approval, each five times: the approver then suggests a rule for exactly these.
_READ_FILES: Final = ("src/orders.py", "src/prices.py", "src/report.py")
_READS: Final = 5
# What rules decide: nothing below secrets, and the reviewer's fast tests, which people look at afterwards.
_RULES: Final = """\
rules:
  - name: no-secrets
    decision: reject
    words: Reject what touches a secrets folder
    path: {path: "**/secrets/**"}
  - name: fast-tests
    decision: approve
    words: Approve when reviewer proposes run_tests without the slow ones
    proposer: reviewer
    to: files
    tool: run_tests
    arguments: {folder: "tests/*"}
    equals: {fast: true}
    limits: {count: 40, per: 1d, review: 0.02}
"""
_TESTED_FOLDERS: Final = ("tests/unit", "tests/api", "tests/cli", "tests/store", "tests/web", "tests/docs")
_IMPORTER: Final = """\
import csv
from pathlib import Path


def load(path: Path) -> list[dict[str, str]]:
    rows = []
    with path.open() as file:
        for row in csv.DictReader(file):
            rows.append(row)
    return rows
"""
_STREAMING_IMPORTER: Final = """\
import csv
from collections.abc import Iterator
from pathlib import Path


def load(path: Path) -> Iterator[dict[str, str]]:
    \"\"\"One row at a time: a month of orders does not fit into memory.\"\"\"
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)
"""
_REPORT: Final = """\
def total(rows: list[dict[str, str]]) -> int:
    prices = [int(row["price"]) for row in rows]
    return sum(prices)
"""
_FASTER_REPORT: Final = """\
def total(rows: Iterable[dict[str, str]]) -> int:
    return sum(int(row["price"]) for row in rows)
"""
_TESTS: Final = """\
============================= test session starts ==============================
collected 212 items

tests/test_importer.py ................                                  [  7%]
tests/test_orders.py ......................................              [ 25%]
tests/test_prices.py ...............................                     [ 40%]
tests/test_export.py ........F.........                                  [ 48%]
tests/test_reports.py ............................................       [ 69%]
"""


@dataclass(frozen=True, slots=True)
class SceneAccess:
    """Where the scene runs, and the token to sign in with."""

    url: str
    token: str
    proposal: str
    # One that was approved and carried out.
    settled: str
    # An edit for which a coding agent asks permission.
    edit: str
    # A command that waits in the hook of a coding agent.
    command: str


class _StatusControls(Controls):
    async def on_status(self, control: Control | None) -> dict[str, Json]:
        del control
        return {"messages_in_context": 61, "tokens": 18_400, "max_tokens": 32_000, "latency_ms": 840}


@asynccontextmanager
async def run_scene(folder: Path) -> AsyncIterator[SceneAccess]:
    """A running space with something to see in every view."""
    rights: Json = {name: {"capabilities": given} for name, given in _PARTICIPANTS.items()}
    file = folder / "moot.yaml"
    file.write_text(yaml.safe_dump({"spaces": {SPACE: {"participants": rights}}}), "utf-8")
    file.chmod(0o600)
    gateway = Gateway(load(file, environ={}, port=0))
    await gateway.start()
    tokens = gateway.configuration.spaces[SPACE].token_files
    try:
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
            members: dict[str, JoinedSpace] = {}
            for name in ("files", "approver", "sam", "maria", "coder", "reviewer", "scout", "claude"):
                token = tokens[name].read_text("ascii").strip()
                controls = _StatusControls() if name == "coder" else None
                members[name] = await stack.enter_async_context(
                    connect(gateway.url, SPACE, token, controls=controls)
                )
            _offer(members["files"])
            _offer_edit(members["claude"])
            store = RuleStore.open(folder / "trust")
            store.rules_file.write_text(_RULES, "utf-8")
            store.reload()
            approver = Approver(members["approver"], store, ProposalHistory())
            approving = tasks.create_task(approver.run())
            finished = asyncio.Event()
            ready: asyncio.Queue[tuple[str, str, str]] = asyncio.Queue()
            tasks.create_task(_play(members, tasks, ready, finished))
            shown = await ready.get()
            command = await stack.enter_async_context(
                _hooked_command(gateway.url, tokens["claude-code"], folder, members["maria"])
            )
            yield SceneAccess(gateway.url, tokens["maria"].read_text("ascii").strip(), *shown, command)
            finished.set()
            approving.cancel()
    finally:
        await gateway.stop()


@asynccontextmanager
async def _hooked_command(url: str, token: Path, folder: Path, person: JoinedSpace) -> AsyncIterator[str]:
    """Run the hook as Claude Code does; the id of what it proposes. It waits for a decision meanwhile."""
    call: Json = {
        "hook_event_name": "PreToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": "git push origin main --tags", "description": "Publish the release"},
        "cwd": "/home/maria/orders",
        "session_id": "5f0c",
        "tool_use_id": "toolu_01",
    }
    messages = person.envelopes()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "moot.cli", "hook", "claude-code", "--gateway", url, "--space", SPACE),
        *("--token-file", str(token), "--state", str(folder / "hooks")),
        stdin=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None  # noqa: S101  # it is a pipe
    process.stdin.write(json.dumps(call).encode())
    process.stdin.close()
    try:
        async for message in messages:
            if not isinstance(message, MissedMessages) and message.sender == "claude-code":
                yield message.id
                break
    finally:
        process.terminate()
        await process.wait()


def _offer_edit(space: JoinedSpace) -> None:
    @space.tool
    def edit(input: dict[str, Json], changes: list[Json]) -> str:
        """What the agent calls an edit, done by the agent itself when a proposal of its own is approved."""
        return f"{len(changes)} files of {input} changed"


def _offer(space: JoinedSpace) -> None:
    kept = {"src/importer.py": _IMPORTER, "notes.md": "# Notes\n\n- ask Sam about the prices\n"}
    kept |= dict.fromkeys(_READ_FILES, _IMPORTER)

    @space.tool
    def read_file(path: str) -> str:
        """Read a file of the project."""
        return kept[path]

    @space.tool
    def write_file(path: str, content: str) -> str:
        """Write a file of the project: the content replaces what was there."""
        kept[path] = content
        return f"{len(content)} characters written to {path}"

    @space.tool
    def run_tests(folder: str = "tests", fast: bool = True) -> str:
        """Run the tests below a folder; without the slow ones unless `fast` is off."""
        return f"{212 if fast else 640} passed in {folder}"


async def _play(
    members: dict[str, JoinedSpace],
    tasks: asyncio.TaskGroup,
    ready: asyncio.Queue[tuple[str, str, str]],
    finished: asyncio.Event,
) -> None:
    maria, sam, coder, reviewer = members["maria"], members["sam"], members["coder"], members["reviewer"]
    await _learn_rule(members["scout"], sam)
    for folder in _TESTED_FOLDERS:
        await reviewer.call("files", "run_tests", {"folder": folder, "fast": True})
    asked = await maria.chat(
        "The nightly import ran out of memory again. @coder, can you look at `src/importer.py`?"
    )
    await coder.chat("On it. I will read it first, then propose a change.", about=asked.id)
    await asyncio.sleep(_STEP_SECONDS)
    read = await coder.propose(
        "files", "tools/call", {"name": "read_file", "arguments": {"path": "src/importer.py"}}
    )
    await sam.approve(read.id)

    await asyncio.sleep(_STEP_SECONDS)
    await maria.admin.grant(
        "reviewer",
        [{"kind": "mcp/request", "payload": {"method": "tools/call"}}, {"kind": "capability/grant"}],
        reason="runs the tests by itself",
    )
    await reviewer.admin.grant(
        "coder",
        [{"kind": "mcp/request", "payload": {"method": "tools/call", "params": {"name": "read_*"}}}],
        reason="reading needs no approval any more",
    )
    await asyncio.sleep(_STEP_SECONDS)
    await reviewer.call("files", "run_tests", {"folder": "tests", "fast": True})
    await maria.admin.request_status("coder")
    await sam.admin.invite("lisa", [{"kind": "chat"}, {"kind": "mcp/proposal"}], reason="knows the prices")
    await maria.admin.pause("scout", reason="one thing at a time", timeout_seconds=3600)

    await asyncio.sleep(_STEP_SECONDS)
    deleted = await coder.propose(
        "files",
        "tools/call",
        {"name": "write_file", "arguments": {"path": "notes.md", "content": ""}},
        wait_for_others=True,
    )
    await sam.reject(deleted.id, "unsafe", explanation="these notes are not yours to empty")
    await asyncio.sleep(_STEP_SECONDS)
    await coder.chat("Understood, I leave the notes alone.", about=deleted.id)

    await asyncio.sleep(_STEP_SECONDS)
    stream = await members["files"].streams.open(description="run of all tests", content_type="text/plain")
    tasks.create_task(_test(stream, finished))
    thinking = asyncio.Event()
    tasks.create_task(_think(coder, asked.id, thinking, finished))
    await thinking.wait()
    proposal = await coder.propose(
        "files",
        "tools/call",
        {"name": "write_file", "arguments": {"path": "src/importer.py", "content": _STREAMING_IMPORTER}},
        timeout_seconds=3600,
        about=asked.id,
    )
    await asyncio.sleep(_STEP_SECONDS)
    await reviewer.propose(
        "files",
        "tools/call",
        {"name": "run_tests", "arguments": {"folder": "tests/slow", "fast": False}},
        timeout_seconds=3600,
    )
    await asyncio.sleep(_STEP_SECONDS)
    await sam.chat(
        "The change looks right to me:\n\n"
        "- `load` gives rows **one at a time**\n"
        "- the encoding is explicit now\n\n"
        "> Does anything index into its result? Then it would break.\n",
        format="markdown",
    )
    await reviewer.chat("Nothing does: I looked at all three callers.", to="maria")
    change: Json = {"path": "src/report.py", "old_text": _REPORT, "new_text": _FASTER_REPORT}
    edit = await members["claude"].propose(
        "claude",
        "tools/call",
        {"name": "edit", "arguments": {"input": {"file_path": "src/report.py"}, "changes": [change]}},
        timeout_seconds=3600,
    )
    await ready.put((proposal.id, read.id, edit.id))
    await finished.wait()


async def _learn_rule(agent: JoinedSpace, person: JoinedSpace) -> None:
    """Have the same proposals approved, and wait until the approver suggests a rule for them."""
    messages = agent.envelopes()
    for path in _READ_FILES * _READS:
        read = await agent.propose("files", "tools/call", {"name": "read_file", "arguments": {"path": path}})
        await person.approve(read.id)
    async for message in messages:
        if not isinstance(message, MissedMessages) and message.kind == "trust/suggestion":
            return


async def _test(stream: StreamHandle, finished: asyncio.Event) -> None:
    """Keeps writing while the screenshots are taken, because a stream shows only what arrives."""
    lines = _TESTS.splitlines(keepends=True)
    for number in range(10_000):
        if finished.is_set():
            break
        further = f"tests/test_orders.py::test_order_{number:04d} PASSED\n"
        await stream.write(lines[number] if number < len(lines) else further)
        await asyncio.sleep(_STEP_SECONDS)


async def _think(space: JoinedSpace, about: str, thinking: asyncio.Event, finished: asyncio.Event) -> None:
    try:
        async with space.reasoning("Why does the import run out of memory?", about=about) as outer:
            await outer.thought("load() collects every row into one list before anything is done with it.")
            await asyncio.sleep(_STEP_SECONDS)
            await outer.thought("A month of orders is 4.1 million rows: about 3 GB as dictionaries.")
            async with outer.sub("Who needs the whole list?") as inner:
                await inner.thought("report.py goes over it once.")
                await asyncio.sleep(_STEP_SECONDS)
                await inner.thought("prices.py goes over it once, in the same order.")
                await inner.thought("export.py only counts the rows.")
                await asyncio.sleep(_STEP_SECONDS)
                await inner.conclude("Nobody indexes into it: a generator will do.")
            await asyncio.sleep(_STEP_SECONDS)
            await outer.thought("So load() can yield rows. I should also set the encoding.")
            thinking.set()
            await finished.wait()
    except MootError:
        thinking.set()
