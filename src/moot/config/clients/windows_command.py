"""Commands as clients on Windows have them: in `cmd /c`, as `npx.cmd`, with paths such as `C:\\Users\\me`.

Moot runs on Linux and macOS, Windows included only by WSL. What is started there under the same name is
started so here; that there are paths is told to whoever has to replace them.
"""

from __future__ import annotations

import re
from pathlib import PureWindowsPath
from typing import Final

_SHELLS: Final = frozenset({"cmd", "cmd.exe"})
_SHELL_OPTION = re.compile(r"/[A-Za-z]")
# Programs that are called the same everywhere, and on Windows are often named with their place or ending.
_LAUNCHERS: Final = frozenset(
    {"bun", "bunx", "deno", "docker", "node", "npm", "npx", "pnpm", "python", "uv", "uvx"}
)
_ENDINGS: Final = frozenset({"", ".bat", ".cmd", ".exe"})
_PATH = re.compile(r"[A-Za-z]:[\\/]")


def for_this_system(command: str, words: list[str]) -> tuple[str, list[str]]:
    """The command and its arguments without what only Windows needs."""
    if PureWindowsPath(command).name.lower() in _SHELLS:
        rest = list(words)
        while rest and _SHELL_OPTION.fullmatch(rest[0]):
            rest.pop(0)
        if rest and len(rest) < len(words):
            command, words = rest[0], rest[1:]
    place = PureWindowsPath(command)
    if place.suffix.lower() in _ENDINGS and place.stem.lower() in _LAUNCHERS and "/" not in command:
        command = place.stem.lower()
    return command, words


def is_windows_path(word: str) -> bool:
    """Whether a word is a path on Windows, or an option with one."""
    return _PATH.match(word.rpartition("=")[2]) is not None
