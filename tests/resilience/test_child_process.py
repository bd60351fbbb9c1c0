"""Child processes of ours: their output, their end, and that of everything they have started."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from moot.errors import UsageError
from moot.resilience.child_process import ChildExit, ChildProcess, child_environment, start_child
from moot.resilience.descendants import bury_adopted
from moot.resilience.process_groups import kill_groups
from tests.up.moot_up import is_running
from tests.waiting import HANG_SECONDS, until

ENVIRONMENT = {"PATH": "/bin:/usr/bin"}


class Output:
    """What a child wrote."""

    def __init__(self) -> None:
        self.data = b""

    def __call__(self, data: bytes) -> None:
        self.data += data

    async def line(self) -> str:
        await until(lambda: b"\n" in self.data)
        return self.data.decode().splitlines()[0]


async def shell(script: str, output: Output) -> ChildProcess:
    return await start_child(
        ["/bin/sh", "-c", script], environment=ENVIRONMENT, cwd=None, on_stdout=output, has_stdin=True
    )


async def end_of(child: ChildProcess) -> ChildExit:
    return await asyncio.wait_for(asyncio.shield(child.ended), HANG_SECONDS)


async def test_the_end_is_told_with_all_output_before_it() -> None:
    output = Output()
    child = await shell("echo out; echo err >&2; exit 7", output)
    assert str(await end_of(child)) == "ended with exit code 7"
    assert output.data == b"out\nerr\n"
    child.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="orphans are adopted on Linux")
async def test_whoever_buries_orphans_leaves_a_child_to_who_waits_for_it() -> None:
    """However long the loop is busy meanwhile."""
    child = await shell("read line; exit 3", Output())
    assert child.stdin is not None
    child.stdin.write(b"\n")
    while "Z" not in Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0]:
        time.sleep(0.01)  # the loop must not see its end yet
    bury_adopted(bury_adopted(set()))
    assert (await end_of(child)).code == 3
    child.kill()


async def test_stderr_goes_its_own_way_where_somebody_takes_it() -> None:
    output, errors = Output(), Output()
    child = await start_child(
        ["/bin/sh", "-c", "echo out; echo err >&2"],
        environment=ENVIRONMENT,
        cwd=None,
        on_stdout=output,
        on_stderr=errors,
    )
    assert (await end_of(child)).code == 0
    assert (output.data, errors.data) == (b"out\n", b"err\n")
    child.kill()


async def test_a_group_ends_with_its_leader() -> None:
    """What a crashed child had started does not go on without it."""
    output = Output()
    child = await shell("sleep 1000 & echo $!; exit 7", output)
    # The grandchild keeps the pipe open; that holds nobody up.
    assert str(await end_of(child)) == "ended with exit code 7"
    grandchild = int(output.data)
    assert is_running(grandchild)
    child.kill()
    await until(lambda: not is_running(grandchild))
    # Its number may belong to another process by now.
    child.kill()
    await child.stop()


async def test_a_child_that_ends_when_its_stdin_is_closed_gets_no_signal() -> None:
    output = Output()
    child = await shell("trap 'echo signal' TERM; cat; echo bye", output)
    await child.stop(exit_seconds=HANG_SECONDS)
    assert (await end_of(child)).code == 0
    assert output.data == b"bye\n"


async def test_a_child_that_ends_at_a_signal_is_not_killed() -> None:
    output = Output()
    child = await shell("trap 'exit 3' TERM; echo up; while :; do sleep 0.01; done", output)
    assert await output.line() == "up"
    await child.stop(terminate_seconds=HANG_SECONDS)
    assert (await end_of(child)).code == 3


async def test_a_stopped_child_is_woken_up_to_end() -> None:
    output = Output()
    child = await shell("trap 'exit 3' TERM; echo up; while :; do sleep 0.01; done", output)
    assert await output.line() == "up"
    os.kill(child.pid, signal.SIGSTOP)
    await child.stop(terminate_seconds=HANG_SECONDS)
    assert (await end_of(child)).code == 3


async def test_a_child_that_ignores_everything_is_killed_with_all_it_started() -> None:
    output = Output()
    child = await shell("trap '' TERM; sleep 1000 & echo $!; wait; sleep 1000", output)
    grandchild = int(await output.line())
    await child.stop(terminate_seconds=0.05)
    assert str(await end_of(child)) == "was ended by SIGKILL"
    await until(lambda: not is_running(grandchild))


async def test_cancelling_a_stop_kills_at_once() -> None:
    output = Output()
    child = await shell("trap '' TERM; echo up; while :; do sleep 1; done", output)
    assert await output.line() == "up"
    stopping = asyncio.create_task(child.stop(terminate_seconds=3_600))
    await asyncio.sleep(0)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(stopping, HANG_SECONDS)
    assert (await end_of(child)).code == -signal.SIGKILL


async def test_closing_stdout_is_an_end_only_where_that_is_asked_for() -> None:
    # Not a shell: uvloop gives a child more than one handle of its pipes.
    closes = [sys.executable, "-c", "import os; os.closerange(1, 256); os.read(0, 1); os._exit(5)"]
    for ends_with_stdout, code in ((True, None), (False, 5)):
        child = await start_child(
            closes,
            environment=ENVIRONMENT,
            cwd=None,
            on_stdout=Output(),
            on_stderr=Output(),
            has_stdin=True,
            ends_with_stdout=ends_with_stdout,
        )
        if not ends_with_stdout:
            assert child.stdin is not None
            child.stdin.write(b"\n")
        assert (await end_of(child)).code == code
        await child.stop()
    assert str(ChildExit(None)) == "closed its output"


async def test_while_reading_is_paused_nothing_comes_and_a_stop_reads_on() -> None:
    output = Output()
    child = await shell("read line; echo said; read line; head -c 300000 /dev/zero; echo end", output)
    assert child.stdin is not None
    child.pause_reading(3_600)
    child.stdin.write(b"\n")
    child.resume_reading()
    assert await output.line() == "said"
    child.pause_reading(3_600)
    child.stdin.write(b"\n")
    # More than a pipe holds: the child cannot end unless it is read.
    await child.stop(exit_seconds=HANG_SECONDS)
    assert (await end_of(child)).code == 0


async def test_whatever_still_runs_can_be_killed_in_one_go() -> None:
    output = Output()
    child = await shell("trap '' TERM; echo up; while :; do sleep 1; done", output)
    assert await output.line() == "up"
    kill_groups()
    assert (await end_of(child)).code == -signal.SIGKILL
    child.kill()


async def test_what_cannot_be_started_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"folder .* is not there"):
        await start_child(["/bin/sh"], environment={}, cwd=tmp_path / "none", on_stdout=Output())
    script = tmp_path / "bad"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    with pytest.raises(UsageError, match="cannot start"):
        await start_child([str(script)], environment={}, cwd=tmp_path, on_stdout=Output())


def test_a_child_inherits_what_is_harmless_and_gets_what_is_listed() -> None:
    inherited = {"PATH": "/bin", "HOME": "/h", "SECRET": "x", "SHELL": "() { code; }"}
    assert child_environment({"A": "1", "HOME": "/mine"}, inherited) == {
        "PATH": "/bin",
        "HOME": "/mine",
        "A": "1",
    }


def test_a_child_gets_out_of_a_companys_network_and_learns_no_password() -> None:
    inherited = {
        "SSL_CERT_FILE": "/ca.pem",
        "NODE_EXTRA_CA_CERTS": "/ca.pem",
        "https_proxy": "http://proxy.example:3128",
        "HTTP_PROXY": "http://me:secret@proxy.example:3128",
        "NO_PROXY": "localhost",
    }
    kept = child_environment({}, inherited)
    assert kept == {name: value for name, value in inherited.items() if name != "HTTP_PROXY"}
