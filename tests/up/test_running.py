"""A space that runs in this very process: how parts stand, what a reload does, what is our own fault."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from moot.config import Secret, hash_token, load
from moot.errors import UsageError
from moot.participant import connect
from moot.resilience import restart_loop
from moot.up.part_status import PartStatus
from moot.up.space_runner import SpaceRunner, StartSelection
from moot.up.supervised_process import LAST_LINE_CHARS, SupervisedProcess
from tests.up.moot_up import MOOT, environment, is_running, write_config
from tests.waiting import HANG_SECONDS, bounded, until, until_told

YOU = 'you: {capabilities: [{kind: "*"}]}'


def read(folder: Path) -> tuple[Any, dict[str, Secret]]:
    secrets: dict[str, Secret] = {}
    return load(folder / "moot.yaml", environ={}, port=0, secrets=secrets), secrets


class Raised:
    """An `Up` on this loop, and how its parts stand."""

    def __init__(self, up: SpaceRunner) -> None:
        self.up = up

    def status(self, name: str) -> PartStatus:
        return next(each for each in self.up.statuses() if each.name == name)

    async def until(self, name: str, holds: Callable[[PartStatus], bool]) -> PartStatus:
        await until(lambda: any(each.name == name and holds(each) for each in self.up.statuses()))
        return self.status(name)


@asynccontextmanager
async def raised(
    folder: Path,
    text: str,
    selection: StartSelection | None = None,
    **environ: str,
) -> AsyncIterator[Raised]:
    write_config(folder, text)
    configuration, secrets = read(folder)
    environment = {"PATH": os.environ["PATH"], **environ}
    up = SpaceRunner(
        configuration,
        secrets,
        folder=folder,
        environ=environment,
        selection=selection or StartSelection(),
    )
    stop = asyncio.Event()
    work = asyncio.create_task(up.run(stop))
    try:
        await asyncio.wait(
            [work, ready := asyncio.create_task(up.ready.wait())], return_when="FIRST_COMPLETED"
        )
        ready.cancel()
        yield Raised(up)
    finally:
        stop.set()
        await work


def lab(*participants: str, servers: str = "") -> str:
    lines = "".join(f"              {each}\n" for each in participants)
    more = f"            mcp_servers:\n              {servers}\n" if servers else ""
    return f"        spaces:\n          lab:\n            participants:\n{lines}{more}"


async def test_every_part_has_its_row(tmp_path: Path) -> None:
    text = lab(
        YOU,
        "steady: {capabilities: [chat], command: sh, args: [-c, 'echo ready; exec sleep 1000']}",
        "crasher: {capabilities: [chat], command: 'false'}",
        "lazy: {capabilities: [chat], command: sleep, args: ['9'], auto_start: false}",
        "locked: {capabilities: [chat], tokens: [], command: sleep, args: ['9']}",
        "needy: {capabilities: [chat], command: sleep, args: ['${NOT_SET}']}",
        "lean: {capabilities: [chat], command: sleep, args: ['1000'], env: {KEY: '${NOT_SET}'}}",
        servers="files: {command: python3, args: [-m, moot.up.servers.files, shared]}",
    )
    async with raised(tmp_path, text, StartSelection(without=frozenset({"lean"}))) as running:
        steady = await running.until("steady", lambda each: each.message == "ready")
        assert (steady.kind, steady.state, steady.joined) == ("member", "running", False)
        assert steady.pid is not None
        crasher = await running.until("crasher", lambda each: each.restarts >= 3)
        assert crasher.kind == "member"
        assert running.status("lazy").message == "not started; start it with `moot up --start lazy`"
        assert running.status("locked").message == "not started: it has no valid token with all its rights"
        needy = await running.until("needy", lambda each: each.state == "waiting")
        assert "the environment variable NOT_SET is not set" in needy.message
        assert running.status("lean").state == "idle"
        files = await running.until("files", lambda each: each.joined and each.state == "running")
        assert files.kind == "server"
        token = (tmp_path / ".moot/tokens/you.token").read_text().strip()
        async with connect(running.up.url, "lab", token) as you:
            assert (await you.call("files", "list_files")).text == "(empty)"
            assert running.status("you").kind == "person"
            call = {"method": "tools/call", "params": {"name": "x"}}
            await you.send("mcp/proposal", call, to="files", confirm=True)
            assert running.up.open_proposals() == 1
        pid = steady.pid
    assert not is_running(pid)


async def test_a_variable_that_is_missing_is_told_and_left_out(tmp_path: Path) -> None:
    lean = "lean: {capabilities: [chat], command: sleep, args: ['1000'], env: {KEY: '${NOT_SET}', A: '1'}}"
    async with raised(tmp_path, lab(YOU, lean)) as running:
        status = await running.until("lean", lambda each: each.state == "running")
        assert status.message == "without KEY: not set"


async def test_a_reload_ends_starts_and_spares(tmp_path: Path) -> None:
    steady = "steady: {capabilities: [chat], command: sleep, args: ['1000']}"
    old = "old: {capabilities: [chat], command: sleep, args: ['1000']}"
    async with raised(tmp_path, lab(YOU, steady, old)) as running:
        pids = [
            (await running.until(name, lambda each: each.state == "running")).pid
            for name in ("steady", "old")
        ]
        other = "young: {capabilities: [chat], command: sleep, args: ['1000']}"
        write_config(tmp_path, lab(YOU, steady, other) + "          new: {participants: {a: ['*']}}\n")
        notes = await running.up.reload(*read(tmp_path))
        assert notes == ["space new is new: restart to open it"]
        await running.until("young", lambda each: each.state == "running")
        assert running.status("steady").pid == pids[0]
        assert pids[1] is not None
        assert not is_running(pids[1])
        assert [each.name for each in running.up.statuses()] == ["gateway", "steady", "young"]


async def test_a_reload_ends_a_removed_member_that_was_named_at_the_start(tmp_path: Path) -> None:
    lazy = "lazy: {capabilities: [chat], command: sleep, args: ['1000'], auto_start: false}"
    left_out = "out: {capabilities: [chat], command: sleep, args: ['1000']}"
    selection = StartSelection(also=frozenset({"lazy"}), without=frozenset({"out"}))
    async with raised(tmp_path, lab(YOU, lazy, left_out), selection) as running:
        pid = (await running.until("lazy", lambda each: each.state == "running")).pid
        write_config(tmp_path, lab(YOU))
        assert await running.up.reload(*read(tmp_path)) == [
            f"no member or server is called {name} any more, as --start or --without says"
            for name in ("lazy", "out")
        ]
        assert pid is not None
        assert not is_running(pid)
        assert [each.name for each in running.up.statuses()] == ["gateway"]
        token = (tmp_path / ".moot/tokens/lazy.token").read_text().strip()
        assert not running.up.gateway.admits("lab", "lazy", hash_token(token))
        write_config(tmp_path, lab(YOU, lazy, left_out))
        assert await running.up.reload(*read(tmp_path)) == []
        await running.until("lazy", lambda each: each.state == "running")
        assert running.status("out").state == "idle"


async def test_a_member_that_fails_says_why(tmp_path: Path) -> None:
    """Its last line, and only of this run; who ends well has nothing to explain."""
    long = "echo first; printf 'x%.0s' $(seq 300) >&2; exit 3"
    failing = f'failing: {{capabilities: [chat], restart: never, command: sh, args: [-c, "{long}"]}}'
    once = "if [ -e once ]; then exit 3; fi; touch once; echo first; exit 3"
    silent = f'silent: {{capabilities: [chat], command: sh, args: [-c, "{once}"]}}'
    well = "well: {capabilities: [chat], command: echo, args: [bye]}"
    async with raised(tmp_path, lab(YOU, failing, silent, well)) as running:
        failed = await running.until("failing", lambda each: each.state == "ended")
        assert failed.message == f"ended with exit code 3: {'x' * LAST_LINE_CHARS}"
        assert (await running.until("well", lambda each: each.state == "ended")).message == (
            "ended with exit code 0"
        )
        second = "ended with exit code 3; restart in"
        await running.until("silent", lambda each: each.restarts > 0 and each.message.startswith(second))


async def test_a_command_of_ours_that_lacks_something_says_so_and_waits_for_a_reload(tmp_path: Path) -> None:
    """`moot init coder` without a key: nothing but an edit helps, and SIGHUP tells of one."""
    arguments = "[agent, --base-url, 'http://127.0.0.1:9/v1', --model, m, --api-key-env, MODEL_KEY]"
    coder = f"coder: {{capabilities: [chat], command: moot, args: {arguments}}}"
    async with raised(tmp_path, lab(YOU, coder)) as running:
        ended = await running.until("coder", lambda each: each.state == "ended")
        assert ended.message == (
            "ended with exit code 2: moot: --api-key-env: the variable MODEL_KEY is not set"
        )
        assert ended.restarts == 0
        assert await running.up.reload(*read(tmp_path)) == []
        again = await running.until("coder", lambda each: each.since > ended.since and each.state == "ended")
        assert again.message == ended.message


async def test_a_command_of_ours_that_ends_with_2_later_or_is_always_restarted_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After steady work it is a disk or a file that another program mends."""
    member = "{capabilities: [chat], command: moot, args: [no-such-command]"
    with monkeypatch.context() as patch:
        patch.setattr(restart_loop, "STEADY_SECONDS", 0.0)
        async with raised(tmp_path, lab(YOU, f"later: {member}}}")) as running:
            await running.until("later", lambda each: each.restarts > 0)
    async with raised(tmp_path, lab(YOU, f"stubborn: {member}, restart: always}}")) as running:
        await running.until("stubborn", lambda each: each.restarts > 0)


