"""Running the full screen around a connection that is open already."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from typing import Final

from moot.participant import JoinedSpace, MissedMessages
from moot.protocol.envelope import Envelope
from moot.tui.app import MootApp
from moot.tui.operations.operation import ClientContext, UserOperation
from moot.tui.theme import DEFAULT_THEME

# A closed window or a lost ssh connection is a way to leave as good as any.
_LEAVING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def run_terminal(
    space: JoinedSpace,
    coming: AsyncIterator[Envelope | MissedMessages],
    seat: ClientContext,
    *,
    place: str,
    verbose: bool = False,
    theme: str = DEFAULT_THEME,
    rings: bool = False,
    more: Iterable[UserOperation] = (),
) -> int:
    """Until the person leaves; the exit code. `more` are further slash commands."""
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        app = MootApp(
            space,
            coming,
            group,
            seat=seat,
            place=place,
            verbose=verbose,
            theme=theme,
            rings=rings,
            more=more,
        )
        for number in _LEAVING:
            loop.add_signal_handler(number, app.leave)
        try:
            code = await app.run_async()
        finally:
            for number in _LEAVING:
                with suppress(ValueError):
                    loop.remove_signal_handler(number)
            app.end_tasks()
    return app.return_code or 0 if code is None else code
