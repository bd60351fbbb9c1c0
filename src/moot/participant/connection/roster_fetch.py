"""The rest of a welcome that had no room for everybody: asked for page by page."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

from moot.errors import ConnectionClosed, MootError, RateLimited, Refused
from moot.participant.connection.envelope_sender import EnvelopeSender
from moot.participant.connection.roster import Roster
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Payload
from moot.protocol.payloads import GATEWAY

log = logging.getLogger(__name__)

# No gateway needs more: a page has room for at least one member.
_MAX_PAGES: Final = 10_000


class ApplyPage(Protocol):
    """Takes the part of a page that is not about members."""

    def __call__(self, entries: list[Payload], *, is_last: bool) -> None: ...


class RosterFetch:
    """Asks for one page after the other. Pages are applied where they stand among other messages, so that
    whoever joins or leaves meanwhile is neither lost nor kept."""

    def __init__(
        self,
        sender: EnvelopeSender,
        roster: Roster,
        apply_streams: ApplyPage,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._sender = sender
        self._roster = roster
        self._apply_streams = apply_streams
        self._spawn = spawn
        self._asked = ""
        self._after: str | None = None
        self._pages = 0

    def start(self) -> None:
        """Begin with the first page, whatever was asked for before."""
        self._pages = 0
        self._ask(None)

    def stop(self) -> None:
        """A welcome came that holds everything."""
        self._asked = ""

    def handle_page(self, envelope: Envelope) -> None:
        """One page; answers to anything else than the last question are ignored."""
        if envelope.sender != GATEWAY or self._asked not in envelope.correlation_id:
            return
        payload, self._asked = envelope.payload, ""
        after = payload.get("next")
        self._pages += 1
        is_last = not isinstance(after, str) or self._pages >= _MAX_PAGES
        self._roster.apply_page(payload.get("participants", []), is_last=is_last)
        self._apply_streams(payload.get("active_streams", []), is_last=is_last)
        if not is_last:
            self._ask(after)

    def handle_refusal(self, id: str, refusal: Refused) -> bool:
        """Try again where there were too many at once; False if this is not about a page."""
        if not self._asked or id != self._asked:
            return False
        seconds = refusal.details.get("retry_after")
        if isinstance(refusal, RateLimited) and isinstance(seconds, int | float):
            self._spawn(self._ask_later(id, float(seconds)))
        else:
            log.warning("the list of members stays incomplete", extra={"why": refusal.message})
        return True

    async def _ask_later(self, id: str, seconds: float) -> None:
        await asyncio.sleep(min(seconds, 60.0))
        if self._asked == id:
            self._ask(self._after)

    def _ask(self, after: str | None) -> None:
        self._after = after
        try:
            sent = self._sender.send(
                "moot/roster", {} if after is None else {"after": after}, check_rights=False
            )
        except (ConnectionClosed, MootError) as fault:
            # The next welcome begins anew.
            log.debug("members not asked for", extra={"why": str(fault)})
            self._asked = ""
            return
        self._asked = sent.id
