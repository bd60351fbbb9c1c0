"""The pages on adapters are followed to the letter, in a shell, with the programs that they name."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from moot.xprotocol.adapter.adapter import Adapter
from moot.xprotocol.adapter.config.config_loader import load_settings
from tests.ports import held_port
from tests.test_docs import blocks_of, text_of
from tests.waiting import HANG_SECONDS, until
from tests.warm_start import warm_programs
from tests.xprotocol.relay.raw_client import relay_in

ROOT = Path(__file__).resolve().parents[3]
MODULES = ROOT / ".node" / "node_modules"
ARCHITECTURE = {"aarch64": "arm64", "arm64": "arm64", "x86_64": "x64"}.get(platform.machine(), "x64")
TOOLS = (Path(sys.executable).parent, MODULES / ".bin", MODULES / f"node-linux-{ARCHITECTURE}" / "bin")
PAGE = "docs/how-to/run-an-adapter.md"
# Commands that stay; each has a terminal of its own, and is waited for.
STAYING = ("moot xp relay", "xprotocol-adapter start")


def script_of(page: str) -> str:
    """All shell blocks of a page as one script; what stays runs in the background."""
    lines = ["set -euo pipefail", "trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT"]
    for number, block in enumerate(each for each in blocks_of(text_of(page)) if each.info == "sh"):
        lines.append(f"echo '== {number}'")
        if not block.code.startswith(STAYING):
            lines.append(block.code)
            continue
        lines.append(f"{block.code.strip()} > terminal-{number}.log 2>&1 &")
        ready = f"grep -E 'listening|running: key' terminal-{number}.log"
        lines.append(f"for _ in $(seq 1200); do {ready} > /dev/null 2>&1 && break; sleep 0.1; done")
        lines.append(f"{ready} > /dev/null")
    return "\n".join(lines)


def followed(page: str, folder: Path, ports: Sequence[int]) -> str:
    """What the page's commands print, on ports that are free here."""
    script = script_of(page)
    for stated, taken in zip((8764, 8766, 8767), ports, strict=True):
        script = script.replace(f"127.0.0.1:{stated}", f"127.0.0.1:{taken}")
    # Where the page relies on defaults.
    script = script.replace("moot xp relay --data", f"moot xp relay --port {ports[0]} --data")
    script = script.replace("sse_port: 8767", f"sse_port: {ports[2]}")
    pages = f"discovery: {{well_known_port: {ports[1]}}}"
    script = script.replace("mcp_server: {transport: none}", f"mcp_server: {{transport: none}}\n{pages}")
    environ = {
        "PATH": os.pathsep.join([str(warm_programs()), *map(str, TOOLS), os.environ["PATH"]]),
        "HOME": str(folder),
        "LANG": "C.UTF-8",
    }
    done = subprocess.run(  # noqa: S603
        ["/bin/bash", "-c", script],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=5 * HANG_SECONDS,
        check=False,
    )
    logs = "".join(file.read_text() for file in folder.glob("terminal-*.log"))
    assert done.returncode == 0, done.stdout + done.stderr + logs
    return done.stdout


@pytest.mark.requirement("XP-9-1", "XP-9-2", "XP-9-3")
def test_day_1_day_2_and_week_1_go_as_the_page_says(tmp_path: Path) -> None:
    with held_port() as relay, held_port() as pages, held_port() as clients:
        answer = followed(PAGE, tmp_path, (relay, pages, clients))
    assert "com.acme.clock.get_current_time" in answer
    # Day 2: an MCP client of others got the time through two adapters and a relay.
    called = answer.partition("== 7")[2].partition("== 8")[0]
    assert "Europe/Zurich" in called
    assert "datetime" in called
    # Week 1: the chain holds, until the organisation takes it back.
    revoking = answer.partition("== 10")[2]
    assert "no longer" in revoking.partition("== 11")[0]
    # And both ends obey, without a restart.
    assert "own key has been revoked" in revoking.partition("== 11")[2]
    assert "acme" in revoking.rpartition("own key has been revoked")[2]
    audit = (tmp_path / "acme.data" / "audit.jsonl").read_text()
    assert "com.acme.clock.get_current_time" in audit
    assert "Europe/Zurich" not in audit


@pytest.mark.requirement("XP-2.3-1", "XP-2.3-2")
async def test_one_for_many_and_one_beside_each_run_as_the_page_shows(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        relay = await stack.enter_async_context(relay_in(tmp_path / "relay"))
        adapters = {}
        for file in configurations(tmp_path, relay.url):
            environ = {**os.environ, "PATH": os.pathsep.join([*map(str, TOOLS), os.environ["PATH"]])}
            settings = load_settings(file, environ=environ)
            adapters[file.stem] = await stack.enter_async_context(Adapter(settings, environ=environ))
        assert set(adapters) == {"everything", "clock", "code"}

        def kinds(name: str) -> set[str]:
            return {each.kind for each in adapters[name].registry.contracts()}

        # A server that starts slowly is not waited for at the start.
        await until(lambda: kinds("clock") and kinds("code"))
        # Together behind one key, or each behind its own.
        await until(lambda: kinds("everything") == kinds("clock") | kinds("code"))
        assert len({one.key for one in adapters.values()}) == 3


def configurations(folder: Path, relay: str) -> list[Path]:
    """The page's files, as they are named in their first lines."""
    files = []
    for block in blocks_of(text_of("docs/how-to/deploy-an-adapter.md")):
        if block.info == "yaml":
            file = folder / block.code.splitlines()[0].removeprefix("# ")
            file.write_text(block.code.replace("ws://127.0.0.1:8764", relay))
            files.append(file)
    return files
