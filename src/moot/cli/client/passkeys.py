"""`moot passkeys`: list and revoke passkeys, and make a link by which somebody adds one."""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

from moot.cli.client.connect_options import (
    CONNECT_HELP,
    add_admin_options,
    admin_settings_of,
    connect_settings_of,
)
from moot.cli.client.gateway_request import request_json
from moot.cli.process import program

_EXAMPLES: Final = """\
  moot passkeys list                                                   your own
  moot passkeys list --admin-token-file .moot/admin/root.token         of everybody in a space
  moot passkeys revoke k7Qd… --admin-token-file .moot/admin/root.token a device was lost
  moot passkeys link ana --admin-token-file .moot/admin/root.token     ana adds a new one with it
"""
_ABOUT: Final = f"""\
Passkeys sign people in to the console, and confirm decisions that a space asks one for (`passkeys:` in
moot.yaml). People add them in the console, below the name of the space. Whoever lost theirs gets a link from
an administrator; what is added and removed stands in the journal.

{CONNECT_HELP}"""
_ABOUTS: Final = {
    "list": "Lists your passkeys, or with an administrator's token those of a space or of one participant.",
    "revoke": "Removes a passkey, and ends what was signed in with it.",
    "link": "Prints a link by which a participant adds a passkey, once and within ten minutes. Pass it on so"
    " that nobody else gets it: whoever opens it first has the key.",
}


def add_command(commands: Any, name: str) -> None:
    group = program.add_group(
        commands, name, help="list and revoke passkeys; a link to add one", about=_ABOUT, examples=_EXAMPLES
    )
    for act, about in _ABOUTS.items():
        parser = program.add_command(
            group, act, help=about.partition(".")[0], about=f"{about}\n\n{CONNECT_HELP}", examples=_EXAMPLES
        )
        add = parser.add_argument
        if act == "revoke":
            add("target", metavar="ID", help="the beginning of its id, as `moot passkeys list` shows it")
        else:
            add("target", nargs="?" if act == "list" else None, metavar="NAME", help="the participant")
        add_admin_options(parser)
        parser.set_defaults(run=run_passkeys, act=act)


@program.tells_errors
def run_passkeys(options: argparse.Namespace) -> int:
    answer = _ask(options)
    if options.json:
        print(json.dumps(answer))
    elif options.act == "list":
        _print(answer["passkeys"])
    elif options.act == "revoke":
        print(f"{answer['id'][:_ID_CHARS]}: removed")
    else:
        print(answer["address"])
        print(f"(for {answer['participant']}, once, within {answer['valid_seconds'] / 60:g} minutes)")
    return 0


def _ask(options: argparse.Namespace) -> dict[str, Any]:
    from moot.errors import UsageError

    if options.admin_token_file is None and options.act != "link":
        settings = connect_settings_of(options)
        prefix, params = "passkeys", {}
        if options.act == "list" and options.target is not None:
            raise UsageError("those of somebody else need --admin-token-file FILE")
    else:
        settings = admin_settings_of(options)
        prefix, params = "admin/passkeys", {"space": settings.space} if settings.space else {}
    token = settings.token.reveal()
    if options.act == "link":
        path = f"admin/participants/{quote(options.target, safe='')}/passkey-link"
        return request_json("POST", settings.url, path, token, params=params)
    wanted = {"participant": options.target} if options.act == "list" and options.target else {}
    found = request_json("GET", settings.url, prefix, token, params=params | wanted)
    if options.act == "list":
        return found
    start = options.target.rstrip("…")
    ids = {each["id"] for each in found["passkeys"] if each["id"].startswith(start)}
    if len(ids) != 1:
        raise UsageError(f"{len(ids)} passkeys begin with {start}: `moot passkeys list` shows them")
    return request_json("DELETE", settings.url, f"{prefix}/{quote(ids.pop(), safe='')}", token, params=params)


_ID_CHARS: Final = 12


def _print(keys: list[dict[str, Any]]) -> None:
    from moot.cli.process.table_output import TableWriter

    if not keys:
        print("no passkeys")
        return
    rows = [
        (
            f"{each['id'][:_ID_CHARS]}…" if len(each["id"]) > _ID_CHARS else each["id"],
            each["participant"],
            each["space"],
            each["name"],
            _day(each["added_at"]),
            _day(each["used_at"]),
            "signs in, confirms" if each["signs_in"] else "confirms",
        )
        for each in keys
    ]
    TableWriter("passkey", "participant", "space", "device", "added", "used", "for").write(rows)


def _day(seconds: float | None) -> str:
    return "" if not seconds else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
