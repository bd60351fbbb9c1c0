"""A2A's compatibility kit against `moot a2a serve`: `make a2a-kit`, or `make a2a-kit KIT=a2a-tck/.git`.

The kit is a repository with two suites: its main branch, and its branch for 1.0. Each is taken at one commit,
into an environment of its own below build/, and run against a member that is published as people do it, by
the command, with the settings below. The page docs/how-to/work-with-agents-of-others.md has what this
prints. It fails for a check that fails and is not in kit/known_failures.toml, where each has its reason.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from moot.participant import JoinedSpace, connect
from moot.protocol.envelope import Envelope
from moot.resilience.task_set import TaskSet
from tests.agents.a2a.served_space import CALLER, CODER, LIST, write_config
from tests.agents.a2a.test_processes import command
from tests.gateway.running_gateway import participants, running_gateway
from tests.ports import held_port

HERE = Path(__file__).parent / "kit"
FOLDER = Path("build/a2a-kit")
TOKEN = "t-acme"
# The kit is one caller with hundreds of tasks.
LIMITS = ("max_open_tasks=1000", "max_requests_per_minute=100000")
CONSTANTS = {"a2a_server.MAX_CARDS_PER_MINUTE": 100_000, "callers.MAX_WRONG_TOKENS_PER_MINUTE": 100_000}


RESULTS = {"failure": "failed", "error": "failed", "skipped": "skipped"}


@dataclass(frozen=True, slots=True)
class Suite:
    """One suite of the kit, and how it is run."""

    commit: str
    tests: tuple[str, ...]
    options: tuple[str, ...]
    environment: Mapping[str, str]
    # How long the member works on each message, and how long a request waits for it.
    work_seconds: float
    # Constants of `moot.agents.a2a`.
    constants: Mapping[str, float] = field(default_factory=dict)


SUITES = {
    # It looks at tasks that work for some seconds, and does not say that it will not wait for them.
    "main": Suite(
        "410ba92e1b264df895e1fe6eccfe22db7aeaab06",
        ("tests/mandatory", "tests/optional"),
        ("--sut-url={url}", "--test-scope=all"),
        {"A2A_AUTH_HEADERS": json.dumps({"Authorization": f"Bearer {TOKEN}", "A2A-Version": "1.0"})},
        work_seconds=4.0,
        constants={"request_handler.BLOCKING_SECONDS": 0.5},
    ),
    "1.0": Suite(
        "357c4a87afa2818731590647cccbea31c31733a2",
        ("tests/compatibility",),
        ("--sut-host={url}",),
        {"MOOT_KIT_TOKEN": TOKEN},
        work_seconds=0.0,
    ),
}


class Worker:
    """The member: it does what the kit's agents do, as far as a member can."""

    def __init__(self, space: JoinedSpace, work_seconds: float) -> None:
        self._space = space
        self._work_seconds = work_seconds
        self._tasks = TaskSet("chats")
        # The chats that wait, by the proposal that they wait for.
        self._waiting: dict[str, list[str]] = {}

    async def take(self, chat: Envelope) -> None:
        if "coder" in chat.to:
            await self._space.chats.acknowledge(chat)
            self._tasks.start(self._work(chat))

    async def _work(self, chat: Envelope) -> None:
        # The last line is the id of the message, in the suite for 1.0.
        text = str(chat.payload["text"]).rpartition("\n")[2]
        is_long = text.startswith("test-resubscribe-message-id")
        await asyncio.sleep(4.0 if is_long else self._work_seconds)
        about = [chat.id]
        for proposal in self._waiting.keys() & set(chat.correlation_id):
            await self._space.send("mcp/withdraw", {"reason": "no_longer_needed"}, about=proposal)
            about += self._waiting.pop(proposal)
        if text.startswith("tck-input-required"):
            call = {"name": "write", "arguments": {"name": "a", "lines": 1}}
            proposed = await self._space.send(
                "mcp/proposal", {"method": "tools/call", "params": call}, to="alice", about=chat.id
            )
            self._waiting[proposed.id] = about
            return
        answer = "Generated text content" if text.startswith("tck-artifact-text") else "Hello from TCK"
        await self._space.chat(answer, to=chat.sender, about=about)

    async def close(self) -> None:
        await self._tasks.close()


