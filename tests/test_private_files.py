"""Files that only our user may read, and folders that nobody else may write, on a real disk."""

from __future__ import annotations

import logging
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from moot import logs
from moot.errors import UsageError
from moot.mcp.stderr_tail import StderrTail
from moot.mcp.tool_pins import Pins
from moot.participant import token_from
from moot.private_files import open_private, use_folder
from moot.up.orphan_cleanup import lock_data_folder
from tests.rows import for_each_row
from tests.waiting import HANG_SECONDS
from tests.warm_start import warm_command

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
# Nobody has these numbers.
OTHER, ANOTHER = 54_321, 54_322

CONFIG = "spaces: {lab: {participants: {you: {capabilities: ['*']}}}}\n"


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def user(number: int) -> Iterator[None]:
    os.seteuid(number)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that other users can enter."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)  # noqa: S103
        yield Path(folder)


def moot(*words: str, cwd: Path, mask: int = 0o022) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603
        [*warm_command(), *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        umask=mask,
        check=False,
    )


# Logs


def test_log_files_are_for_their_owner_alone_whatever_the_umask_and_old_ones_are_mended(
    tmp_path: Path,
) -> None:
    file, older = tmp_path / "logs" / "gateway.log", tmp_path / "logs" / "gateway.log.1"
    file.parent.mkdir()
    for each in (file, older):
        each.write_text("of a version that did not care\n")
        each.chmod(0o644)
    with umask(0):
        handler = logs.set_up("info", "text", file, file_bytes=200, max_old_files=2)
        try:
            assert (mode_of(file), mode_of(older)) == (0o600, 0o600)
            for number in range(20):
                handler.emit(handler_record(f"line {number}"))
        finally:
            logs.set_up("warning", "text", None)
    written = sorted(file.parent.iterdir())
    assert len(written) == 3
    assert {mode_of(each) for each in written} == {0o600}


def handler_record(text: str) -> logging.LogRecord:
    return logging.LogRecord("moot", logging.INFO, "", 0, text, None, None)


def test_the_output_of_children_and_pins_are_for_their_owner_alone(tmp_path: Path) -> None:
    with umask(0):
        tail = StderrTail(tmp_path / "logs" / "files.log", file_bytes=10)
        for _ in range(3):
            tail.feed(b"a secret\n")
        tail.close()
        Pins("server", tmp_path / "pins" / "pins.json").check([{"name": "tool"}])
    for folder in (tmp_path / "logs", tmp_path / "pins"):
        assert mode_of(folder) == 0o700
        assert {mode_of(each) for each in folder.iterdir()} == {0o600}


@as_root
def test_nothing_is_written_through_a_link_that_another_user_put_there(shared: Path) -> None:
    target, planted, own = shared / "target", shared / "planted.log", shared / "own.log"
    target.write_text("")
    os.chown(target, OTHER, OTHER)
    for link, owner in ((planted, ANOTHER), (own, OTHER)):
        link.symlink_to(target)
        os.lchown(link, owner, owner)
    with user(OTHER):
        with pytest.raises(PermissionError, match="symbolic link that belongs to another user"):
            open_private(planted, os.O_WRONLY)
        os.close(open_private(own, os.O_WRONLY))
        tail = StderrTail(planted)
        tail.feed(b"line\n")
        tail.close()
    assert target.read_bytes() == b""


def test_a_log_may_go_to_stdout(tmp_path: Path) -> None:
    code = (
        "from moot import logs; h = logs.set_up('info', 'text', __import__('pathlib').Path('/dev/stdout'));"
    )
    code += "import logging; logging.getLogger('x').info('hello')"
    ended = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert "hello" in ended.stdout, ended.stderr


