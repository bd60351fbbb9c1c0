"""`moot mcp`: joins a space as the member whose calls the client makes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from moot.bridges.space.calls_file import CallsFile, calls_path
from moot.bridges.space.late_backend import LateBackend
from moot.bridges.space.names_file import NamesFile, names_path
from moot.bridges.space.own_tools import RESERVED_NAMES
from moot.bridges.space.pending_calls import FOREVER_SECONDS
from moot.bridges.space.person_decisions import PersonDecisions
from moot.bridges.space.space_backend import BackendSettings, SpaceBackend
from moot.cli.mcp.defaults import FIRST_JOIN_SECONDS
from moot.cli.options.member_options import state_folder
from moot.config.connect_settings import ConnectSettings
from moot.errors import Unreachable
from moot.offers.offer_table import OfferTable
from moot.operations.text.call_text import console_address
from moot.participant import CloseReason, ParticipantLimits, connect, token_from


# Joins as soon as the gateway is there: a client does not start us again because its gateway came later.
async def join_when_reachable(late: LateBackend, join: Callable[[], Awaitable[CloseReason]]) -> CloseReason:
    """Call `join` until it reaches the gateway; what it returns. Other errors than Unreachable pass."""
    while True:
        try:
            return await join()
        except Unreachable as fault:
            if not late.problem:
                print(f"moot: {fault}. Waiting for it.", file=sys.stderr, flush=True)
            late.report_problem(str(fault))


async def stay_joined(
    options: argparse.Namespace, where: ConnectSettings, environ: Mapping[str, str], late: LateBackend
) -> CloseReason:
    """Join as soon as the gateway is there, and stay; why that ended. Raises NotAdmitted."""
    # Practically forever: a client does not restart us because the gateway was restarted.
    limits = ParticipantLimits(
        connect_seconds=FIRST_JOIN_SECONDS,
        reconnect_seconds=FOREVER_SECONDS,
        proposal_seconds=FOREVER_SECONDS,
    )
    offers = OfferTable(RESERVED_NAMES)
    path = _names_path(options, where, environ)
    names = None if path is None else NamesFile(path, offers)
    if names is not None:
        names.load()
    settings = BackendSettings(
        wait_for_others=options.wait_for_others,
        console=console_address(where.url),
    )
    person = None
    if options.person_token_file is not None:
        person = PersonDecisions(where.url, where.space, token_from(options.person_token_file))

    async def join() -> CloseReason:
        async with (
            # A call gets its response; an echo of the request would only wake us once more.
            connect(
                where.url,
                where.space,
                where.token_source,
                name=where.name,
                limits=limits,
                echo="unanswered",
            ) as joined,
            SpaceBackend(
                joined,
                settings,
                space_name=where.space,
                offers=offers,
                calls=_calls_file(options, where, environ, joined.me),
                person=person,
            ) as backend,
        ):
            if names is not None:
                backend.watch(lambda _change: names.save())
            late.attach(backend, joined.me)
            return await joined.stay()

    return await join_when_reachable(late, join)


def _names_path(
    options: argparse.Namespace, where: ConnectSettings, environ: Mapping[str, str]
) -> Path | None:
    if options.names_file == "none":
        return None
    if options.names_file:
        return Path(options.names_file)
    return names_path(state_folder(environ), where.url, where.space)


def _calls_file(
    options: argparse.Namespace, where: ConnectSettings, environ: Mapping[str, str], member: str
) -> CallsFile | None:
    if options.calls_file == "none":
        return None
    if options.calls_file:
        return CallsFile(Path(options.calls_file))
    return CallsFile(calls_path(state_folder(environ), where.url, where.space, member))
