"""`moot hook` asks a process that runs already; whatever is odd about that one releases nothing."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from moot.cli.agents.hook_client import command_key, is_own_peer, socket_path
from moot.cli.agents.hook_service import HookService
from moot.cli.command_table import parser_for
from tests.agents.hook.hook_services import service_pid
from tests.agents.hook.test_agent_hook import the_proposal, told
from tests.bridges.served_space import PROPOSER, ServedSpace, served_space
from tests.bridges.space.test_mcp_command import process, token_file
from tests.waiting import bounded

# What its own member may do is released at once.
GRANTED = [*PROPOSER, {"kind": "mcp/request", "to": ["claude"], "payload": {"method": "tools/call"}}]


def words_of(served: ServedSpace | None, folder: Path, name: str = "claude") -> list[str]:
    url = served.gateway.url if served else "http://127.0.0.1:9"
    return ["claude-code", "--gateway", url, "--space", "lab", "--token-file", str(token_file(folder, name))]


def path_of(words: list[str]) -> Path:
    key = command_key(words)
    path = None if key is None else socket_path(key)
    assert path is not None
    return Path(path)


async def run_hook(words: list[str], event: bytes = b"") -> tuple[int | None, bytes, bytes]:
    async with process(["-m", "moot.cli", "hook", *words]) as hook:
        out, err = await hook.communicate(event or told())
        return hook.returncode, out, err


def cpu_seconds(argv: list[str], event: bytes) -> float:
    """What a process uses itself; the least of a few, as others use the machine, too."""
    used = []
    for _ in range(5):
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as child:  # noqa: S603
            assert child.stdin is not None
            child.stdin.write(event)
            child.stdin.close()
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            assert child.returncode == 0
        used.append(usage.ru_utime + usage.ru_stime)
    return min(used)


async def test_a_hook_costs_little_more_than_an_interpreter(tmp_path: Path, service_folder: Path) -> None:
    async with served_space(tmp_path, {"claude": GRANTED}) as served:
        words = words_of(served, tmp_path)
        assert (await run_hook(words))[0] == 0
        (found,) = service_folder.iterdir()
        service = service_pid(found)
        hook = [sys.executable, "-m", "moot.cli", "hook", *words]
        bare = await asyncio.to_thread(cpu_seconds, [sys.executable, "-c", "pass"], b"")
        assert await asyncio.to_thread(cpu_seconds, hook, told()) < 4 * bare
        assert service_pid(found) == service


async def test_a_rejection_reaches_the_agent_with_the_words_of_whoever_rejected_it(
    tmp_path: Path, service_folder: Path
) -> None:
    async with served_space(tmp_path, {"claude": PROPOSER}) as served:
        alice = await served.join("alice")
        hook = asyncio.ensure_future(run_hook(words_of(served, tmp_path)))
        await alice.reject(await the_proposal(alice), "unsafe", explanation="use \x1b[2Jthe trash")
        status, out, err = await hook
    assert (status, out) == (2, b"")
    assert (
        err
        == b"Not allowed by the Moot space: rejected by alice: unsafe; alice wrote: use \\x1b[2Jthe trash\n"
    )


async def test_two_equal_calls_in_one_service_need_an_approval_each(
    tmp_path: Path, service_folder: Path
) -> None:
    async with served_space(tmp_path, {"claude": PROPOSER}) as served:
        alice = await served.join("alice")
        words = words_of(served, tmp_path)
        first = asyncio.ensure_future(run_hook(words))
        await the_proposal(alice)
        second = asyncio.ensure_future(run_hook(words))
        await the_proposal(alice, 2)
        assert len(list(service_folder.iterdir())) == 1
        for left in (1, 0):
            outcome = await alice.approve(alice.proposals.open()[0])
            assert "the agent makes this call itself" in outcome.text
            await asyncio.wait({first, second}, return_when=asyncio.FIRST_COMPLETED)
            assert len(alice.proposals.open()) == left
        assert [(await hook)[0] for hook in (first, second)] == [0, 0]


async def test_a_service_that_dies_stops_the_call_and_the_next_hook_starts_another(
    tmp_path: Path, service_folder: Path
) -> None:
    async with served_space(tmp_path, {"claude": PROPOSER}) as served:
        alice = await served.join("alice")
        words = words_of(served, tmp_path)
        hook = asyncio.ensure_future(run_hook(words))
        seen = await the_proposal(alice)
        os.kill(service_pid(path_of(words)), signal.SIGKILL)
        status, out, err = await hook
        assert (status, out, b"Not allowed" in err) == (2, b"", True)
        await alice.reject(seen, "unsafe")
        again = asyncio.ensure_future(run_hook(words))
        await alice.reject(await the_proposal(alice, 2), "unsafe")
        assert b"rejected by alice" in (await again)[2]
        assert service_pid(path_of(words))


async def test_a_service_never_answers_for_another_member(tmp_path: Path, service_folder: Path) -> None:
    """Even when its socket is found under the other's name."""
    async with served_space(tmp_path, {"claude": GRANTED, "other": PROPOSER}) as served:
        alice = await served.join("alice")
        mine, others = words_of(served, tmp_path), words_of(served, tmp_path, "other")
        assert (await run_hook(mine))[0] == 0
        path_of(mine).rename(path_of(others))
        wrong = service_pid(path_of(others))
        hook = asyncio.ensure_future(run_hook(others))
        seen = await the_proposal(alice)
        assert seen.proposer == "other"
        await alice.reject(seen, "unsafe")
        assert (await hook)[0] == 2
        # The right one has taken its place.
        assert service_pid(path_of(others)) != wrong
        os.kill(wrong, signal.SIGKILL)


