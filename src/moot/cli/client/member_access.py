"""`moot member tokens`, `revoke-token` and `sign-out`: what lets members in, and how that ends at once."""

from __future__ import annotations

import argparse
import json
from typing import Any
from urllib.parse import quote

from moot.cli.client.connect_options import CONNECT_HELP, add_admin_options, admin_settings_of
from moot.cli.client.gateway_request import request_json
from moot.cli.process import program

_EXAMPLES = """\
  moot member tokens --admin-token-file .moot/admin/root.token          all of a space
  moot member tokens ana --json --admin-token-file .moot/admin/root.token
  moot member revoke-token 3f9c… --admin-token-file .moot/admin/root.token
  moot member sign-out ana --admin-token-file .moot/admin/root.token    who leaves is out at once
"""
_ABOUTS = {
    "tokens": "Lists what lets members of a space in: tokens of the configuration, short-lived ones and "
    "sign-ins at a provider, each with the beginning of its hash, how many connections use it, its client "
    "and its end. No token is shown.",
    "revoke-token": "Ends one token that `moot member tokens` lists, with its connections. A token of a "
    "provider stays void until it would have ended.",
    "sign-out": "Ends everything that a member has signed in for, with its connections, short-lived tokens "
    "and tokens that an administrator made for them; a token of the configuration stays. They come in again "
    "only with a token that their provider issues from now on: lock the account there, or remove the member "
    "(`moot member kick`).",
}
_HELPS = {
    "tokens": "list the tokens and sign-ins that let members in",
    "revoke-token": "end one of these tokens, with its connections",
    "sign-out": "end all that a member has signed in for",
}


def add_access_commands(group: Any) -> None:
    for name, about in _ABOUTS.items():
        parser = program.add_command(
            group, name, help=_HELPS[name], about=f"{about}\n\n{CONNECT_HELP}", examples=_EXAMPLES
        )
        add = parser.add_argument
        if name == "revoke-token":
            add("target", metavar="ID", help="the beginning of its hash, as `moot member tokens` shows it")
        else:
            optional = "?" if name == "tokens" else None
            add("target", nargs=optional, metavar="NAME", help="the member")
        add_admin_options(parser)
        parser.set_defaults(run=run_member_access, act=name)


@program.tells_errors
def run_member_access(options: argparse.Namespace) -> int:
    answer = _ask(options)
    if options.json:
        print(json.dumps(answer))
    elif options.act == "tokens":
        _print(answer["tokens"])
    else:
        print(f"{options.target}: {answer['status']}")
    return 0


def _ask(options: argparse.Namespace) -> dict[str, Any]:
    settings = admin_settings_of(options)
    token = settings.token.reveal()
    params = {"space": settings.space} if settings.space else {}
    target = "" if options.target is None else quote(options.target.rstrip("…"), safe="")
    match options.act:
        case "tokens":
            if options.target is not None:
                params["participant"] = options.target
            return request_json("GET", settings.url, "admin/tokens", token, params=params)
        case "revoke-token":
            return request_json("DELETE", settings.url, f"admin/tokens/{target}", token, params=params)
        case _:
            path = f"admin/participants/{target}/sign-out"
            return request_json("POST", settings.url, path, token, params=params)


def _print(tokens: list[dict[str, Any]]) -> None:
    from moot.cli.process.table_output import TableWriter

    if not tokens:
        print("no token lets anybody in")
        return
    rows = [
        (
            each["id"],
            each["participant"],
            each["source"],
            each.get("client", ""),
            str(each["connections"]),
            each.get("expires", "when replaced"),
            "all of its rights" if "capabilities" not in each else _shown(each["capabilities"]),
        )
        for each in tokens
    ]
    TableWriter("token", "member", "by", "client", "connections", "ends", "carries").write(rows)


def _shown(capabilities: list[Any]) -> str:
    return ", ".join(each if isinstance(each, str) else json.dumps(each) for each in capabilities)
