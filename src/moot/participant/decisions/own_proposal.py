"""A proposal of ours, followed to its end whoever waits for it or not (MEW 3.2, 3.3; D-28).

    a rejection     fail fast: withdraw, then it counts as rejected; `wait_for_others`: go on
    its time is up  withdraw with reason timeout
    fulfilment      wait for the answer to the request that fulfils it

Withdrawing can come too late: then the gateway says so, and the fulfilment is waited for. So nobody is told
"rejected" or "timed out" of something that is being done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Literal

from moot.errors import (
    ConnectionClosed,
    ConnectionLost,
    Expired,
    MootError,
    ProposalSettled,
    Rejected,
    TimedOut,
    Withdrawn,
)
from moot.participant.calls.outcome import Outcome, Rejection
from moot.participant.connection.envelope_sender import EnvelopeSender
from moot.participant.decisions.proposal_list import SeenProposal

log = logging.getLogger(__name__)

ProposalState = Literal[
    "pending", "fulfilled", "done", "failed", "rejected", "withdrawn", "expired", "timed_out", "lost"
]
Withdraw = Callable[[SeenProposal, str], Awaitable[None]]


class Proposal:
    """A proposal of ours. `on_change` is called with it whenever something happens to it."""

    def __init__(
        self,
        seen: SeenProposal,
        voice: EnvelopeSender,
        withdraw: Withdraw,
        *,
        deadline: float,
        wait_for_others: bool,
    ) -> None:
        self.seen = seen
        self.wait_for_others = wait_for_others
        self.on_change: Callable[[Proposal], None] | None = None
        self._voice = voice
        self._withdraw = withdraw
        self._deadline = deadline
        self._changed = asyncio.Event()
        self._over = asyncio.Event()
        self._outcome: Outcome | None = None
        self._fault: Exception | None = None
        seen.watchers.append(self._news)

    @property
    def id(self) -> str:
        return self.seen.id

    @property
    def rejections(self) -> tuple[Rejection, ...]:
        """Everybody's no so far, each with its reason (MEW 3.3.2)."""
        return tuple(self.seen.rejections)

    @property
    def votes(self) -> tuple[str, ...]:
        """Who voted for it so far, where the space asks for several (D-28)."""
        return tuple(self.seen.votes)

    @property
    def fulfilled_by(self) -> str | None:
        return self.seen.fulfilled_by

    @property
    def state(self) -> ProposalState:
        if self._outcome is not None:
            return "done"
        match self._fault:
            case None:
                return "fulfilled" if self.seen.status == "fulfilled" else "pending"
            case Rejected():
                return "rejected"
            case Withdrawn():
                return "withdrawn"
            case Expired():
                return "expired"
            case TimedOut():
                return "timed_out"
            case ConnectionLost() | ConnectionClosed():
                return "lost"
            case _:
                return "failed"

    async def outcome(self, timeout: float | None = None) -> Outcome:
        """What came of it; raises Rejected, Withdrawn, Expired, TimedOut, McpError, ConnectionLost, …

        May be awaited by several, and again. `timeout` bounds this wait alone and leaves the proposal open.
        """
        try:
            async with asyncio.timeout(timeout):
                await self._over.wait()
        except TimeoutError:
            raise TimedOut(f"no decision on the proposal within {timeout:g} s; it is still open") from None
        if self._fault is not None:
            raise self._fault
        assert self._outcome is not None  # noqa: S101  # one of the two is there when it is over
        return self._outcome

    async def withdraw(self, reason: str = "no_longer_needed") -> None:
        """MEW 3.3.1: take it back; raises ProposalSettled when that comes too late, NotAllowed, …"""
        await self._withdraw(self.seen, reason)

    # Its own task

    def _news(self) -> None:
        self._changed.set()
        if self.seen.uncertain and self.seen.status == "fulfilled":
            # The answer may have passed while we were away: it gets a request's time, not a proposal's.
            seconds = self._voice.limits.request_seconds
            self._deadline = min(self._deadline, asyncio.get_running_loop().time() + seconds)
        if self.on_change is not None:
            self.on_change(self)

    async def follow(self) -> None:
        """Its own task: until it is over."""
        try:
            self._outcome = await self._end()
        except MootError as fault:
            self._fault = fault
        except asyncio.CancelledError:
            self.lose()
            raise
        finally:
            self.seen.watchers.remove(self._news)
            self._over.set()
            if self.on_change is not None:
                self.on_change(self)

    def lose(self) -> None:
        """Nobody follows it any more: we have left."""
        ending = self._voice.ending
        code, reason = (ending.code, ending.reason) if ending is not None else (1000, "left the space")
        self._fault = ConnectionClosed(code, reason)
        self._over.set()

    async def _end(self) -> Outcome:
        loop = asyncio.get_running_loop()
        while True:
            seen = self.seen
            outcome = self._settled()
            if outcome is not None:
                return outcome
            if seen.rejections and not self.wait_for_others and seen.status == "pending":
                first = seen.rejections[0]
                await self._give_up("no_longer_needed", Rejected(first.by, first.reason, self.rejections))
                continue
            left = self._deadline - loop.time()
            if left <= 0:
                await self._run_out()
                continue
            self._changed.clear()
            try:
                async with asyncio.timeout(left):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _settled(self) -> Outcome | None:
        seen = self.seen
        if seen.result is not None:
            by, host, request = seen.fulfilled_by or "", seen.host or "", seen.request_id or ""
            return Outcome(seen.result, "fulfilled", by, host, request, seen.id)
        if seen.fault is not None:
            raise seen.fault
        if seen.status == "withdrawn":
            raise Withdrawn(seen.reason or "other")
        if seen.status == "expired":
            raise Expired("nobody decided on the proposal while it was valid")
        return None

    async def _give_up(self, reason: str, fault: Exception) -> None:
        """Withdraw and raise; come back if somebody has fulfilled it meanwhile."""
        try:
            await self._withdraw(self.seen, reason)
        except ProposalSettled as settled:
            if settled.details.get("state") == "fulfilled" and self.seen.status == "pending":
                # Done while we were away; what came of it was said to others.
                raise ConnectionLost("fulfilled while we were away: its result was missed") from None
            if self.seen.status == "pending":
                raise fault from None
            return
        except MootError as unsaid:
            # No right to withdraw, paused, or away: it stays open for others, but not for us.
            log.debug("not withdrawn", extra={"proposal": self.id, "why": type(unsaid).__name__})
        raise fault

    async def _run_out(self) -> None:
        seconds = self._voice.limits.request_seconds
        if self.seen.status == "pending":
            fault = TimedOut("nobody fulfilled the proposal in time; it is withdrawn")
            await self._give_up("timeout", fault)
            # Fulfilled at the last moment: its answer has a request's time.
            self._deadline = asyncio.get_running_loop().time() + seconds
            return
        if self.seen.uncertain:
            raise ConnectionLost("fulfilled, but its result was missed while we were away")
        raise TimedOut(f"{self.seen.fulfilled_by} fulfilled the proposal, but no answer came in time")
