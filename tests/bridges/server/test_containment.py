"""What a bridged server can learn of its bridge, and what is left of it when the bridge ends."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import moot
from tests.bridges.bridged_space import bridged_space, call
from tests.bridges.server.test_command import command, printed_line, token_file
from tests.mcp.upstreams import SERVERS, is_alive, text_of, wait_until_gone
from tests.up.moot_up import write_config
from tests.waiting import HANG_SECONDS, bounded, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc and prctl are Linux's")

SPY = (sys.executable, str(SERVERS / "spy.py"))
SOURCE = Path(moot.__file__).parents[1]
SECRET = "a-secret-that-no-server-may-see"


@pytest.fixture
def inherited() -> Iterator[int]:
    """A file that whoever starts the bridge left open to its children."""
    reading, writing = os.pipe()
    os.set_inheritable(reading, True)
    yield reading
    os.close(reading)
    os.close(writing)


async def test_a_server_finds_no_token_in_the_environment_the_files_or_the_memory_of_its_bridge(
    tmp_path: Path,
) -> None:
    async with bridged_space(tmp_path) as space:
        alice = await space.join("alice")
        options = ("--gateway", space.gateway.url, "--token-file", token_file(tmp_path))
        async with command(
            tmp_path, *options, "--", *SPY, MOOT_TOKEN=SECRET, OTHER_API_KEY=SECRET
        ) as process:
            await printed_line(process)
            found = json.loads(text_of(await call(alice, "look")))
            assert SECRET not in json.dumps(found)
            assert "t-host" not in json.dumps(found)
            # Its own three pipes, the folder that it lists, and nothing of ours.
            files = json.loads(found["files"])
            others = {files[each] for each in files} - {files["0"], files["1"], files["2"]}
            assert all(each.startswith("/proc/") for each in others), others
            # Root with all its rights may trace whom it likes; nobody else may.
            if os.geteuid() != 0:
                assert all(found[each].startswith("refused") for each in ("environ", "fd", "mem"))


HIDDEN = """
import os, subprocess, sys
from moot.resilience.process_secrets import hide_from_children
os.setgroups([]); os.setgid(54321); os.setuid(54321)
hide_from_children()
assert os.environ["MOOT_TOKEN"] == sys.argv[2]
look = f"import os, json, runpy; m = runpy.run_path({sys.argv[1]!r}); print(json.dumps(m['look']()))"
print(subprocess.run([sys.executable, "-c", look], env={}, capture_output=True, text=True).stdout)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_s_child_is_refused_everything_of_its_parent(tmp_path: Path) -> None:
    """As a user without rights, which is what `PR_SET_DUMPABLE` is for."""
    # One that other users may run; ours may be in a home folder.
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if python is None:
        pytest.skip("no Python for all users")
    ended = subprocess.run(  # noqa: S603
        [python, "-c", HIDDEN, str(SERVERS / "spy.py"), SECRET],
        env={"PATH": os.defpath, "MOOT_TOKEN": SECRET, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_SECONDS,
        cwd="/",
    )
    if "Permission denied" in ended.stderr:
        pytest.skip("this installation is closed to other users")
    found = json.loads(ended.stdout)
    assert {name: found[name] for name in ("environ", "fd", "mem")} == {
        "environ": "refused: Permission denied",
        "fd": "refused: Permission denied",
        "mem": "refused: Permission denied",
    }
    assert SECRET not in found["own"]


LISTING = """
import asyncio, sys, uvloop
from moot.resilience.child_process import start_child
from moot.resilience.process_secrets import hide_from_children

async def main():
    heard = []
    listing = "import os; print(os.listdir('/proc/self/fd'))"
    argv = [sys.executable, "-c", listing]
    child = await start_child(argv, environment={}, cwd=None, on_stdout=heard.append)
    await asyncio.wait([child.ended])
    print(b"".join(heard).decode())

hide_from_children()
uvloop.run(main())
"""


def test_files_that_we_inherited_are_closed_to_children(inherited: int) -> None:
    ended = subprocess.run(  # noqa: S603
        [sys.executable, "-c", LISTING], pass_fds=[inherited], capture_output=True, text=True, check=True
    )
    assert f"'{inherited}'" not in ended.stdout


@pytest.mark.parametrize(
    ("ending", "clean"),
    [
        ("signal", False),
        # One that hides its origin is found by its parent alone, at an orderly end.
        ("signal", True),
        ("kill", False),
        ("crash of the server", False),
    ],
)
async def test_daemons_of_a_server_end_with_it(tmp_path: Path, ending: str, clean: bool) -> None:
    """They have left its process group and its session."""
    async with bridged_space(tmp_path) as space:
        alice = await space.join("alice")
        options = ("--gateway", space.gateway.url, "--token-file", token_file(tmp_path))
        async with command(tmp_path, *options, "--", *SPY) as process:
            await printed_line(process)
            server = await server_of(tmp_path)
            daemon = json.loads(text_of(await call(alice, "daemon", {"clean": clean})))
            assert is_alive(daemon)
            assert os.getsid(daemon) != os.getsid(server)
            if ending == "crash of the server":
                os.kill(server, signal.SIGKILL)
                await wait_until_gone(daemon)
                return
            process.send_signal(signal.SIGTERM if ending == "signal" else signal.SIGKILL)
            async with bounded():
                await process.wait()
        await wait_until_gone(daemon)
        await wait_until_gone(server)


async def server_of(folder: Path) -> int:
    """The process of the server that was started from a folder; its parent may be anybody's child."""

    def find() -> list[int]:
        # Not the cleaner, which has the arguments of the bridge.
        return [int(each.name) for each in Path("/proc").glob("[0-9]*") if is_server(each, folder)]

    return (await until(find))[0]


def is_server(process: Path, folder: Path) -> bool:
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
        return words[1:2] == [SPY[1].encode()] and (process / "cwd").readlink() == folder.resolve()
    except OSError:
        # It has ended.
        return False


async def test_what_a_killed_moot_up_left_is_ended_daemons_included(tmp_path: Path) -> None:
    write_config(
        tmp_path,
        f"""
        spaces:
          lab:
            participants:
              you: {{capabilities: ["*"]}}
              spy: {{capabilities: [mcp/response], mcp_server: {{command: {SPY[0]}, args: [{SPY[1]}]}}}}
        """,
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "moot.cli", "up", "--port", "0", "--json"),
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        server = await server_of(tmp_path)
        answer = await run_moot(tmp_path, "call", "spy", "daemon", "--json")
        daemon = int(answer["result"]["content"][0]["text"])
        assert is_alive(daemon)
    finally:
        process.kill()
        await process.communicate()
    await wait_until_gone(daemon)
    await wait_until_gone(server)


async def run_moot(folder: Path, *words: str) -> dict[str, Any]:
    result: dict[str, Any] = {}

    async def answers() -> bool:
        running = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "moot.cli", *words), cwd=folder, stdout=asyncio.subprocess.PIPE
        )
        output, _ = await running.communicate()
        if running.returncode == 0:
            result.update(json.loads(output))
        return running.returncode == 0

    async with bounded():
        while not await answers():
            pass
    return result
