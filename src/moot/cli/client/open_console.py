"""`moot open`: the console in a browser, signed in by a link that works once."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from moot.cli import program
from moot.cli.client.connect_options import CONNECT_HELP, add_connect_options, connect_settings_of
from moot.errors import Refused, UsageError

if TYPE_CHECKING:
    from moot.config.connect_settings import ConnectSettings
    from moot.protocol.operation import Json

_ABOUT = f"""\
Opens the console and signs you in with a link that works once, within ten minutes. The link is printed too,
for another browser or another device; whoever opens it first is signed in as you, so give it to nobody.

{CONNECT_HELP}"""
_EXAMPLES = """\
  moot open                          in the folder of a space
  moot open --as reviewer --print    print the link, open nothing
  moot open --qr                     and a QR code for a phone that reaches the gateway
"""


def add_command(commands: Any, name: str) -> None:
    parser = program.add_command(
        commands, name, help="open the console in your browser, signed in", about=_ABOUT, examples=_EXAMPLES
    )
    add = parser.add_argument
    add("--print", dest="only_print", action="store_true", help="print the link, open no browser")
    add("--qr", action="store_true", help="also print a QR code of it")
    add_connect_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from moot.cli.browser import has_display, open_browser
    from moot.cli.client.operation_output import print_error
    from moot.errors import MootError

    try:
        settings = connect_settings_of(options)
        link = _ask_for_link(settings)
    except MootError as fault:
        return print_error(fault, as_json=False)
    minutes = round(float(link["valid_seconds"]) / 60)
    print(f"{link['address']}\n(signs you in once, within {minutes} minutes)", flush=True)
    if options.qr:
        import segno

        segno.make_qr(link["address"], error="m").terminal(compact=True)
    if not options.only_print and has_display():
        open_browser(link["address"])
    elif not options.only_print:
        print("There is no display here: open the link yourself.", file=sys.stderr)
    return 0


def _ask_for_link(settings: ConnectSettings) -> dict[str, Json]:
    from moot.cli.client.gateway_request import request_gateway

    page, answer = request_gateway(
        "POST", settings.url, "sign-in-links", settings.token.reveal(), body=lambda page: {"page": page}
    )
    if answer.status_code == 404:
        raise UsageError(f"the gateway at {page} has no one-time links; sign in with your token instead")
    body = answer.json() if answer.headers.get("content-type", "").startswith("application/json") else {}
    if answer.status_code != 201:
        raise Refused(str(body.get("message") or f"the gateway replied with HTTP {answer.status_code}"))
    found: dict[str, Json] = body
    return found
