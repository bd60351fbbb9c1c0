"""`moot member token`: a token that ends by itself and carries little, for a program."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moot.cli.client.connect_options import (
    CONNECT_HELP,
    add_connect_options,
    admin_settings_of,
    connect_settings_of,
)
from moot.cli.client.gateway_request import request_json
from moot.cli.process import program
from moot.errors import Refused, UsageError
from moot.resilience.durations import HOW_LONG, parse_positive_duration

if TYPE_CHECKING:
    from moot.config.connect_settings import ConnectSettings
    from moot.protocol.operation import Json

_ABOUT = f"""\
Makes a short-lived token of your own for a program: it ends by itself, and with --only it carries no more
than these capabilities. It never carries more than your own token, and lasts no longer if yours ends by
itself. An administrator makes one for any member with --admin-token-file. Replacing the member's token voids
it.

{CONNECT_HELP}"""
_EXAMPLES = """\
  moot member token --for 1h --only chat                     print it
  moot member token --for 15m --token-out ci.token           write it to a file for its owner alone
  moot member token agent --for 8h --admin-token-file .moot/admin/root.token
"""


def add_token_command(group: Any) -> None:
    parser = program.add_command(
        group, "token", help="make a short-lived token with few rights", about=_ABOUT, examples=_EXAMPLES
    )
    add = parser.add_argument
    add("member", nargs="?", metavar="NAME", help="whose token, for administrators (default: yours)")
    add("--for", dest="seconds", type=parse_positive_duration, required=True, metavar="TIME", help=HOW_LONG)
    add("--only", action="append", metavar="CAPABILITY", help="carry only this; may be given several times")
    add("--token-out", type=Path, metavar="FILE", help="write the token there instead of printing it")
    add("--admin-token-file", type=Path, metavar="FILE", help="the token of an administrator")
    add_connect_options(parser)
    parser.set_defaults(run=run_member_token)


@program.tells_errors
def run_member_token(options: argparse.Namespace) -> int:
    from moot.cli.process.output_file import open_new_file

    settings = _settings_of(options)
    made = _ask_for_token(settings, options)
    if options.token_out is None:
        print(made["token"], flush=True)
    else:
        with open_new_file(str(options.token_out)) as file:
            file.write(f"{made['token']}\n".encode())
    carries = ", ".join(options.only or ()) or "all of its rights"
    print(f"{made['participant_id']}: {carries}, for {options.seconds:g} s", file=sys.stderr)
    return 0


def _settings_of(options: argparse.Namespace) -> ConnectSettings:
    """For an administrator who names a member the address and the space alone; for others as whom as well."""
    if options.admin_token_file is None or options.member is None:
        return connect_settings_of(options)
    return admin_settings_of(options)


def _ask_for_token(settings: ConnectSettings, options: argparse.Namespace) -> dict[str, Json]:
    from urllib.parse import quote

    from moot.operations.operation import read_capability_text
    from moot.private_files import token_from

    body: dict[str, Json] = {"seconds": options.seconds}
    if options.only:
        body["only"] = [read_capability_text(text) for text in options.only]
    params = {"space": settings.space} if settings.space else {}
    if options.admin_token_file is None:
        if options.member is not None:
            raise UsageError("a token of somebody else needs --admin-token-file FILE")
        token = settings.token.reveal()
        who = settings.participant or _own_name(settings)
        path = f"participants/{quote(who, safe='')}/tokens"
    else:
        token = token_from(options.admin_token_file)
        who = options.member or settings.participant or _own_name(settings)
        path = f"admin/participants/{quote(who, safe='')}/tokens"
    try:
        return request_json("POST", settings.url, path, token, params=params, json=body)
    except Refused:
        # An unknown token is refused there as that of somebody else is: ask whether it is known at all.
        if options.admin_token_file is None and settings.participant is not None:
            _own_name(settings)
        raise


def _own_name(settings: ConnectSettings) -> str:
    spaces = request_json("GET", settings.url, "spaces", settings.token.reveal())["spaces"]
    names = [each["participant"] for each in spaces if not settings.space or each["name"] == settings.space]
    if not names:
        raise UsageError(f"this token opens no space {settings.space} there")
    return str(names[0])
