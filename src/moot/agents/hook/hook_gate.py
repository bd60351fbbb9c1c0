"""Holds one call of a coding agent until it is decided in the space.

The hook proposes the call to the agent's own member, as for agents that speak ACP. The request that fulfils
the proposal releases the call, and the agent makes it itself:

    open proposal of ours with the same call, held by no other hook ──▶ wait for that one
    else propose it ──▶ fulfilled: answer the request, then release
                        rejected, expired, withdrawn, time over, connection lost: not released

A lock on a file is held for each proposal as long as its hook lives. So two hooks never wait for the same
one, and an approval releases one execution. A hook that ends leaves its proposal open: the agent's retry
finds it. The request is answered before the call is released: if we are killed between, nothing is run.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from moot.agents.hook.hook_call import HookCall
from moot.errors import ApprovalRequired, MootError, NotAllowed, Rejected, TimedOut
from moot.participant import IncomingRequest, JoinedSpace, ParticipantLimits, Proposal, connect
from moot.participant.connection.envelope_writer import new_id
from moot.participant.programs.join_target import JoinTarget
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json

# A gateway that does not answer by then counts as gone.
CONNECT_SECONDS: Final = 5.0
# How long the delivery of our answer may take; without it nothing is released.
_ANSWER_SECONDS: Final = 5.0
# How long an explanation of a rejection is waited for, before the agent is told.
_EXPLANATION_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HookMember(JoinTarget):
    """The agent's member, and the folder that all its hooks share."""

    state_folder: Path

    async def wait_for_release(self, call: HookCall, wait_seconds: float) -> str:
        """Who released the call; raises MootError if nobody did."""
        with ExitStack() as stack:
            async with self._joined() as space:
                gate = HookGate(space, self.state_folder, stack)
                return await gate.wait_for_release(call.params, wait_seconds)

    async def tell(self, text: str) -> None:
        """Say something in the space, as the agent's member; raises MootError."""
        async with self._joined() as space:
            await space.chat(text)

    @asynccontextmanager
    async def _joined(self) -> AsyncIterator[JoinedSpace]:
        # Passive: several hooks of one agent run at once, and each answers for its own call only.
        async with connect(
            self.gateway,
            self.space,
            self.token,
            name=self.name,
            passive=True,
            limits=ParticipantLimits(connect_seconds=CONNECT_SECONDS),
        ) as space:
            yield space


class HookGate:
    """One call of one agent; `locks` is a folder that all hooks of this member share."""

    def __init__(self, space: JoinedSpace, locks: Path, stack: ExitStack) -> None:
        self._space = space
        self._locks = locks
        self._stack = stack
        self._id = ""
        # The request that fulfils our proposal, and then whoever sent it, once our answer is delivered.
        self._request_id = ""
        self._released: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._granted: dict[str, Json] | None = None
        self._is_over = False
        space.server.use_handler(self._serve)
        space.on("mcp/response", own=True)(self._on_response)

    async def wait_for_release(self, params: dict[str, Json], wait_seconds: float) -> str:
        """Who released the call; raises MootError if nobody did, and TimedOut after `wait_seconds`."""
        space = self._space
        if space.may_request(space.me, "tools/call", params):
            try:
                return await self._use_grant(params)
            except ApprovalRequired:
                # A right does not lift a quorum (D-103).
                self._granted = None
        proposal = await self._find_open(params) or await self._propose(params)
        outcome = asyncio.ensure_future(proposal.outcome())
        try:
            # An outcome of our own answer comes with that answer: what counts is that it was delivered.
            deadline = asyncio.get_running_loop().time() + wait_seconds
            either: set[asyncio.Future[Any]] = {outcome, self._released}
            await asyncio.wait(either, timeout=wait_seconds, return_when=asyncio.FIRST_COMPLETED)
            if self._request_id and not self._released.done():
                left = deadline - asyncio.get_running_loop().time() + _ANSWER_SECONDS
                await asyncio.wait({self._released}, timeout=max(0.0, left))
            if self._released.done():
                return self._released.result()
            if not outcome.done():
                raise TimedOut(
                    f"nobody decided within {wait_seconds:g} s. The proposal stays open: the same call again "
                    "waits for it"
                )
            try:
                outcome.result()
            except Rejected as rejected:
                # It comes as a message of its own, right after the rejection.
                await rejected.explanation(_EXPLANATION_SECONDS)
                raise
            raise NotAllowed("the approval did not reach the hook, and was not used")
        finally:
            self._is_over = True
            outcome.cancel()
            await asyncio.gather(outcome, return_exceptions=True)

    async def _find_open(self, params: dict[str, Json]) -> Proposal | None:
        """An open proposal of the same call whose hook is gone."""
        for proposal in await self._space.resume_proposals():
            seen = proposal.seen
            is_same = seen.params == params and seen.to == (self._space.me,) and seen.method == "tools/call"
            if is_same and seen.status == "pending" and not seen.rejections and self._lock(seen.id):
                self._id = seen.id
                return proposal
        return None

    async def _propose(self, params: dict[str, Json]) -> Proposal:
        id = new_id()
        if not self._lock(id):
            raise NotAllowed(f"the lock of proposal {id} is taken")
        self._id = id
        return await self._space.propose(self._space.me, "tools/call", params, id=id, stay_open=True)

    async def _use_grant(self, params: dict[str, Json]) -> str:
        """Our rights allow it: the same request, to ourselves, so that it is seen and counted."""
        self._granted = params
        await self._space.request(self._space.me, "tools/call", params)
        return "a grant"

    async def _serve(self, request: IncomingRequest) -> dict[str, Json] | None:
        """Answer what fulfils our proposal; other hooks of this member answer for theirs."""
        envelope = request.envelope
        about = envelope.correlation_id
        if not about:
            is_ours = envelope.sender == self._space.me and request.params == self._granted
            return _result("Released by a grant: the agent makes this call itself.") if is_ours else None
        if self._id in about:
            if self._is_over:
                return _NOT_USED
            self._request_id = envelope.id
            return _result("Released: the agent makes this call itself now.")
        if all(self._lock(id) for id in about):
            # Its hook is gone: whoever approved it is told that nothing was done.
            return _NOT_USED
        return None

    def _on_response(self, envelope: Envelope) -> None:
        """Our answer came back, so everybody has it: now the call may run."""
        is_ours = envelope.sender == self._space.me and self._request_id in envelope.correlation_id
        if self._request_id and is_ours and not self._released.done():
            self._released.set_result(next(iter(envelope.to), "somebody"))

    def _lock(self, id: str) -> bool:
        """Hold a proposal until this process ends; False if another hook does."""
        # Its id may be any text.
        path = self._locks / sha256(id.encode()).hexdigest()[:32]
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            return False
        self._stack.callback(os.close, handle)
        return True


def describe_refusal(fault: MootError) -> str:
    """Why a call is not made, for the agent."""
    if isinstance(fault, Rejected):
        said = [text for each in fault.rejections if each.by == fault.by for text in each.explanations]
        wrote = [f"{fault.by} wrote: {text}" for text in said]
        return "; ".join([f"rejected by {fault.by}: {fault.reason}", *wrote])
    return str(fault)


def _result(text: str, *, is_error: bool = False) -> dict[str, Json]:
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


_NOT_USED: Final = _result(
    "Not done, and the approval was not used: the agent does not wait for it any more.", is_error=True
)
