"""Run the full screen over an open connection."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

from moot.operations.operation import ClientContext
from moot.participant import JoinedSpace, MissedMessages
from moot.protocol.envelope import Envelope
from moot.tui.app import MootApp
from moot.tui.theme import TerminalOptions

# A closed window or a lost ssh connection ends it like Ctrl-C.
_EXIT_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def run_terminal(
    space: JoinedSpace,
    messages: AsyncIterator[Envelope | MissedMessages],
    context: ClientContext,
    options: TerminalOptions,
) -> int:
    """Run until the person leaves; returns the exit code."""
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        app = MootApp(space, messages, group, context, options)
        for number in _EXIT_SIGNALS:
            loop.add_signal_handler(number, app.leave)
        try:
            code = await app.run_async()
        finally:
            for number in _EXIT_SIGNALS:
                with suppress(ValueError):
                    loop.remove_signal_handler(number)
            app.background.cancel()
    return app.return_code or 0 if code is None else code