async def test_a_fault_of_ours_in_one_part_is_not_the_others_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = SupervisedProcess.run

    async def run(self: SupervisedProcess) -> None:
        if self.name == "broken":
            raise RuntimeError("a bug")
        await real(self)

    monkeypatch.setattr(SupervisedProcess, "run", run)
    sleep = "{capabilities: [chat], command: sleep, args: ['1000']}"
    members = [f"{name}: {sleep}" for name in ("broken", "well")]
    async with raised(tmp_path, lab(YOU, *members)) as running:
        broken = await running.until("broken", lambda each: each.state == "ended")
        assert "a bug in moot" in broken.message
        assert (await running.until("well", lambda each: each.state == "running")).pid is not None


async def test_a_server_that_cannot_be_is_tried_again(tmp_path: Path) -> None:
    servers = "odd: {command: no-such-program}"
    async with raised(tmp_path, lab(YOU, servers=servers)) as running:
        odd = await running.until("odd", lambda each: each.state == "waiting")
        assert "no such program: 'no-such-program'" in odd.message
        await running.until("odd", lambda each: each.restarts >= 2)


async def test_a_server_that_does_not_answer_is_told_of_with_its_last_line(tmp_path: Path) -> None:
    servers = "slow: {command: sh, args: [-c, 'echo loading the model >&2; exec sleep 1000']}"
    async with raised(tmp_path, lab(YOU, servers=servers)) as running:
        slow = await running.until("slow", lambda each: "has not answered" in each.message)
        assert (slow.state, slow.message) == (
            "starting",
            "has not answered initialize yet: loading the model",
        )


