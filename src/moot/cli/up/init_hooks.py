"""`moot init claude-code|codex|gemini`: puts `moot hook` into the settings of a coding agent."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Final

from moot.agents.hook.hook_call import AgentName
from moot.agents.hook.hook_config import FILES, hook_groups, remove_former, write_settings
from moot.errors import UsageError

_NOTES: Final[dict[AgentName, str]] = {
    "claude-code": "Needs Claude Code 2.1.295 or later: earlier ones go on when a hook is killed. The file "
    "is for you alone: keep it out of git.",
    "codex": "Start Codex here, review the hook with /hooks, and trust it; until then it is skipped. "
    "It is asked only where Codex asks for permission.",
    "gemini": "Gemini CLI goes on when a hook is killed; keep its own approvals on as well (no --yolo).",
}


def run_hooks(options: argparse.Namespace, agent: AgentName) -> int:
    """Write the hook into the settings of the project, or print it."""
    if options.gateway is None or options.token_file is None:
        raise UsageError(
            f"moot init {agent} needs --gateway URL and --token-file FILE, the token of the agent's member"
        )
    folder = Path(options.folder).expanduser().resolve()
    token_file = Path(options.token_file).expanduser().resolve()
    if folder in token_file.parents:
        print(
            f"note: {token_file} is in the folder of the agent, which can read it. Keep tokens that may "
            "decide elsewhere",
            file=sys.stderr,
        )
    argv = [*_program(), "hook", agent, "--gateway", options.gateway]
    if options.space:
        argv += ["--space", options.space]
    argv += ["--token-file", str(token_file)]
    if options.print_only:
        groups = {event: [group] for event, group in hook_groups(agent, argv).items()}
        print(json.dumps({"hooks": groups}, indent=2, ensure_ascii=False))
        return 0
    path = folder / FILES[agent]
    backup = write_settings(path, agent, argv)
    former = remove_former(folder, agent)
    if former is not None:
        print(f"note: removed the hook of an earlier run from {former}, beside a copy", file=sys.stderr)
    kept = "" if backup is None else f" (before: {backup})"
    print(f"{agent}: every call waits for a decision in the space; written to {path}{kept}\n{_NOTES[agent]}")
    return 0


def _program() -> list[str]:
    # An absolute path to this installation: agents start hooks with their own PATH.
    program = Path(sys.executable).absolute().with_name("moot")
    return [str(program)] if program.is_file() else [sys.executable, "-m", "moot.cli"]
