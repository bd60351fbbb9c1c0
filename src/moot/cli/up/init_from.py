"""`moot init --from FILE`: takes the MCP servers of a client into a space, or lists the clients' files."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

from moot.cli.mcp import CLIENTS
from moot.cli.process.table_output import print_table
from moot.config.clients.client_file import ClientFile, KnownFile, existing_files, read_client_file
from moot.errors import UsageError
from moot.operations.text.terminal_escape import printable
from moot.operations.text.text_table import TextTable
from moot.up import scaffold
from moot.up.imported_space import AGENT, allow_reads, describe_tools, make_imported_space


def run_from(options: argparse.Namespace) -> int:
    for name in ("base_url", "model", "key_env"):
        if getattr(options, name) is not None:
            raise UsageError(f"--{name.replace('_', '-')} is for templates with agents, not for --from")
    if options.list or not options.source:
        return _list_files(as_json=options.json)
    if options.template is not None and options.folder != Path():
        raise UsageError("--from takes the place of a template: moot init --from FILE DIR")
    folder = Path(options.template) if options.template is not None else options.folder
    file = read_client_file(Path(options.source).expanduser(), home=Path.home())
    space = options.space or scaffold.space_name(folder)
    made = make_imported_space(file, folder, space, environ=os.environ)
    reads, notes = _allow_reads(folder, space) if _wants_reads(options) else ({}, [])
    if options.json:
        report: dict[str, Any] = {
            "client": file.client,
            "folder": str(folder.absolute()),
            "files": [str(path) for path in made.files],
            "servers": made.servers,
            "allowed": reads,
            "notes": [*made.notes, *notes],
        }
        print(json.dumps(report))
        return 0
    where = "" if folder == Path() else f" in {printable(str(folder))}"
    print(f"made a space{where}: {', '.join(str(path) for path in made.files)}")
    print(f"MCP servers: {', '.join(made.servers)}")
    for server, names in reads.items():
        print(f"called without asking: {', '.join(names)} of {server}")
    for note in [*made.notes, *notes]:
        print(f"note: {printable(note)}")
    _print_next(file, folder)
    return 0


def _wants_reads(options: argparse.Namespace) -> bool:
    """What was said, or is answered at a terminal; a script that says nothing gets no."""
    said: bool | None = options.allow_reads
    if said is not None or options.json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return bool(said)
    question = (
        "Let the client call tools that say that they only read without asking? Each server is started once"
        " to tell them. [y/N] "
    )
    return input(question).strip().lower() in ("y", "yes")


def _allow_reads(folder: Path, space: str) -> tuple[dict[str, list[str]], list[str]]:
    """The tools that may be called without asking, by server, and notes; written into moot.yaml and rules."""
    from moot.cli.process.interruption import run_errand
    from moot.cli.process.own_children import own_children
    from moot.config import load
    from moot.up.read_only_tools import find_read_only_tools

    configuration = load(folder / scaffold.CONFIGURATION, environ=os.environ, dry=True)
    with own_children():
        claimed = run_errand(find_read_only_tools(configuration, folder.absolute(), os.environ))
    if claimed.reads:
        allow_reads(folder, claimed.reads)
    if claimed.traits:
        describe_tools(folder, space, claimed.traits)
    return claimed.reads, claimed.notes


def _print_next(file: ClientFile, folder: Path) -> None:
    client = file.client if file.client in CLIENTS else "generic"
    steps = [] if folder == Path() else [f"cd {shlex.quote(str(folder))}"]
    steps += [
        "moot up             runs the space: gateway and servers, until Ctrl-C",
        "moot join           in a second terminal, in the same folder: see what is proposed, and decide",
        "moot open           the same in a browser, signed in",
        f"moot mcp --as {AGENT} --print-config {client}",
        "                    in the same folder: prints what your MCP client needs, and where to put it",
    ]
    print("\nnext:")
    for step in steps:
        print(f"  {step}")
    print(
        f"\nRemove these servers from {printable(str(file.path))}:\n"
        "a client that still has them there calls them without asking anybody."
    )


def _list_files(*, as_json: bool) -> int:
    """The configurations of MCP clients that exist, with their servers."""
    rows: list[tuple[KnownFile, list[str], str]] = []
    for known in existing_files(Path.cwd(), Path.home(), os.environ):
        try:
            names = [server.name for server in read_client_file(known.path, home=Path.home()).servers]
        except UsageError as fault:
            # A settings file without servers is nothing to speak of.
            if "names no MCP servers" in str(fault):
                continue
            rows.append((known, [], str(fault).removeprefix(f"{known.path}: ")))
        else:
            rows.append((known, names, ""))
    if as_json:
        report = [
            {"client": known.client, "file": str(known.path), "servers": names, "error": error or None}
            for known, names, error in rows
        ]
        print(json.dumps(report))
    elif rows:
        table = [
            (known.client, str(known.path), printable(error or ", ".join(names) or "(none)"))
            for known, names, error in rows
        ]
        print_table(TextTable(("CLIENT", "FILE", "SERVERS"), table))
    else:
        print("No configuration of an MCP client with servers was found. Name one: moot init --from FILE")
    return 0
