"""`moot mcp --people`: serves many people over HTTP, each by the token of their own provider."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urlsplit

from moot import logs
from moot.bridges.people.gateway_exchange import GatewayExchange
from moot.bridges.people.people_server import PeopleServer
from moot.bridges.people.people_settings import (
    MAX_SESSIONS_PER_PERSON,
    ResourceDescription,
)
from moot.bridges.people.person_server import PersonSettings
from moot.bridges.space.calls_file import CallsFile, calls_path
from moot.bridges.space.names_file import NamesFile, names_path
from moot.bridges.space.own_tools import RESERVED_NAMES
from moot.bridges.space.pending_calls import FOREVER_SECONDS
from moot.bridges.space.shared_offers import SharedOffers
from moot.bridges.space.space_backend import BackendSettings
from moot.cli.mcp.http_service import address_of
from moot.cli.options.member_options import state_folder
from moot.cli.options.tls_options import tls_files_of, warn_without_tls
from moot.config.connect_settings import ConnectSettings
from moot.config.gateway_config import is_loopback
from moot.errors import Unreachable, UsageError
from moot.mcp.downstream.cross_origin import with_cross_origin
from moot.mcp.downstream.http_access import HttpAccessPolicy
from moot.mcp.downstream.limits import McpServerLimits
from moot.net.http_listener import bind_socket, serve_http
from moot.net.server_tls import ServerTls
from moot.offers.offer_table import OfferTable
from moot.operations.text.call_text import console_address
from moot.participant import JoinedSpace, ParticipantLimits, connect

_RETRY_SECONDS: Final = 1.0


def check_people(options: argparse.Namespace) -> None:
    """Raises UsageError for options that do not go with --people."""
    if not options.http:
        raise UsageError("--people serves HTTP: add --http HOST:PORT")
    for name in ("http_token_file", "person_token_file"):
        if getattr(options, name) is not None:
            raise UsageError(f"--people takes each person's own token: leave out --{name.replace('_', '-')}")
    if options.operator or options.print_config:
        raise UsageError("--people does not go together with --operator or --print-config")
    if options.names_file or options.calls_file not in (None, "none"):
        raise UsageError(
            "--people keeps files of its own for everybody: leave out --names-file, --calls-file"
        )
    if options.max_people < 1 or options.max_connections_per_address < 0:
        raise UsageError("--max-people: more than 0; --max-connections-per-address: at least 0")


async def serve_people(
    options: argparse.Namespace, where: ConnectSettings, environ: Mapping[str, str]
) -> int:
    """Serve until the space ends the membership of the server itself. Raises NotAdmitted, UsageError."""
    logs.set_up(options.log_level, "text", None)
    host, port = address_of(options.http)
    files = tls_files_of(options)
    tls = None if files is None else ServerTls(files)
    if tls is None and not is_loopback(host):
        warn_without_tls(f"--http {options.http}")
    exchange = GatewayExchange(where.url, where.space, where.token.reveal())
    with bind_socket(host, port) as listening:
        description = await _describe_when_reachable(exchange)
        port = listening.getsockname()[1]
        hosts = [*options.allow_host, urlsplit(description.resource).netloc]
        access = HttpAccessPolicy.of(port, hosts=hosts, origins=options.allow_origin)
        person = _person_settings(options, where, environ, description)
        most = options.max_connections_per_address
        async with (
            _own_member(where, environ, description) as (own, shared),
            PeopleServer(options.max_people, person, shared, exchange, access) as people,
            serve_http(with_cross_origin(people, access.origins), listening, tls=tls, max_per_address=most),
        ):
            shared.asks = lambda each: not people.is_person(each)
            print(f"{own.me}: MCP for people listening on port {port}", flush=True)
            print(f"clients connect to {description.resource}", flush=True)
            end = await own.stay()
    print(f"moot: left the space: {end.reason or end.code}", file=sys.stderr)
    return 1


async def _describe_when_reachable(exchange: GatewayExchange) -> ResourceDescription:
    has_told = False
    while True:
        try:
            return await exchange.describe()
        except Unreachable as fault:
            if not has_told:
                has_told = True
                print(f"moot: {fault}. Waiting for it.", file=sys.stderr, flush=True)
            await asyncio.sleep(_RETRY_SECONDS)


@asynccontextmanager
async def _own_member(
    where: ConnectSettings,
    environ: Mapping[str, str],
    description: ResourceDescription,
) -> AsyncIterator[tuple[JoinedSpace, SharedOffers]]:
    """The server's own member, which learns for all people what the space offers."""
    table = OfferTable(RESERVED_NAMES)
    names = NamesFile(names_path(state_folder(environ), where.url, description.space), table)
    names.load()
    limits = ParticipantLimits(reconnect_seconds=FOREVER_SECONDS)
    async with (
        connect(where.url, description.space, where.token.reveal(), name=where.name, limits=limits) as own,
        SharedOffers(own, table=table) as shared,
    ):
        shared.watch(lambda _kinds: names.save())
        yield own, shared


def _person_settings(
    options: argparse.Namespace,
    where: ConnectSettings,
    environ: Mapping[str, str],
    description: ResourceDescription,
) -> PersonSettings:
    def calls_file(participant: str) -> CallsFile | None:
        if options.calls_file == "none":
            return None
        return CallsFile(calls_path(state_folder(environ), where.url, description.space, participant))

    return PersonSettings(
        url=where.url,
        description=description,
        backend=BackendSettings(
            wait_for_others=options.wait_for_others,
            console=console_address(where.url),
        ),
        limits=McpServerLimits(
            decision_seconds=options.decision_seconds, max_sessions=MAX_SESSIONS_PER_PERSON
        ),
        state_secret=where.token.reveal(),
        calls_file=calls_file,
    )
