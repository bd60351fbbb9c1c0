"""`moot agent`: a language model takes part in a space."""

from __future__ import annotations

import argparse
import logging
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from moot.cli.agents.model_options import add_model_options, add_spending_options, model_of, spending_file_of
from moot.cli.options.member_options import (
    MEMBER_HELP,
    add_log_level,
    add_member_options,
    member_settings_of,
)
from moot.cli.options.shared_options import add_answers
from moot.cli.process import program
from moot.errors import UsageError

if TYPE_CHECKING:
    from moot.agents.model.agent_settings import AgentSettings

_ABOUT: Final = """\
Joins a space as an agent: a language model behind an OpenAI-compatible endpoint (a vendor's, or a local one
such as llama.cpp, vLLM or Ollama), OpenAI's Responses API or Anthropic's Messages API. It answers chats that
name it, finds the tools of all members, calls those that its capabilities allow and proposes the others. Its
reasoning is shown as reasoning/*; members with the right to can pause it, stop its reasoning, make it forget,
or shut it down.

The key is read from the environment variable that --api-key-env names and shown nowhere.
"""

_EXAMPLES: Final = f"""\
  moot agent --gateway http://localhost:8080 --space lab --token-file agent.token \\
      --base-url http://localhost:11434/v1 --model llama3.1
  OPENAI_API_KEY=… moot agent --gateway http://localhost:8080 --space lab --token-file agent.token \\
      --base-url https://api.openai.com/v1 --model gpt-5-mini --api-key-env OPENAI_API_KEY
  ANTHROPIC_API_KEY=… moot agent --gateway http://localhost:8080 --space lab --token-file agent.token \\
      --api anthropic --base-url https://api.anthropic.com/v1 --model claude-sonnet-4-5 \\
      --api-key-env ANTHROPIC_API_KEY

{MEMBER_HELP}
What the agent's participant needs: chat, chat/acknowledge, mcp/proposal and mcp/withdraw; `mcp/request` of
`*/list` to find tools by itself; reasoning/*, stream/* and participant/status to show its reasoning
and its status. Grant more only if you trust it.
"""


def add_command(commands: Any, name: str) -> None:
    parser = program.add_command(
        commands,
        name,
        help="let a language model take part in a space",
        about=_ABOUT,
        examples=_EXAMPLES,
    )
    add_member_options(parser)
    add_model_options(parser)
    add = parser.add_argument
    add("--instructions", type=Path, metavar="FILE", help="a file with instructions: what the agent is for")
    add_answers(parser)
    add("--no-reasoning", action="store_true", help="do not share its reasoning")
    add("--context-tokens", type=int, metavar="N", help="tokens of context that it keeps (default: 32000)")
    add("--max-steps", type=int, metavar="N", help="most answers of the model in one turn (default: 16)")
    add_spending_options(parser)
    add_log_level(parser)
    parser.set_defaults(run=run_agent)


def run_agent(options: argparse.Namespace) -> int:
    from moot.cli.process.interruption import run_service

    return run_service(_stay(options))


async def _stay(options: argparse.Namespace) -> int:
    from moot import logs
    from moot.agents.model.model_agent import serve_agent
    from moot.operations.text.terminal_escape import printable

    model, settings = model_of(options), _agent(options)
    where = member_settings_of(options)
    logs.set_up(options.log_level, "text", None)
    # At debug it writes the headers of answers, and an endpoint may repeat the key there.
    logging.getLogger("httpcore2").setLevel(logging.INFO)
    ending = await serve_agent(
        where.url,
        where.space,
        where.token_source,
        model,
        settings,
        name=where.name,
        spending_file=spending_file_of(options, where),
    )
    print(f"left the space: {ending.code} {printable(ending.reason)}".rstrip(), flush=True)
    return 1


def _agent(options: argparse.Namespace) -> AgentSettings:
    from moot.agents.model.agent_settings import DEFAULT_INSTRUCTIONS, AgentLimits, AgentSettings

    instructions = DEFAULT_INSTRUCTIONS
    if options.instructions is not None:
        try:
            instructions = options.instructions.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as fault:
            raise UsageError(f"--instructions: {options.instructions} cannot be read: {fault}") from None
    limits = {
        "context_tokens": options.context_tokens,
        "max_steps": options.max_steps,
        "tokens_per_day": options.tokens_per_day,
        "cost_per_day": options.cost_per_day,
    }
    given = {name: value for name, value in limits.items() if value is not None}
    for name, value in given.items():
        if not 0 < value < math.inf:
            raise UsageError(f"--{name.replace('_', '-')} is a number above 0")
    return AgentSettings(
        instructions=instructions,
        answers=options.answers,
        show_reasoning=not options.no_reasoning,
        limits=AgentLimits(**given),
    )
