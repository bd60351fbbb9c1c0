"""Real coding agents that people start themselves, with our hooks: `make hooked-agents MOOT_ACP_AGENTS=DIR`.

Each is told by a scripted model to run `touch FILE`. Approved in the space, the file has to be there and the
space is told; rejected, and without a gateway, it must not be there. Claude Code is tried with its hooks and
with its permission prompt tool, Gemini CLI with its hooks, Codex with its hooks in a terminal of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import pty
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from moot.participant import JoinedSpace
from moot.protocol.envelope import Envelope
from tests.agents.acp.scripted_model import ScriptedModel, scripted_model
from tests.bridges.served_space import PROPOSER, served_space
from tests.bridges.space.test_mcp_command import token_file
from tests.waiting import until

SECONDS = 120.0
# What Codex asks its terminal at the start, and what a terminal answers.
TERMINAL = {
    b"\x1b[6n": b"\x1b[1;1R",
    b"\x1b[c": b"\x1b[?62c",
    b"\x1b]10;?": b"\x1b]10;rgb:ffff/ffff/ffff\x1b\\",
    b"\x1b]11;?": b"\x1b]11;rgb:0000/0000/0000\x1b\\",
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where one agent is tried."""

    packages: Path
    work: Path
    home: Path
    model: str
    gateway: str
    token: Path

    def environment(self, **more: str) -> dict[str, str]:
        path = f"{self.packages}/claude/node_modules/node/bin:{os.environ['PATH']}"
        return {"PATH": path, "HOME": str(self.home), "TERM": "xterm-256color", **more}

    def init(self, agent: str) -> None:
        words = ["init", agent, str(self.work), "--gateway", self.gateway, "--space", "lab"]
        run = [sys.executable, "-m", "moot.cli", *words, "--token-file", str(self.token)]
        subprocess.run(run, check=True, capture_output=True)  # noqa: S603


def claude(place: Place, task: str) -> tuple[list[str], dict[str, str]]:
    place.init("claude-code")
    # Its own permissions are off: only the hook is left.
    argv = [f"{place.packages}/claudecode/node_modules/.bin/claude", "-p", task]
    return [*argv, "--permission-mode", "bypassPermissions"], claude_environment(place)


def claude_environment(place: Place) -> dict[str, str]:
    return place.environment(
        ANTHROPIC_API_KEY="sk-none",
        ANTHROPIC_BASE_URL=place.model,
        CLAUDE_CONFIG_DIR=str(place.home / ".claude"),
        # It refuses to go without its own permissions as root otherwise.
        IS_SANDBOX="1",
    )


def claude_prompt(place: Place, task: str) -> tuple[list[str], dict[str, str]]:
    words = ["-m", "moot.cli", "mcp", "--permission-tool", "--gateway", place.gateway, "--space", "lab"]
    server = {"command": sys.executable, "args": [*words, "--token-file", str(place.token)]}
    config = place.home / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"moot": server}}))
    argv = [f"{place.packages}/claudecode/node_modules/.bin/claude", "-p", task, "--mcp-config", str(config)]
    return [*argv, "--permission-prompt-tool", "mcp__moot__permission_prompt"], claude_environment(place)


def gemini(place: Place, task: str) -> tuple[list[str], dict[str, str]]:
    place.init("gemini")
    settings = place.home / ".gemini" / "settings.json"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(json.dumps({"security": {"auth": {"selectedType": "gemini-api-key"}}}))
    argv = [f"{place.packages}/gemini/node_modules/.bin/gemini", "-p", task, "--yolo", "--skip-trust"]
    return argv, place.environment(
        GEMINI_API_KEY="none-at-all",
        GOOGLE_GEMINI_BASE_URL=place.model,
        GEMINI_MODEL="gemini-2.5-flash",
        GEMINI_CLI_TRUST_WORKSPACE="true",
    )


def codex(place: Place, task: str) -> tuple[list[str], dict[str, str]]:
    place.init("codex")
    home = place.home / ".codex"
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(
        'model = "gpt-5"\nmodel_provider = "fake"\napproval_policy = "on-request"\n'
        'sandbox_mode = "read-only"\ncheck_for_update_on_startup = false\n'
        f'[model_providers.fake]\nname = "fake"\nbase_url = "{place.model}/v1"\nwire_api = "responses"\n'
        f'env_key = "OPENAI_API_KEY"\n[projects."{place.work}"]\ntrust_level = "trusted"\n'
    )
    subprocess.run(["git", "init", "-q", str(place.work)], check=True)  # noqa: S603, S607
    argv = [f"{place.packages}/codex/node_modules/.bin/codex", "--dangerously-bypass-hook-trust"]
    environment = place.environment(OPENAI_API_KEY="none-at-all", CODEX_HOME=str(home))
    return [*argv, "--no-alt-screen", task], environment


