"""What newcomers meet: folders without permission or that are gone, full disks, closed pipes, typos."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from moot.cli import main
from tests.cli.programs import Ended, run

EVERY = [
    ("moot", "up"),
    ("moot", "init"),
    ("moot", "members"),
    ("moot", "journal", "tail"),
    ("moot", "mcp"),
    ("xprotocol-adapter", "status"),
    ("xprotocol-adapter", "keygen", "--output", "here.key"),
    ("xprotocol-devserver", "--mcp-command", "true", "--namespace", "com.example.demo"),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    assert run("moot", "init", "empty", "lab", folder=folder).code == 0
    return folder / "lab"


@pytest.fixture
def lab(made: Path, tmp_path: Path) -> Path:
    """A folder with a space that has never run."""
    return shutil.copytree(made, tmp_path / "lab", symlinks=True)


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Path]:
    """A folder that nobody may look into or write to."""
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o000)
    yield folder
    folder.chmod(0o700)


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_a_current_folder_that_was_deleted_is_said(words: tuple[str, ...], tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    # The shell is there when the folder goes, as a person's is.
    ended = run(*words, folder=gone, start='rmdir ../gone && exec "$@"')
    assert ended.code == 1
    assert ended.err.startswith(f"{words[0]}: the current folder cannot be used")
    assert "cd" in ended.err
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("moot", "up", "closed"), "Permission denied"),
        (("moot", "init", "empty", "closed"), "Permission denied"),
        (("moot", "init", "empty", "closed/lab"), "Permission denied"),
        (("moot", "serve", "closed/moot.yaml"), "Permission denied"),
        (("moot", "serve", "lab/moot.yaml", "--port", "0", "--data", "closed"), "--data DIR"),
        (("moot", "up", "lab", "--port", "0", "--data", "closed/data"), "--data DIR"),
        (("moot", "journal", "tail", "--data", "closed"), "Permission denied"),
        (("moot", "journal", "verify", "--data", "closed"), "Permission denied"),
        (("moot", "xp", "relay", "--port", "0", "--data", "closed/relay"), "Permission denied"),
        (("moot", "members", "--config", "closed/moot.yaml"), "Permission denied"),
        (("xprotocol-adapter", "keygen", "--output", "closed/a.key"), "Permission denied"),
        (
            ("xprotocol-devserver", "--mcp-command", "true", "--namespace", "com.a", "--data", "closed/data"),
            "--data DIR",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
@pytest.mark.usefixtures("closed")
def test_a_folder_without_permission_is_said(words: tuple[str, ...], said: str, lab: Path) -> None:
    ended = run(*words, folder=lab.parent, powerless=True)
    # 2 where the folder is part of a configuration that was checked, 1 where it was met later.
    assert ended.code in (1, 2)
    assert ended.err.startswith(f"{words[0]}: ")
    assert said in ended.err
    assert "closed" in ended.err


@pytest.mark.parametrize(
    "words",
    [
        ("moot", "serve", "lab/moot.yaml", "--port", "0", "--data", "file"),
        ("moot", "up", "lab", "--port", "0", "--data", "file"),
        ("moot", "init", "empty", "file"),
        ("moot", "xp", "relay", "--port", "0", "--data", "file"),
        ("moot", "journal", "tail", "--data", "file"),
        ("xprotocol-adapter", "keygen", "--output", "file/a.key"),
        ("xprotocol-devserver", "--mcp-command", "true", "--namespace", "com.a", "--data", "file"),
    ],
    ids=" ".join,
)
def test_a_file_in_the_place_of_a_folder_is_said(words: tuple[str, ...], lab: Path) -> None:
    (lab.parent / "file").write_text("not a folder")
    ended = run(*words, folder=lab.parent)
    assert ended.code in (1, 2)
    assert ended.err.startswith(f"{words[0]}: ")
    assert "file" in ended.last


PRINTING = [
    ("moot", "--help"),
    ("moot", "init", "--list"),
    ("moot", "serve", "moot.yaml", "--check"),
    ("moot", "serve", "moot.yaml", "--port", "0"),
    ("moot", "up", "--port", "0"),
    ("xprotocol-devserver", "--help"),
]


@pytest.mark.parametrize("words", PRINTING, ids=" ".join)
def test_a_full_disk_behind_the_output_is_said_once(words: tuple[str, ...], lab: Path) -> None:
    _check_full(run_into_full(words, lab), words)


def test_so_it_is_where_nothing_is_buffered(lab: Path) -> None:
    for words in PRINTING[:2]:
        _check_full(run_into_full(words, lab, PYTHONUNBUFFERED="1"), words)
        assert run_into_closed(words, lab, PYTHONUNBUFFERED="1").code == 141


@pytest.mark.parametrize("words", PRINTING, ids=" ".join)
def test_a_reader_that_has_gone_ends_it_quietly(words: tuple[str, ...], lab: Path) -> None:
    ended = run_into_closed(words, lab)
    assert ended.code == 141
    assert f"{words[0]}: " not in ended.err


def run_into_full(words: tuple[str, ...], folder: Path, **environ: str) -> Ended:
    with open("/dev/full", "wb") as full:
        return run(*words, folder=folder, stdout=full.fileno(), environ=environ)


def run_into_closed(words: tuple[str, ...], folder: Path, **environ: str) -> Ended:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        return run(*words, folder=folder, stdout=writing, environ=environ)
    finally:
        os.close(writing)


def _check_full(ended: Ended, words: tuple[str, ...]) -> None:
    assert ended.code == 1
    answer = f"{words[0]}: the output cannot be written: No space left on device"
    assert [line[: len(answer)] for line in ended.err.splitlines() if "output" in line] == [answer]


def test_closed_standard_streams_are_never_a_file_of_ours(lab: Path) -> None:
    """`>&-`: the next file that is opened would get the number, and what is printed would land in it."""
    ended = run("moot", "init", "empty", "other", folder=lab, start='exec "$@" <&- >&- 2>&-')
    assert ended.code == 0
    assert "next:" not in (lab / "other" / "moot.yaml").read_text()


@pytest.mark.parametrize("command", ["members", "send", "join", "tail", "mcp", "bridge", "agent"])
def test_a_token_on_the_command_line_is_refused_and_not_repeated(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["--token", "hush-hush"], ["--token=hush-hush"]):
        with pytest.raises(SystemExit) as ended:
            main([command, *words])
        assert ended.value.code == 2
        said = capsys.readouterr()
        assert "--token-file FILE" in said.err
        assert "MOOT_TOKEN" in said.err
        assert "hush-hush" not in said.err + said.out


def test_an_option_is_written_out(tmp_path: Path) -> None:
    """`--token-f` today would be something else tomorrow."""
    ended = run("moot", "members", "--token-f", "a.token", folder=tmp_path)
    assert ended.code == 2
    assert "--token-f" in ended.err


def test_only_what_waits_for_an_answer_takes_a_timeout(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["members", "--timeout", "5"])
    assert ended.value.code == 2
    assert "leave it out: this command waits for nobody's answer" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main(["tools", "--help"])
    assert ended.value.code == 0
    assert "--timeout TIME" in capsys.readouterr().out


def test_a_command_that_is_misspelt_is_offered(tmp_path: Path) -> None:
    ended = run("moot", "memebrs", folder=tmp_path)
    assert ended.code == 2
    assert "did you mean members?" in ended.err


@pytest.mark.parametrize(
    ("words", "meant"),
    [("proposal receipt", "receipt"), ("member list", "members"), ("proposal list", "proposals")],
)
def test_a_command_that_was_looked_for_below_another_is_named(words: str, meant: str, tmp_path: Path) -> None:
    ended = run("moot", *words.split(), folder=tmp_path)
    assert f"`moot {meant}` is a command of its own" in ended.err


def test_a_terminal_without_unicode_gets_numbers(lab: Path) -> None:
    ended = run("moot", "demo", folder=lab, environ={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert ended.code == 0
    assert "\\u25c0" in ended.out


def test_what_should_not_have_happened_goes_into_a_file(tmp_path: Path) -> None:
    """A mistake of ours: one line for whoever meets it, the traceback for whoever mends it."""
    (tmp_path / "sitecustomize.py").write_text(
        "import moot.up.scaffold\ndef fail(): raise KeyError('oops')\nmoot.up.scaffold.templates = fail\n"
    )
    environ = {"PYTHONPATH": str(tmp_path), "TMPDIR": str(tmp_path)}
    ended = run("moot", "init", "--list", folder=tmp_path, environ=environ)
    assert ended.code == 1
    assert ended.err.count("\n") == 1
    (file,) = tmp_path.glob("moot-crash-*.txt")
    assert ended.err.startswith("moot: this should not have happened: KeyError: 'oops'")
    assert str(file) in ended.err
    assert "in fail" in file.read_text()
    assert file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("serve", "x", "--port", "abc"), "moot serve: error: argument --port: 'abc' is not a whole number"),
        (
            ("member", "pause", "x", "--for", "soon"),
            "moot member pause: error: argument --for: 'soon' is no duration: write 90s, 15m, 1h or 7d",
        ),
        (
            ("members", "--gatway", "x"),
            "moot members: error: unrecognized arguments: --gatway x; did you mean",
        ),
        (("journal", "tail", "--dta", "x"), "unrecognized arguments: --dta x; did you mean --data?"),
        (("mcp", "--idle-seconds", "5"), "--idle-seconds 5; leave it out: whoever has sent nothing for 10"),
        (("up", "lab", "more"), "moot up: error: unrecognized arguments: more"),
        (("sign-in", "docs", "--server", "x"), "unrecognized arguments: x; --server takes no value"),
    ],
)
def test_a_mistake_in_the_call_is_told_by_the_command(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_a_short_command_never_looks_for_garbage_and_a_long_one_often() -> None:
    script = (
        "import gc, sys\nfrom moot.cli import main\n"
        "looked = []\n"
        "gc.callbacks.append(lambda phase, facts: looked.append(phase) if gc.get_freeze_count() else None)\n"
        "sys.argv = ['moot', 'journal']\n"
        "main()\n"
        "assert not looked, looked\n"
        "kept = [[] for _ in range(200_000)]\n"
        "assert looked and gc.get_threshold() == (20_000, 20, 50), (len(looked), gc.get_threshold())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stderr


def test_a_command_looks_for_no_garbage_while_it_loads_and_does_so_later() -> None:
    """In its own process; who calls one from a program of theirs keeps their settings."""
    script = (
        "import gc, sys\nfrom moot.cli import main\n"
        "seen = []\n"
        "class Watch:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        seen.append((name, gc.isenabled()))\n"
        "sys.meta_path.insert(0, Watch())\n"
        "sys.argv = ['moot', 'journal']\n"
        "code = main()\n"
        "assert ('moot.cli.journal.journal_commands', False) in seen, seen\n"
        "sys.exit(code or (0 if gc.isenabled() and gc.get_freeze_count() else 'no longer'))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stderr
    frozen = gc.get_freeze_count()
    assert main(["journal"]) == 0
    assert gc.isenabled()
    assert gc.get_freeze_count() <= frozen
