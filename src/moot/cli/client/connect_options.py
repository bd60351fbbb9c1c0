"""The options that say which space a command is for, and as whom it joins."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moot.cli.program import RefuseToken

if TYPE_CHECKING:
    from moot.config.connect_settings import ConnectSettings

# For the end of a help text.
CONNECT_HELP: Final = """\
In the folder of a moot.yaml or space.yaml nothing else is needed: the space is the one there, and you are
its default_participant (or --as NAME). Elsewhere give --gateway and --token-file, or set MOOT_URL and
MOOT_TOKEN_FILE.
"""


def add_connect_options(parser: argparse.ArgumentParser) -> None:
    """Add `--gateway`, `--space`, `--token-file`, `--as` and `--config`."""
    add = parser.add_argument_group("connection").add_argument
    add("--gateway", metavar="URL", help="such as http://localhost:8080")
    add("--space", metavar="NAME", help="which space, if there are several")
    add("--token-file", type=Path, metavar="FILE", help="holds your token")
    add("--token", action=RefuseToken)
    add("--as", dest="participant", metavar="NAME", help="a participant of the space in this folder")
    add("--config", type=Path, metavar="FILE", help="a moot.yaml or space.yaml elsewhere")


def connect_settings_of(options: argparse.Namespace) -> ConnectSettings:
    """Where to connect and with which token; raises UsageError that says what is missing."""
    from moot.config.connect_settings import CliOverrides, connect_settings

    overrides = CliOverrides(
        gateway=options.gateway,
        space=options.space,
        token_file=options.token_file,
        name=options.participant,
        config=options.config,
    )
    return connect_settings(overrides, environ=os.environ, folder=Path())
