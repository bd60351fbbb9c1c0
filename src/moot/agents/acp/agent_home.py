"""The home of an agent: its own, for our user alone, and empty at every start but for its sessions.

What an agent keeps there gives it permissions later: rules, settings, trusted folders. So nothing of that
outlives a start, and nothing of the home of the person who starts it gets in but, with `--sign-in`, the files
with their sign-in.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from moot.agents.acp.agent_profiles import AgentProfile
from moot.agents.acp.call_contents import texts_anywhere
from moot.errors import UsageError
from moot.private_files import use_folder

# Agents run `git status` and the like unasked, and a repository can name a program that these then run.
_HARMLESS_GIT: Final = {
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "core.fsmonitor",
    "GIT_CONFIG_VALUE_0": "false",
    "GIT_PAGER": "cat",
}
# Tokens are longer than the names and dates beside them.
_SECRET_CHARS: Final = 24
_PACKAGE_RUNNERS: Final = frozenset({"npx", "npm", "pnpm", "bunx"})


def prepare_home(home: Path, profile: AgentProfile, *, trust_folder: bool = False) -> None:
    """Make the home, or remove from it all but sessions; raises UsageError if that is not possible.

    Without `trust_folder` the agent is told to leave the settings of its folder out.
    """
    use_folder(home.parent, what="the state folder", option="--state DIR")
    kept = [Path(path) for path in profile.kept]
    try:
        if home.is_symlink():
            home.unlink()
        _remove_all_but(home, Path(), kept)
    except OSError as fault:
        raise UsageError(f"the home of the agent, {home}, cannot be emptied: {fault.strerror}") from None
    use_folder(home, what="the home of the agent", option="--state DIR")
    for value in profile.environment.values():
        if value.startswith("{home}/"):
            # Codex does not start if its folder is not there.
            (home / value.removeprefix("{home}/")).mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, text in () if trust_folder else profile.untrusting_files.items():
        file = home / name
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.write_text(text)


def link_sign_in(home: Path, profile: AgentProfile, inherited: Mapping[str, str]) -> list[Path]:
    """Let the agent use the sign-in of whoever starts it, and nothing else of that home; returns the files.

    Links, because an agent that renews a sign-in makes older copies of it void. Raises UsageError if there is
    none.
    """
    found = []
    for name in profile.sign_in_files:
        file = _in_home_of(inherited, profile, name)
        if file is not None and file.is_file():
            link = home / name
            link.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(file.resolve())
            found.append(file)
    if not found:
        looked = ", ".join(f"~/{name}" for name in profile.sign_in_files) or "none is known for it"
        raise UsageError(
            f"--sign-in: there is no sign-in of {profile.name} in your home ({looked})"
            + (f": {profile.sign_in_help}" if profile.sign_in_help else "")
        )
    return found


def _in_home_of(inherited: Mapping[str, str], profile: AgentProfile, name: str) -> Path | None:
    """A file of a person's home, or of the folder that their own variable names in place of it."""
    for variable, value in profile.environment.items():
        top = value.removeprefix("{home}/")
        if top != value and name.startswith(f"{top}/") and inherited.get(variable):
            return Path(inherited[variable]) / name.removeprefix(f"{top}/")
    return Path(inherited["HOME"]) / name if inherited.get("HOME") else None


def secrets_in(file: Path) -> list[str]:
    """The longer texts of a file with a sign-in; none if it is no JSON."""
    try:
        value = json.loads(file.read_text())
    except (OSError, ValueError):
        return []
    return [text for text in texts_anywhere(value) if len(text) >= _SECRET_CHARS]


def _remove_all_but(home: Path, inner: Path, kept: list[Path]) -> None:
    folder = home / inner
    if not folder.is_dir():
        return
    for entry in os.scandir(folder):
        path = inner / entry.name
        # Through no link: it may lead anywhere.
        if entry.is_dir(follow_symlinks=False):
            if path in kept:
                continue
            if any(path in each.parents for each in kept):
                _remove_all_but(home, path, kept)
            else:
                shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)


def home_environment(
    home: Path, profile: AgentProfile, argv: tuple[str, ...], inherited: Mapping[str, str]
) -> dict[str, str]:
    """The variables that lead an agent to its own home."""
    environment = {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_DATA_HOME": str(home / ".local" / "share"),
        "XDG_STATE_HOME": str(home / ".local" / "state"),
        "XDG_CACHE_HOME": str(home / ".cache"),
        **_HARMLESS_GIT,
        **{name: value.replace("{home}", str(home)) for name, value in profile.environment.items()},
    }
    real = inherited.get("HOME")
    if real and Path(argv[0]).name in _PACKAGE_RUNNERS:
        # Packages are not fetched anew at every start.
        environment["npm_config_cache"] = inherited.get("npm_config_cache", str(Path(real) / ".npm"))
    return environment
