"""`moot space`: spaces that are made, archived and deleted while the gateway runs."""

from __future__ import annotations

import argparse
import json
from typing import Any
from urllib.parse import quote

from moot.cli.gateway.admin_request import add_gateway_options, ask_gateway, type_name
from moot.cli.options.shared_options import add_json
from moot.cli.process import program
from moot.cli.process.exit_codes import EXIT_FAILED, EXIT_OK

_ABOUT = """\
Makes, archives and deletes spaces while the gateway runs, without editing its file: in a cluster on all
gateways. It takes the token of an administrator of the gateway. Spaces of the file stay in the file.
"""
_ABOUT_CREATE = """\
Makes a space with the people, tokens, rights and rules of another one, which is in the file, and with
nothing of what was said or granted there. Whoever was removed from that one, or whose token was replaced
there, is not let in. It stays until it is archived or deleted, whatever becomes of the file.
"""
_ABOUT_ARCHIVE = """\
Closes a space that was made with `create`, or by joining it, for good: connections end, and nobody joins it
again. Its journal is kept (DATA/spaces/NAME/journal), and `moot journal` reads it. Its name is not used
again.
"""
_ABOUT_DELETE = """\
Closes such a space as `archive` does, and removes its journal, snapshots and large values: on every gateway
of a cluster, on those that are away when they come back. Copies that you made, and the log that NATS still
keeps, are not touched. Its name is not used again, so no right in it comes back. One that is archived can be
deleted.
"""


def add_command(commands: Any, name: str) -> None:
    group = program.add_group(
        commands,
        name,
        help="make, archive and delete spaces of a running gateway",
        about=_ABOUT,
        examples="  moot space create garden --like lab\n  moot space list\n",
    )
    create = program.add_command(
        group,
        "create",
        help="make a space after one of the file",
        about=_ABOUT_CREATE,
        examples="  moot space create garden\n  moot space create garden --like lab\n",
    )
    create.add_argument("space", metavar="SPACE", help="its name")
    create.add_argument(
        "--like", metavar="OTHER", help="after this space of the file (default: the default one)"
    )
    create.set_defaults(run=_create)
    archive = program.add_command(
        group,
        "archive",
        help="close a space for good, and keep its journal",
        about=_ABOUT_ARCHIVE,
        examples="  moot space archive garden\n",
    )
    archive.add_argument("space", metavar="SPACE", help="its name")
    archive.set_defaults(run=_archive)
    delete = program.add_command(
        group,
        "delete",
        help="close a space for good, and remove all that is kept of it",
        about=_ABOUT_DELETE,
        examples="  moot space delete garden\n  moot space delete garden --yes\n",
    )
    delete.add_argument("space", metavar="SPACE", help="its name")
    delete.add_argument("--yes", action="store_true", help="do not ask; for scripts")
    delete.set_defaults(run=_delete)
    listing = program.add_command(
        group,
        "list",
        help="list the spaces of the gateway, those that have ended too",
        about="Lists all spaces: how they were made, how many connections they have, and how they ended.",
        examples="  moot space list\n  moot space list --json\n",
    )
    add_json(listing)
    listing.set_defaults(run=_list)
    for parser in (create, archive, delete, listing):
        add_gateway_options(parser)


@program.tells_errors
def _create(options: argparse.Namespace) -> int:
    from moot.operations.text.terminal_escape import printable

    body = {"name": options.space} | ({} if options.like is None else {"like": options.like})
    answer = ask_gateway(options, "POST", "admin/spaces", body)
    made, like = printable(answer["space"]), printable(answer["like"])
    print(f"{made} is made, with the participants and tokens that {like} has in the file")
    return EXIT_OK


@program.tells_errors
def _archive(options: argparse.Namespace) -> int:
    from moot.operations.text.terminal_escape import printable

    name = printable(options.space)
    ask_gateway(options, "POST", f"admin/spaces/{quote(options.space, safe='')}/archive")
    kept = f"spaces/{name}/journal of the gateway's data folder"
    print(f"{name} is archived: nobody joins it again. Its journal is kept in {kept}")
    return EXIT_OK


@program.tells_errors
def _delete(options: argparse.Namespace) -> int:
    from moot.operations.text.terminal_escape import printable

    name = printable(options.space)
    if not type_name(options, f"Deletes {name} for good, with its journal and all that was said there."):
        return EXIT_FAILED
    ask_gateway(options, "DELETE", f"admin/spaces/{quote(options.space, safe='')}")
    print(f"{name} is deleted, and its name is not used again")
    return EXIT_OK


@program.tells_errors
def _list(options: argparse.Namespace) -> int:
    from moot.cli.process.table_output import print_table
    from moot.operations.text.text_table import TextTable

    found = ask_gateway(options, "GET", "admin/spaces")
    if options.json:
        print(json.dumps(found, indent=2), flush=True)
        return EXIT_OK
    columns = ("SPACE", "STATE", "CONNECTIONS", "MADE")
    print_table(TextTable(columns, [_row(each) for each in found["spaces"]], right=(2,)))
    return EXIT_OK


def _row(space: dict[str, Any]) -> tuple[str, ...]:
    if space["state"] != "open":
        return str(space["name"]), f"{space['state']} {space['at'][:10]} by {space['by']}", "", ""
    made = "in the file" if space["like"] is None else f"like {space['like']}"
    return str(space["name"]), "open", str(space["connections"]), made
