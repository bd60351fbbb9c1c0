"""`moot login` and `moot logout`: signing in at the provider of a gateway, from a terminal."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import suppress
from typing import Any

from moot.cli.options.shared_options import add_code_port
from moot.cli.process import program

_LOGIN_ABOUT = """\
Signs you in at the identity provider of a gateway: open the address that is printed, in any browser on any
device, and confirm the code. With --browser, or if the provider has no such codes, sign in with a browser on
this machine instead, which comes back to 127.0.0.1. From then on commands with --gateway URL (or MOOT_URL)
need no token file. The sign-in is kept in the system's keyring if there is one, else in a file that only you
can read, and renewed as long as the provider allows.
"""
_LOGOUT_ABOUT = """\
Ends everything that you have signed in for at this gateway, on all devices, and forgets the sign-in here.
"""


def add_command(commands: Any, name: str) -> None:
    if name == "login":
        help, about = "sign in at a gateway's identity provider", _LOGIN_ABOUT
        examples = (
            "  moot login https://moot.example.org\n"
            "  moot login https://moot.example.org --browser      on your own computer\n"
        )
    else:
        help, about = "sign out of a gateway, on all devices", _LOGOUT_ABOUT
        examples = "  moot logout https://moot.example.org\n"
    parser = program.add_command(commands, name, help=help, about=about, examples=examples)
    parser.add_argument(
        "gateway",
        metavar="URL",
        help="the gateway, such as https://moot.example.org; of a cluster several, with commas",
    )
    if name == "login":
        parser.add_argument("--browser", action="store_true", help="use a browser on this machine, no code")
        add_code_port(parser)
    parser.set_defaults(run=log_in if name == "login" else log_out)


def log_in(options: argparse.Namespace) -> int:
    from moot.cli.client.browser import has_display, open_browser
    from moot.cli.client.device_sign_in import (
        check_gateways,
        find_provider,
        has_device_flow,
        normal_url,
        sign_in,
    )
    from moot.cli.process.interruption import run_errand
    from moot.config.secrets.sign_in_store import open_sign_ins
    from moot.operations.text.terminal_escape import printable

    gateway = normal_url(options.gateway)
    check_gateways(gateway)
    # Before anybody signs in: what cannot be kept would be lost.
    store = open_sign_ins(os.environ)
    with store.lock():
        store.load(gateway)
    provider = find_provider(gateway)
    print(f"Signing in at {printable(provider['issuer'])} for {gateway}", flush=True)

    def show(address: str, code: str) -> None:
        print(f"Open {printable(address)}\nand confirm the code {printable(code)}", flush=True)
        if has_display():
            open_browser(address)

    def show_link(address: str) -> None:
        print(f"Open this address in a browser on this machine:\n{printable(address)}", flush=True)
        if has_display():
            open_browser(address)

    if options.browser or not has_device_flow(provider):
        from moot.cli.client.browser_sign_in import sign_in_with_browser

        signed_in = run_errand(sign_in_with_browser(provider, show_link, port=options.port))
    else:
        signed_in = sign_in(provider, show)
    with store.lock():
        store.save(gateway, signed_in)
    print(f"Signed in; kept in {store.place}.", flush=True)
    return 0


def log_out(options: argparse.Namespace) -> int:
    import httpx2

    from moot.cli.client.device_sign_in import current_token, normal_url
    from moot.cli.client.gateway_request import request_bounded
    from moot.config.secrets.sign_in_store import open_sign_ins
    from moot.errors import MootError, Unreachable

    store = open_sign_ins(os.environ)
    gateway = store.key_of(normal_url(options.gateway))
    if store.load(gateway) is None:
        print(f"not signed in at {gateway}", file=sys.stderr)
        return 1
    is_signed_out = False
    with suppress(MootError):
        headers = {"Authorization": f"Bearer {current_token(store, gateway)}"}
        for each in gateway.split(","):
            with suppress(httpx2.HTTPError, Unreachable):
                answer = request_bounded("POST", f"{each}/oidc/sign-out", seconds=10, headers=headers)
                is_signed_out = is_signed_out or answer.status_code == 200
            if is_signed_out:
                break
    with store.lock():
        store.save(gateway, None)
    if is_signed_out:
        print("Signed out.")
        return 0
    print("Forgotten here; the gateway could not be told: open connections last until their token ends.")
    return 1
