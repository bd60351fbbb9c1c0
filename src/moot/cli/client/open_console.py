"""`moot open`: the console in a browser, signed in by a link that works once."""

from __future__ import annotations

import argparse
import io
import sys
from typing import TYPE_CHECKING, Any

from moot.cli.client.connect_options import CONNECT_HELP, add_connect_options, connect_settings_of
from moot.cli.process import program
from moot.errors import Refused, UsageError

if TYPE_CHECKING:
    from moot.operations.operation import SignInLink

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
    parser.set_defaults(run=open_console)


@program.tells_errors
def open_console(options: argparse.Namespace) -> int:
    from moot.cli.client.browser import has_display, open_browser

    settings = connect_settings_of(options)
    link = ask_for_link(settings.url, settings.token.reveal(), elsewhere=options.qr)
    print(link.address)
    # Without --qr it is for this machine anyway.
    for line in link.lines()[: None if options.qr else 1]:
        print(line)
    if options.qr:
        print(qr_text(link.address))
    sys.stdout.flush()
    if not options.only_print and has_display():
        open_browser(link.address)
    elif not options.only_print:
        print("There is no display here: open the link yourself.", file=sys.stderr)
    return 0


def ask_for_link(gateway: str, token: str, *, elsewhere: bool) -> SignInLink:
    """Raises MootError. With `elsewhere`, for a browser on another machine as far as the gateway has one."""
    from moot.cli.client.gateway_request import request_gateway
    from moot.operations.operation import SignInLink

    page, answer = request_gateway(
        "POST",
        gateway,
        "sign-in-links",
        token,
        body=lambda page: {"page": page, "elsewhere": elsewhere},
    )
    if answer.status_code == 404:
        raise UsageError(f"the gateway at {page} has no one-time links; sign in with your token instead")
    body = answer.json() if answer.headers.get("content-type", "").startswith("application/json") else {}
    if answer.status_code != 201:
        raise Refused(str(body.get("message") or f"the gateway replied with HTTP {answer.status_code}"))
    return SignInLink(
        address=str(body["address"]),
        minutes=round(float(body["valid_seconds"]) / 60),
        # A gateway of 0.1 does not say.
        only_here=not body.get("other_machines", True),
    )


def qr_text(address: str) -> str:
    import segno

    drawn = io.StringIO()
    segno.make_qr(address, error="m").terminal(drawn, compact=True)
    return drawn.getvalue().rstrip("\n")
