"""`moot up` with real processes: members that crash, hang, multiply and refuse to end."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from moot.cli import main
from moot.participant import connect
from tests.cli.terminals import terminal
from tests.up.moot_up import environment, is_running, moot_up, run_moot, write_config
from tests.waiting import HANG_SECONDS, until

YOU = 'you: {capabilities: [{kind: "*"}]}'
# Members in shell: no interpreter to load.
STEADY = "steady: {capabilities: [chat], command: sleep, args: ['1000']}"


async def test_one_that_crashes_is_started_again_and_harms_nobody(tmp_path: Path) -> None:
    write_config(
        tmp_path,
        f"""
        spaces:
          lab:
            participants:
              {YOU}
              {STEADY}
              crasher:
                capabilities: [chat]
                command: sh
                args: [-c, "echo on stdout; echo on stderr >&2; exit 3"]
              missing: {{capabilities: [chat], command: no-such-program}}
              done: {{capabilities: [chat], command: "true"}}
              once: {{capabilities: [chat], command: "false", restart: never}}
        """,
    )
    async with moot_up(tmp_path) as up:
        pid = (await up.wait_for_state("steady", "running"))["pid"]
        await up.until(lambda: up.now.get("crasher", {}).get("restarts", 0) >= 2)
        assert up.log("crasher").count("on stdout\n") >= 2
        assert "on stderr\n" in up.log("crasher")
        assert "-- ended with exit code 3\n" in up.log("crasher")
        assert (
            "no such program: 'no-such-program'" in (await up.wait_for_state("missing", "waiting"))["message"]
        )
        # Who ends well is not started again.
        assert (await up.wait_for_state("done", "ended"))["message"] == "ended with exit code 0"
        assert (await up.wait_for_state("once", "ended"))["message"] == "ended with exit code 1"
        assert up.now["steady"]["pid"] == pid
        assert is_running(pid)
    assert not is_running(pid)


async def test_everything_that_members_started_is_gone(tmp_path: Path) -> None:
    """One ignores SIGTERM, one has children of its own, one is stopped."""
    script = tmp_path / "family.sh"
    script.write_text("trap '' TERM\nsleep 1000 &\necho $! > child.pid\nsleep 1000\n")
    write_config(
        tmp_path,
        f"""
        spaces:
          lab:
            participants:
              {YOU}
              family: {{capabilities: [chat], command: sh, args: [family.sh]}}
              polite: {{capabilities: [chat], command: sleep, args: ["1000"]}}
              frozen: {{capabilities: [chat], command: sleep, args: ["1000"]}}
        """,
    )
    async with moot_up(tmp_path) as up:
        pids = [(await up.wait_for_state(name, "running"))["pid"] for name in ("family", "polite", "frozen")]
        os.kill(pids[2], signal.SIGSTOP)
        child = tmp_path / "child.pid"
        await until(lambda: child.exists() and child.read_text().endswith("\n"))
        assert await up.end(signal.SIGINT) == 0
        for pid in [*pids, int(child.read_text())]:
            assert not is_running(pid)
        assert not (up.data / "run/up.json").exists()


# It waits an hour for goodbyes.
PATIENT = (
    sys.executable,
    "-c",
    "import sys; from moot.cli import main; from moot.resilience.child_process import ChildProcess\n"
    "ChildProcess.stop.__kwdefaults__['terminate_seconds'] = 3600.0\n"
    "sys.exit(main(sys.argv[1:]))",
)


async def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    write_config(
        tmp_path,
        f"""
        spaces:
          lab:
            participants:
              {YOU}
              stubborn:
                capabilities: [chat]
                command: sh
                args: [-c, "trap '' TERM; while :; do sleep 1; done"]
        """,
    )
    async with moot_up(tmp_path, program=PATIENT) as up:
        pid = (await up.wait_for_state("stubborn", "running"))["pid"]
        up.process.send_signal(signal.SIGTERM)
        await up.wait_for_state("stubborn", "stopping")

        def has_ended() -> bool:
            # Again and again: within a quarter of a second of the first it is still the same wish.
            if up.process.returncode is None and is_running(pid):
                up.process.send_signal(signal.SIGTERM)
            return up.process.returncode is not None

        await until(has_ended)
        code = await up.end()
        # 143 where the gateway did not get to its end in the half second that is left; the signal itself
        # where it came after everything had ended and the handlers were given back.
        assert code in (0, 143, -signal.SIGTERM)
        assert not is_running(pid)


async def test_a_member_gets_what_is_listed_for_it_and_no_log_holds_a_token(tmp_path: Path) -> None:
    """D-87: not our environment; tokens stand in nobody's log."""
    write_config(
        tmp_path,
        f"""
        spaces:
          lab:
            participants:
              {YOU}
              open:
                capabilities: [chat]
                command: sh
                args: [-c, 'env; echo args "$@"; pwd', sh, "${{TOKEN}}", "${{PORT}}", "${{SPACE}}", "$${{X}}"]
                env: {{KEY: "${{SECRET_KEY}}", GONE: "${{NOT_SET}}", PLAIN: "1"}}
                cwd: sub
        """,
    )
    (tmp_path / "sub").mkdir()
    environ = environment(SECRET_KEY="the-key", UNLISTED="private", MOOT_URL="wrong")
    async with moot_up(tmp_path, environ=environ) as up:
        await up.wait_for_state("open", "ended")
        token, port = up.token("open"), up.url.rpartition(":")[2]
        log = up.log("open")
        assert "KEY=the-key\n" in log
        assert "PLAIN=1\n" in log
        assert "MOOT_SPACE=lab\n" in log
        assert f"MOOT_URL={up.url}\n" in log
        assert f"args [redacted] {port} lab ${{X}}\n" in log
        assert f"{tmp_path / 'sub'}\n" in log
        assert "UNLISTED" not in log
        assert "GONE" not in log
        assert "MOOT_TOKEN=[redacted]\n" in log
        for file in (up.data / "logs").iterdir():
            assert token not in file.read_text("utf-8")
        assert token not in str(up.changes)


