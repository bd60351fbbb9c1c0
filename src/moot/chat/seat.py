"""The connection of one person who is bound: joined as them, until their token admits nobody any more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from moot.chat.chat_settings import ChatSettings
from moot.chat.chat_state import Binding
from moot.errors import NotAdmitted, Unreachable
from moot.participant import JoinedSpace, connect
from moot.protocol.close_codes import REMOVED
from moot.resilience.restart_loop import Backoff

log = logging.getLogger(__name__)

# The gateway restarts within seconds; an hour later nobody is in a hurry.
_FIRST_SECONDS: Final = 1.0
_MAX_SECONDS: Final = 60.0


class Seat:
    """One person in the space, by their chat account."""

    def __init__(
        self, binding: Binding, settings: ChatSettings, on_joined: Callable[[Seat, JoinedSpace], None]
    ) -> None:
        self.binding = binding
        # None while it is not joined.
        self.space: JoinedSpace | None = None
        self._has_joined = asyncio.Event()
        self._settings = settings
        self._on_joined = on_joined

    async def joined(self) -> JoinedSpace:
        """Wait until it is joined, and not just reconnecting; whoever waits sets a bound."""
        while True:
            await self._has_joined.wait()
            if self.space is not None:
                await self.space.ready()
                return self.space

    async def run(self) -> str:
        """Stay joined for as long as the token admits; returns why it does not any more."""
        backoff = Backoff(_FIRST_SECONDS, _MAX_SECONDS)
        where = self._settings
        while True:
            try:
                async with connect(where.gateway, where.space, self.binding.token, passive=True) as space:
                    backoff.reset()
                    self.space = space
                    self._has_joined.set()
                    self._on_joined(self, space)
                    ending = await space.stay()
                if ending.code == REMOVED:
                    return ending.reason or "your access was removed"
            except NotAdmitted as fault:
                # 401 and 403: the token admits nobody any more. Anything else may pass.
                if fault.status in (401, 403):
                    return "your token ended, was replaced or was revoked"
                log.warning("a person could not be joined", extra={"participant": self.binding.participant})
            except Unreachable:
                log.info("the gateway cannot be reached", extra={"participant": self.binding.participant})
            finally:
                self.space = None
                self._has_joined.clear()
            await asyncio.sleep(backoff.next_delay())
