"""`moot acp`: an agent that speaks the Agent Client Protocol joins a space."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from moot.cli.bridge import environment_of
from moot.cli.options.box_option import add_box_option, box_of
from moot.cli.options.member_options import (
    MEMBER_HELP,
    add_log_level,
    add_member_options,
    digest_of_member,
    member_file,
    member_settings_of,
    state_folder,
)
from moot.cli.options.shared_options import add_answers, add_process_options, add_state
from moot.cli.process import program
from moot.cli.process.interruption import run_service
from moot.cli.process.own_children import own_children
from moot.errors import MootError, UsageError
from moot.operations.text.terminal_escape import printable

if TYPE_CHECKING:
    from moot.agents.acp.acp_member import AcpMember
    from moot.agents.acp.acp_settings import AcpSettings

# A prompt with a few large files in it, and what an editor may leave unread.
_EDITOR_BYTES: Final = 16 << 20
_ABOUT: Final = """\
Runs an agent that speaks ACP (Claude Code, Codex, Gemini CLI, OpenCode, Qwen Code, Goose, …) as a member of a
space. Chats that name it become prompts. What it says is chat, what it thinks and plans is reasoning, and its
tool calls are seen with their diffs. What it asks permission for becomes a proposal with exactly that call:
people or rules of the space approve it, once, or reject it, and the agent is told why.

Known agents get a home of their own, the mode in which they ask, and only the variables that they need. At
the start every agent is asked to write a file and to run a command in an empty folder, and both are refused:
one that does it without asking is not let in, and one that does not try is marked "unverified: may act
without asking". Permission requests are the only gate: what an agent does without asking is seen, and not
prevented.

An agent that ends is started again. Its session is restored if it can be; nothing is prompted twice.

The other way round, `moot acp --serve` shows a space to an editor that speaks ACP (Zed, JetBrains, Neovim) as
an agent: prompts are chats to a member or to everybody, and proposals that you may decide are permission
requests to you. Configure it in the editor as the command of an agent, with your own token.
"""

_EXAMPLES: Final = f"""\
  ANTHROPIC_API_KEY=… moot acp --gateway http://localhost:8080 --space lab --token-file claude.token \\
      --cwd ~/project -- npx -y @agentclientprotocol/claude-agent-acp
  moot acp --sign-in --as codex --cwd ~/project -- npx -y @agentclientprotocol/codex-acp
  GEMINI_API_KEY=… moot acp --gateway http://localhost:8080 --space lab --token-file gemini.token \\
      --cwd ~/project -- gemini --acp
  moot acp --gateway http://localhost:8080 --space lab --token-file other.token --env OTHER_KEY \\
      -- some-agent --acp

  moot acp --serve --gateway http://localhost:8080 --space lab --token-file me.token --to claude

