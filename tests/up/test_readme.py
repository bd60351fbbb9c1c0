"""README's "Connect what you have", typed as it is printed into the space that README makes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from moot.cli import main
from tests.agents.acp.agent_space import AGENT
from tests.test_docs import Block, blocks_of, text_of
from tests.up.moot_up import environment, moot_up, run_moot
from tests.waiting import bounded, until_told
from tests.warm_start import warm_command

# What npx would fetch, with programs that are here.
NPX = f"""\
#!/bin/sh
case "$2" in
  *server-filesystem) exec {sys.executable} -m moot.up.servers.files "$3" ;;
  *claude-agent-acp) exec {sys.executable} {AGENT} SCRIPT ;;
esac
exit 9
"""


def shell_environment(home: Path) -> dict[str, str]:
    """With `moot` and `npx` as programs, and a home of its own."""
    tools = home / "bin"
    for folder in (tools, home / "Documents", home / "project"):
        folder.mkdir()
    (home / "script.json").write_text(json.dumps({"turns": []}))
    # Not by $HOME: `moot acp` gives an agent one of its own.
    npx = NPX.replace("SCRIPT", str(home / "script.json"))
    for name, text in {"npx": npx, "moot": f'#!/bin/sh\nexec {" ".join(warm_command())} "$@"\n'}.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    return environment(HOME=str(home), PATH=f"{tools}:{os.environ['PATH']}")


@asynccontextmanager
async def typed(
    text: str, folder: Path, environ: dict[str, str]
) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", text,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=folder,
        env=environ,
        start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGTERM)
        async with bounded():
            await process.wait()


def section() -> list[Block]:
    page = text_of("README.md")
    start = page[: page.index("## Connect what you have")].count("\n")
    end = page[: page.index("## What is in it")].count("\n")
    return [block for block in blocks_of(page) if start < block.line < end]


async def test_what_readme_connects_joins_the_space_that_readme_makes(tmp_path: Path) -> None:
    folder, home = tmp_path / "my-space", tmp_path / "home"
    home.mkdir()
    environ = shell_environment(home)
    assert main(["init", "filesystem", str(folder)]) == 0
    server, client, coder, program = [block.code for block in section()]
    async with moot_up(folder) as up:
        await up.wait_for_state("files", "running", joined=True)
        async with typed(server, folder, environ):
            await up.wait_for_state("docs", "running", joined=True)
            code, output = await run_moot(folder, "call", "docs", "write_file", "path=a.md", "text=hello")
            assert (code, (home / "Documents/a.md").read_text()) == (0, "hello"), output
        async with typed(client, folder, environ) as printing:
            async with bounded():
                printed, _ = await printing.communicate()
            assert f'"{folder}/claude.token"' in printed.decode()
        # It need not ask for anything to be let in.
        async with typed(coder.replace("moot acp", "moot acp --no-probe"), folder, environ):
            await up.wait_for_state("coder", "running", joined=True)
        code, output = await run_moot(folder, "member", "invite", "adder", "--token-out", "adder.token")
        assert code == 0, output
        (folder / "adder.py").write_text(program.replace("http://localhost:8080", up.url))
        async with typed(f"exec {sys.executable} adder.py", folder, environ):
            await up.wait_for_state("adder", "running", joined=True)

            async def offers() -> bool:
                return "add" in (await run_moot(folder, "tools", "adder"))[1]

            await until_told(offers)
            assert await run_moot(folder, "call", "adder", "add", "a=1", "b=2") == (0, "3\n")


def test_how_to_write_a_participant_begins_as_readme_does() -> None:
    page = [block.code for block in blocks_of(text_of("docs/how-to/write-a-participant.md"))]
    assert page[0] == "moot member invite adder --token-out adder.token\n"
    assert page[1] == section()[-1].code
