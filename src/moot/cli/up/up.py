"""`moot up`: runs a whole space until it is stopped."""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from moot.cli.options.shared_options import add_configured_address, add_configured_data, add_json, add_plain
from moot.cli.process import program
from moot.errors import Unavailable, UsageError
from moot.resilience.task_set import end_tasks

if TYPE_CHECKING:
    from moot.config import Configuration, Secret
    from moot.up.local_cluster import LocalCluster
    from moot.up.reload_report import ReloadReporter
    from moot.up.space_runner import SpaceRunner

    Read = Callable[[], tuple[Configuration, dict[str, Secret]]]

# How often the view polls what does not report its changes (who is in the space).
_POLL_SECONDS: Final = 0.25
_DRAW_SECONDS: Final = 1.0

_ABOUT = """\
Runs the space of a folder: the gateway of its moot.yaml (or space.yaml), every member that has a command
there, and every MCP server under mcp_servers:. A member that fails is restarted without affecting the others;
its output is in .moot/logs/NAME.log. On a terminal a table shows the status of everything; elsewhere each
change is one line.

Ctrl-C and SIGTERM stop everything within seconds; a second one stops it at once. `moot reload`
(or SIGHUP) applies a changed file.
"""
_EXAMPLES = """\
  moot init filesystem lab && moot up lab     a space from nothing
  moot join                                   in another terminal, in that folder: join it
  moot up --start reviewer --port 0           also a member with auto_start: false, on a free port
  moot up --cluster 3                         three gateways that serve the same space, to try
  moot up --json | tee status.jsonl           for machines
"""


def add_command(commands: Any, name: str) -> None:
    parser = program.add_command(
        commands,
        name,
        help="run a whole space: gateway, members and MCP servers",
        about=_ABOUT,
        examples=_EXAMPLES,
    )
    add = parser.add_argument
    add("place", nargs="?", type=Path, default=Path(), metavar="DIR", help="a folder or a configuration file")
    add_configured_address(parser)
    add_configured_data(parser)
    add("--start", action="append", default=[], metavar="NAME", help="start this one too (auto_start: false)")
    add("--without", action="append", default=[], metavar="NAME", help="do not start this one")
    add(
        "--cluster",
        type=int,
        metavar="N",
        help="to try a cluster: three NATS servers and N gateways (2 to 5) on this machine",
    )
    add_plain(parser)
    add_json(parser)
    parser.set_defaults(run=run_up)


def run_up(options: argparse.Namespace) -> int:
    from moot.cli.process.interruption import run_service
    from moot.cli.process.own_children import own_children

    stop = asyncio.Event()
    with own_children():
        # Without a limit: the output of members is written to their logs first.
        return run_service(_up(options, stop), stop=stop.set, grace_seconds=None)


def config_in(place: Path) -> Path:
    """The configuration file of a folder, or the file itself; raises UsageError that says what to do."""
    from moot.config.connect_settings import find_config

    if place.is_file():
        return place
    if not place.is_dir():
        raise UsageError(f"{place}: no such folder or file")
    found = find_config(place)
    if found is None:
        where = "this folder" if place == Path() else str(place)
        raise UsageError(
            f"no moot.yaml or space.yaml in {where}. Make one with `moot init`: an agent proposes changes to"
            " files, and you decide; `moot init --list` shows the other templates"
        )
    return found


