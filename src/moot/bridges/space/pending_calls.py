"""Calls that became proposals: their decisions and results, for clients that ask now or later.

A proposal outlives the client that made it. `moot mcp` may be closed, killed and started again, and so may
the gateway: what is open comes back from the gateway, and what became of the others too, with the arguments
that were written down. Nothing here withdraws a proposal because time has passed.

A call that is repeated is the same proposal while its outcome was not told to any client, whatever became of
the first request: models and their clients repeat a call whose result they did not see, and it must not be
done twice. A client that wants two gives each a key of its own (`moot/idempotency_key` in `_meta`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final

from moot.bridges.space import kept_calls
from moot.bridges.space.calls_file import CallsFile, RecordedCall
from moot.bridges.space.followed_call import (
    cannot_withdraw,
    follow_call,
    log_params,
    progress_params,
    settle_left,
    update_note,
    withdraw_proposal,
)
from moot.bridges.space.kept_calls import (
    KeptCalls,
    call_fingerprint,
    key_of,
    record_of_seen,
    without_input,
    without_meta,
)
from moot.bridges.space.pending_text import PendingText
from moot.bridges.space.person_decisions import PersonDecisions
from moot.errors import (
    CapabilityViolation,
    ConnectionLost,
    McpError,
    MootError,
    ProposalSettled,
    TimedOut,
)
from moot.mcp.downstream.backend import BackendCall, PendingCall, PersonDecision
from moot.mcp.downstream.running_requests import why_cancelled
from moot.mcp.eras import JsonObject
from moot.participant import JoinedSpace, Outcome, Proposal
from moot.participant.calls.call_options import CallOptions
from moot.participant.connection.envelope_writer import new_id
from moot.participant.decisions.seen_proposal import RecordedProposal, SeenProposal
from moot.protocol.continuation import given_input
from moot.resilience.task_set import BackgroundTasks, wait_for_any

log = logging.getLogger(__name__)

# A proposal ends when the gateway says so, not by a clock of ours.
FOREVER_SECONDS: Final = 10 * 365 * 86_400.0
# How long a question waits for what the gateway says about earlier calls.
RESTORE_SECONDS: Final = 10.0
# Between two questions to the gateway: only that a proposal has expired is not told without being asked.
REFRESH_SECONDS: Final = 5.0
_SETTLE_SECONDS: Final = 2.0


class PendingCalls:
    """The proposals that one member made through MCP, within `async with`."""

    def __init__(
        self,
        space: JoinedSpace,
        *,
        wait_for_others: bool,
        proposal_seconds: float,
        file: CallsFile | None = None,
        console: str = "",
        space_name: str = "",
        person: PersonDecisions | None = None,
    ) -> None:
        """`console` and `space_name` make the address of a proposal's page; `person` sits at the client."""
        self._person = person
        self._space = space
        self._wait_for_others = wait_for_others
        self._proposal_seconds = proposal_seconds
        self._file = file
        self._calls = KeptCalls(file)
        self._text = PendingText(space, console, space_name)
        # Those that are being proposed.
        self._proposing: dict[bytes, asyncio.Future[PendingCall]] = {}
        self._restored = asyncio.Event()
        self._refreshed_at = 0.0
        self._group = asyncio.TaskGroup()
        self._tasks = BackgroundTasks(self._group)

    async def __aenter__(self) -> PendingCalls:
        await self._group.__aenter__()
        self._tasks.start(self._restore())
        return self

    async def __aexit__(self, *_fault: object) -> None:
        self._tasks.cancel()
        await self._group.__aexit__(None, None, None)

    # Looking up

    async def find(self, handle: str) -> PendingCall | None:
        await self.refresh()
        return self._calls.get(handle)

    async def all(self) -> list[PendingCall]:
        """Newest last."""
        await self.refresh()
        return list(self._calls)

    async def refresh(self) -> None:
        """Bring everything up to what the gateway knows, as far as it answers."""
        await self._wait_restored()
        now = time.monotonic()
        open = any(not pending.finished.is_set() for pending in self._calls)
        if open and now - self._refreshed_at > REFRESH_SECONDS and self._space.state == "joined":
            self._refreshed_at = now
            await self._space.refresh_proposals()
            await self._let_settle()

    async def _let_settle(self) -> None:
        """What is over settles in its own task: whoever asks now is to be told."""
        seen = [(pending, self._space.proposals.get(pending.handle)) for pending in self._calls]
        with suppress(TimeoutError):
            async with asyncio.timeout(_SETTLE_SECONDS):
                for pending, known in seen:
                    if known is not None and (known.is_over or self._calls.is_ended_by(known)):
                        await pending.finished.wait()

    @property
    def known(self) -> bool:
        """Whether the gateway told what is open. If not, nobody may be told that nothing is pending."""
        return self._restored.is_set() and self._space.proposals.known

    async def _wait_restored(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(RESTORE_SECONDS):
                await self._restored.wait()

    def describe(self, pending: PendingCall) -> JsonObject:
        """One call for programs: what it is, and where it is decided."""
        return self._text.facts(pending, self._calls.record_of(pending))

    # Proposing

    async def propose(self, host: str, params: JsonObject, call: BackendCall, what: str) -> PendingCall:
        """Propose a call to the space; `params` use the host's own names. Raises what `propose` raises.

        A repeated call is the earlier proposal, if no client was told its outcome.
        """
        known = await self._find_same(host, call.method, params)
        if known is not None:
            return known
        kind = call_fingerprint(host, call.method, params)
        made = self._proposing.get(kind)
        is_first = made is None
        if made is None:
            # In a task of its own: it goes on if this request is cancelled, and a repeated call finds it.
            made = self._proposing[kind] = asyncio.get_running_loop().create_future()
            made.add_done_callback(lambda made: self._on_proposed(kind, made))
            self._tasks.start(self._make(made, host, params, call, what))
        try:
            pending = await asyncio.shield(made)
        except asyncio.CancelledError:
            # Others may see it by now.
            is_unwanted = why_cancelled() == "call unwanted"
            self._tasks.start(self._withdraw_made(made) if is_unwanted else self._restore())
            raise
        if not is_first:
            pending.note_repetition()
        return pending

    async def _make(
        self,
        made: asyncio.Future[PendingCall],
        host: str,
        params: JsonObject,
        call: BackendCall,
        what: str,
    ) -> None:
        try:
            pending = await self._propose(host, params, call, what)
            if not made.done():
                made.set_result(pending)
        except MootError as fault:
            made.set_exception(fault)
        finally:
            made.cancel()

    def _on_proposed(self, kind: bytes, made: asyncio.Future[PendingCall]) -> None:
        del self._proposing[kind]
        if not made.cancelled():
            # Perhaps nobody waits for it any more, and that is no fault of anybody.
            made.exception()

    async def _withdraw_made(self, made: asyncio.Future[PendingCall]) -> None:
        with suppress(MootError):
            await (await asyncio.shield(made)).withdraw("cancelled by the client")

    async def _propose(self, host: str, params: JsonObject, call: BackendCall, what: str) -> PendingCall:
        record = RecordedCall(
            proposal=RecordedProposal(
                id=new_id(),
                to=host,
                method=call.method,
                params=without_meta(params),
                proposed_at=time.time(),
            ),
            key=key_of(params),
            what=what,
            params=without_meta(call.params),
        )
        # Before it is sent: from then on somebody may approve it, and we may be killed.
        if self._file is not None:
            self._file.add(record)
        try:
            proposal = await self._space.propose(
                host,
                call.method,
                params,
                id=record.handle,
                stay_open=True,
                timeout_seconds=FOREVER_SECONDS,
                wait_for_others=self._wait_for_others,
                progress=None if call.progress is None else progress_params(call.progress),
                log=None if call.log is None else log_params(call.log),
            )
        except (TimedOut, ConnectionLost):
            # Others may see it by now: whether it arrived is told by the gateway later.
            self._tasks.start(self._restore())
            raise
        except MootError:
            self._calls.forget(record.handle)
            raise
        return self._keep(record, proposal, call)

    async def resume_before_request(self, host: str, method: str, params: JsonObject) -> PendingCall | None:
        """The proposal of a call that may be requested now, if that is done or being done.

        One that nobody has decided on is withdrawn: its right came, and it need not wait for an approval. Not
        where a right does not suffice: that would take back the votes that it has.
        """
        known = await self._find_same(host, method, params)
        if known is None or known.decided.is_set():
            return known
        seen = self._space.proposals.get(known.handle)
        if seen is not None and seen.needs_others(self._space.me):
            return known
        await known.withdraw("may be requested now")
        with suppress(TimeoutError):
            async with asyncio.timeout(_SETTLE_SECONDS):
                await known.decided.wait()
        return None if known.withdrawn else known

    async def _find_same(self, host: str, method: str, params: JsonObject) -> PendingCall | None:
        """The same call, made before, whose outcome no client was told; or with the same key, told or not."""
        await self._wait_restored()
        kind = call_fingerprint(host, method, params)
        known = self._calls.latest(kind)
        if known is None and any(self._is_ours(seen, kind) for seen in self._space.proposals.open()):
            # Made by another client in our name.
            await self._restore()
            known = self._calls.latest(kind)
        if known is None or (known.delivered and not key_of(params)):
            return None
        if not known.finished.is_set():
            known.note_repetition()
        elif not known.delivered:
            known.add_text(
                "This is the result of your earlier call with the same arguments, which you may not have "
                "seen; call again if you want it done again. It was not done again."
            )
        return known

    def continue_call(self, host: str, params: JsonObject, call: BackendCall) -> PendingCall | None:
        """Go on with an approved call whose host asked for the input that is here; None: it is another call.

        The approval covers it, and it stays the same proposal.
        """
        wanted = given_input(params)
        for earlier in reversed(list(self._calls)):
            record = self._calls.record_of(earlier)
            if (
                wanted is not None
                and (record.proposal.to, record.proposal.method) == (host, call.method)
                and earlier.wanted_input == wanted
                and without_input(record.proposal.params) == without_input(params)
            ):
                return self._continue(record, params, call)
        return None

    def _continue(self, record: RecordedCall, params: JsonObject, call: BackendCall) -> PendingCall:
        host, method = record.proposal.to, record.proposal.method
        options = CallOptions(
            timeout_seconds=FOREVER_SECONDS,
            progress=None if call.progress is None else progress_params(call.progress),
            log=None if call.log is None else log_params(call.log),
        )

        async def wait() -> Outcome:
            try:
                return await self._space.give_input(record.handle, params, **options)
            except (CapabilityViolation, ProposalSettled):
                # Another gateway: there the input needs an approval of its own.
                pending.set_note("waiting for a decision on the input that was given")
                proposal = await self._space.propose(host, method, params, stay_open=True, **options)
                return await proposal.outcome()

        pending = self._make_pending(record, call, cannot_withdraw)
        pending.mark_approved("approved, being done with the input that was given")
        self._start(pending, wait, record)
        return pending

    def _is_ours(self, seen: SeenProposal, kind: bytes) -> bool:
        is_one = seen.proposer == self._space.me and len(seen.to) == 1
        return is_one and call_fingerprint(seen.to[0], seen.method, seen.params) == kind

    def _keep(self, record: RecordedCall, proposal: Proposal, call: BackendCall) -> PendingCall:
        if (kept := self._calls.get(record.handle)) is not None:
            return kept
        pending = self._make_pending(record, call, lambda _reason: withdraw_proposal(pending, proposal))
        proposal.on_change = lambda changed: update_note(pending, changed)
        update_note(pending, proposal)
        if not proposal.wait_for_others:
            self._calls.end_by_rejection(pending)
        self._start(pending, proposal.outcome, record)
        return pending

    def _make_pending(
        self, record: RecordedCall, call: BackendCall, withdraw: Callable[[str], Awaitable[None]]
    ) -> PendingCall:
        host, what = record.proposal.to, record.what
        pending = PendingCall(
            record.handle,
            headline=f"{what} of {host} needs somebody's approval: it was proposed to the space.",
            details=lambda: self._text.details(record),
            decide=None if self._person is None else lambda choice: self._decide(pending, choice),
            call=call,
            withdraw=withdraw,
            pending_result=lambda pending: self._text.pending_result(pending, record),
            kept_seconds=self._proposal_seconds + kept_calls.KEPT_SECONDS,
        )
        self._calls.add(record, pending)
        return pending

    def _start(
        self, pending: PendingCall, wait: Callable[[], Awaitable[Outcome]], record: RecordedCall
    ) -> None:
        what = record.what
        following = self._tasks.start(follow_call(pending, wait, what, record.proposal.to))

        def ended(following: asyncio.Task[None]) -> None:
            # Perhaps before its first step: then nothing in `_follow` can tell it.
            if following.cancelled():
                settle_left(pending, what, "left")

        following.add_done_callback(ended)

    async def _decide(self, pending: PendingCall, choice: PersonDecision) -> None:
        """Decide as the person at the client; returns when that is done, or it is clear that it is not."""
        person = self._person
        if person is None:
            return

        async def decide() -> None:
            try:
                await person.decide(pending.handle, choice, proposer=self._space.me)
            except MootError as fault:
                # A failure of the call itself comes with its result.
                if not pending.decided.is_set():
                    done = "approved" if choice == "approve" else "rejected"
                    pending.set_note(f"it could not be {done} from here ({fault}), so it is still open")

        deciding = self._tasks.start(decide())
        # An approval goes on until the result is there, also if this request ends before.
        await wait_for_any(deciding, pending.decided.wait())

    # Earlier runs

    async def _restore(self) -> None:
        """Follow the calls of earlier runs: those written down, and what else is open in our name."""
        try:
            records = {} if self._file is None else {each.handle: each for each in self._file.load()}
            self._restore_tasks(records)
            proposals = await self._space.resume_proposals(
                [record.proposal for record in records.values() if record.outcome is None],
                timeout_seconds=FOREVER_SECONDS,
                wait_for_others=self._wait_for_others,
            )
            for proposal in proposals:
                record = records.get(proposal.id) or record_of_seen(proposal.seen)
                if record is not None:
                    self._keep(record, proposal, BackendCall(record.proposal.method, record.params))
            await self._let_settle()
            self._refreshed_at = time.monotonic()
        except MootError as fault:
            log.warning("earlier calls are not known", extra={"why": str(fault)})
        except Exception:
            # A task of its own: without earlier calls everything else still works.
            log.exception("earlier calls could not be restored")
        finally:
            self._restored.set()

    def _restore_tasks(self, records: Mapping[str, RecordedCall]) -> None:
        """Calls whose outcome a client was given, and may ask for again."""
        for handle, record in records.items():
            outcome = record.outcome
            if outcome is None or self._calls.get(handle) is not None:
                continue
            left = outcome.until - time.time()
            if left <= 0:
                self._calls.forget(handle)
                continue
            call = BackendCall(record.proposal.method, record.params)
            pending = self._make_pending(record, call, cannot_withdraw)
            pending.is_task, pending.on_delivered = True, None
            pending.kept_seconds = left
            error = None if outcome.error is None else McpError(*outcome.error)
            pending.settle(error or outcome.result or {}, outcome.note, withdrawn=outcome.withdrawn)
            with suppress(McpError):
                pending.result()
