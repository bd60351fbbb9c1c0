"""Settings of coding agents in the folder that they work in: files that may allow things without asking.

More than a file of settings does that: helpers with a mode of their own, skills that release tools or bring
hooks, commands, plugins, MCP servers, rules. So everything below the folders that an agent reads counts, and
what is known to be words only is left out. The agents look for these in the folders above as well.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from moot.agents.acp.agent_profiles import PROFILES, AgentProfile

# Of any agent, for what an agent writes: one agent may prepare what another one reads.
ALL_NAMES: Final = frozenset(name for profile in PROFILES for name in profile.project_files)
# As good as these for whoever writes there: hooks, and programs that git runs for `git status`.
_GIT: Final = ".git"
# More files than people would read are not looked at one by one.
_MAX_FILES: Final = 1_000
# Named in a sentence.
_MOST_LISTED: Final = 8


def find_settings(profile: AgentProfile, folder: Path, home: str | None) -> dict[str, tuple[int, int]]:
    """Each settings file in the folder and those above it, with what tells whether it has changed.

    The home of whoever starts the agent is left out, unless it is the folder itself: the agent has a home of
    its own, in place of that one.
    """
    real_home = os.path.realpath(home) if home else None
    found: dict[str, tuple[int, int]] = {}
    for place in (folder, *folder.parents):
        if place != folder and real_home is not None and os.path.realpath(place) == real_home:
            continue
        for name in profile.project_files:
            for path in _files_below(place / name, profile.harmless_files):
                if len(found) >= _MAX_FILES:
                    return found
                found[path] = _state_of(path)
    return found


def _files_below(top: Path, harmless: tuple[str, ...]) -> Iterator[str]:
    """The file itself, or all files below it; an empty folder is nothing."""
    try:
        entries = sorted(os.scandir(top), key=lambda entry: entry.name)
    except FileNotFoundError:
        # A link that leads nowhere may lead somewhere a moment later.
        if top.is_symlink():
            yield str(top)
        return
    except OSError:
        # A file; or a folder that we cannot read, and the agent might.
        yield str(top)
        return
    for entry in entries:
        if entry.name in harmless:
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _files_below(Path(entry.path), ())
        else:
            # A link to a folder is named as such: what it leads to may be large, and is read as well.
            yield entry.path


def _state_of(path: str) -> tuple[int, int]:
    try:
        state = os.stat(path)
    except OSError:
        return 0, 0
    return state.st_mtime_ns, state.st_size


def shorten_list(paths: Iterable[str]) -> str:
    """Paths for people, not more than they read."""
    given = list(paths)
    more = f" and {len(given) - _MOST_LISTED} more" if len(given) > _MOST_LISTED else ""
    return ", ".join(given[:_MOST_LISTED]) + more


def settings_among(paths: Iterable[str], folder: Path) -> list[str]:
    """Those of the paths that lead to settings of an agent, whichever, or of git, links followed."""
    top = os.path.realpath(folder)
    found: dict[str, None] = {}
    for path in paths:
        given = os.path.join(top, os.path.expanduser(path))
        # As it is written, and where it leads to: a link may be named like settings, or lead there.
        for each in (os.path.normpath(given), os.path.realpath(given) if "\0" not in given else given):
            # The folder itself may stand below such a name, as worktrees of Claude Code do.
            inner = each.removeprefix(top + os.sep)
            # Also on disks that do not tell upper from lower case.
            if any(part in ALL_NAMES or part == _GIT for part in inner.lower().split(os.sep)):
                found[path] = None
    return list(found)


def names_settings(text: str) -> bool:
    """Whether a text, such as a command, names settings of an agent."""
    lowered = text.lower()
    return any(name in lowered for name in ALL_NAMES)