async def test_a_changed_file_is_taken_over_without_ending_anybody_else(tmp_path: Path) -> None:
    before = f"""
        spaces:
          lab:
            participants:
              {YOU}
              {STEADY}
              old: {{capabilities: [chat], command: sleep, args: ["1000"]}}
              other: {{capabilities: [chat], command: sleep, args: ["1000"]}}
    """
    write_config(tmp_path, before)
    async with moot_up(tmp_path) as up:
        pids = {
            name: (await up.wait_for_state(name, "running"))["pid"] for name in ("steady", "old", "other")
        }
        changed = before.replace("old:", "young:").replace(
            'other: {capabilities: [chat], command: sleep, args: ["1000"]',
            'other: {capabilities: [chat], command: sleep, args: ["2000"]',
        )
        write_config(tmp_path, changed)
        up.process.send_signal(signal.SIGHUP)
        await up.wait_for_state("young", "running")
        await up.until(lambda: up.now["other"]["pid"] not in (None, pids["other"]))
        await up.until(lambda: {"note": "reloaded"} in up.changes)
        assert up.now["steady"]["pid"] == pids["steady"]
        assert is_running(pids["steady"])
        assert not is_running(pids["old"])
        assert not is_running(pids["other"])
        write_config(tmp_path, "spaces: {lab: {participants: {a: {nonsense: 1}}}}")
        up.process.send_signal(signal.SIGHUP)
        await up.until(lambda: "nonsense: unknown key" in str(up.changes[-1]))
        assert is_running(pids["steady"])


def cleaner_of(pid: int) -> int | None:
    """The process that ends the members of a killed `moot up`: it has the same arguments."""
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    if not listed.exists():
        return None
    arguments = Path(f"/proc/{pid}/cmdline").read_bytes()
    (found,) = [
        int(each)
        for each in listed.read_text().split()
        if Path(f"/proc/{each}/cmdline").read_bytes() == arguments
    ]
    return found


async def test_what_a_killed_moot_up_left_behind_is_ended_by_the_next(tmp_path: Path) -> None:
    write_config(tmp_path, f"spaces: {{lab: {{participants: {{{YOU}, {STEADY}}}}}}}")
    async with moot_up(tmp_path) as up:
        pid = (await up.wait_for_state("steady", "running"))["pid"]
        if cleaner := cleaner_of(up.process.pid):
            # Otherwise there is nothing left for the next one.
            os.kill(cleaner, signal.SIGKILL)
        await up.end(signal.SIGKILL)
        assert is_running(pid)
    async with moot_up(tmp_path) as up:
        await up.wait_for_state("steady", "running")
        assert not is_running(pid)
        assert "lab/steady: ended, it was left over from an earlier `moot up`" in str(up.changes)