async def test_a_server_that_was_shut_down_stays_away(tmp_path: Path) -> None:
    """MEW 3.9.10: nobody starts it again but its operator."""
    servers = "files: {command: python3, args: [-m, moot.up.servers.files, shared]}"
    async with raised(tmp_path, lab(YOU, servers=servers)) as running:
        await running.until("files", lambda each: each.joined)
        token = (tmp_path / ".moot/tokens/you.token").read_text().strip()
        async with connect(running.up.url, "lab", token) as you:
            await you.admin.shutdown("files", reason="enough")
        ended = await running.until("files", lambda each: each.state == "ended")
        assert "left the space" in ended.message


async def test_names_that_nothing_stands_behind_are_mistakes(tmp_path: Path) -> None:
    write_config(tmp_path, "spaces: {lab: {participants: {a: ['*']}}}")
    configuration, secrets = read(tmp_path)
    with pytest.raises(UsageError, match="no member or server is called b: the configuration has none"):
        SpaceRunner(
            configuration,
            secrets,
            folder=tmp_path,
            environ={},
            selection=StartSelection(also=frozenset({"b"})),
        )


async def test_the_command_itself_shows_changes_and_stops(tmp_path: Path) -> None:
    """In a process of its own: a command that got a signal ends its process, whatever is left in it."""
    write_config(tmp_path, lab(YOU, "steady: {capabilities: [chat], command: sleep, args: ['1000']}"))
    process = await asyncio.create_subprocess_exec(
        *MOOT, "up", str(tmp_path), "--port", "0",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        env=environment(),
    )  # fmt: skip
    shown = process.stdout
    assert shown is not None
    async with bounded():
        await shown.readuntil(b"moot gateway listening on http://127.0.0.1:")
        await shown.readuntil(b"steady: running, pid ")
        process.send_signal(signal.SIGHUP)
        await shown.readuntil(b"note: reloaded\n")
        process.send_signal(signal.SIGTERM)
        assert (await shown.read()).endswith(b"stopped\n")
        assert await process.wait() == 0


