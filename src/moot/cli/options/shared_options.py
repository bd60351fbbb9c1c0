"""Options that several commands have, each declared once."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

from moot.cli.options.time_argument import TIME_HELP, parse_time

# What `--api` takes.
MODEL_APIS: Final = ("chat", "responses", "anthropic")


def add_json(parser: Any) -> None:
    """Add `--json`, to a parser or to a group of it."""
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def add_latest(parser: argparse.ArgumentParser, default: int) -> None:
    """Add `-n`."""
    help = "begin with so many of the latest (default: %(default)s)"
    parser.add_argument("-n", type=int, default=default, metavar="COUNT", help=help)


def add_plain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--plain", action="store_true", help="lines of text, as for pipes and scripts")


def add_listen_port(parser: argparse.ArgumentParser, default: int) -> None:
    """Add `--port`."""
    help = "listen on this port; 0 takes a free one (default: %(default)s)"
    parser.add_argument("--port", type=int, default=default, help=help)


def add_listen_address(parser: argparse.ArgumentParser, port: int) -> None:
    """Add `--host` and `--port`."""
    help = "listen on this address (default: %(default)s)"
    parser.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help=help)
    add_listen_port(parser, port)


def add_configured_address(parser: argparse.ArgumentParser) -> None:
    """Add `--host` and `--port` that replace those of a configuration."""
    add = parser.add_argument
    add("--host", help="listen on this address (default: as configured)")
    add("--port", type=int, help="listen on this port; 0 takes a free one (default: as configured)")


def add_configured_data(parser: argparse.ArgumentParser) -> None:
    """Add `--data` that replaces the data folder of a configuration."""
    help = "the data folder: journals, snapshots and tokens (default: as configured)"
    parser.add_argument("--data", type=Path, metavar="DIR", help=help)


def add_data(parser: argparse.ArgumentParser, default: str) -> None:
    """Add `--data`."""
    help = "the data folder (default: %(default)s)"
    parser.add_argument("--data", type=Path, default=Path(default), metavar="DIR", help=help)


def add_code_port(parser: argparse.ArgumentParser) -> None:
    """Add `--port`, for who signs in."""
    help = "the port that the code comes back to (default: any)"
    parser.add_argument("--port", type=int, default=0, help=help)


def add_state(parser: argparse.ArgumentParser) -> None:
    """Add `--state`."""
    help = "a folder for what it needs after a restart (default: below ~/.local/state)"
    parser.add_argument("--state", type=Path, metavar="DIR", help=help)


def add_approver_state(parser: argparse.ArgumentParser) -> None:
    """Add `--state`, of the approver."""
    help = "the rules of the approver and their state (default: .moot/trust/SPACE)"
    parser.add_argument("--state", type=Path, metavar="DIR", help=help)


def add_answers(parser: argparse.ArgumentParser) -> None:
    """Add `--answers`."""
    help = "whose chats it answers (default: %(default)s)"
    parser.add_argument("--answers", choices=("named", "all"), default="named", help=help)


def add_process_options(parser: argparse.ArgumentParser) -> None:
    """Add `--cwd` and `--env`."""
    add = parser.add_argument
    add("--cwd", type=Path, metavar="DIR", help="the folder that the command runs in (default: this one)")
    help = "a variable for the command; NAME alone passes on our own value"
    add("--env", action="append", default=[], metavar="NAME=VALUE", help=help)


def add_api(parser: argparse.ArgumentParser) -> None:
    """Add `--api`."""
    help = "what the endpoint speaks: OpenAI's chat completions or responses, or Anthropic's messages"
    parser.add_argument("--api", choices=MODEL_APIS, default="chat", help=f"{help} (default: %(default)s)")


def add_policy(parser: Any) -> None:
    """Add `--policy`."""
    help = "whose signatures count, and how many witnesses are needed (c2sp.org/tlog-policy)"
    parser.add_argument("--policy", type=Path, metavar="FILE", help=help)


def add_time_range(parser: argparse.ArgumentParser) -> None:
    """Add `--since` and `--until`."""
    parser.add_argument("--since", type=parse_time, metavar="TIME", help=TIME_HELP)
    parser.add_argument("--until", type=parse_time, metavar="TIME", help="likewise")


def add_decision_filters(parser: argparse.ArgumentParser, outcomes: Collection[str]) -> None:
    """Add `--how`, `--proposer`, `--by`, `--tool`, `--rule`, `--since` and `--until`."""
    add = parser.add_argument
    add("--how", action="append", default=[], choices=outcomes, help="what became of it; may be repeated")
    add("--proposer", metavar="NAME", help="who proposed it")
    add("--by", metavar="NAME", help="who decided")
    add("--tool", metavar="NAME", help="the tool that it calls")
    add("--rule", metavar="NAME", help="decided by this rule")
    add_time_range(parser)
