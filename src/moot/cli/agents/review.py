"""`moot review`: a model's second opinion on proposals that wait for people."""

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
    digest_of_member,
    member_settings_of,
    state_folder,
)
from moot.cli.options.shared_options import add_state
from moot.cli.process import program
from moot.errors import UsageError

if TYPE_CHECKING:
    from moot.agents.review.reviewer import ReviewSettings

_ABOUT: Final = """\
Joins a space as a member that asks a language model about each proposal which no rule decided, before people
do. The model sees the call without what looks like a secret, where its values came from, what people decided
about such calls before, and your guidance. It may only say "no, because …" or "ask a person, because …": one
sentence, shown with the proposal as a model's words. It never approves, and a model that is down, slow or
tricked changes nothing. With --reject and the right to mcp/reject its no also rejects, but for one in ten.
What people then decide is compared with what it said (its tool review_report); after three contradictions it
rejects nothing more until its guidance or model is another. `moot rules stop` stops its rejecting, too.
"""
_EXAMPLES: Final = f"""\
  moot review --as review --base-url http://localhost:11434/v1 --model llama3.1 --guidance guidance.txt
  moot review --as review --api anthropic --base-url https://api.anthropic.com/v1 --model claude-sonnet-4-5 \\
      --api-key-env ANTHROPIC_API_KEY --guidance guidance.txt --reject
  moot call review review_report                            how often people decided as it said

Its participant in moot.yaml:
  review:
    capabilities:
      - {{kind: [moot/opinion, mcp/response, chat]}}
      # Only if its no should reject.
      - {{kind: mcp/reject}}
Never give it mcp/request.
{MEMBER_HELP}"""


def add_command(commands: Any, name: str) -> None:
    parser = program.add_command(
        commands,
        name,
        help="let a model give a second opinion on proposals; it can only say no",
        about=_ABOUT,
        examples=_EXAMPLES,
    )
    add_member_options(parser)
    add_model_options(parser)
    add = parser.add_argument
    add("--guidance", type=Path, metavar="FILE", help="a file: what is not wanted in this space, in words")
    add("--reject", action="store_true", help="its no rejects, where it has the right to")
    add_state(parser)
    add_spending_options(parser)
    add_log_level(parser)
    parser.set_defaults(run=run_review)


def run_review(options: argparse.Namespace) -> int:
    from moot.cli.process.interruption import run_service

    return run_service(_stay(options))


async def _stay(options: argparse.Namespace) -> int:
    import os

    from moot import logs
    from moot.agents.model.agent_settings import AgentLimits
    from moot.agents.model.model import Model
    from moot.agents.model.spending import Spending
    from moot.agents.review.reviewer import Reviewer
    from moot.operations.text.terminal_escape import printable
    from moot.participant import connect
    from moot.private_files import use_folder

    model, settings = model_of(options), _settings(options)
    limits = AgentLimits(
        tokens_per_day=_above_0(options.tokens_per_day, "--tokens-per-day"),
        cost_per_day=_above_0(options.cost_per_day, "--cost-per-day"),
    )
    where = member_settings_of(options)
    folder = options.state
    if folder is None:
        folder = state_folder(os.environ) / "moot" / "review" / digest_of_member(options, where)
    use_folder(folder, what="the folder of the second opinion", option="--state DIR")
    logs.set_up(options.log_level, "text", None)
    # As of an agent: an endpoint may repeat the key in its headers.
    logging.getLogger("httpcore2").setLevel(logging.INFO)
    async with Model(model) as endpoint, connect(
        where.url, where.space, where.token_source, name=where.name
    ) as space:  # fmt: skip
        if space.may("mcp/request", {"method": "tools/call", "params": {"name": "x", "arguments": {}}}):
            raise UsageError(f"{space.name} may call tools, and a second opinion must not: give it a member"
                             " of its own, as `moot review --help` shows")  # fmt: skip
        spending = Spending(model, limits, file=spending_file_of(options, where))
        reviewer = Reviewer(space, endpoint, settings, folder, spending=spending)
        why = reviewer.why_not_rejecting()
        doing = "its no rejects" if why is None else f"it only says what it thinks: {why}"
        print(printable(f"{space.name} gives a second opinion in {space.space}; {doing}"), flush=True)
        await reviewer.run()
        ending = await space.stay()
    print(f"left the space: {ending.code} {printable(ending.reason)}".rstrip(), flush=True)
    return 1


def _above_0(value: Any, option: str) -> Any:
    if value is not None and not 0 < value < math.inf:
        raise UsageError(f"{option} is a number above 0")
    return value or 0


def _settings(options: argparse.Namespace) -> ReviewSettings:
    from moot.agents.review.review_prompt import MAX_GUIDANCE_CHARS
    from moot.agents.review.reviewer import ReviewSettings

    guidance = ""
    if options.guidance is not None:
        try:
            guidance = options.guidance.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as fault:
            raise UsageError(f"--guidance: {options.guidance} cannot be read: {fault}") from None
        if len(guidance) > MAX_GUIDANCE_CHARS:
            raise UsageError(f"--guidance: {options.guidance} is longer than {MAX_GUIDANCE_CHARS} characters")
    return ReviewSettings(guidance=guidance, rejects=options.reject)