async def test_two_do_not_run_on_one_folder(tmp_path: Path) -> None:
    write_config(tmp_path, f"spaces: {{lab: {{participants: {{{YOU}}}}}}}")
    async with moot_up(tmp_path) as up:
        code, words = await run_moot(tmp_path, "up", "--port", "0")
        assert code == 1
        assert f"another `moot up` runs on {up.data} (pid {up.process.pid}, {up.url}): use that one" in words
        async with connect(up.url, "lab", up.token("you")) as space:
            await space.chat("still here")
            await up.until(lambda: up.now.get("you", {}).get("joined") is True)
        await up.until(lambda: up.now["you"]["state"] == "ended")


async def test_who_does_not_start_by_itself_starts_when_asked_for(tmp_path: Path) -> None:
    lazy = "lazy: {capabilities: [chat], command: sleep, args: ['1000'], auto_start: false}"
    write_config(tmp_path, f"spaces: {{lab: {{participants: {{{YOU}, {STEADY}, {lazy}}}}}}}")
    async with moot_up(tmp_path) as up:
        assert "`moot up --start lazy`" in (await up.wait_for_state("lazy", "idle"))["message"]
        await up.wait_for_state("steady", "running")
    async with moot_up(tmp_path, "--start", "lazy", "--without", "steady") as up:
        await up.wait_for_state("lazy", "running")
        await up.wait_for_state("steady", "idle")
    code, words = await run_moot(tmp_path, "up", "--start", "nobody")
    assert (code, "no member or server is called nobody: choose from lazy, steady" in words) == (2, True)


async def test_several_spaces_keep_their_members_apart(tmp_path: Path) -> None:
    twin = "twin: {capabilities: [chat], command: sh, args: [-c, 'echo in $MOOT_SPACE; exec sleep 1000']}"
    write_config(tmp_path, f"spaces: {{a: {{participants: {{{twin}}}}}, b: {{participants: {{{twin}}}}}}}")
    async with moot_up(tmp_path) as up:
        await up.until(lambda: sum(row.get("state") == "running" for row in up.changes) >= 3)
        for space in ("a", "b"):
            await until(lambda space=space: f"in {space}\n" in up.log(f"{space}/twin"))  # type: ignore[misc]
        assert set(up.run_file()["members"]) == {"a/twin", "b/twin"}


async def test_a_reference_file_runs_as_it_is(tmp_path: Path) -> None:
    """D-14: only what says auto_start, and the placeholders of the reference implementation."""
    write_config(
        tmp_path,
        """
        space: {id: workshop, default_participant: human}
        participants:
          human: {tokens: [h], capabilities: [{kind: "*"}]}
          agent:
            tokens: [agent-token]
            command: sh
            args: [-c, 'echo "$0 $1 $2"; exec sleep 1000', "${PORT}", "${SPACE}", "${TOKEN}"]
            auto_start: true
          manual: {command: sleep, args: [1000]}
          recorder: {output_log: ./logs/all.log}
        """,
        "space.yaml",
    )
    async with moot_up(tmp_path) as up:
        await up.wait_for_state("agent", "running")
        await up.wait_for_state("manual", "idle")
        port = up.url.rpartition(":")[2]
        await until(lambda: f"{port} workshop [redacted]" in up.log("agent"))
        code, words = await run_moot(tmp_path, "send", "hello")
        assert (code, words) == (0, "")
        assert '"hello"' in (tmp_path / "logs/all.log").read_text("utf-8")


def test_a_folder_without_a_space_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", str(tmp_path)]) == 2
    assert "Make one with `moot init`" in capsys.readouterr().err
    assert main(["up", str(tmp_path / "nowhere")]) == 2
    assert "no such folder or file" in capsys.readouterr().err


async def test_a_port_that_is_taken_is_told_and_leaves_nothing_running(tmp_path: Path) -> None:
    write_config(tmp_path, f"spaces: {{lab: {{participants: {{{YOU}, {STEADY}}}}}}}")
    other = tmp_path / "other"
    other.mkdir()
    write_config(other, f"spaces: {{lab: {{participants: {{{YOU}, {STEADY}}}}}}}")
    async with moot_up(tmp_path) as up:
        port = up.url.rpartition(":")[2]
        code, words = await run_moot(other, "up", "--port", port)
        assert (code, f"cannot listen on 127.0.0.1 port {port}" in words) == (1, True)
        assert not (other / ".moot/run/up.json").exists()


