"""Options and output shared by the adapter's commands: the configuration, keys, times, JSON."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moot.cli.adapter import Misused
from moot.cli.process import program

if TYPE_CHECKING:
    from moot.xprotocol.adapter.config.adapter_settings import AdapterSettings
    from moot.xprotocol.identity.keys import Identity


def command(commands: Any, name: str, run: Any, *, help: str, description: str, examples: str) -> Any:
    """The parser of one command, with a description and examples."""
    parser = program.add_command(commands, name, help=help, about=description, examples=examples)
    parser.set_defaults(run=run)
    return parser


def add_config(parser: Any) -> None:
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="the adapter's configuration (default: xprotocol-mcp-adapter.yml in this folder)",
    )


def add_control(parser: Any) -> None:
    add_config(parser)
    parser.add_argument(
        "--control", type=Path, metavar="SOCKET", help="the control socket, instead of --config"
    )


def add_publish(parser: Any) -> None:
    help = "publish it: to the given relay, or the configured ones"
    parser.add_argument("--publish", nargs="?", const="", metavar="RELAY", help=help)


def relays_of(publish: str | None, settings: AdapterSettings | None) -> tuple[str, ...]:
    """The relays that `--publish` means; none without it."""
    if publish is None:
        return ()
    if publish:
        return (publish,)
    if settings is None:
        raise Misused("--publish needs a relay: --publish wss://relay.example, or --config FILE")
    return settings.relay.urls


def config_file(given: Path | None) -> Path:
    """The given configuration file, or the one in this folder; raises Misused when there is none."""
    from moot.xprotocol.adapter.config.config_loader import find_config

    found = given or find_config(Path())
    if found is None:
        raise Misused("there is no xprotocol-mcp-adapter.yml in this folder: use --config FILE")
    return found


def load_config(given: Path | None) -> AdapterSettings:
    """The settings of a configuration; raises UsageError with every problem."""
    from moot.xprotocol.adapter.config.config_loader import load_settings

    return load_settings(config_file(given), environ=os.environ)


def load_sections(given: Path | None, needs: tuple[str, ...]) -> AdapterSettings:
    """The settings; raises UsageError for problems in these sections only.

    The rest may be incomplete: `register` writes a file that the configuration may name already.
    """
    from moot.errors import UsageError
    from moot.xprotocol.adapter.config.config_loader import read_settings

    path = config_file(given)
    found = read_settings(path, environ=os.environ)
    wrong = [problem for problem in found.problems if not problem.path or problem.path.startswith(needs)]
    if wrong or found.settings is None:
        raise UsageError("\n".join(f"{path}: {problem}" for problem in wrong))
    return found.settings


def load_sections_if_any(given: Path | None, needs: tuple[str, ...]) -> AdapterSettings | None:
    """The same, or None when no file is given and none is in this folder."""
    from moot.xprotocol.adapter.config.config_loader import find_config

    return None if given is None and find_config(Path()) is None else load_sections(given, needs)


def own_identity(file: Path | None, settings: AdapterSettings | None) -> tuple[Path, Identity]:
    """The adapter's key file: the one given, the configured one, or the default. Raises KeyFileError."""
    from moot.xprotocol.adapter.config.adapter_settings import KEY_FILE
    from moot.xprotocol.identity import keyfile

    path = file or (settings.identity.key_file if settings is not None else KEY_FILE.expanduser())
    return path, keyfile.load(path)


def format_time(seconds: int) -> str:
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}Z"
    except (OverflowError, ValueError, OSError):
        return f"second {seconds}"


def format_count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def report(chosen: argparse.Namespace, value: Any, lines: Iterable[str], *, code: int = 0) -> int:
    """Print what came of a command: with --json the value, indented, in ASCII. Its exit code."""
    from moot.operations.text.terminal_escape import printable

    for line in (json.dumps(value, indent=2),) if chosen.json else map(printable, lines):
        print(line)
    return code
