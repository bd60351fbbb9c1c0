"""What several commands of the adapter take and print alike: the configuration, keys, times, JSON."""

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

# Of what help says in sentences; examples are as wide as they are.
_WIDTH: Final = 100
_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800, "y": 365 * 86_400}


def command(commands: Any, name: str, run: Any, *, help: str, description: str, examples: str) -> Any:
    """A parser of one command that teaches: what it does, then how it is used."""
    parser = commands.add_parser(
        name,
        help=help,
        description="\n\n".join(textwrap.fill(part, _WIDTH) for part in description.split("\n\n")),
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    return parser


def add_config(parser: Any, words: str = "the adapter's configuration") -> None:
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help=f"{words} (default: xprotocol-mcp-adapter.yml in this folder)",
    )


def add_json(parser: Any, words: str) -> None:
    parser.add_argument("--json", action="store_true", help=words)


def config_file(given: Path | None) -> Path:
    """The configuration that was named, or the one in this folder; raises Misused when there is none."""
    from moot.adapter.config.config_loader import find_config

    found = given or find_config(Path())
    if found is None:
        raise Misused("there is no xprotocol-mcp-adapter.yml in this folder: name a file with --config FILE")
    return found


def loaded(given: Path | None) -> AdapterSettings:
    """The settings of a configuration; raises UsageError with every problem."""
    from moot.adapter.config.config_loader import load_settings

    return load_settings(config_file(given), environ=os.environ)


def usable(given: Path | None, needs: tuple[str, ...]) -> AdapterSettings:
    """The settings as far as these sections go; what is wrong elsewhere in the file is not in the way.

    Whoever registers may have named the file in the configuration already that is about to be written.
    Raises UsageError.
    """
    from moot.adapter.config.config_loader import read_settings
    from moot.errors import UsageError

    path = config_file(given)
    found = read_settings(path, environ=os.environ)
    wrong = [problem for problem in found.problems if not problem.path or problem.path.startswith(needs)]
    if wrong or found.settings is None:
        raise UsageError("\n".join(f"{path}: {problem}" for problem in wrong))
    return found.settings


def usable_if_any(given: Path | None, needs: tuple[str, ...]) -> AdapterSettings | None:
    """The same, or None where no file was named and none is in this folder."""
    from moot.adapter.config.config_loader import find_config

    return None if given is None and find_config(Path()) is None else usable(given, needs)


def own_identity(file: Path | None, settings: AdapterSettings | None) -> tuple[Path, Identity]:
    """The adapter's key file: the one given, the configured one, or the default. Raises KeyFileError."""
    from moot.adapter.config.adapter_settings import KEY_FILE
    from moot.identity import keyfile

    path = file or (settings.identity.key_file if settings is not None else KEY_FILE.expanduser())
    return path, keyfile.load(path)


def moment(text: str) -> int:
    """A time to come: a date, a moment, seconds since 1970, or how long from now."""
    if lasting := re.fullmatch(r"(\d{1,6}(?:\.\d{1,6})?)([smhdwy])", text):
        return int(time.time() + float(lasting[1]) * _UNITS[lasting[2]])
    if re.fullmatch(r"\d{9,15}", text):
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time: write 90d (also h, w, y) from now, 2027-01-31, or 2027-01-31T12:00:00Z"
        ) from None
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp())


def shown_time(seconds: int) -> str:
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}Z"
    except (OverflowError, ValueError, OSError):
        return f"second {seconds}"


def counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def print_json(value: Any) -> None:
    """One JSON value, indented; whatever a peer wrote is ASCII in it."""
    print(json.dumps(value, indent=2))
