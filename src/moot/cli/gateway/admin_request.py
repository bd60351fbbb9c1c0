"""What `moot cluster` and `moot space` ask of a gateway in the name of an administrator."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moot.cli.process.program import RefuseToken
from moot.errors import UsageError

if TYPE_CHECKING:
    from moot.protocol.operation import Json


def add_gateway_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--gateway",
        metavar="URL",
        help="one or several, separated by commas (default: MOOT_URL, or that of this folder)",
    )
    add(
        "--admin-token-file",
        type=Path,
        metavar="FILE",
        help="the token of an administrator (default: MOOT_ADMIN_TOKEN_FILE with a URL, or of this folder)",
    )
    add("--token", action=RefuseToken)


def type_name(options: argparse.Namespace, what: str) -> bool:
    """Whether what cannot be undone is meant: whoever gave no --yes types the name of the space."""
    if options.yes:
        return True
    if not sys.stdin.isatty():
        raise UsageError("nothing was changed: read --help, and call again with --yes if you mean it")
    print(f"{what} Type its name: ", end="")
    sys.stdout.flush()
    if sys.stdin.readline().strip() == options.space:
        return True
    print("nothing was changed")
    return False


def ask_gateway(
    options: argparse.Namespace, method: str, path: str, body: Json = None, **params: str
) -> dict[str, Any]:
    """Raises UsageError, Refused, or Unreachable when no gateway answers."""
    from moot.cli.client.connect_options import NO_ADMIN_TOKEN
    from moot.cli.client.gateway_request import base_urls, request_json
    from moot.config.connect_settings import URL, cluster_settings
    from moot.private_files import token_from

    given = options.gateway or os.environ.get(URL) or ""
    file = options.admin_token_file or os.environ.get("MOOT_ADMIN_TOKEN_FILE")
    if not given:
        here = cluster_settings(environ=os.environ, folder=Path())
        if here is not None:
            # The token of this folder goes to the gateways of this folder and nowhere else, and that of the
            # environment to none that only a file in this folder names.
            given, file = here[0], options.admin_token_file or here[1]
    if not base_urls(given):
        raise UsageError(
            "--gateway URL is missing: the address of a gateway; or set MOOT_URL, or run this in the folder"
            " of its moot.yaml"
        )
    if not file:
        raise UsageError(NO_ADMIN_TOKEN)
    return request_json(method, given, path, token_from(file), is_repeatable=True, params=params, json=body)
