"""The options of commands that run as a member of a space, and where they keep what they need."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from moot.cli.process.program import RefuseToken
from moot.errors import UsageError

if TYPE_CHECKING:
    from moot.config.connect_settings import CliOverrides, ConnectSettings

# What says where a command joins, and as whom.
GATEWAY_HELP: Final = "the gateway, such as http://localhost:8080"
SPACE_HELP: Final = "the space, if there are several"
TOKEN_FILE_HELP: Final = "the file with the token"
# For the end of a help text.
MEMBER_HELP: Final = """\
In the folder of a moot.yaml or space.yaml, --as NAME is enough: a participant of the space there. Elsewhere
give --gateway and --token-file.
"""


def add_explicit_member_options(parser: argparse.ArgumentParser) -> None:
    """Add `--gateway`, `--space` and `--token-file`, for a command that other programs start anywhere."""
    add = parser.add_argument
    add("--gateway", required=True, metavar="URL", help=GATEWAY_HELP)
    add("--space", default="", metavar="NAME", help=SPACE_HELP)
    add("--token-file", required=True, type=Path, metavar="FILE", help=TOKEN_FILE_HELP)
    add("--token", action=RefuseToken)


def add_member_options(parser: Any) -> None:
    """Add what says where a command joins, and as whom; nobody's name is guessed here."""
    add = parser.add_argument
    add("--gateway", metavar="URL", help=GATEWAY_HELP)
    add("--space", metavar="NAME", help=SPACE_HELP)
    add("--token-file", type=Path, metavar="FILE", help=TOKEN_FILE_HELP)
    add("--token", action=RefuseToken)
    add("--as", dest="participant", metavar="NAME", help="a participant of the space in this folder")
    add("--config", type=Path, metavar="FILE", help="a moot.yaml or space.yaml elsewhere")


def member_settings_of(options: argparse.Namespace) -> ConnectSettings:
    """Where to join and with which token; raises UsageError that says what is missing."""
    from moot.config.connect_settings import connect_settings

    return connect_settings(member_overrides(options), environ=member_environ(os.environ), folder=Path())


def member_overrides(options: argparse.Namespace) -> CliOverrides:
    """As whom a member joins, which has to be said; raises UsageError that says what is missing."""
    if options.participant is None and options.token_file is None:
        raise UsageError(
            "say as whom it joins: --as NAME, a participant of the space in this folder, or --gateway URL and"
            " --token-file FILE"
        )
    if options.participant is not None and options.gateway is not None:
        raise UsageError("--as takes the gateway of the space in this folder: leave --gateway out")
    return overrides_of(options)


def member_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without variables such as MOOT_TOKEN_FILE.

    They are a person's, whose rights an agent must not get because somebody left an option out.
    """
    from moot.config.connect_settings import PERSONAL_VARIABLES

    return {name: value for name, value in environ.items() if name not in PERSONAL_VARIABLES}


def overrides_of(options: argparse.Namespace) -> CliOverrides:
    """What the command line says about where to connect, and as whom."""
    from moot.config.connect_settings import CliOverrides

    return CliOverrides(
        gateway=options.gateway,
        space=options.space,
        token_file=options.token_file,
        name=options.participant,
        config=options.config,
    )


def add_log_level(parser: argparse.ArgumentParser, default: str = "info") -> None:
    """Add `--log-level`."""
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default=default,
        help="level of the log on stderr (default: %(default)s)",
    )


def state_folder(environ: Mapping[str, str]) -> Path:
    """Where programs of this user keep what they need again: XDG_STATE_HOME, or ~/.local/state."""
    return Path(environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")


def member_file(options: argparse.Namespace) -> Path:
    """The file that makes us this member: with its token, or the configuration that has it."""
    from moot.config.connect_settings import find_config

    found: Path | None = options.token_file or options.config or find_config(Path())
    return (found or Path()).resolve()


def digest_of(*parts: str) -> str:
    """A short name for a member, and for what else tells two runs of a command apart."""
    return sha256("\0".join(parts).encode()).hexdigest()[:16]


def digest_of_member(options: argparse.Namespace, where: ConnectSettings, *more: str) -> str:
    """A short name for this member at this gateway, or of this configuration, whose port may change."""
    at = where.url.rstrip("/") if where.participant is None else where.participant
    return digest_of(at, where.space, str(member_file(options)), *more)