AGENTS: Mapping[str, Callable[[Place, str], tuple[list[str], dict[str, str]]]] = {
    "claude": claude,
    "claude-prompt": claude_prompt,
    "gemini": gemini,
    "codex": codex,
}


class Started:
    """The agent in a terminal of its own; what it writes is kept."""

    def __init__(self, argv: list[str], environment: dict[str, str], folder: Path, *, terminal: bool) -> None:
        self.output = b""
        self._ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (40, 120))
        os.set_blocking(self._ours, False)
        asyncio.get_running_loop().add_reader(self._ours, self._read)
        self._process = subprocess.Popen(  # noqa: S603
            argv,
            cwd=folder,
            env=environment,
            stdin=theirs if terminal else subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)

    def _read(self) -> None:
        try:
            piece = os.read(self._ours, 65_536)
        except OSError:
            asyncio.get_running_loop().remove_reader(self._ours)
            return
        self.output += piece
        for question, answer in TERMINAL.items():
            if question in piece:
                os.write(self._ours, answer)

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, 9)
        self._process.wait()
        asyncio.get_running_loop().remove_reader(self._ours)
        os.close(self._ours)


async def try_agent(name: str, packages: Path, model: ScriptedModel, folder: Path) -> None:
    work, home = folder / "work", folder / "home"
    for each in (work, home, folder / "gateway"):
        each.mkdir(parents=True)
    async with served_space(folder / "gateway", {"agent": PROPOSER}) as served:
        alice = await served.join("alice")
        place = Place(packages, work, home, model.url, served.gateway.url, token_file(folder, "agent"))
        await run_once(name, place, alice, model, work / "approved.txt", "approve")
        await run_once(name, place, alice, model, work / "rejected.txt", "reject")
    # The gateway is gone now.
    await run_once(name, place, None, model, work / "alone.txt", "")


async def run_once(
    name: str, place: Place, alice: JoinedSpace | None, model: ScriptedModel, file: Path, decision: str
) -> None:
    answer: list[Envelope] = []
    if alice is not None:
        alice.on("chat")(answer.append)
    argv, environment = AGENTS[name](place, f"touch {file}")
    asked = len(model.asked)
    agent = Started(argv, environment, place.work, terminal=name == "codex")

    def state() -> str:
        return agent.output.decode(errors="replace")[-1500:]

    def is_over() -> bool:
        # In its terminal it does not end by itself: it has asked its model again, with the result.
        items = [item for _, body in model.asked[asked:] if body for item in body.get("input", ())]
        has_result = any(str(item.get("type")).endswith("_output") for item in items)
        return agent.has_ended() or (name == "codex" and (has_result or b"Yes, proceed" in agent.output))

    try:
        if alice is not None:
            await until(lambda: alice.proposals.open() or agent.has_ended(), state)
            (seen,) = alice.proposals.open()
            assert str(file) in str(seen.params), seen.params
            if decision == "approve":
                await alice.approve(seen)
            else:
                await alice.reject(seen, "unsafe")
        await until(is_over, state)
        assert file.exists() == (decision == "approve"), state()
        if decision == "approve" and name != "claude-prompt":
            await until(
                lambda: any("Reported by the agent" in each.payload["text"] for each in answer), state
            )
        print(f"  {decision or 'no gateway'}: file {'made' if file.exists() else 'not made'}", flush=True)
        for each in answer:
            print(f"    told: {each.payload['text'][:120]}")
    finally:
        agent.end()


async def main(names: list[str]) -> int:
    packages = Path(os.environ["MOOT_ACP_AGENTS"])
    failed = []
    async with scripted_model() as model:
        for name in names or list(AGENTS):
            print(name, flush=True)
            # Codex installs its sandbox below its home, and not where temporary files are.
            with tempfile.TemporaryDirectory(
                prefix=f"moot-{name}-",
                dir="/var/tmp",
                ignore_cleanup_errors=True,
            ) as folder:
                try:
                    async with asyncio.timeout(SECONDS):
                        await try_agent(name, packages, model, Path(folder))
                except (Exception, AssertionError) as fault:  # noqa: BLE001  # the next one is tried, too
                    failed.append(name)
                    print(f"{name}: FAILED {type(fault).__name__}: {str(fault)[:2500]}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
