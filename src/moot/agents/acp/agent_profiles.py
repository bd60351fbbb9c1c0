"""Agents that were tried: how each is started so that it asks, and what it does without asking.

An agent's own defaults are not safe: several start in a mode in which a model decides, or nothing is asked.
Settings in the home of a person, and in the folder that the agent works in, may allow anything. So a known
agent gets a home of its own, the mode in which it asks, and only the variables that it needs; and its own
settings files in the folder are found before it is started.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from moot.protocol.operation import Json


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
    # Files of a person's home that hold the sign-in and nothing else, and how to sign in with them.
    sign_in_files: tuple[str, ...] = ()
    sign_in_by_file: str | None = None
    # What to do where there are no such files.
    sign_in_help: str = ""
    # What of its home outlives a restart: its sessions, and nothing that gives permissions.
    kept: tuple[str, ...] = ()
    # Files and folders of a project that may allow things without asking, and what of them is words only.
    project_files: tuple[str, ...] = ()
    harmless_files: tuple[str, ...] = ()
    # What makes it leave these files out, where the folder is not trusted: variables, files of its own home,
    # and what a session is opened with.
    untrusting_environment: Mapping[str, str] = field(default_factory=dict)
    untrusting_files: Mapping[str, str] = field(default_factory=dict)
    untrusting_session: Mapping[str, Json] = field(default_factory=dict)
    # A file of a project by which the probe sees whether it does: `{mark}` is made when it counts.
    planted_file: tuple[str, str] | None = None
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
        variables=(
            "ANTHROPIC_API_KEY",
            "ANTHROPIC_AUTH_TOKEN",
            "ANTHROPIC_BASE_URL",
            "ANTHROPIC_MODEL",
            # Of a subscription.
            "CLAUDE_CODE_OAUTH_TOKEN",
        ),
        environment={"CLAUDE_CONFIG_DIR": "{home}/.claude"},
        sign_in_files=(".claude/.credentials.json",),
        sign_in_help="run `claude setup-token`, and give what it prints as CLAUDE_CODE_OAUTH_TOKEN",
        kept=(".claude/projects",),
        project_files=(".claude", ".mcp.json"),
        harmless_files=("CLAUDE.md", "AGENTS.md", "rules", "output-styles"),
        untrusting_session={"claudeCode": {"options": {"settingSources": ["user"], "strictMcpConfig": True}}},
        planted_file=(
            ".claude/settings.json",
            '{"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "touch {mark}"}]}]}}',
        ),
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
        sign_in_files=(".codex/auth.json",),
        sign_in_help="run `codex login`",
        kept=(".codex/sessions",),
        project_files=(".codex", ".agents"),
        allow_once_ids=("approved", "allow-once", "allow_once"),
        unasked=(
            "runs commands within its own read-only sandbox; it asks when one has to leave it. Whether the "
            "sandbox holds on this machine is not checked here",
            "reads all files that its user may read",
            "starts helpers of its own; they ask as it does, without showing the content of an edit",
        ),
    ),
    AgentProfile(
        name="Gemini CLI",
        programs=("gemini", "gemini-cli"),
        mode="default",
        variables=("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL", "GEMINI_MODEL"),
        sign_in={"GEMINI_API_KEY": "gemini-api-key"},
        sign_in_files=(
            ".gemini/oauth_creds.json",
            ".gemini/google_accounts.json",
            ".gemini/gemini-credentials.json",
        ),
        sign_in_by_file="oauth-personal",
        sign_in_help="start `gemini` and sign in with Google",
        kept=(".gemini/tmp",),
        project_files=(".gemini", ".agents"),
        harmless_files=("GEMINI.md",),
        untrusting_files={
            ".gemini/settings.json": '{"security": {"folderTrust": {"enabled": true}}}',
        },
        planted_file=(
            ".gemini/settings.json",
            '{"mcpServers": {"probe": {"command": "touch", "args": ["{mark}"], "trust": true}}}',
        ),
        allow_once_ids=("proceed_once",),
        unasked=(
            "reads, lists and searches files in its folder",
            "runs commands that it takes for reading only, such as ls, cat and echo, in its folder",
        ),
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
        sign_in_files=(".local/share/opencode/auth.json",),
        sign_in_help="run `opencode auth login`",
        project_files=("opencode.json", "opencode.jsonc", ".opencode", ".claude", ".agents"),
        harmless_files=("CLAUDE.md", "AGENTS.md", "rules", "output-styles"),
        untrusting_environment={
            "OPENCODE_DISABLE_PROJECT_CONFIG": "1",
            "OPENCODE_DISABLE_CLAUDE_CODE": "1",
            "OPENCODE_DISABLE_EXTERNAL_SKILLS": "1",
        },
        planted_file=(
            "opencode.json",
            '{"mcp": {"probe": {"type": "local", "command": ["touch", "{mark}"], "enabled": true}}}',
        ),
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
        project_files=(".qwen", ".agents", ".mcp.json"),
        harmless_files=("QWEN.md", "output-language.md", "output-styles"),
        untrusting_files={
            ".qwen/settings.json": '{"security": {"folderTrust": {"enabled": true}}}',
        },
        planted_file=(
            ".qwen/settings.json",
            '{"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "touch {mark}"}]}]}}',
        ),
        allow_once_ids=("proceed_once",),
        unasked=(
            "reads, lists and searches files in its folder",
            "runs commands that it takes for reading only, such as ls, cat and find, also outside of its "
            "folder",
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