async def _up(options: argparse.Namespace, stop: asyncio.Event) -> int:
    from moot.config.loader import folder_of
    from moot.up.space_runner import SpaceRunner, StartSelection

    path = config_in(options.place)
    cluster = None if options.cluster is None else _local_cluster(options, path)
    environ = dict(os.environ) | ({} if cluster is None else cluster.environ(1))
    read = partial(_read, options, path, environ)
    configuration, secrets = read()
    _log_to_file(configuration)
    runner = SpaceRunner(
        configuration,
        secrets,
        folder=folder_of(path),
        environ=os.environ,
        selection=StartSelection(also=frozenset(options.start), without=frozenset(options.without)),
        cluster=cluster,
    )
    _reload_on_hangup(runner, read)
    table = not options.plain and not options.json and _can_show_table()
    for note in configuration.notes:
        _note(note, options)
    if cluster is not None:
        _note(f"starting three NATS servers and {options.cluster} gateways; this takes some seconds", options)
    view = asyncio.create_task(_show(runner, options, table=table))
    # When the output is closed (`moot up | head`), stop everything.
    view.add_done_callback(lambda _: stop.set())
    try:
        await runner.run(stop)
    finally:
        await end_tasks([view])
    if not view.cancelled():
        view.result()
    if not options.json:
        print("stopped")
    return 0


def _can_show_table() -> bool:
    """The table is redrawn in place: a terminal that cannot move its cursor, or wraps lines, gets lines."""
    from moot.cli.up.status_view import LEAST_WIDTH

    if not sys.stdout.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        return False
    return shutil.get_terminal_size().columns >= LEAST_WIDTH


def _local_cluster(options: argparse.Namespace, path: Path) -> LocalCluster:
    from moot.cli.process.extras import check_installed
    from moot.config.gateway_config import bracketed, is_wildcard
    from moot.up.local_cluster import MAX_GATEWAYS, MIN_GATEWAYS, LocalCluster

    check_installed("cluster")
    if not MIN_GATEWAYS <= options.cluster <= MAX_GATEWAYS:
        raise UsageError(f"--cluster {options.cluster}: from {MIN_GATEWAYS} to {MAX_GATEWAYS} gateways")
    gateway = _read(options, path, os.environ)[0].gateway
    if gateway.cluster is not None:
        raise UsageError(
            f"{path} has gateway.cluster already: start its gateways with `moot serve`, without --cluster"
        )
    # Its pages are opened on this machine, by the address that is printed.
    is_known = gateway.port and not is_wildcard(gateway.host)
    return LocalCluster(
        options.cluster,
        config=path,
        data=gateway.data,
        host=options.host,
        first=f"{gateway.scheme}://{bracketed(gateway.host)}:{gateway.port}" if is_known else None,
        environ=os.environ,
    )


def _read(
    options: argparse.Namespace, path: Path, environ: Mapping[str, str]
) -> tuple[Configuration, dict[str, Secret]]:
    from moot.config import load

    secrets: dict[str, Secret] = {}
    configuration = load(
        path, environ=environ, data=options.data, host=options.host, port=options.port, secrets=secrets
    )
    return configuration, secrets


def _log_to_file(configuration: Configuration) -> None:
    """The terminal belongs to the view: the gateway logs to its log file, unless another is configured."""
    from moot import logs

    log = configuration.gateway.log
    file = log.file or configuration.gateway.data / "logs" / "gateway.log"
    logs.set_up(log.level, log.format, file)


def _reload_on_hangup(runner: SpaceRunner, read: Read) -> None:
    from moot.up.reload_report import ReloadReporter

    reloading: set[asyncio.Task[None]] = set()
    reporter = ReloadReporter(runner.data)

    def reload() -> None:
        task = asyncio.create_task(_reload(runner, read, reporter))
        reloading.add(task)
        task.add_done_callback(reloading.discard)

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)


async def _reload(runner: SpaceRunner, read: Read, reporter: ReloadReporter) -> None:
    from moot.config.configuration_changes import describe_changes

    before = runner.configuration
    try:
        configuration, secrets = read()
        notes = await runner.reload(configuration, secrets)
    except UsageError as fault:
        # The space keeps running as it is: a typo must not stop it.
        runner.notes.append(f"not reloaded: {fault}")
        reporter.write([str(fault)], reloaded=False)
    else:
        lines = [*describe_changes(before, configuration), *notes] or ["nothing changed"]
        runner.notes += ["reloaded", *lines]
        reporter.write(lines, reloaded=True)
    runner.changed.set()