@asynccontextmanager
async def published_member(suite: Suite) -> AsyncIterator[str]:
    """A space with a member that `moot a2a serve` publishes; its address."""
    everybody = participants(alice=["*"], coder=CODER, acme=CALLER, a2a=[LIST])
    with tempfile.TemporaryDirectory() as made, held_port() as port:
        folder = Path(made)
        (folder / "gateway").mkdir()
        async with (
            running_gateway(folder / "gateway", everybody) as gateway,
            connect(gateway.url, "lab", "t-alice"),
            connect(gateway.url, "lab", "t-coder") as coder,
        ):
            write_config(folder, gateway, everybody)
            worker = Worker(coder, suite.work_seconds)
            coder.on("chat")(worker.take)
            options = [f"--limit={each}" for each in LIMITS]
            # The kit receives pushes on this machine, by http.
            options += [
                "--port",
                str(port),
                "--public-url",
                f"http://localhost:{port}",
                "--allow-private-push",
            ]
            serve = ("serve", "--publish", "coder", *options)
            constants = {**CONSTANTS, **suite.constants}
            async with command(folder, "a2a", *serve, ready="Cards are signed", constants=constants):
                yield f"http://localhost:{port}/coder"
            await worker.close()


def fetch(kit: str, commit: str) -> Path:
    """The kit at this commit, with an environment that has what it needs; from any git repository."""
    repository, tree = FOLDER / "repository", FOLDER / commit[:7]
    if not repository.exists():
        subprocess.run(["git", "clone", "--quiet", "--no-checkout", kit, str(repository)], check=True)  # noqa: S603, S607
    if not tree.exists():
        where = ["git", "-C", str(repository), "worktree", "add", "--quiet", str(tree.resolve()), commit]
        subprocess.run(where, check=True)  # noqa: S603
    python = tree / ".venv/bin/python"
    if not (tree / ".venv/installed").exists():
        print(f"· Fetching what the kit needs, into {tree}/.venv", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(tree / ".venv")], check=True)  # noqa: S603
        install = [str(python), "-m", "pip", "install", "--quiet", "--editable", str(tree), "requests"]
        subprocess.run(install, check=True)  # noqa: S603
        (tree / ".venv/installed").touch()
    return tree


async def run(name: str, tree: Path) -> bool:
    """Run one suite and tell what came of it; whether all failures are known."""
    suite = SUITES[name]
    report = FOLDER.resolve() / f"{name}.xml"
    async with published_member(suite) as url:
        origin = url.removesuffix("coder")
        options = [each.format(url=url) for each in suite.options]
        pytest = [".venv/bin/python", "-m", "pytest", "-p", "moot_kit_plugin", *suite.tests, *options]
        process = await asyncio.create_subprocess_exec(
            *pytest, "-v", "--tb=short", "-p", "no:cacheprovider", f"--junitxml={report}",
            cwd=tree,
            stdout=(log := (FOLDER / f"{name}.log").open("w")),
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, **suite.environment, "PYTHONPATH": str(HERE), "MOOT_KIT_URL": origin},
        )  # fmt: skip
        try:
            with log:
                await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
    return tell(name, report)


def tell(name: str, report: Path) -> bool:
    known = tomllib.loads((HERE / "known_failures.toml").read_text())[name]
    parts: dict[str, Counter[str]] = {}
    failures: list[str] = []
    for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314  # pytest of ours wrote it
        found = next((each for each in case if each.tag in RESULTS), None)
        result = "passed" if found is None else RESULTS[found.tag]
        if found is not None and found.get("type") == "pytest.xfail":
            result = "failed as the kit expects"
        where = f"{case.get('classname')}.{case.get('name')}"
        parts.setdefault(where.split(".")[1], Counter())[result] += 1
        if result == "failed":
            failures.append(where)
    print(f"a2a-tck {SUITES[name].commit[:7]} ({name})")
    for part, counts in parts.items():
        print(f"  {part}: {', '.join(f'{number} {what}' for what, number in sorted(counts.items()))}")
    for each in failures:
        print(f"    {each}: {known.get(each, 'NOT KNOWN')}")
    print(f"  the whole report is in {report.with_suffix('.log')}", flush=True)
    return bool(parts) and set(failures) <= set(known)


async def main(kit: str, names: list[str]) -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    good = [await run(name, fetch(kit, SUITES[name].commit)) for name in names or SUITES]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1], sys.argv[2:])))
