"""Agents that were tried: how each is started so that it asks, and what it does without asking.

An agent's own defaults are not safe: several start in a mode in which a model decides, or nothing is asked.
Settings in the home of a person, and in the folder that the agent works in, may allow anything. So a known
agent gets a home of its own, the mode in which it asks, and only the variables that it needs; and its own
settings files in the folder are found before it is started.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentProfile:
    """What is known about one agent."""

    name: str
    # Words of a command line that start it: names of programs and of packages.
    programs: tuple[str, ...] = ()
    # The mode in which it asks; None: it has none.
    mode: str | None = None
    # Variables of ours that it may have: keys and addresses of its model.
    variables: tuple[str, ...] = ()
    # Variables that are set; `{home}` is its home.
    environment: Mapping[str, str] = field(default_factory=dict)
    # How to sign in, by the variable that has to be there.
    sign_in: Mapping[str, str] = field(default_factory=dict)
    # What of its home outlives a restart: its sessions, and nothing that gives permissions.
    kept: tuple[str, ...] = ()
    # Files and folders of a project that may allow things without asking.
    project_files: tuple[str, ...] = ()
    # Ids of options that allow once and no more, the first that is offered.
    allow_once_ids: tuple[str, ...] = ()
    # What it does without asking, in the mode above.
    unasked: tuple[str, ...] = ()


UNKNOWN: Final = AgentProfile(name="an agent that Moot does not know")

_OPENAI: Final = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL")

PROFILES: Final = (
    AgentProfile(
        name="Claude Code",
        programs=("claude-agent-acp", "claude-code-acp"),
        mode="default",
        variables=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "ANTHROPIC_MODEL"),
        environment={"CLAUDE_CONFIG_DIR": "{home}/.claude"},
        kept=(".claude/projects",),
        project_files=(".claude/settings.json", ".claude/settings.local.json", ".mcp.json"),
        allow_once_ids=("allow-once", "allow"),
        unasked=(
            "reads and searches files in its folder",
            "runs commands that it takes for reading only, such as ls and git status",
            "keeps a list of tasks and starts helpers of its own",
        ),
    ),
    AgentProfile(
        name="Codex",
        programs=("codex-acp",),
        mode="read-only",
        variables=(*_OPENAI, "CODEX_API_KEY"),
        environment={"CODEX_HOME": "{home}/.codex", "INITIAL_AGENT_MODE": "read-only"},
        sign_in={"OPENAI_API_KEY": "api-key", "CODEX_API_KEY": "api-key"},
        kept=(".codex/sessions",),
        project_files=(".codex",),
        allow_once_ids=("approved", "allow-once", "allow_once"),
        unasked=(
            "runs commands within its own read-only sandbox; it asks when one has to leave it. Whether the "
            "sandbox holds on this machine is not checked here",
            "reads all files that its user may read",
        ),
    ),
    AgentProfile(
        name="Gemini CLI",
        programs=("gemini", "gemini-cli"),
        mode="default",
        variables=("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL", "GEMINI_MODEL"),
        sign_in={"GEMINI_API_KEY": "gemini-api-key"},
        kept=(".gemini/tmp",),
        project_files=(".gemini",),
        allow_once_ids=("proceed_once",),
        unasked=("reads, lists and searches files in its folder", "keeps a list of tasks"),
    ),
    AgentProfile(
        name="OpenCode",
        programs=("opencode", "opencode-ai"),
        variables=(*_OPENAI, "ANTHROPIC_API_KEY", "OPENCODE_CONFIG"),
        environment={
            # Its default is to run everything.
            "OPENCODE_PERMISSION": '{"edit":"ask","bash":"ask","webfetch":"ask","external_directory":"ask"}',
        },
        kept=(".local/share/opencode/storage",),
        project_files=("opencode.json", "opencode.jsonc", ".opencode"),
        allow_once_ids=("once",),
        unasked=("reads, lists and searches files in its folder", "starts helpers of its own"),
    ),
    AgentProfile(
        name="Qwen Code",
        programs=("qwen", "qwen-code"),
        mode="default",
        variables=_OPENAI,
        sign_in={"OPENAI_API_KEY": "openai"},
        kept=(".qwen/projects", ".qwen/tmp"),
        project_files=(".qwen",),
        allow_once_ids=("proceed_once",),
        unasked=(
            "reads, lists and searches files in its folder",
            "runs commands that it takes for reading only, such as ls and git status",
        ),
    ),
)


def profile_of(argv: Sequence[str]) -> AgentProfile:
    """The profile of the agent that a command line starts: by its program, or the package that npx runs."""
    for word in argv:
        name = word.rpartition("/")[2]
        # npx takes PACKAGE@VERSION, and packages have scopes.
        name = name.partition("@")[0] if "@" in name else name
        for suffix in (".js", ".mjs", ".cjs"):
            name = name.removesuffix(suffix)
        for profile in PROFILES:
            if name in profile.programs:
                return profile
    return UNKNOWN


def project_settings(profile: AgentProfile, folder: Path) -> list[str]:
    """The settings of the agent that the folder holds, and the folders above it."""
    return [
        str(place / name)
        for place in (folder, *folder.parents)
        for name in profile.project_files
        if (place / name).exists()
    ]
