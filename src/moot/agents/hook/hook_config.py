"""Puts the hook into the settings of a coding agent, beside what is there already."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any, Final

from moot.agents.hook.hook_call import AFTER_EVENTS, EVENTS, AgentName
from moot.errors import UsageError
from moot.resilience.atomic_file import write_atomically

# Below the folder of the project. The hook has paths of one person, so where an agent has a file for that
# person alone, it stands there.
FILES: Final[dict[AgentName, str]] = {
    "claude-code": ".claude/settings.local.json",
    "codex": ".codex/hooks.json",
    "gemini": ".gemini/settings.json",
}
# Where earlier versions have put it: a hook that stands in both would ask twice.
FORMER_FILES: Final[dict[AgentName, str]] = {"claude-code": ".claude/settings.json"}
# The agent kills a hook after this; the hook itself denies earlier.
AGENT_SECONDS: Final = 3_600
# A report that cannot be told by then is not told.
REPORT_SECONDS: Final = 30


def hook_groups(agent: AgentName, argv: list[str]) -> dict[str, dict[str, Any]]:
    """The entries of this hook by their events: one that decides, others that tell of a call afterwards."""
    return {EVENTS[agent]: _deciding(agent, argv)} | {
        event: _reporting(agent, argv) for event in AFTER_EVENTS[agent]
    }


def _reporting(agent: AgentName, argv: list[str]) -> dict[str, Any]:
    seconds = REPORT_SECONDS * (1_000 if agent == "gemini" else 1)
    hook = {"type": "command", "command": shlex.join(argv), "timeout": seconds}
    return {"matcher": ".*" if agent == "gemini" else "*", "hooks": [hook]}


def _deciding(agent: AgentName, argv: list[str]) -> dict[str, Any]:
    # A shell turns a command that cannot be started into 127, with which agents go on: 2 stops them.
    hook: dict[str, Any] = {"type": "command", "command": f"{shlex.join(argv)} || exit 2"}
    # Gemini CLI counts milliseconds.
    hook["timeout"] = AGENT_SECONDS * 1_000 if agent == "gemini" else AGENT_SECONDS
    if agent == "claude-code":
        hook["onFailure"] = "block"
    return {"matcher": ".*" if agent == "gemini" else "*", "hooks": [hook]}


def merge_settings(agent: AgentName, text: str, argv: list[str]) -> str:
    """The settings with the hook in them, once; raises UsageError if they cannot be read."""
    settings = _read(text)
    hooks = settings.setdefault("hooks", {}) if isinstance(settings, dict) else None
    for event, made in hook_groups(agent, argv).items():
        groups = hooks.setdefault(event, []) if isinstance(hooks, dict) else None
        if not isinstance(groups, list):
            raise UsageError(f"the settings have no list at hooks.{event}: nothing was changed. Use --print")
        groups[:] = [each for each in groups if not _is_ours(each, agent)] + [made]
    return json.dumps(settings, indent=2, ensure_ascii=False) + "\n"


def _read(text: str) -> Any:
    try:
        return json.loads(text) if text.strip() else {}
    except ValueError as fault:
        raise UsageError(
            f"the settings are no plain JSON ({fault}): nothing was changed. Use --print, and add it by hand"
        ) from None


def without_hook(agent: AgentName, text: str) -> str:
    """The settings without the hook, and as they are if it is not there; raises UsageError."""
    settings = _read(text)
    hooks = settings.get("hooks") if isinstance(settings, dict) else None
    if not isinstance(hooks, dict):
        return text
    kept = {
        event: [each for each in groups if not _is_ours(each, agent)] if isinstance(groups, list) else groups
        for event, groups in hooks.items()
    }
    if kept == hooks:
        return text
    settings["hooks"] = {event: groups for event, groups in kept.items() if groups or not hooks[event]}
    if not settings["hooks"]:
        del settings["hooks"]
    return json.dumps(settings, indent=2, ensure_ascii=False) + "\n"


def _is_ours(group: Any, agent: AgentName) -> bool:
    """Whether this is a group of an earlier run: one hook, which runs `moot hook`."""
    hooks = group.get("hooks") if isinstance(group, dict) else None
    if not isinstance(hooks, list) or len(hooks) != 1 or not isinstance(hooks[0], dict):
        return False
    return _mark(agent) in str(hooks[0].get("command"))


def _mark(agent: AgentName) -> str:
    return f" hook {agent} "


def write_settings(path: Path, agent: AgentName, argv: list[str]) -> Path | None:
    """Add the hook to a file, whole or not at all; returns the copy of what was there."""
    before = path.read_text("utf-8") if path.exists() else ""
    return _replace_text(path, before, merge_settings(agent, before, argv))


def remove_former(folder: Path, agent: AgentName) -> Path | None:
    """Remove the hook from where earlier versions have put it; returns that file if it was there."""
    name = FORMER_FILES.get(agent)
    if name is None or not (path := folder / name).is_file():
        return None
    before = path.read_text("utf-8")
    after = without_hook(agent, before) if _mark(agent) in before else before
    if after == before:
        return None
    _replace_text(path, before, after)
    return path


def _replace_text(path: Path, before: str, after: str) -> Path | None:
    if after == before:
        return None
    backup = None
    if before:
        backup = next(
            each
            for number in range(1, 10_000)
            if not (each := path.with_name(f"{path.name}.before-moot-{number}")).exists()
        )
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    # Through a link to the file that it names.
    target = path.resolve()
    try:
        if backup is not None:
            write_atomically(backup, before.encode(), mode=mode, replace=False)
        write_atomically(target, after.encode(), mode=mode)
    except OSError as fault:
        if backup is not None:
            backup.unlink(missing_ok=True)
        raise UsageError(f"{path} cannot be written, and is as it was: {fault.strerror}") from None
    # The one that is replaced may have more than the umask leaves.
    target.chmod(mode)
    return backup
