"""`moot agent`: a language model takes part in a space."""

from __future__ import annotations

import argparse
import logging
import math
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from moot.cli import program
from moot.cli.member_options import (
    MEMBER_HELP,
    add_log_level,
    add_member_options,
    digest_of,
    member_file,
    member_settings_of,
    state_folder,
)
from moot.errors import UsageError

if TYPE_CHECKING:
    from moot.agents.model.agent_settings import AgentSettings, ModelSettings
    from moot.agents.model.spending_file import SpendingFile
    from moot.config.connect_settings import ConnectSettings

_ABOUT: Final = """\
Joins a space as an agent: a language model behind an OpenAI-compatible endpoint (a vendor's, or a local one
such as llama.cpp, vLLM or Ollama), OpenAI's Responses API or Anthropic's Messages API. It answers chats that
name it, finds the tools of all members, calls those that its capabilities allow and proposes the others. Its
reasoning is shown as reasoning/*; members with the right to can pause it, stop its reasoning, make it forget,
or shut it down.

The key is read from the environment variable that --api-key-env names and shown nowhere.
"""

_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)
# Names of headers whose values are secrets with every vendor.
_SECRET_HEADER: Final = re.compile(r"auth|key|token|secret|cookie|password", re.IGNORECASE)

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
    add = parser.add_argument
    add("--base-url", required=True, metavar="URL", help="the endpoint, up to and with /v1")
    add(
        "--api",
        choices=("chat", "responses", "anthropic"),
        default="chat",
        help="what the endpoint speaks: OpenAI's chat completions or responses, or Anthropic's messages "
        "(default: chat)",
    )
    add("--model", required=True, metavar="NAME", help="which of its models")
    add("--api-key-env", metavar="NAME", help="the environment variable that holds the key (default: no key)")
    add("--header", action="append", metavar="NAME: VALUE", help="sent with every request; no secrets")
    add(
        "--header-env",
        action="append",
        metavar="NAME=VARIABLE",
        help="a header whose value is in an environment variable and shown nowhere",
    )
    add("--temperature", type=float, metavar="N", help="the sampling temperature (default: the endpoint's)")
    add("--max-tokens", type=int, metavar="N", help="longest answer in tokens (default: the endpoint's)")
    add("--no-stream", action="store_true", help="for endpoints that cannot stream")
    add("--instructions", type=Path, metavar="FILE", help="a file with instructions: what the agent is for")
    add(
        "--answers", choices=("named", "all"), default="named", help="whose chats it answers (default: named)"
    )
    add("--no-reasoning", action="store_true", help="do not share its reasoning")
    add("--no-word-vectors", action="store_true", help="search tools by words alone (see moot[search])")
    add("--context-tokens", type=int, metavar="N", help="tokens of context that it keeps (default: 32000)")
    add("--max-steps", type=int, metavar="N", help="most answers of the model in one turn (default: 16)")
    add("--tokens-per-day", type=int, metavar="N", help="most tokens within 24 hours (default: any number)")
    add("--cost-per-day", type=float, metavar="N", help="most money within 24 hours, at --prices")
    add(
        "--prices",
        metavar="IN/OUT",
        help="what a million tokens cost, those that it reads and those that it writes, such as 0.25/2",
    )
    add(
        "--spending-file",
        type=Path,
        metavar="FILE",
        help="keeps what it spent within 24 hours, for the two limits above "
        "(default: below ~/.local/state/moot/spending)",
    )
    add_log_level(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from moot.cli.interruption import run_service

    return run_service(_stay(options))


async def _stay(options: argparse.Namespace) -> int:
    from moot import logs
    from moot.agents.model.model_agent import serve_agent
    from moot.operations.terminal_escape import printable

    model, settings = _model(options), _agent(options)
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
        spending_file=_spending_file(options, where),
    )
    print(f"left the space: {ending.code} {printable(ending.reason)}".rstrip(), flush=True)
    return 1


def _spending_file(options: argparse.Namespace, where: ConnectSettings) -> SpendingFile | None:
    """Where a daily limit outlives the process; not by the gateway's address, whose port may be another."""
    from moot.agents.model.spending_file import SpendingFile

    if options.tokens_per_day is None and options.cost_per_day is None:
        if options.spending_file is not None:
            raise UsageError("--spending-file needs a limit: --tokens-per-day or --cost-per-day")
        return None
    if options.spending_file is not None:
        return SpendingFile(options.spending_file)
    parts = [where.space, str(member_file(options))]
    if where.participant is not None:
        parts.append(where.participant)
    return SpendingFile(state_folder(os.environ) / "moot" / "spending" / f"{digest_of(*parts)}.json")


def _model(options: argparse.Namespace) -> ModelSettings:
    from moot.agents.model.agent_settings import ModelSettings

    key = None
    if options.api_key_env is not None:
        key = os.environ.get(options.api_key_env, "").strip()
        if not key:
            raise UsageError(f"--api-key-env: the variable {options.api_key_env} is not set")
    if not options.base_url.startswith(("http://", "https://")):
        raise UsageError("--base-url starts with http:// or https://, such as http://localhost:11434/v1")
    if "@" in options.base_url or "?" in options.base_url:
        raise UsageError("--base-url holds no key: give it with --api-key-env or --header-env")
    prices = _prices(options.prices) if options.prices is not None else (0.0, 0.0)
    if options.cost_per_day is not None and not any(prices):
        raise UsageError("--cost-per-day needs --prices IN/OUT, such as --prices 0.25/2")
    return ModelSettings(
        base_url=options.base_url,
        model=options.model,
        api_key=key,
        temperature=options.temperature,
        max_tokens=options.max_tokens,
        stream=not options.no_stream,
        api=options.api,
        input_price_per_million=prices[0],
        output_price_per_million=prices[1],
        headers=dict(_header(text) for text in options.header or ()),
        secret_headers=dict(_header_from_environment(text) for text in options.header_env or ()),
    )


def _prices(text: str) -> tuple[float, float]:
    try:
        read, written = (float(part) for part in text.split("/"))
    except ValueError:
        read = written = -1.0
    # Not a number fails as well.
    if not (0 <= read < math.inf and 0 <= written < math.inf):
        raise UsageError("--prices is IN/OUT, two numbers for a million tokens each, such as 0.25/2")
    return read, written


def _header(text: str) -> tuple[str, str]:
    name, colon, value = (part.strip() for part in text.partition(":"))
    if not colon or not _HEADER_NAME.fullmatch(name) or not value.isprintable():
        raise UsageError('--header is "NAME: VALUE", such as --header "X-Title: Moot"')
    if _SECRET_HEADER.search(name):
        raise UsageError(f"--header: {name} holds a secret, which other users can see in a command line: "
                         f"use --header-env {name}=VARIABLE")  # fmt: skip
    return name, value


def _header_from_environment(text: str) -> tuple[str, str]:
    name, _, variable = (part.strip() for part in text.partition("="))
    if not variable or not _HEADER_NAME.fullmatch(name):
        raise UsageError("--header-env is NAME=VARIABLE, such as --header-env api-key=AZURE_KEY")
    value = os.environ.get(variable, "").strip()
    if not value or not value.isprintable():
        raise UsageError(f"--header-env: the variable {variable} is not set, or is no single line")
    return name, value


def _agent(options: argparse.Namespace) -> AgentSettings:
    from moot.agents.model.agent_settings import DEFAULT_INSTRUCTIONS, AgentLimits, AgentSettings
    from moot.config.search_settings import SearchSettings

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
        search=SearchSettings(word_vectors=not options.no_word_vectors),
    )
