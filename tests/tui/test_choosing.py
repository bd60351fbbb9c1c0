"""Full screen or lines: `moot join` chooses what works where it is, and says so."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import pytest

from moot.cli.client import join
from tests.cli.space_with_members import SpaceWithMembers, space_with_members
from tests.cli.terminals import MOOT, environment, terminal
from tests.waiting import HANG_SECONDS


@pytest.fixture
def lab(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[SpaceWithMembers]:
    monkeypatch.chdir(tmp_path)
    with space_with_members(tmp_path, capsys) as members:
        yield members


def test_on_a_terminal_it_is_full_screen_and_a_signal_ends_it_cleanly(lab: SpaceWithMembers) -> None:
    with terminal(lab.folder, "join") as (screen, process):
        # The alternate screen, and the mouse.
        screen.until(lambda shown: "\x1b[?1049h" in shown and "\x1b[?1000h" in shown)
        screen.until(lambda shown: "joined" in shown)
        process.send_signal(15)
        screen.until(lambda shown: "\x1b[?1049l" in shown)
        assert process.wait(HANG_SECONDS) == 0
    assert "Traceback" not in screen.shown


def test_into_a_pipe_it_is_lines_with_a_hint_for_whoever_sits_there(lab: SpaceWithMembers) -> None:
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(  # noqa: S603
            [*MOOT, "join"],
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=lab.folder,
            env=environment(),
            start_new_session=True,
        )
        os.write(ours, b"/members\n\x04")
        output, errors = process.communicate(timeout=HANG_SECONDS)
    finally:
        os.close(ours)
        os.close(theirs)
    assert b"alice (you)  *" in output
    assert b"\x1b" not in output
    assert errors.decode() == (
        "moot: lines of text, since the output is no terminal; --plain says so without this hint\n"
    )
    assert process.returncode == 0


class _Terminal:
    """Says that it is one."""

    def isatty(self) -> bool:
        return True


def chosen(**options: bool) -> Namespace:
    return Namespace(**({"plain": False, "json": False} | options))


def test_what_is_missing_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", _Terminal())
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert join._wants_full_screen(chosen())
    assert not join._wants_full_screen(chosen(plain=True))
    assert not join._wants_full_screen(chosen(json=True))
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("TERM", "dumb")
    assert not join._wants_full_screen(chosen())
    assert "TERM" in capsys.readouterr().err
    monkeypatch.setattr(join, "find_spec", lambda _: None)
    assert not join._wants_full_screen(chosen())
    assert "pip install '.[tui]' in the clone" in capsys.readouterr().err


def test_lines_need_no_textual() -> None:
    """The extra is for the screen alone."""
    code = (
        "import sys; sys.modules['textual'] = None\n"
        "import moot.cli.client.join, moot.operations.operation_table, moot.operations.text.envelope_view\n"
    )
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, check=False, timeout=HANG_SECONDS
    )
    assert (done.returncode, done.stderr) == (0, b"")
