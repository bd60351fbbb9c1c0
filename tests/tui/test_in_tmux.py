"""The terminal as a person has it: a space of real processes, `moot join` in tmux, keys and what is seen."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.test_docs import Block, blocks_of, text_of
from tests.waiting import HANG_SECONDS, until_seen

MOOT = [sys.executable, "-m", "moot.cli"]
PAGE = "docs/how-to/use-the-terminal.md"
SPACE = next(block.code for block in blocks_of(text_of(PAGE)) if block.info == "yaml")
# Processes start on two noisy cores here.

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


def environment() -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": os.environ.get("HOME", "/"),
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
        "TZ": "UTC",
    }


class Tmux:
    """A terminal with one window, on a server of its own."""

    def __init__(self, folder: Path, size: tuple[int, int]) -> None:
        self._socket = folder / "tmux.socket"
        self._folder = folder
        self._size = size

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(  # noqa: S603
            ["tmux", "-u", "-f", "/dev/null", "-S", str(self._socket), *words],  # noqa: S607
            cwd=self._folder,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=HANG_SECONDS,
            check=False,
        )
        return done.stdout

    def run(self, *command: str) -> None:
        """Run something in the window; its exit code stands there at its end."""
        width, height = self._size
        words = " ".join(f"'{word}'" for word in command)
        shell = f"{words}; echo exit code $?; sleep 600"
        self._tmux("new-session", "-d", "-x", str(width), "-y", str(height), shell)

    def keys(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def screen(self) -> str:
        return self._tmux("capture-pane", "-p")

    def until(self, holds: Callable[[str], bool]) -> str:
        screen = ""

        def look() -> bool:
            nonlocal screen
            screen = self.screen()
            return holds(screen)

        until_seen(look, lambda: screen)
        return screen

    def end(self) -> None:
        self._tmux("kill-server")


@contextmanager
def running_space(folder: Path) -> Iterator[None]:
    """`moot up`: a gateway and a file server, as processes."""
    (folder / "moot.yaml").write_text(SPACE.replace("python3", sys.executable), "utf-8")
    (folder / "shared").mkdir()
    with (folder / "up.log").open("wb") as log:
        process = subprocess.Popen(  # noqa: S603
            [*MOOT, "up"], cwd=folder, env=environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:

        def is_there() -> bool:
            assert process.poll() is None, (folder / "up.log").read_text()
            return '"files"' in typed(folder, "tools", "--json")

        until_seen(is_there, (folder / "up.log").read_text)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(HANG_SECONDS)


def typed(folder: Path, *words: str) -> str:
    """What a command prints."""
    done = subprocess.run(  # noqa: S603
        [*MOOT, *words],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    return done.stdout


def test_a_person_approves_rejects_and_leaves_in_a_real_terminal(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    with running_space(tmp_path):
        tmux = Tmux(tmp_path, (110, 34))
        tmux.run(*MOOT, "join")
        try:
            tmux.until(lambda screen: "● joined" in screen and "Joined lab as you" in screen)
            arguments = ("files", "write_file", "path=plan.md", "text=later")
            proposed = typed(tmp_path, "call", *arguments, "--propose", "--no-wait", "--as", "agent")
            assert proposed.startswith("proposed: ")
            screen = tmux.until(lambda screen: "#1 write_file on files" in screen)
            assert "2 approvals(1)" in screen
            # Seen in full, then approved; it is carried out exactly so.
            tmux.keys("Escape")
            tmux.until(lambda screen: "╭" in screen.splitlines()[-4])
            tmux.keys("2")
            tmux.until(lambda screen: "▌ #1" in screen)
            tmux.keys("a")
            screen = tmux.until(lambda screen: "y yes, exactly this" in screen and "  later" in screen)
            assert "path: plan.md" in screen
            assert not (shared / "plan.md").exists()
            time.sleep(1)
            tmux.keys("y")
            tmux.until(lambda screen: "✓ approved write_file" in screen)
            assert (shared / "plan.md").read_text() == "later"
            # Another one is rejected with a reason.
            typed(
                tmp_path,
                "call",
                "files",
                "write_file",
                "path=x.md",
                "text=no",
                "--propose",
                "--no-wait",
                "--as",
                "agent",
            )
            tmux.until(lambda screen: "#2 write_file on files" in screen)
            tmux.keys("r")
            tmux.until(lambda screen: "choose a reason" in screen)
            time.sleep(1)
            tmux.keys("Down", "Down", "Enter")
            tmux.until(lambda screen: "✗ rejected write_file" in screen and "unsafe" in screen)
            assert not (shared / "x.md").exists()
            # What a peer wrote moves no cursor and sets no title.
            typed(tmp_path, "send", "\x1b[2J\x1b]0;pwned\x07gone?", "--as", "agent")
            screen = tmux.until(lambda screen: "gone?" in screen)
            assert "\\x1b[2J\\x1b]0;pwned\\x07gone?" in screen.replace("\n", "")
            # A line with completion, then out.
            tmux.keys("/")
            tmux.until(lambda screen: "▌ /send" in screen)
            tmux.keys("me")
            tmux.until(lambda screen: "▌ /members" in screen)
            tmux.keys("Tab")
            tmux.until(lambda screen: "/members" in screen.splitlines()[-3])
            tmux.keys("Enter")
            tmux.until(lambda screen: "PERMISSIONS" in screen and "you (you)" in screen)
            tmux.keys("C-c")
            screen = tmux.until(lambda screen: "exit code" in screen)
            assert "exit code 0" in screen
            assert "Traceback" not in screen
        finally:
            tmux.end()


def steps_of(block: Block) -> Iterator[tuple[str, str]]:
    """What to type, and what stands on the screen then."""
    for each in block.code.splitlines():
        keys, _, seen = each.partition("→")
        yield keys.strip(), seen.strip()


def test_what_the_page_types_shows_what_it_says(tmp_path: Path) -> None:
    steps = 0
    with running_space(tmp_path):
        tmux = Tmux(tmp_path, (110, 40))
        try:
            for block in blocks_of(text_of(PAGE)):
                if block.info == "sh" and block.code.split() == ["moot", "join"]:
                    tmux.run(*MOOT, "join")
                    tmux.until(lambda screen: "● joined" in screen and "Joined lab as you" in screen)
                elif block.info == "sh":
                    assert typed(tmp_path, *block.code.split()[1:]).startswith("proposed: ")
                elif block.info == "keys":
                    for keys, seen in steps_of(block):
                        if keys in ("y", "Enter"):
                            time.sleep(1)  # a dialog wants to be read
                        tmux.keys(keys)
                        tmux.until(lambda screen, seen=seen: seen in screen)  # type: ignore[misc]
                        steps += 1
            tmux.until(lambda screen: screen.count("later") >= 3)
            tmux.keys("C-c")
            tmux.until(lambda screen: "exit code 0" in screen)
        finally:
            tmux.end()
    assert steps >= 15
    assert (tmp_path / "shared" / "docs" / "a.md").read_text() == "x"
    assert not (tmp_path / "shared" / "secrets.md").exists()
