"""Ctrl-C and SIGTERM, with real processes: every command ends for the signal and leaves nobody behind.

No wait that a command could run into ends by itself here within a test's patience, so whoever ends has
ended because of the signal.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from textwrap import dedent

import pytest

from moot.cli.process.interruption import Interruption, run_errand
from moot.resilience import task_set
from tests.cli.terminals import terminal
from tests.mcp.upstreams import wait_until_gone
from tests.waiting import HANG_SECONDS, bounded, until

MOOT = (sys.executable, "-m", "moot.cli")
# Writes its number down, says something, reads what it is told and answers nothing.
SILENT = """
    import os, sys
    from pathlib import Path
    Path("server.pid").write_text(str(os.getpid()))
    print("loading the model", file=sys.stderr, flush=True)
    for line in sys.stdin:
        pass
"""
# Neither the end of its input nor a polite signal ends this one.
DEAF = """
    import os, signal, sys, time
    from pathlib import Path
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Path("server.pid").write_text(str(os.getpid()))
    print("loading the model", file=sys.stderr, flush=True)
    while True:
        time.sleep(1)
"""


class Told:
    """A process, and what it says on both its outputs."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.text = ""
        self._news = asyncio.Event()
        self._readers = [
            asyncio.create_task(self._read(stream))
            for stream in (process.stdout, process.stderr)
            if stream is not None
        ]

    async def _read(self, stream: asyncio.StreamReader) -> None:
        while data := await stream.read(1 << 16):
            self.text += data.decode()
            self._news.set()
        self._news.set()

    async def says(self, text: str) -> None:
        async with bounded():
            while text not in self.text:
                assert not all(reader.done() for reader in self._readers), self.text
                self._news.clear()
                await self._news.wait()

    async def ended(self) -> int:
        async with bounded():
            await asyncio.gather(*self._readers)
            return await self.process.wait()