{MEMBER_HELP}
What the agent's participant needs: chat, chat/acknowledge, mcp/proposal, mcp/withdraw, reasoning/*, and
participant/status. A grant of mcp/request for one of its own tools (edit, execute, …) takes the place of the
agent's own "always allow", inside the folder that it works in and for what it tells in full.
"""


def add_command(commands: Any, name: str) -> None:
    parser = program.add_command(
        commands,
        name,
        help="let an agent that speaks ACP take part in a space",
        usage="moot acp (--as NAME | --gateway URL --token-file FILE) [options] (-- COMMAND ARGS | --serve)",
        about=_ABOUT,
        examples=_EXAMPLES,
    )
    add_member_options(parser)
    add = parser.add_argument
    add_process_options(parser)
    add_state(parser)
    sign_in_help = "use the sign-in that you have with the agent, and nothing else of your home"
    add("--sign-in", action="store_true", help=sign_in_help)
    add("--keep-home", action="store_true", help="use your home and all your settings of the agent")
    add_box_option(add)
    add("--trust-folder", action="store_true", help="start although the folder has settings of the agent")
    add("--no-probe", action="store_true", help="do not check at the start that it asks")
    add("--accept-unasked", action="store_true", help="let it join although it acts without asking")
    add_answers(parser)
    add("--serve", action="store_true", help="show the space to an editor as an agent, over stdin and stdout")
    add("--to", default="", metavar="MEMBER", help="with --serve: who gets prompts (default: everybody)")
    add_log_level(parser)
    add("command", nargs=argparse.REMAINDER, metavar="-- COMMAND ARGS", help="how to start the agent")
    parser.set_defaults(run=run_acp)


def run_acp(options: argparse.Namespace) -> int:
    if options.serve:
        if options.command:
            raise UsageError("--serve shows a space to an editor; it starts no agent: leave the command out")
        return run_service(_serve_editor(options))
    if options.to:
        raise UsageError("--to goes with --serve")
    if options.sign_in and options.keep_home:
        raise UsageError("--keep-home has your sign-in already: leave --sign-in out")
    with own_children():
        settings = _settings(options, os.environ)
        return run_service(_stay(settings, options.log_level))


async def _stay(settings: AcpSettings, log_level: Any) -> int:
    from moot import logs
    from moot.agents.acp.acp_member import serve_acp
    from moot.agents.acp.agent_process import AgentStartFailed
    from moot.protocol.close_codes import SHUT_DOWN

    logs.set_up(log_level, "text", None)
    if settings.probe:
        print("starting the agent and checking that it asks; that takes two short turns", file=sys.stderr)
    try:
        ending = await serve_acp(settings, on_joined=_print_joined)
    except AgentStartFailed as failed:
        stderr = "".join(f"\n  | {printable(line)}" for line in failed.stderr_lines) or " empty"
        command = printable(shlex.join(settings.argv))
        raise MootError(f"{failed}\nend of its stderr:{stderr}\ntry it by itself: {command}") from None
    print(f"left the space: {ending.code} {printable(ending.reason)}".rstrip(), flush=True)
    # A shutdown is no failure; being removed is.
    return 0 if ending.code == SHUT_DOWN else 1


async def _serve_editor(options: argparse.Namespace) -> int:

    from moot import logs
    from moot.agents.acp.editor_server import EditorServer
    from moot.agents.acp.json_rpc import PeerGone
    from moot.mcp.stdio_lines import StdioLines
    from moot.participant import connect
    from moot.resilience.task_set import wait_for_any

    where = member_settings_of(options)
    stdout = os.dup(1)
    # Nothing but messages goes to the editor, whoever prints.
    os.dup2(2, 1)
    logs.set_up(options.log_level, "text", None)
    async with connect(where.url, where.space, where.token.reveal(), name=where.name) as space:
        lines = StdioLines(
            lambda line: server.peer.feed(line),
            lambda: lines.ended.set(),
            line_bytes=_EDITOR_BYTES,
            unread_bytes=_EDITOR_BYTES,
        )

        def write(line: bytes) -> None:
            if lines.ended.is_set():
                raise PeerGone("the editor has gone, or does not read")
            lines.write(line)

        server = EditorServer(space, write, to=options.to)
        await server.start()
        await lines.open(0, stdout)
        try:
            await wait_for_any(space.stay(), lines.ended.wait())
        finally:
            await server.close()
            await lines.close()
        return 0 if lines.ended.is_set() else 1


def _print_joined(member: AcpMember, me: str) -> None:
    where = member.settings.space or "the space"
    told = [printable(line) for line in member.statement().splitlines()]
    print(*told, f"Joined {where} as {me}.", sep="\n", flush=True)


def _settings(options: argparse.Namespace, environ: Mapping[str, str]) -> AcpSettings:
    from moot.agents.acp.acp_settings import AcpSettings
    from moot.box.boxed_child import Box

    argv = tuple(options.command[1:] if options.command[:1] == ["--"] else options.command)
    if not argv:
        raise UsageError("give the command that starts the agent after --, such as -- gemini --acp")
    folder = Path(options.cwd or Path.cwd()).expanduser().resolve()
    if not folder.is_dir():
        raise UsageError(f"--cwd: there is no folder {folder}")
    where, file = member_settings_of(options), member_file(options)
    if options.box and options.keep_home:
        raise UsageError("--box and --keep-home: in a box it has a home of its own")
    confined = box_of(options.box)
    if folder in file.parents:
        raise UsageError(
            f"{file} is in the folder that the agent works in, which could read tokens there: keep it"
            " elsewhere, or let the agent work elsewhere with --cwd"
        )
    return AcpSettings(
        argv=argv,
        folder=folder,
        gateway=where.url,
        space=where.space,
        token=where.token.reveal(),
        name=where.name,
        env=environment_of(options.env),
        inherited=environ,
        # One for each member, agent and folder: two must not share a home.
        state_folder=options.state
        or state_folder(environ) / "moot" / "acp" / digest_of_member(options, where, str(folder), *argv),
        home="kept" if options.keep_home else "signed_in" if options.sign_in else "own",
        # Configuration and token are never shown, and the state of other agents is in no folder that is.
        box=None if confined is None else Box(config=confined, folder=Path.cwd(), hidden=(file,)),
        trust_folder=options.trust_folder,
        probe=not options.no_probe,
        accept_unasked=options.accept_unasked,
        answers=options.answers,
    )
