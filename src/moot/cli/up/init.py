"""`moot init`: makes a folder with a space that runs, or puts `moot hook` into a coding agent's settings."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from moot.cli.options.member_options import GATEWAY_HELP, TOKEN_FILE_HELP
from moot.cli.options.shared_options import add_api, add_json
from moot.cli.process import program
from moot.errors import UsageError

if TYPE_CHECKING:
    from moot.agents.hook.hook_call import AgentName

_ABOUT = """\
Makes a space from a template, in this folder or in DIR: a moot.yaml with the members and their capabilities,
and the files that they need. Nothing is overwritten. `moot up` then runs it.

With --from it takes the MCP servers of another program's configuration instead of a template: mcp.json,
claude_desktop_config.json, ~/.claude.json, and those of VS Code, Cursor, Windsurf, Zed, Gemini CLI and Codex.
All calls to them are proposals then, unless you let tools that only read through (--allow-reads). Keys
go into files that only you can read and Git ignores.

With claude-code, codex or gemini in place of a template it makes no space: it adds `moot hook` to the
settings of that agent in DIR, so that a space decides on its calls. Other settings stay, a copy is kept.
"""
_EXAMPLES = """\
  moot init                          an agent that proposes changes to files; you decide (no model needed)
  moot init ./lab                    the same, in another folder
  moot init coder                    a language model for the project in this folder
  moot init research-team team --base-url http://localhost:11434/v1 --model qwen3 --key-env OLLAMA_KEY
  moot init coder --api anthropic
  moot init --list
  moot init --from                   lists the configurations of your MCP clients
  moot init claude-code ~/project --gateway http://localhost:8080 --space lab --token-file claude.token
  moot init --from .cursor/mcp.json lab      puts their servers into a space, behind approval
"""
# What there is to know about each agent, said once its hook is in place.
_NOTES: Final[dict[AgentName, str]] = {
    "claude-code": "Needs Claude Code 2.1.295 or later: earlier ones go on when a hook is killed. The file "
    "is for you alone: keep it out of git.",
    "codex": "Start Codex here, review the hook with /hooks, and trust it; until then it is skipped. "
    "It is asked only where Codex asks for permission.",
    "gemini": "Gemini CLI goes on when a hook is killed; keep its own approvals on as well (no --yolo).",
}


def add_command(commands: Any, name: str) -> None:
    parser = program.add_command(
        commands,
        name,
        help="make a space from a template, or from an MCP client's servers",
        about=_ABOUT,
        examples=_EXAMPLES,
    )
    add = parser.add_argument
    add(
        "template",
        nargs="?",
        metavar="TEMPLATE",
        help="filesystem (default), coder, coding-agent, research-team, empty; or claude-code, codex, gemini",
    )
    add("folder", nargs="?", type=Path, default=Path(), metavar="DIR", help="the folder (default: this one)")
    add("--list", action="store_true", help="show the templates and what they are for")
    add(
        "--from",
        dest="source",
        nargs="?",
        const="",
        metavar="FILE",
        help="take the MCP servers of this file; without FILE, list the files of your MCP clients",
    )
    add(
        "--allow-reads",
        action=argparse.BooleanOptionalAction,
        help="with --from: let tools that say that they only read be called without asking; starts each"
        " server once (default: ask on a terminal, else no)",
    )
    add("--space", metavar="NAME", help="the name of the space (default: that of the folder)")
    add_api(parser)
    add("--base-url", metavar="URL", help="of the model's API (default: that of OpenAI, or of Anthropic)")
    add("--model", metavar="NAME", help="which model agents use (default: gpt-5-mini, or claude-sonnet-4-5)")
    add(
        "--key-env",
        metavar="NAME",
        help="the variable with the API key (default: OPENAI_API_KEY, or ANTHROPIC_API_KEY)",
    )
    hook = parser.add_argument_group("for an agent's hook").add_argument
    hook("--gateway", metavar="URL", help=GATEWAY_HELP)
    hook("--token-file", type=Path, metavar="FILE", help=TOKEN_FILE_HELP)
    hook("--print", dest="print_only", action="store_true", help="only print it")
    add_json(parser)
    parser.set_defaults(run=run_init)


def run_init(options: argparse.Namespace) -> int:
    from moot.box.box_support import why_not_confined
    from moot.cli.process.table_output import print_table
    from moot.operations.text.text_table import TextTable
    from moot.up import scaffold

    if options.source is not None:
        from moot.cli.up.init_from import run_from

        return run_from(options)
    if options.template in ("claude-code", "codex", "gemini"):
        return _run_hooks(options, options.template)
    if options.list:
        found = scaffold.templates()
        if options.json:
            print(json.dumps([{"name": each.name, "description": each.about} for each in found]))
        else:
            print_table(TextTable(("TEMPLATE", "DESCRIPTION"), [(each.name, each.about) for each in found]))
        return 0
    name, folder = _place(options)
    template = scaffold.template_named(name or scaffold.DEFAULT)
    given = {name: getattr(options, name) for name in ("api", "base_url", "model", "key_env")}
    values = scaffold.TemplateValues(
        space=options.space or scaffold.space_name(folder),
        **{name: value for name, value in given.items() if value is not None},
    )
    made = scaffold.make(template, folder, values)
    if options.json:
        files = [str(path) for path in made]
        print(json.dumps({"template": template.name, "folder": str(folder.absolute()), "files": files}))
        return 0
    where = "" if folder == Path() else f" in {folder}"
    print(f"made a space from {template.name}{where}: {', '.join(str(path) for path in made)}")
    if "box: off" in (folder / scaffold.CONFIGURATION).read_text("utf-8"):
        print(f"note: its MCP servers are not confined here: {why_not_confined()}")
    print("\nnext:")
    enter = [] if folder == Path() else [f"cd {shlex.quote(str(folder))}"]
    for line in [*enter, *values.fill(template.next).rstrip().splitlines()]:
        print(f"  {line}")
    return 0


def _place(options: argparse.Namespace) -> tuple[str | None, Path]:
    """The template and the folder: what is written as a path and stands alone is the folder."""
    name: str | None = options.template
    folder: Path = options.folder
    if name is not None and folder == Path() and (name in (".", "..") or "/" in name):
        return None, Path(name).expanduser()
    return name, folder


def _run_hooks(options: argparse.Namespace, agent: AgentName) -> int:
    """Write the hook into the settings of the project, or print it."""
    from moot.agents.hook.hook_config import FILES, hook_groups, remove_former, write_settings

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
    argv = [*_own_program(), "hook", agent, "--gateway", options.gateway]
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


def _own_program() -> list[str]:
    # An absolute path to this installation: agents start hooks with their own PATH.
    file = Path(sys.executable).absolute().with_name("moot")
    return [str(file)] if file.is_file() else [sys.executable, "-m", "moot.cli"]
