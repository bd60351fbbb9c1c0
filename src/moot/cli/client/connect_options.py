"""The options that say which space a command is for, and as whom it joins."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moot.cli.options.member_options import add_member_options, overrides_of
from moot.cli.options.shared_options import add_json

if TYPE_CHECKING:
    from moot.config.connect_settings import CliOverrides, ConnectSettings

# For the end of a help text.
CONNECT_HELP: Final = """\
In the folder of a moot.yaml or space.yaml nothing else is needed: the space is the one there, and you are
its default_participant (or --as NAME). Elsewhere give --gateway and --token-file, or set MOOT_URL and
MOOT_TOKEN_FILE.
"""

NO_ADMIN_TOKEN: Final = (
    "--admin-token-file FILE is missing: the token of an administrator of the gateway. It has"
    " one with `admin_tokens: {root: {}}` under `gateway:` in its file, after `moot reload`"
)


def add_connect_options(parser: argparse.ArgumentParser) -> None:
    """Add `--gateway`, `--space`, `--token-file`, `--as` and `--config`."""
    add_member_options(parser.add_argument_group("connection"))


def add_admin_options(parser: argparse.ArgumentParser) -> None:
    """Add `--admin-token-file`, `--json` and the options of a connection."""
    add = parser.add_argument
    about = "the token of an administrator"
    add("--admin-token-file", type=Path, metavar="FILE", help=about)
    add_json(parser)
    add_connect_options(parser)


def admin_settings_of(options: argparse.Namespace) -> ConnectSettings:
    """Where to ask as an administrator, with the token of `--admin-token-file`."""
    from moot.config.connect_settings import admin_settings
    from moot.config.secrets.secret import Secret
    from moot.errors import UsageError
    from moot.private_files import token_from

    if options.admin_token_file is None:
        raise UsageError(NO_ADMIN_TOKEN)
    token = Secret(token_from(options.admin_token_file))
    return admin_settings(overrides_of(options), token, environ=os.environ, folder=Path())


def connect_settings_of(options: argparse.Namespace) -> ConnectSettings:
    """Where to connect and with which token; raises UsageError that says what is missing."""
    from moot.config.connect_settings import connect_settings

    overrides = overrides_of(options)
    return _signed_in(overrides) or connect_settings(overrides, environ=os.environ, folder=Path())


def _signed_in(asked: CliOverrides) -> ConnectSettings | None:
    """Where a gateway was named and no token: as whom `moot login` signed in there, if it did.

    Raises UsageError where nobody is signed in and nothing else says with which token to go there.
    """
    from moot.config.connect_settings import SPACE, TOKEN, TOKEN_FILE, URL, ConnectSettings
    from moot.config.secrets.secret import Secret

    url = asked.gateway or os.environ.get(URL)
    has_token = asked.token_file or os.environ.get(TOKEN_FILE) or os.environ.get(TOKEN)
    if url is None or has_token or asked.name is not None:
        return None
    from moot.config.secrets.sign_in_store import open_sign_ins

    store = open_sign_ins(os.environ)
    from moot.cli.client.device_sign_in import current_token, normal_url

    gateway = normal_url(url)
    token = current_token(store, gateway)
    if token is None:
        if asked.gateway is None:
            return None
        from moot.errors import UsageError

        raise UsageError(
            f"not signed in at {gateway}: run `moot login {gateway}`, or give --token-file FILE, the token "
            "that it let you have"
        )
    space = asked.space or os.environ.get(SPACE) or ""
    return ConnectSettings(url=url, space=space, token=Secret(token))