async def rotated(running: Raised, name: str) -> str:
    async with httpx.AsyncClient(base_url=running.up.url, trust_env=False, timeout=HANG_SECONDS) as http:
        answer = await http.post(
            f"/admin/participants/{name}/token", json={}, headers={"Authorization": "Bearer t-root"}
        )
    assert answer.status_code == 200, answer.text
    return str(answer.json()["token"])


async def test_members_and_servers_go_on_with_the_token_that_replaced_theirs(tmp_path: Path) -> None:
    """Whoever was started with the old one is started again, and no other."""
    sleeper = "{capabilities: [chat], command: sh, args: [-c, 'echo $MOOT_TOKEN > %s; exec sleep 1000']}"
    members = [f"{name}: {sleeper % name}" for name in ("worker", "other")]
    text = lab(YOU, *members, servers="files: {command: python3, args: [-m, moot.up.servers.files, shared]}")
    text = "        gateway: {port: 0, admin_tokens: {root: {token: t-root}}}\n" + text
    async with raised(tmp_path, text) as running:
        before = {
            name: (await running.until(name, lambda each: each.state == "running")).pid
            for name in ("worker", "other")
        }
        await running.until("files", lambda each: each.joined and each.state == "running")
        fresh = await rotated(running, "worker")
        await until(lambda: (tmp_path / "worker").read_text().strip() == fresh)
        assert (tmp_path / ".moot/tokens/worker.token").read_text().strip() == fresh
        assert running.status("worker").pid != before["worker"]
        assert running.status("other").pid == before["other"]
        sessions = running.up.gateway.directory.hosts["lab"].space.state.roster.sessions
        served = {id for id, each in sessions.items() if each.member.name == "files"}
        await rotated(running, "files")
        await until(
            lambda: [id for id, each in sessions.items() if each.member.name == "files" and id not in served]
        )
        # A reload, which reads the new tokens from their files, leaves all of them alone.
        now = {name: running.status(name).pid for name in ("worker", "other")}
        await running.up.reload(*read(tmp_path))
        assert {name: running.status(name).pid for name in ("worker", "other")} == now


async def test_a_member_whose_token_is_void_is_not_started(tmp_path: Path) -> None:
    text = lab(YOU, "worker: {capabilities: [chat], tokens: [t-worker], command: sleep, args: ['1000']}")
    text = "        gateway: {port: 0, admin_tokens: {root: {token: t-root}}}\n" + text
    async with raised(tmp_path, text) as running:
        await running.until("worker", lambda each: each.state == "running")
        await rotated(running, "worker")
    async with raised(tmp_path, text) as running:
        assert running.status("worker").message == "not started: it has no valid token with all its rights"


async def test_it_serves_mcp_where_the_gateway_is_told_to(tmp_path: Path) -> None:
    text = "        gateway: {mcp: {server: lister}}\n" + lab("lister: {capabilities: []}", YOU)
    async with raised(tmp_path, text) as space:
        await space.until("lister", lambda each: each.joined)
        token = (tmp_path / ".moot/tokens/you.token").read_text().strip()
        async with httpx.AsyncClient(timeout=HANG_SECONDS) as http:
            asked = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
            head = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}

            async def status(**headers: str) -> int:
                answer = await http.post(f"{space.up.url}/mcp", json=asked, headers=headers)
                return 0 if answer.status_code == 503 else answer.status_code

            assert await until_told(status) == 401
            assert await status(**head) != 401
