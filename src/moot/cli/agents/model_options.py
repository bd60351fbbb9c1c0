"""The options of commands that ask a language model: its endpoint, its key, and what it may cost."""

from __future__ import annotations

import argparse
import math
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moot.cli.options.member_options import digest_of, member_file, state_folder
from moot.cli.options.shared_options import add_api
from moot.config.secrets.secret import Secret
from moot.errors import UsageError

if TYPE_CHECKING:
    from moot.agents.model.agent_settings import ModelSettings
    from moot.agents.model.spending_file import SpendingFile
    from moot.config.connect_settings import ConnectSettings

_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)
# Names of headers whose values are secrets with every vendor.
_SECRET_HEADER: Final = re.compile(r"auth|key|token|secret|cookie|password", re.IGNORECASE)


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add what says which model is asked, and how."""
    add = parser.add_argument
    add("--base-url", required=True, metavar="URL", help="the endpoint, up to and with /v1")
    add_api(parser)
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


def add_spending_options(parser: argparse.ArgumentParser) -> None:
    """Add what it may cost in a day."""
    add = parser.add_argument
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


def spending_file_of(options: argparse.Namespace, where: ConnectSettings) -> SpendingFile | None:
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


def model_of(options: argparse.Namespace) -> ModelSettings:
    """The model that the options name; raises UsageError."""
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
        prices_per_million=prices,
        headers=dict(
            [
                *(_header(text) for text in options.header or ()),
                *(_header_from_environment(text) for text in options.header_env or ()),
            ]
        ),
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


def _header(text: str) -> tuple[str, str | Secret]:
    name, colon, value = (part.strip() for part in text.partition(":"))
    if not colon or not _HEADER_NAME.fullmatch(name) or not value.isprintable():
        raise UsageError('--header is "NAME: VALUE", such as --header "X-Title: Moot"')
    if _SECRET_HEADER.search(name):
        raise UsageError(f"--header: {name} holds a secret, which other users can see in a command line: "
                         f"use --header-env {name}=VARIABLE")  # fmt: skip
    return name, value


def _header_from_environment(text: str) -> tuple[str, str | Secret]:
    name, _, variable = (part.strip() for part in text.partition("="))
    if not variable or not _HEADER_NAME.fullmatch(name):
        raise UsageError("--header-env is NAME=VARIABLE, such as --header-env api-key=AZURE_KEY")
    value = os.environ.get(variable, "").strip()
    if not value or not value.isprintable():
        raise UsageError(f"--header-env: the variable {variable} is not set, or is no single line")
    return name, Secret(value)
