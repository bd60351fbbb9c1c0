"""Placeholders, logs and the environment of members."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from moot.config.secrets.secret import Secret
from moot.errors import UsageError
from moot.up.member_process import argument_list, member_environment
from moot.up.orphan_cleanup import RunFile, end_orphans, lock_data_folder, start_time_of
from moot.up.servers.commands import OUTPUT_BYTES, run_program
from moot.up.supervised_process import MemberLog
from moot.up.template_vars import TemplateVars, VariableNotSet
from tests.up.moot_up import is_running
from tests.waiting import HANG_SECONDS, until

TOKEN = "t0ken-of-agent"


def variables(**more: object) -> TemplateVars:
    facts: dict[str, object] = {
        "gateway": "http://127.0.0.1:8080", "port": 8080, "space": "lab", "name": "agent",
        "folder": Path("/srv/lab"), "token": Secret(TOKEN), "token_file": Path("/t/agent.token"),
        "environ": {"KEY": "value", "EMPTY": ""},
    }  # fmt: skip
    return TemplateVars(**(facts | more))  # type: ignore[arg-type]  # facts of a test


# Placeholders


def test_placeholders_are_filled_in() -> None:
    text = "${GATEWAY} ${PORT} ${SPACE} ${NAME} ${FOLDER} ${TOKEN} ${TOKEN_FILE} ${KEY}${EMPTY}"
    filled = variables().fill(text)
    assert filled == f"http://127.0.0.1:8080 8080 lab agent /srv/lab {TOKEN} /t/agent.token value"
    assert variables().fill("$PORT $$ ${ $(x) {PORT} $${PORT}") == "$PORT $$ ${ $(x) {PORT} ${PORT}"


def test_what_a_variable_holds_is_not_looked_into_again() -> None:
    assert variables(environ={"A": "${TOKEN}"}).fill("${A}") == "${TOKEN}"


def test_a_variable_of_the_environment_may_be_called_as_a_placeholder_of_ours() -> None:
    """A server that asks for a TOKEN of its own must not get the one of the member."""
    one = variables(environ={"TOKEN": "of the environment", "EMPTY": ""})
    assert one.fill("${env:TOKEN} ${TOKEN}") == f"of the environment {TOKEN}"
    assert one.fill("${env:TOKEN:-x} ${env:PORT:-} ${env:EMPTY:-a:-b} $${env:TOKEN}") == (
        "of the environment  a:-b ${env:TOKEN}"
    )
    with pytest.raises(UsageError, match="PORT is not set"):
        one.fill("${env:PORT}")
    with pytest.raises(UsageError, match="holds one name"):
        one.fill("${env:a b}")


def test_what_is_not_set_is_told_or_left_out() -> None:
    with pytest.raises(VariableNotSet, match="the environment variable NOPE is not set"):
        variables().fill("x ${NOPE}")
    assert variables().resolve_env({"A": "${KEY}", "B": "${NOPE}", "C": "1"}) == (
        {"A": "value", "C": "1"},
        ["B"],
    )
    with pytest.raises(UsageError, match=r"use \$\{TOKEN\}"):
        variables(token_file=None).fill("${TOKEN_FILE}")
    with pytest.raises(UsageError, match="one name"):
        variables().fill("${a b}")


def test_words_show_no_token() -> None:
    shown = repr(variables(environ={"OTHER": "hush"}))
    assert TOKEN not in shown
    assert "hush" not in shown


# Logs


def test_a_token_is_blotted_out_however_it_arrives(tmp_path: Path) -> None:
    file = tmp_path / "logs" / "agent.log"
    book = MemberLog(file, Secret(TOKEN))
    for part in ("a ", TOKEN, " b\nsplit ", TOKEN[:5], TOKEN[5:], " end\n", "no newline ", TOKEN):
        book.feed(part.encode())
    book.close()
    assert file.read_text() == "a [redacted] b\nsplit [redacted] end\nno newline [redacted]\n"
    assert book.last_line == "no newline [redacted]"


@pytest.mark.parametrize("size", [100, 4096, 65_530, 65_536])
def test_a_token_in_a_line_without_end_is_blotted_out_too(tmp_path: Path, size: int) -> None:
    book = MemberLog(tmp_path / "log", Secret(TOKEN))
    data = (b"x" * 65_530 + TOKEN.encode()) * 4
    for place in range(0, len(data), size):
        book.feed(data[place : place + size])
    book.close()
    text = (tmp_path / "log").read_text()
    assert TOKEN not in text
    assert text.count("[redacted]") == 4
    assert text.count("x") == 4 * 65_530


def test_a_log_is_bounded(tmp_path: Path) -> None:
    book = MemberLog(tmp_path / "log", Secret(TOKEN), file_bytes=1_000)
    for number in range(500):
        book.feed(f"line {number}\n".encode())
    book.note("ended")
    book.close()
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["log", "log.1"]
    assert sum(file.stat().st_size for file in files) <= 2_000
    assert files[0].read_text().endswith("line 499\n-- ended\n")


# Processes


def test_a_member_inherits_little_and_finds_this_installation_first() -> None:
    here = str(Path(sys.executable).parent)
    inherited = {"PATH": "/usr/bin:/bin", "HOME": "/h", "AWS_SECRET": "x", "LANG": "() { :; }"}
    assert member_environment({"A": "1"}, inherited) == {
        "PATH": f"{here}:/usr/bin:/bin",
        "HOME": "/h",
        "A": "1",
    }
    assert member_environment({"PATH": "/mine"}, inherited)["PATH"] == "/mine"


def test_moot_is_this_installation_and_paths_are_from_where_it_runs(tmp_path: Path) -> None:
    environment = {"PATH": "/usr/bin:/bin"}
    assert argument_list("moot", ("x",), environment, tmp_path) == [sys.executable, "-m", "moot.cli", "x"]
    tool = tmp_path / "tool.sh"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    assert argument_list("./tool.sh", (), environment, tmp_path) == [f"{tmp_path}/tool.sh"]
    for command in ("tool.sh", "./none"):
        with pytest.raises(UsageError, match="no such program"):
            argument_list(command, (), environment, tmp_path)
    with pytest.raises(UsageError, match="NUL"):
        argument_list("sh", ("a\0",), environment, tmp_path)


# Leftovers


def test_a_folder_is_held_by_one(tmp_path: Path) -> None:
    with (
        lock_data_folder(tmp_path),
        pytest.raises(UsageError, match="another `moot up` runs"),
        lock_data_folder(tmp_path),
    ):
        pass
    with lock_data_folder(tmp_path):
        pass


async def test_only_the_very_process_that_was_left_is_ended(tmp_path: Path) -> None:
    """A number that is somebody else's by now is left alone, and so is whatever cannot be read."""
    bystander = await asyncio.create_subprocess_exec("sleep", "1000", start_new_session=True)
    left = await asyncio.create_subprocess_exec("sleep", "1000", start_new_session=True)
    try:
        with lock_data_folder(tmp_path):
            run_file = RunFile(tmp_path)
            run_file.write({"lab/left": left.pid, "lab/other": bystander.pid})
            file = tmp_path / "run/up.json"
            file.write_text(
                file.read_text().replace(str(start_time_of(bystander.pid)), "1 tick after boot x")
            )
            assert await end_orphans(tmp_path) == ["lab/left"]
            assert await asyncio.wait_for(left.wait(), HANG_SECONDS) == -15
            assert is_running(bystander.pid)
            for text in ("", "[]", '{"members": {"a": 3}}', '{"members": {"a": {"pid": 1, "began": "x"}}}'):
                file.write_text(text)
                assert await end_orphans(tmp_path) == []
    finally:
        bystander.kill()
        await bystander.wait()
    assert start_time_of(os.getpid()) == start_time_of(os.getpid())
    assert start_time_of(-1) is None


# The command server


async def test_a_command_gives_its_code_and_the_end_of_its_output(tmp_path: Path) -> None:
    assert await run_program(["sh", "-c", "pwd; exit 4"], tmp_path, 10) == (
        f"ended with exit code 4\n{tmp_path}\n"
    )
    output = await run_program(["sh", "-c", "yes | head -c 200000; echo last"], tmp_path, 10)
    assert output.endswith("last\n")
    assert f"… {200_005 - OUTPUT_BYTES} bytes before this" in output


async def test_a_command_that_takes_too_long_is_ended_with_all_it_started(tmp_path: Path) -> None:
    script = "trap '' TERM; sleep 1000 & echo $! > child; wait"
    output = await run_program(["sh", "-c", script], tmp_path, 0.5)
    assert output.startswith("was ended after 0.5 s with exit code -9")
    child = int((tmp_path / "child").read_text())
    await until(lambda: not is_running(child))