@asynccontextmanager
async def started(folder: Path, *command: str) -> AsyncIterator[Told]:
    """A command in a group of its own, as a terminal starts one; its input stays open and silent."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    answer = Told(process)
    try:
        yield answer
    finally:
        if process.returncode is None:
            process.kill()
        await answer.ended()


@asynccontextmanager
async def silent_gateway() -> AsyncIterator[tuple[str, asyncio.Event]]:
    """Its address, and when somebody has come: it takes the connection and says nothing."""
    came, over = asyncio.Event(), asyncio.Event()

    async def take(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.set()
        await over.wait()
        writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", came
    finally:
        over.set()
        server.close()


def program_in(folder: Path, text: str) -> tuple[str, ...]:
    file = folder / "server.py"
    file.write_text(dedent(text))
    return (sys.executable, str(file))


def token_in(folder: Path) -> str:
    file = folder / "you.token"
    file.write_text("t-you\n")
    file.chmod(0o600)
    return str(file)


def to_group(process: asyncio.subprocess.Process) -> None:
    """Ctrl-C in a terminal: everybody in the group hears it."""
    os.killpg(process.pid, signal.SIGINT)


def to_it_alone(process: asyncio.subprocess.Process) -> None:
    process.send_signal(signal.SIGINT)


def politely(process: asyncio.subprocess.Process) -> None:
    process.terminate()


@pytest.mark.parametrize("stop", [to_group, to_it_alone, politely])
@pytest.mark.parametrize("server", [SILENT, DEAF], ids=["silent", "deaf"])
async def test_a_bridge_whose_server_never_answers_says_so_and_ends_when_told(
    tmp_path: Path, stop: Callable[[asyncio.subprocess.Process], None], server: str
) -> None:
    program = program_in(tmp_path, server)
    async with silent_gateway() as (url, _):
        options = ("--gateway", url, "--token-file", token_in(tmp_path), "--start-seconds", "3600")
        async with started(tmp_path, *MOOT, "bridge", *options, "--", *program) as output:
            # Not in the first report if the machine has not let the server begin by then.
            await output.says("  | loading the model")
            assert "still waiting for python" in output.text
            assert "to answer initialize" in output.text
            assert "Ctrl-C to stop; its stderr:\n  | loading the model" in output.text
            stop(output.process)
            assert await output.ended() == 0
    await wait_until_gone(int((tmp_path / "server.pid").read_text()))
    assert "Traceback" not in output.text


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["mcp"], 0),
        (["rules", "run"], 0),
        (["agent", "--model", "m", "--base-url", "http://127.0.0.1:9/v1"], 0),
        (["join", "--plain"], 0),
        (["tail"], 130),
        (["call", "files", "read_file"], 130),
        (["send", "hello"], 130),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
async def test_a_gateway_that_never_answers_keeps_nobody(
    tmp_path: Path, command: list[str], code: int
) -> None:
    """Without the signal it would be 1 or 5, after the time-out."""
    async with silent_gateway() as (url, came):
        where = ("--gateway", url, "--token-file", token_in(tmp_path))
        async with started(tmp_path, *MOOT, *command, *where) as output:
            async with bounded():
                await came.wait()
            to_group(output.process)
            assert await output.ended() == code
    assert "Traceback" not in output.text


async def test_mcp_without_a_gateway_waits_for_it_and_ends_when_asked(tmp_path: Path) -> None:
    """Its client does not start it again because the gateway was started later."""
    where = ("--gateway", "http://127.0.0.1:9", "--token-file", token_in(tmp_path))
    async with started(tmp_path, *MOOT, "mcp", *where) as output:
        await until(lambda: "Waiting for it" in output.text)
        output.process.terminate()
        assert await output.ended() == 0
    assert "cannot be reached" in output.text


def command_of(folder: Path, body: str) -> tuple[str, ...]:
    """A program of its own that runs `command()` as a service."""
    file = folder / "command.py"
    head = """
        import asyncio, os, sys, threading
        from moot.cli.process.interruption import run_errand, run_service
    """
    file.write_text(dedent(head) + dedent(body))
    return (sys.executable, str(file))


async def test_a_thread_that_cannot_be_joined_keeps_nobody(tmp_path: Path) -> None:
    """As one that waits for a name server: uvloop, asyncio and the interpreter would all wait for it."""
    program = command_of(
        tmp_path,
        """
        async def command() -> int:
            stuck = asyncio.get_running_loop().run_in_executor(None, os.read, os.pipe()[0], 1)
            print("stuck", flush=True)
            await stuck
            return 1

        sys.exit(run_errand(command()))
        """,
    )
    async with started(tmp_path, *program) as output:
        await output.says("stuck")
        politely(output.process)
        assert await output.ended() == 128 + signal.SIGTERM


async def test_a_second_signal_kills_what_the_first_did_not_end(tmp_path: Path) -> None:
    """The command waits for ever for a child that does not listen; nothing but the second signal helps."""
    program = command_of(
        tmp_path,
        f"""
        from moot.mcp import stdio_child
        from moot.mcp.stdio_child import Command, start
        from moot.mcp.stderr_tail import StderrTail

        async def command() -> int:
            def ignore(*_: object) -> None:
                pass

            stdio_child.EXIT_SECONDS = stdio_child.TERMINATE_SECONDS = 3600.0
            child = await start(
                Command(argv=tuple({list(program_in(tmp_path, DEAF))!r})), on_line=ignore, on_oversize=ignore,
                stderr=StderrTail(), inherited=os.environ,
            )
            try:
                while not os.path.exists("server.pid"):
                    await asyncio.sleep(0.01)
                print("up", flush=True)
                await asyncio.Event().wait()
            finally:
                print("stopping", flush=True)
                await child.stop()
                await asyncio.Event().wait()
            return 0

        sys.exit(run_service(command(), grace_seconds=None))
        """,
    )
    async with started(tmp_path, *program) as output:
        await output.says("up")
        to_it_alone(output.process)
        await output.says("stopping")

        def has_ended() -> bool:
            # Again and again: within a quarter of a second of the first it is still the same wish.
            if output.process.returncode is None:
                to_it_alone(output.process)
            return output.process.returncode is not None

        await until(has_ended)
        assert await output.ended() == 128 + signal.SIGINT
    await wait_until_gone(int((tmp_path / "server.pid").read_text()))


async def test_what_does_not_end_in_its_time_is_ended(tmp_path: Path) -> None:
    program = command_of(
        tmp_path,
        """
        async def command() -> int:
            print("up", flush=True)
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.Event().wait()
            return 1

        sys.exit(run_service(command(), grace_seconds=0.1))
        """,
    )
    async with started(tmp_path, *program) as output:
        await output.says("up")
        to_it_alone(output.process)
        assert await output.ended() == 0


def test_one_key_press_that_arrives_twice_is_one() -> None:
    """A terminal and a program around ours may both pass it on; a second wish would kill."""
    now = 100.0
    interruption = Interruption(None, None, None, clock=lambda: now)
    interruption.handle_signal(signal.SIGINT)
    now += 0.1
    interruption.handle_signal(signal.SIGTERM)
    assert interruption.exit_code == 130
    # Still here: neither this process nor a child of it was ended.
    interruption.remove()


async def test_ending_the_server_of_commands_ends_what_it_runs(tmp_path: Path) -> None:
    """It may be ended before it has said goodbye to a program that does not listen."""
    from moot.mcp.stdio_child import Command
    from moot.mcp.upstream import StdioServer, open_upstream

    program = program_in(tmp_path, DEAF)
    server = StdioServer(
        command=Command(
            argv=(sys.executable, "-m", "moot.up.servers.commands", str(tmp_path)), cwd=str(tmp_path)
        ),
        inherited=os.environ,
    )
    async with open_upstream(server) as upstream:
        await upstream.wait_until_ready()
        arguments = {"command": list(program)}
        call = asyncio.create_task(upstream.request("tools/call", {"name": "run", "arguments": arguments}))
        pid = tmp_path / "server.pid"
        await until(lambda: call.done() or (pid.exists() and pid.read_text()))
        assert not call.done()
    call.cancel()
    await asyncio.wait([call])
    await wait_until_gone(int(pid.read_text()))


def test_a_task_that_loses_its_cancellation_keeps_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_set, "_ASK_AGAIN_SECONDS", 0.01)
    asked = 0
    left: list[asyncio.Task[None]] = []

    async def lose_one() -> None:
        nonlocal asked
        while asked < 2:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                asked += 1

    async def command() -> str:
        left.append(asyncio.create_task(lose_one()))
        await asyncio.sleep(0)
        return "done"

    assert run_errand(command()) == "done"
    assert left[0].done()


async def test_ctrl_c_while_modules_are_loaded_ends_in_silence(tmp_path: Path) -> None:
    """Where a module of ours is being imported; the signal is neither lost nor a traceback."""
    (tmp_path / "sitecustomize.py").write_text(
        dedent("""
            import os, signal, sys

            class Interrupt:
                def find_spec(self, name, path=None, target=None):
                    if name == "moot.cli.command_table":
                        os.kill(os.getpid(), signal.SIGINT)

            sys.meta_path.insert(0, Interrupt())
        """)
    )
    process = await asyncio.create_subprocess_exec(
        *MOOT, "up",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    async with bounded():
        output, _ = await process.communicate()
    assert (process.returncode, output) == (-signal.SIGINT, b"")


def test_a_terminal_that_is_closed_ends_the_live_demo_and_leaves_nothing(tmp_path: Path) -> None:
    with terminal(tmp_path, "demo", "--live", "--port", "0", "--no-browser", TMPDIR=str(tmp_path)) as (
        screen,
        process,
    ):
        screen.until(lambda shown: "Below is what everybody sees" in shown)
        assert [path.name for path in tmp_path.iterdir()]
        # As a terminal does that is closed.
        process.send_signal(signal.SIGHUP)
        assert "Traceback" not in screen.until_end()
        assert process.wait(HANG_SECONDS) == 0
    assert list(tmp_path.iterdir()) == []