# Folders


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757, 0o1777])
def test_a_data_folder_that_others_may_write_is_refused_with_what_to_type(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "it's data"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(UsageError, match="can be written by its group or by everybody") as refused:
        use_folder(folder)
    command = str(refused.value).split("`")[1]
    subprocess.run(command, shell=True, check=True)  # noqa: S602  # as a person types it
    use_folder(folder)


@pytest.mark.parametrize(
    "words",
    [("serve", "moot.yaml", "--port", "0"), ("up", "--port", "0"), ("rules", "run", "--as", "you")],
)
def test_no_command_starts_on_such_a_folder(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "moot.yaml").write_text(CONFIG)
    data, state = tmp_path / "data", tmp_path / "state"
    assert moot("serve", "moot.yaml", "--data", str(data), "--check", cwd=tmp_path).returncode == 0
    for folder in (data, state):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o777)
    option = ("--state", str(state)) if words[0] == "rules" else ("--data", str(data))
    ended = moot(*words, *option, cwd=tmp_path)
    assert ended.returncode == 2, ended.stderr
    assert "chmod go-w" in ended.stderr or "No token" in ended.stderr
    assert not list(data.glob("*.sqlite*"))


@as_root
def test_a_folder_of_another_user_is_refused_but_not_to_root_in_a_container(shared: Path) -> None:
    folder = shared / "data"
    folder.mkdir()
    os.chown(folder, OTHER, OTHER)
    with lock_data_folder(folder):
        pass
    with user(ANOTHER), pytest.raises(UsageError, match=f"belongs to another user \\(uid {OTHER}\\)"):
        use_folder(folder)
    with user(OTHER):
        use_folder(folder)


# Tokens


def test_a_token_file_that_others_may_read_is_refused_with_what_to_type(tmp_path: Path) -> None:
    file = tmp_path / "my token"
    file.write_text("t-secret\n")
    for mode in (0o644, 0o640, 0o604, 0o620):
        file.chmod(mode)
        with pytest.raises(UsageError, match="others may read or write") as refused:
            token_from(file)
        assert "t-secret" not in str(refused.value)
        subprocess.run(str(refused.value).split("`")[1], shell=True, check=True)  # noqa: S602
        assert mode_of(file) == 0o600
        assert token_from(file) == "t-secret"


@for_each_row(
    "text, why",
    [
        ("", "0 words"),
        ("two words", "2 words"),
        ("a\nb", "2 words"),
        ("\0", "other"),
        ("caf\u00e9", "no text"),
    ],
)
def test_a_file_without_a_token_is_refused(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "t"
    file.write_text(text, "utf-8")
    file.chmod(0o600)
    with pytest.raises(UsageError, match=why):
        token_from(file)


def test_a_command_with_such_a_token_file_fails_and_says_why(tmp_path: Path) -> None:
    file = tmp_path / "you.token"
    file.write_text("t-secret\n")
    file.chmod(0o644)
    where = ("--gateway", "http://127.0.0.1:9", "--token-file", str(file))
    for words in (("members", *where), ("bridge", *where, "--", "cat"), ("mcp", *where)):
        ended = moot(*words, cwd=tmp_path)
        assert ended.returncode == 2
        assert f"chmod 600 {file}" in ended.stderr
        assert "t-secret" not in ended.stderr + ended.stdout


@as_root
def test_a_token_file_of_another_user_is_refused_unless_root_set_it_up(shared: Path) -> None:
    for owner, mode, allowed in (
        (ANOTHER, 0o644, False),
        # As root sets up a file for a service: its group reads it.
        (0, 0o644, True),
        (0, 0o664, False),
        (OTHER, 0o600, True),
    ):
        file = shared / f"{owner}-{mode:o}"
        file.write_text("t-secret")
        os.chown(file, owner, OTHER)
        file.chmod(mode)
        with user(OTHER):
            if allowed:
                assert token_from(file) == "t-secret"
            else:
                with pytest.raises(UsageError):
                    token_from(file)


def test_a_pipe_has_one_reader_and_is_read(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"t-secret\n")
    os.close(writing)
    try:
        assert token_from(f"/dev/fd/{reading}") == "t-secret"
    finally:
        os.close(reading)
