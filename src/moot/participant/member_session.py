"""A member's time in a space: joining, reconnecting, leaving.

What arrives goes to the router. What arrives right behind the first welcome is held back until the block of
`connect` had its first step, and with it a chance to register handlers and tools.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from moot.errors import ClosedWhileWaiting, ConnectionClosed, ConnectionLost, MalformedEnvelope
from moot.net.websocket_client import ABNORMAL_CLOSE, ClientSocket
from moot.participant.connection.envelope_sender import CloseReason
from moot.participant.connection.gateway_reads import HISTORY_MARGIN_SECONDS, fetch_history
from moot.participant.connection.link import Link
from moot.participant.connection.message_feed import MissedMessages, RunningHandler
from moot.participant.control.control_handler import ControlHandler
from moot.participant.inbound_router import InboundRouter
from moot.participant.member_parts import MemberParts
from moot.protocol.envelope import Envelope
from moot.protocol.frames import Frame

# How long leaving may take: withdrawals, closed streams and the closing handshake.
LEAVE_SECONDS: Final = 2.0

log = logging.getLogger(__name__)

# How many of the last envelopes before a loss are looked for in the history: one is enough to be sure.
_KNOWN_ENVELOPES: Final = 64


class MemberSession:
    """Joins with a connection of its own, and keeps the parts of a member informed about it."""

    def __init__(self, parts: MemberParts) -> None:
        self._parts = parts
        self.link = Link(parts.options, self)
        self._control_handler = ControlHandler(
            parts.sender, parts.controls, parts.reporter, parts.open_work, self.link, parts.tasks.spawn
        )
        self.router = InboundRouter(parts, self._control_handler)
        self.close_reason: CloseReason | None = None
        self._closed = asyncio.Event()
        # Resolved by the first welcome; fails with the reason why there will be none.
        self._joined: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # What comes before whoever joins can listen is held; from then on it goes to the router.
        self._held: list[Envelope | Frame] | None = []
        self.handle_envelope: Callable[[Envelope], None] = self._held.append
        self._lost_at = 0.0
        self._known_before_loss: frozenset[str] = frozenset()
        # Requests wait for another gateway: for how long the oldest did before the loss, and how they fail.
        self._kept_seconds = 0.0
        self._lost_fault: Callable[[], Exception] | None = None
        self._reconnected_handlers: list[RunningHandler[None]] = []

    # Joining and leaving

    async def join(self) -> None:
        """Connect and wait for the welcome; raises NotAdmitted or Unreachable."""
        parts = self._parts
        parts.sender.content.url = lambda: self.link.url
        await parts.tasks.enter()
        try:
            parts.tasks.spawn(self._run_link())
            await self._joined
        except BaseException:
            await parts.tasks.leave()
            raise
        parts.tasks.spawn(self._control_handler.run())
        asyncio.get_running_loop().call_soon(self._release_held)

    async def _run_link(self) -> None:
        try:
            await self.link.run()
        except Exception as fault:
            # Nobody else would end the waits: what a token's function raises comes here, too.
            if not self._joined.done():
                self._joined.set_exception(fault)
                return
            log.exception("the connection cannot go on")
            self.handle_closed(CloseReason(ABNORMAL_CLOSE, f"it failed here: {type(fault).__name__}"))

    async def wait_closed(self) -> CloseReason:
        await self._closed.wait()
        if self.close_reason is None:
            raise ConnectionClosed(1006, "ended without a reason")
        return self.close_reason

    async def close(self, reason: str) -> None:
        """End what is under way, then close the connection; closing it twice does nothing."""
        if self.close_reason is None:
            self._parts.open_work.close()
            self.link.leave(CloseReason(1000, reason))
            with suppress(TimeoutError):
                async with asyncio.timeout(LEAVE_SECONDS):
                    await self._closed.wait()
            self.handle_closed(CloseReason(1000, reason))

    async def leave(self) -> None:
        """Close the connection and wait for the last task."""
        try:
            await self.close("leaving")
        finally:
            self.handle_closed(CloseReason(1000, "left"))
            await self._parts.tasks.leave()

    def on_reconnected(self, handler: Callable[[None], Any]) -> None:
        self._reconnected_handlers.append(self._parts.runner.start(handler))

    # What the link calls

    def handle_joined(self, socket: ClientSocket, welcome: Envelope) -> None:
        parts = self._parts
        again = bool(parts.sender.me)
        # Each connection's first welcome says who we are; it may differ from last time (D-19).
        parts.sender.attach(socket, welcome.payload["you"]["id"])
        self.router.route(welcome)
        if not again:
            if not self._joined.done():
                self._joined.set_result(None)
            return
        parts.sender.counts.reconnects += 1
        log.info("rejoined", extra={"participant": parts.sender.me})
        parts.readers.put(MissedMessages("reconnected"))
        parts.proposals.mark_uncertain()
        parts.tasks.spawn(self._restore_missed_decisions())
        for handler in self._reconnected_handlers:
            handler.call(None)

    async def _restore_missed_decisions(self) -> None:
        """What became of proposals meanwhile: results from the history, the rest from the gateway."""
        parts = self._parts
        is_followed = parts.proposals.is_followed
        if (is_followed and len(parts.proposals)) or self._lost_fault is not None:
            since = self._lost_at - self._kept_seconds - HISTORY_MARGIN_SECONDS
            history = await fetch_history(parts.options, self.link.url, parts.sender.me, since)
            self.router.replay_decisions(history or [], self._known_before_loss)
            if self._lost_fault is not None:
                self.router.settle_requests(history or [], self._lost_fault)
                self._lost_fault = None
        if is_followed:
            await parts.proposal_sync.refresh(self.link.url)

    def handle_frame(self, frame: Frame) -> None:
        if self._held is None:
            self._parts.sender.counts.received += 1
            self._parts.streams.handle_frame(frame)
        else:
            self._held.append(frame)

    def _release_held(self) -> None:
        held, self._held = self._held, None
        self.handle_envelope = self.router.route
        for item in held or ():
            if isinstance(item, Frame):
                self.handle_frame(item)
            else:
                self.router.route(item)

    def handle_malformed(self, fault: MalformedEnvelope) -> None:
        counts = self._parts.sender.counts
        counts.received += 1
        counts.dropped += 1
        self._parts.validator.report_malformed(fault.message, kind=fault.kind or "", id=fault.about or "")

    def handle_lost(self, code: int, reason: str) -> None:
        """The connection is gone, and it is being opened again; no answer will come."""
        self._lost_at = time.time()
        self._known_before_loss = self._parts.correlations.latest(_KNOWN_ENVELOPES)
        how = f"{code} {reason}".rstrip()
        message = f"the connection was lost ({how}): whether it was done is not known"
        # Another gateway of the cluster brings the answers; lost again before it could tell, they fail.
        keeps = len(self._parts.options.urls) > 1 and self._lost_fault is None
        self._kept_seconds = self._parts.requests.oldest_seconds if keeps else 0.0
        self._parts.open_work.fail_all(lambda: ConnectionLost(message), keep_requests=keeps)
        is_waiting = keeps and len(self._parts.requests) > 0
        self._lost_fault = (lambda: ConnectionLost(message)) if is_waiting else None
        self._parts.proposal_sync.fail_all(lambda: ConnectionLost(message))
        self._parts.owner_lookup.fail_all(lambda: ConnectionLost(message))
        self._parts.proposals.knowledge = "not_known"

    def handle_closed(self, reason: CloseReason) -> None:
        """The connection has ended for good: every wait fails, readers come to their end."""
        if self.close_reason is not None:
            return
        ended = self.link.leaving or reason
        parts = self._parts
        self.close_reason = parts.sender.close_reason = ended
        parts.open_work.fail_all(lambda: ClosedWhileWaiting(ended.code, ended.reason))
        parts.proposal_sync.fail_all(lambda: ConnectionClosed(ended.code, ended.reason))
        parts.owner_lookup.fail_all(lambda: ConnectionClosed(ended.code, ended.reason))
        parts.proposals.knowledge = "not_known"
        for part in (parts.readers, parts.runner, parts.proposals, parts.streams):
            part.end()
        self._control_handler.end()
        parts.tasks.cancel()
        self._closed.set()
