"""`moot cluster`: what operators ask of several gateways that serve the same spaces."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from moot.cli.gateway.admin_request import add_gateway_options, ask_gateway, type_name
from moot.cli.options.shared_options import add_json
from moot.cli.process import program
from moot.cli.process.exit_codes import EXIT_FAILED, EXIT_OK

if TYPE_CHECKING:
    from moot.protocol.operation import Json

_ABOUT = """\
Asks one gateway of a cluster for the state of all: which of them serve, how old their heartbeats are, how far
each has read the log and what it lags behind, whether NATS keeps all copies, what differs between their
configurations, and hashes of their states. With several addresses the first that answers is asked.

The exit code is 0 if nothing is wrong, and 1 if something is; the problems are listed at the end.
"""
_ABOUT_DROP = """\
A space that was taken out of all files stays in the log of the cluster, in case that was a mistake. As long
as it is there, no snapshot of its part of the log is stored, and the log grows. This drops it for good: its
members, rights, proposals and large values. The journals that gateways have of it stay in their data folders.

It is refused while a gateway has the space in its file, or does not answer. Gateways that are stopped cannot
be asked: one of them whose file still has the space says so at its start, and does not start.
"""
_ABOUT_LEAVE = """\
Lets a gateway serve some shards no longer, or all but shard 0: connections to their spaces end with code
1012, and members go to another gateway at once. Nothing that was accepted is lost. It is the gentle way to
empty a gateway before it stops, one shard after the other; stopping it does the same with all at once.

It is refused for a shard that no other gateway serves, and for shard 0, which tells who lives. Until the
gateway serves them again (moot cluster serve), or starts anew, it answers 503 for their spaces, and for what
concerns all spaces. Where gateways share their shards (serves: shared), another one begins first.
"""
_ABOUT_SERVE = """\
Lets a gateway serve shards that it has left: it begins at their newest snapshots, reads what came since, and
lets members in. Without numbers it serves all. A gateway serves all shards when it starts.
"""
_EXAMPLES = """\
  moot cluster status --gateway https://a.example,https://b.example --admin-token-file root.token

In the folder of a moot.yaml, such as that of `moot up --cluster 3`, they are found:
  moot cluster status --compare              hash all states now, at one message of the log
  moot cluster status --json | jq .problems
