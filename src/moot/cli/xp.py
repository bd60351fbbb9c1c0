"""`moot xp`: what XProtocol needs beside `xprotocol-adapter`, an event relay."""

from __future__ import annotations

import argparse
from typing import Any

from moot.cli.options.member_options import add_log_level
from moot.cli.options.shared_options import add_data, add_listen_address
from moot.cli.options.tls_options import add_tls_options, tls_files_of, warn_without_tls
from moot.cli.process import program

_GROUP_EXAMPLES = """\
  moot xp relay                              a relay on 127.0.0.1:8764, events in .moot/relay
"""
_RELAY_EXAMPLES = """\
  moot xp relay                                        on 127.0.0.1:8764, events in .moot/relay
  moot xp relay --port 0 --data /tmp/events            a free port, printed in the first line
  moot xp relay --host 0.0.0.0 --url wss://relay.example.org --data /var/lib/moot-relay
                                                    behind a proxy that terminates TLS
  moot xp relay --host relay.example.org --tls-certificate fullchain.pem --tls-key privkey.pem

Clients sign their proofs for the address that they connect to, so a relay with another public address than
the one it listens on needs --url. The events are in DATA/events.sqlite.
"""


def add_command(commands: Any, name: str) -> None:
    group = program.add_group(
        commands,
        name,
        help="XProtocol: run an event relay",
        about="An event relay for XProtocol endpoints. `xprotocol-adapter` is the endpoint itself. "
        "Needs the extra moot[xprotocol].",
        examples=_GROUP_EXAMPLES,
    )
    _add_relay(group, "relay")


def _add_relay(commands: Any, name: str) -> None:
    parser = program.add_command(
        commands,
        name,
        help="run an event relay for XProtocol endpoints",
        about="Runs an XProtocol event relay (profile xp1). It accepts signed events only, keeps them "
        "until they expire, and delivers them unchanged to clients that have authenticated with the "
        "recipient's key. A sender gets OK when its event is on disk. Ctrl-C and SIGTERM stop it.",
        examples=_RELAY_EXAMPLES,
    )
    add = parser.add_argument
    add_listen_address(parser, 8764)
    add_data(parser, ".moot/relay")
    add(
        "--url",
        action="append",
        default=[],
        metavar="URL",
        help="public ws:// or wss:// address of this relay; may be given several times",
    )
    add_tls_options(parser)
    add("--max-events", type=int, metavar="N", help="maximum number of stored events (default 1,000,000)")
    add(
        "--no-rate-limits",
        action="store_true",
        help="no rate limits for connections and senders; for closed networks and benchmarks",
    )
    add_log_level(parser)
    parser.set_defaults(run=_run_relay)


def _run_relay(options: argparse.Namespace) -> int:
    from moot.cli.process.extras import check_installed
    from moot.cli.process.interruption import run_service

    check_installed("xprotocol")
    # Without a limit: accepted events are written first.
    return run_service(_serve(options), grace_seconds=None)


async def _serve(options: argparse.Namespace) -> int:
    import asyncio

    from moot import logs
    from moot.xprotocol.relay.relay_server import open_relay

    settings = _settings(options)
    if (
        not settings.is_local
        and settings.tls is None
        and not any(u.startswith("wss:") for u in settings.urls)
    ):
        warn_without_tls(f"--host {settings.host}")
    logs.set_up(options.log_level, "text")
    async with open_relay(settings) as relay:
        print(f"moot relay listening on {relay.url}", flush=True)
        await asyncio.Event().wait()
    return 0


def _settings(options: argparse.Namespace) -> Any:
    from moot.errors import UsageError
    from moot.xprotocol.event_store.event_store import MAX_EVENTS
    from moot.xprotocol.relay.relay_settings import RelaySettings

    if not 0 <= options.port <= 65_535:
        raise UsageError(f"--port {options.port}: a port is a number from 0 to 65535")
    most = MAX_EVENTS if options.max_events is None else options.max_events
    if most < 1:
        raise UsageError(f"--max-events {most}: at least 1")
    return RelaySettings(
        data=options.data,
        host=options.host,
        port=options.port,
        urls=tuple(options.url),
        has_rate_limits=not options.no_rate_limits,
        max_events=most,
        tls=tls_files_of(options),
    )