async def test_the_token_is_read_for_each_call(tmp_path: Path, service_folder: Path) -> None:
    async with served_space(tmp_path, {"claude": GRANTED}) as served:
        words = words_of(served, tmp_path)
        assert (await run_hook(words))[0] == 0
        file = Path(words[-1])
        for spoil in (lambda: file.chmod(0o644), lambda: file.write_text("revoked\n"), file.unlink):
            spoil()
            status, out, _ = await run_hook(words)
            assert (status, out) == (2, b"")


@pytest.mark.parametrize(
    "answer", [b"", b"0 99\n{}", b"0 1\n{}", b"7 0\n", b"0\n", b"allow", b"-1 0\n", b"\xff" * 99]
)
async def test_an_answer_that_is_not_whole_stops_the_call(
    tmp_path: Path, service_folder: Path, answer: bytes
) -> None:
    words = words_of(None, tmp_path)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Exactly what the right service says, and then something else.
        writer.write((command_key(words) or b"") + b"\n10\n")
        await reader.readexactly(int(await reader.readline()))
        writer.write(answer)
        writer.close()

    # The process that asks is the interpreter of this one, as a hook is.
    async with await asyncio.start_unix_server(serve, path_of(words)):
        status, out, err = await run_hook(words)
    assert (status, out, b"did not answer" in err) == (2, b"", True)


@pytest.mark.parametrize("way", ["open folder", "link", "file", "relative token"])
async def test_without_a_folder_of_our_own_the_hook_decides_by_itself(
    tmp_path: Path, service_folder: Path, way: str
) -> None:
    async with served_space(tmp_path, {"claude": GRANTED}) as served:
        words = words_of(served, tmp_path)
        match way:
            case "open folder":
                service_folder.chmod(0o770)
            case "link":
                service_folder.rename(service_folder.with_name("elsewhere"))
                service_folder.symlink_to("elsewhere")
            case "file":
                service_folder.rmdir()
                service_folder.touch()
            case _:
                words[-1] = os.path.relpath(words[-1])
        status, out, _ = await run_hook(words)
    assert (status, json.loads(out)["hookSpecificOutput"]["permissionDecision"]) == (0, "allow")
    assert not [each for each in service_folder.parent.rglob("*") if each.is_socket()]


async def test_a_service_that_nobody_uses_ends_and_leaves_no_socket(
    tmp_path: Path, service_folder: Path
) -> None:
    words = words_of(None, tmp_path)
    options = parser_for(["hook"]).parse(["hook", *words])
    was_ready: list[int] = []
    path = path_of(words)
    service = HookService(options, b"key", idle_seconds=0.01)
    async with bounded():
        await service.serve(str(path), lambda: was_ready.append(path.stat().st_mode & 0o777))
    assert was_ready == [0o600]
    assert not list(service_folder.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can be somebody else")
def test_another_user_is_seen_at_the_other_end(service_folder: Path) -> None:
    public = service_folder.parent.parent / "public"
    public.parent.chmod(0o711)
    script = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect({str(public)!r}); s.recv(1)"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(public))
        public.chmod(0o777)
        listening.listen()
        for user in (0, 65_534):
            with subprocess.Popen(["/usr/bin/env", "python3", "-c", script], user=user):  # noqa: S603
                line, _ = listening.accept()
                assert is_own_peer(line) == (user == 0)
                line.close()
