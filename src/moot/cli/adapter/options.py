"""Options and output shared by the adapter's commands: the configuration, keys, times, JSON."""

from __future__ import annotations

import argparse
import json
import os
import re
import textwrap
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from moot.cli.adapter import Misused

if TYPE_CHECKING:
    from moot.adapter.config.adapter_settings import AdapterSettings
    from moot.identity.keys import Identity

# Of descriptions; examples are not wrapped.
_WIDTH: Final = 100
_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800, "y": 365 * 86_400}


def command(commands: Any, name: str, run: Any, *, help: str, description: str, examples: str) -> Any:
    """The parser of one command, with a description and examples."""
    parser = commands.add_parser(
        name,
        help=help,
        description="\n\n".join(textwrap.fill(part, _WIDTH) for part in description.split("\n\n")),
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    return parser


def add_config(parser: Any, description: str = "the adapter's configuration") -> None:
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help=f"{description} (default: xprotocol-mcp-adapter.yml in this folder)",
    )


def add_json(parser: Any, description: str) -> None:
    parser.add_argument("--json", action="store_true", help=description)


def config_file(given: Path | None) -> Path:
    """The given configuration file, or the one in this folder; raises Misused when there is none."""
    from moot.adapter.config.config_loader import find_config

    found = given or find_config(Path())
    if found is None:
        raise Misused("there is no xprotocol-mcp-adapter.yml in this folder: use --config FILE")
    return found


def load_config(given: Path | None) -> AdapterSettings:
    """The settings of a configuration; raises UsageError with every problem."""
    from moot.adapter.config.config_loader import load_settings

    return load_settings(config_file(given), environ=os.environ)


def load_sections(given: Path | None, needs: tuple[str, ...]) -> AdapterSettings:
    """The settings; raises UsageError for problems in these sections only.

    The rest may be incomplete: `register` writes a file that the configuration may name already.
    """
    from moot.adapter.config.config_loader import read_settings
    from moot.errors import UsageError

    path = config_file(given)
    found = read_settings(path, environ=os.environ)
    wrong = [problem for problem in found.problems if not problem.path or problem.path.startswith(needs)]
    if wrong or found.settings is None:
        raise UsageError("\n".join(f"{path}: {problem}" for problem in wrong))
    return found.settings


def load_sections_if_any(given: Path | None, needs: tuple[str, ...]) -> AdapterSettings | None:
    """The same, or None when no file is given and none is in this folder."""
    from moot.adapter.config.config_loader import find_config

    return None if given is None and find_config(Path()) is None else load_sections(given, needs)


def own_identity(file: Path | None, settings: AdapterSettings | None) -> tuple[Path, Identity]:
    """The adapter's key file: the one given, the configured one, or the default. Raises KeyFileError."""
    from moot.adapter.config.adapter_settings import KEY_FILE
    from moot.identity import keyfile

    path = file or (settings.identity.key_file if settings is not None else KEY_FILE.expanduser())
    return path, keyfile.load(path)


def parse_time(text: str) -> int:
    """A time: a date, a date and time, seconds since 1970, or a duration from now."""
    if duration := re.fullmatch(r"(\d{1,6}(?:\.\d{1,6})?)([smhdwy])", text):
        return int(time.time() + float(duration[1]) * _UNITS[duration[2]])
    if re.fullmatch(r"\d{9,15}", text):
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time: write 90d (also h, w, y) from now, 2027-01-31, or 2027-01-31T12:00:00Z"
        ) from None
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp())


def format_time(seconds: int) -> str:
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}Z"
    except (OverflowError, ValueError, OSError):
        return f"second {seconds}"


def format_count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def print_json(value: Any) -> None:
    """Print one JSON value, indented, in ASCII."""
    print(json.dumps(value, indent=2))
