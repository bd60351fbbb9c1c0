"""What `moot cluster` and `moot space` ask of a gateway in the name of an administrator."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moot.cli.process.program import RefuseToken
from moot.errors import Refused, UsageError

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
    from moot.config.connect_settings import URL, cluster_settings
    from moot.errors import Unreachable
    from moot.private_files import token_from

    given = options.gateway or os.environ.get(URL) or ""
    file = options.admin_token_file or os.environ.get("MOOT_ADMIN_TOKEN_FILE")
    if not given:
        here = cluster_settings(environ=os.environ, folder=Path())
        if here is not None:
            # The token of this folder goes to the gateways of this folder and nowhere else, and that of the
            # environment to none that only a file in this folder names.
            given, file = here[0], options.admin_token_file or here[1]
    urls = [each for url in given.split(",") if (each := url.strip())]
    if not urls:
        raise UsageError(
            "--gateway URL is missing: the address of a gateway; or set MOOT_URL, or run this in the folder"
            " of its moot.yaml"
        )
    if not file:
        raise UsageError(
            "--admin-token-file FILE is missing: the token of an administrator of the gateway. It has"
            " one with `admin_tokens: {root: {}}` under `gateway:` in its file, after `moot reload`"
        )
    token = token_from(file)
    missed: list[str] = []
    for url in urls:
        try:
            return _request(url, token, method, path, body, params)
        except Unreachable as fault:
            missed.append(str(fault))
    raise Unreachable("\n".join(missed))


def _request(
    url: str, token: str, method: str, path: str, body: Json, params: dict[str, str]
) -> dict[str, Any]:
    import httpx2

    from moot.cli.client.gateway_request import request_bounded
    from moot.errors import Unreachable
    from moot.net.connect_errors import UpgradeRefused, explain_failed_request, explain_not_admitted

    # ws:// and wss:// name the same gateway.
    base = f"http{url[2:]}" if url.startswith("ws") else url
    headers = {"Authorization": f"Bearer {token}"}
    try:
        answer = request_bounded(
            method, f"{base.rstrip('/')}/{path}", seconds=15, headers=headers, params=params, json=body
        )
    except (httpx2.HTTPError, httpx2.InvalidURL) as fault:
        raise explain_failed_request(url, fault) from None
    if answer.status_code == 401:
        raise explain_not_admitted(url, UpgradeRefused(401, answer.content), token)
    try:
        found = answer.json()
    except ValueError:
        found = None
    if not isinstance(found, dict) or answer.status_code >= 500:
        why = found.get("message") if isinstance(found, dict) else "that is no gateway of ours"
        raise Unreachable(f"{url} answered with HTTP {answer.status_code}: {why}")
    if answer.status_code not in (200, 201):
        raise Refused(str(found.get("message") or f"{url} answered with HTTP {answer.status_code}"))
    return found
