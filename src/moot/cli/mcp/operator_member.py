"""`moot mcp --operator`: joins as a person, for their assistant."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from moot.bridges.operator.operator_backend import OperatorBackend
from moot.bridges.operator.operator_settings import OperatorSettings, parse_unconfirmed
from moot.bridges.space.late_backend import LateBackend
from moot.bridges.space.pending_calls import FOREVER_SECONDS
from moot.cli.mcp.defaults import FIRST_JOIN_SECONDS
from moot.cli.mcp.space_member import join_when_reachable
from moot.config.connect_settings import ConnectSettings
from moot.operations.text.call_text import console_address
from moot.participant import CloseReason, ParticipantLimits, connect


async def stay_joined(
    options: argparse.Namespace, where: ConnectSettings, environ: Mapping[str, str], late: LateBackend
) -> CloseReason:
    """Join as soon as the gateway is there, and stay; why that ended.

    Raises NotAdmitted, and UsageError if the member may decide nothing.
    """
    del environ  # nothing is kept in files
    limits = ParticipantLimits(connect_seconds=FIRST_JOIN_SECONDS, reconnect_seconds=FOREVER_SECONDS)
    settings = OperatorSettings(
        console=console_address(where.url),
        assistant_members=tuple(options.assistant),
        unconfirmed=parse_unconfirmed(options.skip_confirmation),
        answer_seconds=options.decision_seconds,
    )

    async def join() -> CloseReason:
        # Passive: the person may be connected elsewhere, and answers there.
        async with connect(
            where.url, where.space, where.token.reveal(), name=where.name, limits=limits, passive=True
        ) as joined:
            backend = OperatorBackend(joined, settings, space_name=where.space)
            await joined.refresh_proposals()
            late.attach(backend, joined.me)
            return await joined.stay()

    return await join_when_reachable(late, join)