"""


def add_command(commands: Any, name: str) -> None:
    group = program.add_group(
        commands,
        name,
        help="show the state of a cluster of gateways",
        about="What operators ask of several gateways that serve the same spaces.",
        examples="  moot cluster status --gateway http://localhost:8080 --admin-token-file root.token\n",
    )
    drop = program.add_command(
        group,
        "drop-space",
        help="drop a space that no gateway has in its file any more",
        about=_ABOUT_DROP,
        examples="  moot cluster drop-space lab\n  moot cluster drop-space lab --yes\n",
    )
    drop.add_argument("space", metavar="SPACE", help="its name")
    add_gateway_options(drop)
    drop.add_argument("--yes", action="store_true", help="do not ask; for scripts")
    drop.set_defaults(run=run_drop)
    for name, about, help, run_it in (
        (
            "leave",
            _ABOUT_LEAVE,
            "let a gateway serve some shards no longer",
            run_leave,
        ),
        ("serve", _ABOUT_SERVE, "let a gateway serve shards again that it has left", run_serve),
    ):
        move = program.add_command(
            group,
            name,
            help=help,
            about=about,
            examples=f"  moot cluster {name} a --gateway https://a.example --admin-token-file root.token\n"
            f"  moot cluster {name} a 1 2\n",
        )
        move.add_argument("name", metavar="GATEWAY", help="its name, so that no other one is meant")
        move.add_argument("shards", metavar="SHARD", nargs="*", type=int, help="its number; none: all")
        add_gateway_options(move)
        move.set_defaults(run=run_it)
    parser = program.add_command(
        group,
        "status",
        help="show gateways, log and NATS, and what is wrong",
        about=_ABOUT,
        examples=_EXAMPLES,
    )
    add_gateway_options(parser)
    add = parser.add_argument
    add("--compare", action="store_true", help="hash the states of all gateways now, at one message")
    add_json(parser)
    parser.set_defaults(run=run_status)


@program.tells_errors
def run_drop(options: argparse.Namespace) -> int:
    from moot.operations.text.terminal_escape import printable

    name = printable(options.space)
    if not type_name(options, f"Drops {name} for good, with its members, rights and proposals."):
        return EXIT_FAILED
    answer = ask_gateway(options, "DELETE", f"admin/cluster/spaces/{quote(options.space, safe='')}")
    print(f"{name} is dropped; what gateways have of it in their data folders is kept")
    if answer["not_asked"]:
        gone = printable(", ".join(answer["not_asked"]))
        print(f"could not be asked, being gone: {gone}. A file with {name} keeps them from starting")
    return EXIT_OK


@program.tells_errors
def run_leave(options: argparse.Namespace) -> int:
    return _move(options, "DELETE")


@program.tells_errors
def run_serve(options: argparse.Namespace) -> int:
    return _move(options, "POST")


def _move(options: argparse.Namespace, method: str) -> int:
    from moot.operations.text.terminal_escape import printable

    if not options.shards:
        # Not the common one, which is always served.
        status = ask_gateway(options, "GET", "admin/cluster", compare="false")
        options.shards = [each["shard"] for each in status["nats"]["streams"] if each["shard"]]
    said = ""
    for shard in options.shards:
        path = f"admin/cluster/shards/{shard}"
        answer = ask_gateway(options, method, path, gateway=options.name)
        serves = ", ".join(str(each) for each in answer["serves"])
        before, said = said, f"{printable(answer['gateway'])} serves shard {serves} of {answer['shards']}"
        if said != before:
            print(said, flush=True)
    return EXIT_OK


@program.tells_errors
def run_status(options: argparse.Namespace) -> int:
    status = ask_gateway(options, "GET", "admin/cluster", compare="true" if options.compare else "false")
    if options.json:
        print(json.dumps(status, indent=2), flush=True)
    else:
        _print_status(status)
    return EXIT_FAILED if status["problems"] else EXIT_OK


# For people


def _print_status(status: dict[str, Json]) -> None:
    from moot.cli.process.table_output import print_table
    from moot.operations.text.terminal_escape import printable
    from moot.operations.text.text_table import TextTable

    nats, gateways = status["nats"], status["gateways"]
    print(f"cluster {printable(status['cluster'])}, asked gateway {printable(status['answered_by'])}")
    where = (
        f"connected to {nats['server']}, version {nats['version']}" if nats["connected"] else "not connected"
    )
    print(f"NATS: {printable(where)}\n")
    columns = ("GATEWAY", "STATE", "VERSION", "HEARTBEAT", "LAG", "PENDING")
    print_table(TextTable(columns, [_gateway_row(each) for each in gateways], right=(3, 4, 5)))
    print()
    answering = [each for each in gateways if each["shards"]]
    heads: tuple[str, ...] = ("SHARD", "LEADER", "COPIES", "SERVED BY", "LAST")
    heads += tuple(f"READ BY {each['name']}" for each in answering)
    rows = [_stream_row(stream, answering) for stream in nats["streams"]]
    print_table(TextTable(heads, rows, right=range(4, len(heads))))
    print()
    states = list(_state_rows(answering))
    if states:
        print_table(TextTable(("SPACE", "HASHED AT", "STATE", "GATEWAYS"), states, right=(1,)))
    else:
        print("no state was hashed since these gateways started; --compare hashes all of them now")
    print()
    for problem in status["problems"]:
        print(f"problem: {printable(problem)}")
    if not status["problems"]:
        print("no problem found")


def _gateway_row(gateway: dict[str, Json]) -> Sequence[str]:
    shards, age = gateway["shards"], gateway["heartbeat_age_seconds"]
    lags = [each["lag"] for each in shards]
    return (
        str(gateway["name"]),
        str(gateway["state"]),
        str(gateway["version"] or "?"),
        "?" if age is None else f"{age:.1f} s ago",
        str(max(lags)) if lags and None not in lags else "?",
        str(sum(each["pending_inputs"] for each in shards)) if shards else "?",
    )


def _stream_row(stream: dict[str, Json], gateways: Iterable[dict[str, Json]]) -> Sequence[str]:
    positions = [
        next((str(each["position"]) for each in gateway["shards"] if each["shard"] == stream["shard"]), "–")
        for gateway in gateways
    ]
    shard, served = str(stream["shard"]), service_of(stream)
    if not stream["answers"]:
        return (shard, "no answer", "?", served, "?", *positions)
    copies = f"{stream['current_copies']} of {stream['copies']}"
    return (shard, str(stream["leader"] or "–"), copies, served, str(stream["last"]), *positions)


def service_of(stream: dict[str, Json]) -> str:
    """Who serves a shard, and behind an arrow to whom it moves. Earlier releases do not tell."""
    served, to = stream.get("served_by", []), stream.get("share_of")
    # For some seconds both serve.
    leaving = [each for each in served if to and each != to]
    if not leaving and (served or not to):
        return ", ".join(served) or "–"
    return f"{', '.join(leaving) or '–'} → {to}"


def _state_rows(gateways: Iterable[dict[str, Json]]) -> Iterable[Sequence[str]]:
    """A row for each state that was hashed; two of one space behind the same message are a fault."""
    found: dict[tuple[str, int, str], list[str]] = {}
    for gateway in gateways:
        for shard in gateway["shards"]:
            for space, hash in shard["hashes"].items():
                found.setdefault((space, shard["hashed_at"], hash), []).append(gateway["name"])
    for (space, position, hash), names in sorted(found.items()):
        yield space, str(position), hash[:12], ", ".join(names)