def test_on_a_terminal_a_table_stays_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "loud.sh").write_text("printf 'hi \\033[2Jthere\\n'; exec sleep 1000\n")
    loud = "loud: {capabilities: [chat], command: sh, args: [loud.sh]}"
    write_config(tmp_path, f"spaces: {{lab: {{participants: {{{YOU}, {loud}}}}}}}")
    with terminal(tmp_path, "up", "--port", "0") as (screen, process):
        screen.until(lambda shown: "hi \\x1b[2Jthere" in shown)
        shown = screen.until(lambda shown: shown.count("NAME  KIND    STATE") >= 2)
        # Each table is drawn over the one before, and nothing that a member prints is obeyed.
        assert "\x1b[3A\rlab  http://127.0.0.1:" in shown
        assert "\x1b[2J" not in shown
        assert "loud  member  \x1b[32mrunning\x1b[0m" in shown
        process.send_signal(signal.SIGINT)
        screen.until(lambda shown: shown.rstrip().endswith("stopped"))
        assert process.wait(HANG_SECONDS) == 0


def test_a_server_that_dies_shows_its_last_lines_uncut_and_where_its_log_is(tmp_path: Path) -> None:
    """On a terminal of 80 columns, and once, however often it is started again."""
    long = "no module named " + "m" * 90
    (tmp_path / "broken.sh").write_text(f"echo 'loading \033[2J' >&2\necho '{long}' >&2\nexit 3\n")
    broken = "mcp_servers: {broken: {command: sh, args: [broken.sh]}}"
    write_config(tmp_path, f"spaces: {{lab: {{participants: {{{YOU}}}, {broken}}}}}")
    with terminal(tmp_path, "up", "--port", "0") as (screen, process):
        shown = screen.until(lambda shown: long in shown and shown.count("RESTARTS") >= 4)
        said = " ".join(shown.split())
        assert f"(log: {tmp_path}/.moot/logs/broken.log): loading \\x1b[2J {long}" in said
        assert shown.count(long) == 1
        process.send_signal(signal.SIGINT)
        screen.until(lambda shown: shown.rstrip().endswith("stopped"))


@pytest.mark.parametrize("variables", [{"TERM": "dumb"}, {"COLUMNS": "20"}])
def test_a_terminal_that_cannot_show_a_table_gets_lines(tmp_path: Path, variables: dict[str, str]) -> None:
    write_config(tmp_path, f"spaces: {{lab: {{participants: {{{YOU}, {STEADY}}}}}}}")
    with terminal(tmp_path, "up", "--port", "0", **variables) as (screen, process):
        screen.until(lambda shown: "steady: running, pid " in shown)
        process.send_signal(signal.SIGINT)
        shown = screen.until(lambda shown: shown.rstrip().endswith("stopped"))
        assert "\x1b[" not in shown
        assert process.wait(30) == 0


async def test_a_proposal_can_be_decided_after_a_restart(tmp_path: Path) -> None:
    """D-28, D-41: it is still open, and what it says is still known."""
    write_config(
        tmp_path,
        f"""
        spaces:
          lab:
            default_participant: you
            participants:
              {YOU}
              agent: {{capabilities: [{{kind: mcp/proposal}}]}}
            mcp_servers:
              files: {{command: python3, args: [-m, moot.up.servers.files, shared]}}
        """,
    )
    async with moot_up(tmp_path) as up:
        call = ("call", "--propose", "files", "write_file", "path=a.md", "text=later")
        code, output = await run_moot(tmp_path, *call, "--no-wait", "--as", "agent", "--json")
        assert code == 0, output
        id = json.loads(output)["id"]
    async with moot_up(tmp_path) as up:
        await up.until(lambda: {"open_proposals": 1} in up.changes)
        await up.wait_for_state("files", "running", joined=True)
        code, output = await run_moot(tmp_path, "approve", id[:8])
        assert (code, "created a.md: 5 bytes" in output) == (0, True), output
        assert (tmp_path / "shared/a.md").read_text() == "later"
