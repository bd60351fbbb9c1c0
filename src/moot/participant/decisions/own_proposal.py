"""A proposal of ours, followed to its end whether anybody waits for it or not (MEW 3.2, 3.3; D-28).

    a rejection     fail fast: withdraw, then it counts as rejected; `wait_for_others`: go on
    its time is up  withdraw with reason timeout
    fulfilment      wait for the answer to the request that fulfils it

Withdrawing can come too late: then the gateway says so, and we wait for the fulfilment. So nothing is
reported as rejected or timed out while it is being done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Literal

from msgspec.structs import replace

from moot.errors import (
    AnswerTimedOut,
    CallOutcomeUnknown,
    ConnectionClosed,
    ConnectionLost,
    Expired,
    MootError,
    ProposalSettled,
    Rejected,
    ResultMissed,
    TimedOut,
    Withdrawn,
)
from moot.participant.calls.outcome import Outcome, Rejection
from moot.participant.connection.envelope_sender import EnvelopeSender
from moot.participant.connection.message_feed import Spawn
from moot.participant.decisions.seen_proposal import SeenProposal
from moot.protocol.changes import Change
from moot.protocol.proposal_life import ProposalComment, ProposalState

log = logging.getLogger(__name__)

OwnState = ProposalState | Literal["timed_out", "lost"]
Withdraw = Callable[[SeenProposal, str], Awaitable[None]]


class Proposal:
    """A proposal of ours. `on_change` is called with it at every change."""

    def __init__(
        self,
        seen: SeenProposal,
        sender: EnvelopeSender,
        withdraw: Withdraw,
        *,
        deadline: float,
        wait_for_others: bool,
        stays_open: bool = False,
    ) -> None:
        """`stays_open`: it is not withdrawn when we leave."""
        self.seen = seen
        self.stays_open = stays_open
        self.wait_for_others = wait_for_others
        self.on_change: Callable[[Proposal], None] | None = None
        self.on_end: Callable[[Outcome | None, Exception | None], None] | None = None
        self._sender = sender
        self._withdraw = withdraw
        self._deadline = deadline
        self._changed = asyncio.Event()
        self._over = asyncio.Event()
        self._outcome: Outcome | None = None
        self._fault: Exception | None = None
        seen.watchers.append(self._handle_change)

    @property
    def id(self) -> str:
        return self.seen.id

    @property
    def rejections(self) -> tuple[Rejection, ...]:
        """The rejections so far, each with its reason (MEW 3.3.2)."""
        return tuple(self.seen.rejections)

    @property
    def votes(self) -> tuple[str, ...]:
        """Who voted for it so far, where the space requires several votes."""
        return tuple(self.seen.votes)

    @property
    def comments(self) -> tuple[ProposalComment, ...]:
        """What was said about it so far; `on_change` is called for each that comes."""
        return tuple(self.seen.comments)

    @property
    def changes(self) -> tuple[Change, ...]:
        """What whoever approved it had changed."""
        return self.seen.changes

    @property
    def fulfilled_by(self) -> str | None:
        return self.seen.fulfilled_by

    @property
    def state(self) -> OwnState:
        """The word of its life, unless we do not wait for the rest of it."""
        match self._fault:
            case CallOutcomeUnknown():
                return "unknown"
            case TimedOut():
                return "timed_out"
            case ConnectionClosed():
                return "lost"
            case ConnectionLost() if not isinstance(self._fault, ResultMissed):
                return "lost"
            case Rejected():
                return "rejected"
        return self.seen.state

    async def outcome(self, timeout_seconds: float | None = None) -> Outcome:
        """Wait for the result; raises Rejected, Withdrawn, Expired, TimedOut, McpError, ConnectionLost, …

        It can be awaited several times. `timeout_seconds` bounds this wait alone: the proposal stays open.
        """
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._over.wait()
        except TimeoutError:
            raise TimedOut(
                f"no decision on the proposal within {timeout_seconds:g} s; it is still open"
            ) from None
        if self._fault is not None:
            raise self._fault
        assert self._outcome is not None  # noqa: S101  # one of the two is there when it is over
        whole = await self._sender.content.whole_result(self._outcome.result)
        self._outcome = replace(self._outcome, result=whole)
        return self._outcome

    async def withdraw(self, reason: str = "no_longer_needed") -> None:
        """Withdraw it (MEW 3.3.1); raises ProposalSettled if it is too late, NotAllowed, …"""
        await self._withdraw(self.seen, reason)

    # Following it

    def _handle_change(self) -> None:
        seen = self.seen
        if seen.outcome != "pending" or seen.wants_input or seen.uncertain or seen.error is not None:
            # While its hosts are at work nothing is decided by what is said, but that one of them failed.
            self._changed.set()
        if seen.uncertain and seen.status == "fulfilled":
            # The answer may have passed while we were away: it gets a request's time, not a proposal's.
            seconds = self._sender.limits.request_seconds
            self._deadline = min(self._deadline, asyncio.get_running_loop().time() + seconds)
        if self.on_change is not None:
            self.on_change(self)

    async def _follow(self, done: Callable[[], None]) -> None:
        """Wait until it is over, and call `done` then; runs as a task of its own."""
        try:
            self._outcome = await self._wait_for_end()
        except MootError as fault:
            self._fault = fault
        except asyncio.CancelledError:
            self._abandon()
            raise
        finally:
            self.seen.watchers.remove(self._handle_change)
            self._over.set()
            if self.on_end is not None:
                self.on_end(self._outcome, self._fault)
            try:
                if self.on_change is not None:
                    self.on_change(self)
            finally:
                done()

    def _abandon(self) -> None:
        """Nobody follows it any more: we have left."""
        ended = self._sender.close_reason
        code, reason = (ended.code, ended.reason) if ended is not None else (1000, "left the space")
        self._fault = ConnectionClosed(code, reason)
        self._over.set()

    async def _wait_for_end(self) -> Outcome:
        loop = asyncio.get_running_loop()
        while True:
            seen = self.seen
            outcome = self._settled()
            if outcome is not None:
                return outcome
            if seen.rejections and not self.wait_for_others and seen.status == "pending":
                first = seen.rejections[0]
                await self._withdraw_and_raise(
                    "no_longer_needed", Rejected(first.by, first.reason, self.rejections)
                )
                continue
            left = self._deadline - loop.time()
            if left <= 0:
                await self._handle_timeout()
                continue
            self._changed.clear()
            try:
                async with asyncio.timeout(left):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _settled(self) -> Outcome | None:
        seen = self.seen
        if seen.fault is not None:
            raise seen.fault
        if seen.result is not None and (seen.wants_input or seen.outcome in ("done", "failed")):
            by, host, request = seen.fulfilled_by or "", seen.host or "", seen.request_id or ""
            return Outcome(seen.result, "fulfilled", by, host, request, seen.id, seen.changes)
        if seen.status == "withdrawn" and seen.rejections and not self.wait_for_others:
            # By us, in another session: that is what follows a rejection.
            first = seen.rejections[0]
            raise Rejected(first.by, first.reason, self.rejections)
        if seen.status == "withdrawn":
            raise Withdrawn(seen.reason or "other")
        if seen.forgotten:
            raise CallOutcomeUnknown(
                "the gateway does not remember the proposal: whether it was carried out is not known"
            )
        if seen.status == "expired":
            raise Expired("nobody decided on the proposal while it was valid")
        return None

    async def _withdraw_and_raise(
        self, reason: str, fault: Exception, *, if_refused: Exception | None = None
    ) -> None:
        """Withdraw it and raise; return if somebody has fulfilled it meanwhile.

        `if_refused` is raised instead of `fault` where it could not be withdrawn.
        """
        try:
            await self._withdraw(self.seen, reason)
        except ProposalSettled as settled:
            if settled.details.get("state") == "fulfilled" and self.seen.status == "pending":
                # Done while we were away; only others got its result.
                raise ConnectionLost("fulfilled while we were away: its result was missed") from None
            if self.seen.status == "pending":
                raise fault from None
            return
        except MootError as unsent:
            # No right to withdraw, paused, or away: it stays open for others, but not for us.
            log.debug("not withdrawn", extra={"proposal": self.id, "why": type(unsent).__name__})
            raise (if_refused or fault) from None
        raise fault

    async def _handle_timeout(self) -> None:
        seconds = self._sender.limits.request_seconds
        if self.seen.status == "pending":
            await self._withdraw_and_raise(
                "timeout",
                TimedOut("nobody fulfilled the proposal in time; it is withdrawn"),
                if_refused=TimedOut(
                    "nobody fulfilled the proposal in time, and it could not be withdrawn: "
                    "it may still be approved"
                ),
            )
            # Fulfilled at the last moment: its answer has a request's time.
            self._deadline = asyncio.get_running_loop().time() + seconds
            return
        if self.seen.uncertain:
            raise ConnectionLost("fulfilled, but its result was missed while we were away")
        raise AnswerTimedOut(
            f"{self.seen.fulfilled_by} approved the proposal, but no answer came in time: whether it was "
            "carried out is not known"
        )


def follow_proposal(proposal: Proposal, spawn: Spawn, done: Callable[[], None]) -> None:
    """Follow a proposal in a task of its own; `done` is called when it is over."""
    if spawn(proposal._follow(done)) is None:
        proposal._abandon()
        done()