async def _show(runner: SpaceRunner, options: argparse.Namespace, *, table: bool) -> None:
    """Show what changes until cancelled."""
    from moot.cli.up.status_view import ChangeLines, FailureNotes, LiveTable

    several = len(runner.configuration.spaces) > 1
    lines = ChangeLines(as_json=options.json, several=several)
    live = LiveTable(sys.stdout, colours="NO_COLOR" not in os.environ)
    failures = FailureNotes(several=several)
    shown = 0
    await runner.ready.wait()
    if not options.json:
        print(f"moot gateway listening on {runner.gateway.url}; logs in {runner.data / 'logs'}", flush=True)
        for line in _cluster_lines(runner):
            print(line, flush=True)
        for line in await _sign_in_lines(runner, config_in(options.place)):
            print(line, flush=True)
    while True:
        fresh, shown = runner.notes[shown:], len(runner.notes)
        fresh += ["\n".join(lines) for lines in failures.of(runner.statuses())]
        if fresh and table:
            live.forget()
        for note in fresh:
            _note(note, options)
        if table:
            live.draw(_table(runner, several=several))
        else:
            for line in lines.of(runner.statuses(), open_proposals=runner.open_proposals()):
                print(line, flush=True)
        runner.changed.clear()
        try:
            async with asyncio.timeout(_DRAW_SECONDS if table else _POLL_SECONDS):
                await runner.changed.wait()
        except TimeoutError:
            continue


def _cluster_lines(runner: SpaceRunner) -> list[str]:
    """Where the other gateways of a cluster are, and how to ask for its state."""
    from moot.up.local_cluster import ADMIN

    if not runner.other_urls:
        return []
    urls = ",".join([runner.url, *runner.other_urls])
    token = runner.configuration.admin_token_files[ADMIN]
    return [
        *(f"another gateway of the cluster on {url}" for url in runner.other_urls),
        f"its state: moot cluster status --gateway {urls} --admin-token-file {token}",
    ]


async def _sign_in_lines(runner: SpaceRunner, config: Path) -> list[str]:
    """How the person of this folder signs in to the console; nothing where it is not clear who that is."""
    from moot.config.connect_settings import CliOverrides, connect_settings

    if not runner.configuration.gateway.http.console:
        return []
    try:
        # Not MOOT_TOKEN and the like: they may be for another gateway.
        environ = {key: value for key, value in os.environ.items() if not key.startswith("MOOT_")}
        settings = connect_settings(CliOverrides(config=config), environ=environ, folder=Path())
    except UsageError:
        return []
    try:
        link = await runner.gateway.make_sign_in_link(settings.token.reveal())
    except Unavailable:
        # NATS elects a leader just now; `moot open` makes one later.
        return []
    from moot.gateway.sign_in.sign_in_links import VALID_SECONDS

    minutes = round(VALID_SECONDS / 60)
    return [
        f"sign in to the console as {settings.name}: {link}",
        f"(works once, within {minutes} minutes; after that: moot open)",
    ]


def _table(runner: SpaceRunner, *, several: bool) -> list[str]:
    from moot.cli.up.status_view import duration, table

    now = asyncio.get_running_loop().time()
    statuses = runner.statuses()
    size = shutil.get_terminal_size()
    pending = runner.open_proposals()
    proposals = f"{pending} {'proposals' if pending != 1 else 'proposal'} pending (moot proposals)"
    facts = [", ".join(runner.configuration.spaces), runner.url, f"up {duration(now - statuses[0].since)}"]
    facts += [proposals] if pending else []
    facts.append("stopping" if runner.is_stopping else "Ctrl-C to stop")
    title = "  ".join(facts)
    return table(title, statuses, now, width=size.columns, height=size.lines, several=several)


def _note(note: str, options: argparse.Namespace) -> None:
    import json

    from moot.operations.text.terminal_escape import printable

    if options.json:
        print(json.dumps({"note": note}), flush=True)
    else:
        lines = [printable(line) for line in note.split("\n")]
        print("\n".join([f"note: {lines[0]}", *lines[1:]]), flush=True)
