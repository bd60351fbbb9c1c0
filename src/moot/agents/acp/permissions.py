"""Permission requests of an agent, as proposals to the member itself.

    session/request_permission ──▶ mcp/proposal of tools/call to ourselves, with exactly that call
      an mcp/request that fulfils it ──▶ allow_once to the agent; its answer is what came of the tool call
      mcp/reject                     ──▶ reject_once, and the reason as the next prompt
      the agent changes the call     ──▶ mcp/withdraw, and a new proposal with the call as it is now
      the turn or the agent ends     ──▶ mcp/withdraw; an approval that comes too late is told to be unused

The request that fulfils a proposal is what releases the permission: the gateway accepts one for a proposal,
and only of what was proposed, so nothing is released twice. Where our rights already allow the call (a grant,
in place of the agent's own "always") we make the same request to ourselves, unless the call leads out of the
folder, to settings of an agent, or has not said what it does. `allow_always` is never sent: agents keep it in
files that outlive the session.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import orjson

from moot.agents.acp.agent_profiles import AgentProfile
from moot.agents.acp.json_rpc import IncomingCall, PeerGone
from moot.agents.acp.open_permission import (
    CANCELLED,
    OTHER_CALL,
    OpenPermission,
    PermissionRejection,
    choose_options,
    not_done,
    selected,
)
from moot.agents.acp.shown_call import ShownCall, show
from moot.agents.acp.tool_calls import AgentToolCall
from moot.agents.acp.update_relay import UpdateRelay
from moot.errors import (
    ApprovalRequired,
    ConnectionLost,
    Expired,
    McpError,
    MootError,
    ParticipantPaused,
    Paused,
    Rejected,
    TimedOut,
)
from moot.participant import IncomingRequest, JoinedSpace
from moot.participant.connection.envelope_writer import new_id
from moot.participant.decisions.own_proposal import Proposal
from moot.participant.programs.repeated_send import wait_able
from moot.protocol.answer_marks import unknown_outcome
from moot.protocol.operation import Json
from moot.protocol.rpc_codes import INTERNAL_ERROR, INVALID_PARAMS

# How long one turn may take in all, waiting for people included: a day, as a proposal.
TURN_SECONDS: Final = 86_400.0
# How long an explanation of a rejection is waited for, before the agent is told.
EXPLANATION_SECONDS: Final = 2.0
# Permission requests that are open at once; more are refused.
MAX_OPEN_PERMISSIONS: Final = 16
# How often the agent may change a call while people decide about it; then it is refused.
MAX_CALL_CHANGES: Final = 5
# A proposal, below what one envelope holds. A change that cannot be shown cannot be decided.
MAX_PROPOSAL_BYTES: Final = 512 << 10

log = logging.getLogger(__name__)

_DONE_ANYWAY: Final = "WARNING: the agent reports this as done"
# What of a call no plain grant covers, by the argument that names it.
_NOT_COVERED: Final = {
    "outside_folder": "leads out of my folder",
    "agent_settings": "concerns settings of an agent or of git",
    "missing": "I was not told in full",
}
# Ids of proposals whose permission is over, so that a late approval is told why.
_MAX_CLOSED: Final = 1_000


class Permissions:
    """All open permissions of one agent."""

    def __init__(
        self,
        space: JoinedSpace,
        relay: UpdateRelay,
        profile: AgentProfile,
        folder: Path,
        on_rejected: Callable[[PermissionRejection], None],
    ) -> None:
        self._space = space
        self._relay = relay
        self._profile = profile
        self._folder = folder
        self._on_rejected = on_rejected
        self._open: list[OpenPermission] = []
        # Released, and the tool call is not over.
        self._running: list[OpenPermission] = []
        # What was proposed under an id, and for which permission.
        self._by_proposal: dict[str, tuple[OpenPermission, ShownCall]] = {}
        # Requests that our rights allow, made to ourselves.
        self._granted: list[OpenPermission] = []

    @property
    def open(self) -> int:
        return len(self._open)

    # What the agent asks

    def ask(self, request: IncomingCall, call: AgentToolCall) -> None:
        """Take in a request about this call; it is answered when people have decided."""
        self._replace(call)
        call.reopen()
        options = choose_options(request.params.get("options"), self._profile)
        shown = show(call, self._folder)
        permission = OpenPermission(
            call, request, options, shown, self._params(shown), asyncio.get_running_loop().create_future()
        )
        if problem := self._problem(permission):
            self._refuse(permission, problem)
            self._relay.note(f"I was not allowed to {shown.what[:500]}: {problem}.")
            self._on_rejected(PermissionRejection(shown.what, "the workspace", problem))
            return
        self._open.append(permission)
        request.on_cancel = lambda: self._close(permission, "the agent does not ask for it any more")
        self._relay.seal()
        self._begin(permission)

    def _replace(self, call: AgentToolCall) -> None:
        """The agent asks again under an id that it has asked for: what was asked before is not that."""
        for permission in [each for each in self._open if each.call is call]:
            if not permission.shown.is_same(show(call, self._folder)):
                self._take_back(permission)
        for permission in self._running:
            permission.is_replaced = permission.is_replaced or permission.call is call

    def _params(self, shown: ShownCall) -> dict[str, Json]:
        return {"name": shown.name, "arguments": self._relay.clean_json(shown.arguments)}

    def _begin(self, permission: OpenPermission) -> None:
        if self._space.spawn(self._decide(permission, permission.shown)) is None:
            self._refuse(permission, "the space has ended")

    def _problem(self, permission: OpenPermission) -> str:
        """Why nobody can be asked; empty if somebody can."""
        if permission.options.allow is None:
            return "the agent offers no way to allow it only once"
        if len([each for each in self._open if each is not permission]) >= MAX_OPEN_PERMISSIONS:
            return f"{MAX_OPEN_PERMISSIONS} requests wait already: ask again when some are decided"
        size = len(orjson.dumps(permission.params, default=str))
        if size > MAX_PROPOSAL_BYTES:
            return (
                f"it has {size} bytes, more than can be shown to those who decide "
                f"({MAX_PROPOSAL_BYTES}); do it in smaller parts"
            )
        return ""

    def knows(self, proposal_id: str) -> bool:
        """Whether a proposal is one of this run."""
        return proposal_id in self._by_proposal

    async def _decide(self, permission: OpenPermission, shown: ShownCall) -> None:
        def is_stale() -> bool:
            """The agent has changed the call: another decision has begun in place of this one."""
            return permission.shown is not shown

        space = self._space
        try:
            may = space.may_request(space.me, "tools/call", permission.params)
            if not may or not self._grant_covers(shown):
                await self._propose(permission, shown)
                return
            try:
                await self._request_granted(permission)
            except ApprovalRequired:
                # A right does not lift a quorum (D-103).
                await self._propose(permission, shown)
        except Rejected as rejected:
            text = await rejected.explanation(EXPLANATION_SECONDS)
            if not is_stale():
                self._reject(permission, rejected.by, rejected.reason, text or "")
        except (Expired, TimedOut) as fault:
            if is_stale():
                return
            if any(each.fulfilled_by for each in permission.proposals):
                self._handle_fault(permission, fault)
            self._reject(permission, "nobody", "nobody decided in time")
        except MootError as fault:
            if not is_stale():
                self._handle_fault(permission, fault)
        finally:
            if not is_stale():
                self._close(permission, "it was decided already")

    def _grant_covers(self, shown: ShownCall) -> bool:
        """A plain grant is for what is inside the folder; whoever gave it did not mean more than that."""
        why = [_NOT_COVERED[name] for name in _NOT_COVERED if name in shown.arguments]
        if why:
            self._relay.note(
                f"I ask although {shown.name} is granted to me: a grant does not cover what "
                f"{' and '.join(why)}. {shown.what[:500]}"
            )
        return not why

    async def _request_granted(self, permission: OpenPermission) -> None:
        """Our rights allow it: the same request as an approver's, to ourselves, seen and journaled alike."""
        self._granted.append(permission)
        try:
            await self._space.request(
                self._space.me,
                "tools/call",
                permission.params,
                timeout_seconds=TURN_SECONDS,
                context=self._context(),
            )
        finally:
            with suppress(ValueError):
                self._granted.remove(permission)

    async def _propose(self, permission: OpenPermission, shown: ShownCall) -> None:
        turn = self._relay.turn
        while not permission.closed and not permission.is_released and permission.shown is shown:
            id = new_id()
            self._remember(id, permission)
            try:
                proposal = await self._space.propose(
                    self._space.me,
                    "tools/call",
                    self._params(shown),
                    id=id,
                    about=(turn.chat_id,) if turn.chat_id else (),
                    context=self._context(),
                    timeout_seconds=TURN_SECONDS,
                )
            except (ConnectionLost, Paused, ParticipantPaused, TimedOut):
                # It may have been made all the same: an approval of it releases the same permission, once.
                await wait_able(self._space)
                continue
            permission.proposals.append(proposal)
            if permission.closed or permission.shown is not shown:
                await _withdraw(proposal)
                return
            await proposal.outcome()
            return

    def _context(self) -> str | None:
        reasoning = self._relay.turn.reasoning
        return None if reasoning is None else reasoning.context

    def _remember(self, id: str, permission: OpenPermission) -> None:
        if len(self._by_proposal) >= _MAX_CLOSED:
            oldest = next((key for key, (each, _) in self._by_proposal.items() if each.closed), None)
            if oldest is not None:
                del self._by_proposal[oldest]
        self._by_proposal[id] = permission, permission.shown

    # Decisions

    async def answer(self, request: IncomingRequest) -> dict[str, Json]:
        """A request for one of our tools: what it fulfils is released, once."""
        permission, shown = self._find(request)
        if permission is None:
            raise McpError(
                INVALID_PARAMS,
                "nothing waits for this call: an agent's tools run only when the agent asks for permission, "
                "and its proposal is approved",
            )
        if permission.is_released:
            raise McpError(INVALID_PARAMS, "this permission was used already")
        if permission.closed:
            return not_done(permission.closed)
        if shown is not permission.shown:
            return not_done(
                "the agent has changed the call since it asked; what it wants now is proposed anew"
            )
        if request.params != permission.params:
            return not_done("the request is not what was proposed")
        try:
            if not permission.request.respond(selected(permission.options.allow)):
                return not_done("the agent does not ask for it any more")
        except PeerGone as gone:
            self._close(permission, str(gone))
            return not_done(str(gone))
        permission.is_released = permission.call.was_released = True
        self._open.remove(permission)
        self._running.append(permission)
        log.info("allowed once", extra={"by": request.sender, "call": permission.shown.what[:200]})
        try:
            result = await asyncio.shield(permission.finished)
        except asyncio.CancelledError:
            if request.is_cancelled:
                # ACP cannot stop one call; what comes of it is told when it is known.
                self._space.spawn(self._answer_late(request, permission))
            raise
        if result is None:
            # Never "failed", which would invite a second time.
            raise McpError(
                INTERNAL_ERROR, "it was allowed, and whether the agent did it is not known", unknown_outcome()
            )
        return result

    async def _answer_late(self, request: IncomingRequest, permission: OpenPermission) -> None:
        result = await asyncio.shield(permission.finished)
        if result is not None:
            await self._space.server.answer_late(request, result)

    def _find(self, request: IncomingRequest) -> tuple[OpenPermission | None, ShownCall | None]:
        for id in request.envelope.correlation_id:
            if (found := self._by_proposal.get(id)) is not None:
                return found
        granted = [
            each
            for each in self._granted
            if request.sender == self._space.me and each.params == request.params
        ]
        return (granted[0], granted[0].shown) if granted else (None, None)

    def _reject(self, permission: OpenPermission, by: str, reason: str, explanation: str = "") -> None:
        if permission.closed or permission.is_released:
            return
        self._refuse(permission, f"{by} rejected it")
        self._on_rejected(PermissionRejection(permission.shown.what, by, reason, explanation))

    def _handle_fault(self, permission: OpenPermission, fault: MootError) -> None:
        """It was not decided, or its decision did not get here."""
        if permission.closed or permission.is_released:
            return
        by = next((each.fulfilled_by for each in permission.proposals if each.fulfilled_by), None)
        why = str(fault) if by is None else f"the approval by {by} did not reach me, and was not used"
        self._relay.note(f"Not done ({why}): {permission.shown.what[:500]}")
        self._refuse(permission, why)
        self._on_rejected(PermissionRejection(permission.shown.what, "the workspace", why))

    def _refuse(self, permission: OpenPermission, why: str) -> None:
        """Tell the agent that it may not, this time."""
        permission.call.was_refused = True
        reject = permission.options.reject
        with suppress(PeerGone):
            permission.request.respond(CANCELLED if reject is None else selected(reject))
        self._close(permission, why)

    def _start_over(self, permission: OpenPermission, now: ShownCall) -> None:
        """What people see is not what the agent wants any more: that is withdrawn, and this is proposed."""
        permission.changes += 1
        if permission.changes > MAX_CALL_CHANGES:
            self._take_back(permission)
            return
        self._relay.note(
            "Withdrawn: the agent changed the call while it was being decided. "
            f"Now: {now.what[:500]}\nThat is proposed anew. Before: {permission.shown.what[:500]}"
        )
        before, permission.proposals = permission.proposals, []
        permission.shown, permission.params = now, self._params(now)
        for proposal in before:
            if proposal.state == "pending":
                self._space.spawn(_withdraw(proposal, "superseded"))
        if problem := self._problem(permission):
            self._refuse(permission, problem)
            self._on_rejected(PermissionRejection(now.what, "the workspace", problem))
            return
        self._begin(permission)

    def _take_back(self, permission: OpenPermission) -> None:
        """The agent asks for another thing under the same id, or changes the call on and on."""
        what = permission.call.describe()[:500]
        self._refuse(permission, "the agent has changed the call since it asked")
        self._relay.note(f"Not done: the agent changed the call while it was being decided. Now: {what}")
        self._on_rejected(
            PermissionRejection(what, "the workspace", "the call was changed while it was being decided")
        )

    # What happens to calls and turns

    def handle_update(self, call: AgentToolCall) -> None:
        """A tool call has changed: it may be over, or not what people were asked."""
        if call.status == "completed" and call.was_refused:
            call.was_refused = False
            self._relay.note(f"{_DONE_ANYWAY} although it was not allowed: {call.describe()[:500]}")
        for permission in [each for each in self._open if each.call is call]:
            if call.status == "completed":
                self._relay.note(f"{_DONE_ANYWAY} before it was decided: {call.describe()[:500]}")
                self._refuse(permission, "the agent reports it as done already")
                call.was_refused = False
            elif not permission.shown.is_same(now := show(call, self._folder)):
                self._start_over(permission, now)
        if call.is_over:
            for permission in [each for each in self._running if each.call is call]:
                self._finish(permission, self._result(permission))

    def _result(self, permission: OpenPermission) -> dict[str, Json]:
        if not permission.is_as_shown:
            approved = orjson.dumps(permission.params).decode()[:1000]
            self._relay.note(f"{OTHER_CALL} Approved: {approved}")
        return permission.result(self._relay.clean, MAX_PROPOSAL_BYTES // 4)

    def _finish(self, permission: OpenPermission, result: dict[str, Json] | None) -> None:
        if permission in self._running:
            self._running.remove(permission)
        if not permission.finished.done():
            permission.finished.set_result(result)

    def close_all(self, why: str) -> None:
        """The turn or the agent has ended: nothing is released any more, and what runs has no known end."""
        for permission in list(self._open):
            with suppress(PeerGone):
                permission.request.respond(CANCELLED)
            self._close(permission, why)
        for permission in list(self._running):
            self._finish(permission, None)
            self._relay.note(
                f"This was allowed, and whether it was done is not known ({why}): "
                f"{permission.shown.what[:500]}. Look before it is asked for again."
            )

    def _close(self, permission: OpenPermission, why: str) -> None:
        if permission.closed:
            return
        permission.closed = why
        if permission in self._open:
            self._open.remove(permission)
        for proposal in permission.proposals:
            if proposal.state == "pending":
                self._space.spawn(_withdraw(proposal))


async def _withdraw(proposal: Proposal, reason: str = "no_longer_needed") -> None:
    with suppress(MootError):
        await proposal.withdraw(reason)
