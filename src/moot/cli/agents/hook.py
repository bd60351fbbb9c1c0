"""`moot hook`: what a coding agent runs before each call, so that the call is decided in a space."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from typing import TYPE_CHECKING, Any, Final

from moot.cli.agents.hook_client import BLOCKED, MAX_EVENT_BYTES
from moot.cli.options.member_options import add_explicit_member_options, digest_of, state_folder
from moot.cli.options.shared_options import add_state
from moot.cli.process import program
from moot.errors import MootError
from moot.resilience.durations import parse_duration

if TYPE_CHECKING:
    from moot.agents.hook.hook_call import AgentName
    from moot.agents.hook.hook_gate import HookMember

_ABOUT: Final = """\
Reads a call from stdin as Claude Code, Codex and Gemini CLI tell it to their hooks, proposes exactly that
call to the space, and waits for the decision. Approved: prints the agent's form of "allow", and the agent
makes the call itself, once. Everything else (rejected, too late, no gateway, a bad token) ends with status 2,
which stops the call, and the reason on stderr. Called after a call, it tells the space that the call is
over. `moot init claude-code` puts it into the agent's settings.
"""
_EXAMPLES: Final = """\
  moot hook claude-code --gateway http://localhost:8080 --space lab --token-file claude.token
"""


def add_command(commands: Any, name: str) -> None:
    parser = program.add_command(
        commands, name, help="let a space decide on a coding agent's calls", about=_ABOUT, examples=_EXAMPLES
    )
    add = parser.add_argument
    add("agent", choices=("claude-code", "codex", "gemini"), help="whose hook this is")
    add_explicit_member_options(parser)
    wait_help = "how long to wait for a decision (default 3500)"
    add("--wait-seconds", type=parse_duration, default=3_500.0, metavar="TIME", help=wait_help)
    add_state(parser)
    parser.set_defaults(run=run_hook)


def run_hook(options: argparse.Namespace) -> int:
    """Answer the event on stdin in this process; `hook_client` lets a service do it where it can."""
    try:
        status, text = asyncio.run(answer_event(options, sys.stdin.buffer.read(MAX_EVENT_BYTES)))
        print(text, end="", file=sys.stderr if status else sys.stdout, flush=True)
    # Any other status lets the agent go on: a fault of ours, or Ctrl+C, must stop the call, too.
    except BaseException as fault:  # noqa: BLE001
        print(f"Not allowed: the hook failed ({type(fault).__name__})", file=sys.stderr)
        return BLOCKED
    return status


async def answer_event(options: argparse.Namespace, data: bytes) -> tuple[int, str]:
    """The exit status for an event, and what the agent is told: on stdout with status 0, else on stderr."""
    from moot.agents.hook.hook_call import allow_answer, read_call, read_report
    from moot.agents.hook.hook_gate import describe_refusal
    from moot.operations.text.terminal_escape import printable

    agent: AgentName = options.agent
    try:
        if (report := read_report(agent, data)) is not None:
            return await _tell(options, report)
        call = read_call(agent, data)
        by = await _member(options, agent).wait_for_release(call, options.wait_seconds)
        return 0, f"{allow_answer(agent, by)}\n"
    except MootError as fault:
        return BLOCKED, f"Not allowed by the Moot space: {printable(describe_refusal(fault))}\n"
    except Exception as fault:  # noqa: BLE001  # as in `run`
        return BLOCKED, f"Not allowed: the hook failed ({type(fault).__name__})\n"


async def _tell(options: argparse.Namespace, report: str) -> tuple[int, str]:
    """Tell the space of a call that is over. It has happened, so a fault stops nothing."""
    from moot.operations.text.terminal_escape import printable

    try:
        await _member(options, options.agent).tell(report)
    except MootError as fault:
        return 1, f"not told in the Moot space: {printable(str(fault))}\n"
    return 0, ""


def _member(options: argparse.Namespace, agent: AgentName) -> HookMember:
    from moot.agents.hook.hook_gate import HookMember
    from moot.participant import name_from, token_from
    from moot.private_files import use_folder

    state = options.state
    if state is None:
        member = digest_of(options.gateway.rstrip("/"), options.space, str(options.token_file.resolve()))
        state = state_folder(os.environ) / "moot" / "hook" / f"{agent}-{member}"
    use_folder(state, what="the state folder", option="--state DIR")
    return HookMember(
        gateway=options.gateway,
        space=options.space,
        token=token_from(options.token_file),
        name=name_from(options.token_file),
        state_folder=state,
    )
