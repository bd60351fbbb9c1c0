"""The page on backups, word by word: its shell blocks run against a running gateway, and the copy starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_docs import blocks_of, text_of
from tests.waiting import HANG_SECONDS
from tests.warm_start import warm_command, warm_programs

PAGE = "docs/how-to/upgrade-and-back-up.md"
CONFIG = """
gateway: {port: 0}
spaces:
  lab:
    participants:
      alice: {capabilities: ["*"]}
      agent: {profile: proposal-only}
"""


# Next to this Python, so that the page's `moot` and `python3` are the ones under test.
def _environment() -> dict[str, str]:
    return os.environ | {"PATH": f"{warm_programs()}:{Path(sys.executable).parent}:{os.environ['PATH']}"}


def _block(starting_with: str) -> str:
    """The shell block of the page that has this line."""
    [found] = [
        block.code for block in blocks_of(text_of(PAGE)) if block.info == "sh" and starting_with in block.code
    ]
    return found


def _shell(script: str, folder: Path) -> str:
    done = subprocess.run(  # noqa: S603 — our own page
        ["/bin/sh", "-euc", script],
        cwd=folder,
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class _Serving:
    """`moot serve` in a folder, up when the block is entered and ended with it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> str:
        self._process = subprocess.Popen(  # noqa: S603 — our own command
            [*warm_command(), "serve", "moot.yaml"],
            cwd=self._folder,
            env=_environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if "listening on" in line:
                return line.split("listening on ")[1].strip()
        raise AssertionError("the gateway ended before it listened")

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(HANG_SECONDS)
        if self._process.stdout is not None:
            self._process.stdout.close()


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    folder = tmp_path / "lab"
    folder.mkdir()
    (folder / "moot.yaml").write_text(CONFIG, "utf-8")
    return folder


def _as_alice(folder: Path, address: str, command: str) -> str:
    token = ".moot/tokens/alice.token"
    return _shell(f"moot {command} --gateway {address} --space lab --token-file {token}", folder)


def test_a_copy_made_while_the_gateway_runs_is_restored_with_its_members(lab: Path) -> None:
    with _Serving(lab) as address:
        invited = _as_alice(lab, address, "member invite bob --token-out bob.token")
        assert "bob" in invited
        output = _shell(_block("sqlite3.connect"), lab)
        assert "the chain holds" in output
    token = (lab / "bob.token").read_text("utf-8")
    output = _shell(_block("mv ../lab ../lab-broken"), lab)
    assert "the chain holds" in output
    again = lab.parent / "lab"
    (again / "bob.token").write_text(token, "utf-8")
    (again / "bob.token").chmod(0o600)
    (again / "bob.token").chmod(0o600)
    with _Serving(again) as address:
        sent = _shell(f"moot send --gateway {address} --space lab --token-file bob.token I am back", again)
    assert "I am back" in _shell("moot journal tail", again), sent


def test_a_copy_of_the_stopped_folder_is_whole(lab: Path) -> None:
    with _Serving(lab) as address:
        _as_alice(lab, address, "send kept")
    _shell(_block("tar -czf"), lab)
    unpacked = lab.parent / "unpacked"
    unpacked.mkdir()
    _shell("tar -xzf ../lab-backup.tar.gz", unpacked)
    with _Serving(unpacked):
        assert "kept" in _shell("moot journal tail", unpacked)
    assert (lab.parent / "lab-backup.tar.gz").stat().st_mode & 0o077 == 0
