"""Permission requests of an agent, as proposals to the member itself.

    session/request_permission ──▶ mcp/proposal of tools/call to ourselves, with exactly that call
      an mcp/request that fulfils it ──▶ allow_once to the agent; its answer is what came of the tool call
      mcp/reject                     ──▶ reject_once, and the reason as the next prompt
      the turn or the agent ends     ──▶ mcp/withdraw; an approval that comes too late is told to be unused

The request that fulfils a proposal is what releases the permission: the gateway accepts one for a proposal,
and only of what was proposed, so nothing is released twice. Where our rights already allow the call (a grant,
in place of the agent's own "always") we make the same request to ourselves. `allow_always` is never sent:
agents keep it in files that outlive the session.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from moot.acp.acp_settings import AcpLimits
from moot.acp.agent_profiles import AgentProfile
from moot.acp.json_rpc import IncomingCall, PeerGone
from moot.acp.permission_options import PermissionOptions, choose_options
from moot.acp.tool_calls import AgentToolCall
from moot.acp.update_relay import UpdateRelay
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
from moot.participant.repeated_send import wait_able
from moot.protocol.operation import Json
from moot.protocol.rpc_codes import INVALID_PARAMS

log = logging.getLogger(__name__)

CANCELLED: Final[dict[str, Json]] = {"outcome": {"outcome": "cancelled"}}
_DONE_ANYWAY: Final = "WARNING: the agent reports this as done"
# Ids of proposals whose permission is over, so that a late approval is told why.
_MAX_CLOSED: Final = 1_000


@dataclass(frozen=True, slots=True)
class PermissionRejection:
    """Why a permission was not given, for the next prompt."""

    what: str
    by: str
    reason: str
    explanation: str = ""


@dataclass(slots=True, eq=False)
class OpenPermission:
    """One request of the agent, until it is decided and its tool call is over."""

    call: AgentToolCall
    request: IncomingCall
    options: PermissionOptions
    params: dict[str, Json]
    approved: tuple[Json, list[dict[str, Json]]]
    # What came of the tool call: the result for whoever fulfilled it, None if that is not known.
    finished: asyncio.Future[dict[str, Json] | None]
    is_released: bool = False
    # Why it can be released no more.
    closed: str = ""
    proposals: list[Proposal] = field(default_factory=list)


class Permissions:
    """All open permissions of one agent."""

    def __init__(
        self,
        space: JoinedSpace,
        relay: UpdateRelay,
        profile: AgentProfile,
        folder: Path,
        limits: AcpLimits,
        on_rejected: Callable[[PermissionRejection], None],
    ) -> None:
        self._space = space
        self._relay = relay
        self._profile = profile
        self._folder = folder
        self._limits = limits
        self._on_rejected = on_rejected
        self._open: list[OpenPermission] = []
        # Released, and the tool call is not over.
        self._running: list[OpenPermission] = []
        self._by_proposal: dict[str, OpenPermission] = {}
        # Requests that our rights allow, made to ourselves.
        self._granted: list[OpenPermission] = []

    @property
    def open(self) -> int:
        return len(self._open)

    # What the agent asks

    def ask(self, request: IncomingCall, call: AgentToolCall) -> None:
        """Take in a request about this call; it is answered when people have decided."""
        call.reopen()
        options = choose_options(request.params.get("options"), self._profile)
        arguments = self._relay.clean_json(call.arguments(self._folder))
        params: dict[str, Json] = {"name": call.kind, "arguments": arguments}
        permission = OpenPermission(
            call, request, options, params, call.snapshot(), asyncio.get_running_loop().create_future()
        )
        if problem := self._problem(permission):
            self._refuse(permission, problem)
            self._relay.note(f"I was not allowed to {call.describe()[:500]}: {problem}.")
            self._on_rejected(PermissionRejection(call.describe(), "the workspace", problem))
            return
        self._open.append(permission)
        request.on_cancel = lambda: self._close(permission, "the agent does not ask for it any more")
        self._relay.seal()
        if self._space.spawn(self._decide(permission)) is None:
            self._refuse(permission, "the space has ended")

    def _problem(self, permission: OpenPermission) -> str:
        """Why nobody can be asked; empty if somebody can."""
        if permission.options.allow is None:
            return "the agent offers no way to allow it only once"
        if len(self._open) >= self._limits.max_open_permissions:
            return f"{self._limits.max_open_permissions} requests wait already (max_open_permissions)"
        size = len(orjson.dumps(permission.params, default=str))
        if size > self._limits.max_proposal_bytes:
            return (
                f"it has {size} bytes, more than can be shown to those who decide "
                f"({self._limits.max_proposal_bytes}, max_proposal_bytes); do it in smaller parts"
            )
        return ""

    def knows(self, proposal_id: str) -> bool:
        """Whether a proposal is one of this run."""
        return proposal_id in self._by_proposal

    async def _decide(self, permission: OpenPermission) -> None:
        space = self._space
        try:
            if not space.may_request(space.me, "tools/call", permission.params):
                await self._propose(permission)
                return
            try:
                await self._request_granted(permission)
            except ApprovalRequired:
                # A right does not lift a quorum (D-103).
                await self._propose(permission)
        except Rejected as rejected:
            text = await rejected.explanation(self._limits.explanation_seconds)
            self._reject(permission, rejected.by, rejected.reason, text or "")
        except (Expired, TimedOut) as fault:
            if any(each.fulfilled_by for each in permission.proposals):
                self._handle_fault(permission, fault)
            self._reject(permission, "nobody", "nobody decided in time")
        except MootError as fault:
            self._handle_fault(permission, fault)
        finally:
            self._close(permission, "it was decided already")

    async def _request_granted(self, permission: OpenPermission) -> None:
        """Our rights allow it: the same request as an approver's, to ourselves, seen and journaled alike."""
        self._granted.append(permission)
        try:
            await self._space.request(
                self._space.me,
                "tools/call",
                permission.params,
                timeout_seconds=self._limits.turn_seconds,
                context=self._context(),
            )
        finally:
            with suppress(ValueError):
                self._granted.remove(permission)

    async def _propose(self, permission: OpenPermission) -> None:
        turn = self._relay.turn
        while not permission.closed and not permission.is_released:
            id = new_id()
            self._remember(id, permission)
            try:
                proposal = await self._space.propose(
                    self._space.me,
                    "tools/call",
                    permission.params,
                    id=id,
                    about=(turn.chat_id,) if turn.chat_id else (),
                    context=self._context(),
                    timeout_seconds=self._limits.turn_seconds,
                )
            except (ConnectionLost, Paused, ParticipantPaused, TimedOut):
                # It may have been made all the same: an approval of it releases the same permission, once.
                await wait_able(self._space)
                continue
            permission.proposals.append(proposal)
            if permission.closed:
                await _withdraw(proposal)
                return
            await proposal.outcome()
            return

    def _context(self) -> str | None:
        reasoning = self._relay.turn.reasoning
        return None if reasoning is None else reasoning.context

    def _remember(self, id: str, permission: OpenPermission) -> None:
        if len(self._by_proposal) >= _MAX_CLOSED:
            oldest = next((key for key, each in self._by_proposal.items() if each.closed), None)
            if oldest is not None:
                del self._by_proposal[oldest]
        self._by_proposal[id] = permission

    # Decisions

    async def answer(self, request: IncomingRequest) -> dict[str, Json] | None:
        """A request for one of our tools: what it fulfils is released, once; None if the end is not known."""
        permission = self._find(request)
        if permission is None:
            raise McpError(
                INVALID_PARAMS,
                "nothing waits for this call: an agent's tools run only when the agent asks for permission, "
                "and its proposal is approved",
            )
        if permission.is_released:
            raise McpError(INVALID_PARAMS, "this permission was used already")
        what = permission.call.describe()
        if permission.closed or request.params != permission.params:
            return _not_done(permission.closed or "the request is not what was proposed")
        if permission.call.differs(permission.approved):
            self._take_back(permission)
            return _not_done("the agent has changed the call since it asked")
        try:
            if not permission.request.respond(_selected(permission.options.allow)):
                return _not_done("the agent does not ask for it any more")
        except PeerGone as gone:
            self._close(permission, str(gone))
            return _not_done(str(gone))
        permission.is_released = True
        self._open.remove(permission)
        self._running.append(permission)
        log.info("allowed once", extra={"by": request.sender, "call": what[:200]})
        try:
            return await asyncio.shield(permission.finished)
        except asyncio.CancelledError:
            if request.is_cancelled:
                # ACP cannot stop one call; what comes of it is told when it is known.
                self._space.spawn(self._answer_late(request, permission))
            raise

    async def _answer_late(self, request: IncomingRequest, permission: OpenPermission) -> None:
        result = await asyncio.shield(permission.finished)
        if result is not None:
            await self._space.server.answer_late(request, result)

    def _find(self, request: IncomingRequest) -> OpenPermission | None:
        for id in request.envelope.correlation_id:
            if (found := self._by_proposal.get(id)) is not None:
                return found
        if request.sender != self._space.me:
            return None
        return next((each for each in self._granted if each.params == request.params), None)

    def _reject(self, permission: OpenPermission, by: str, reason: str, explanation: str = "") -> None:
        if permission.closed or permission.is_released:
            return
        self._refuse(permission, f"{by} rejected it")
        self._on_rejected(PermissionRejection(permission.call.describe(), by, reason, explanation))

    def _handle_fault(self, permission: OpenPermission, fault: MootError) -> None:
        """It was not decided, or its decision did not get here."""
        if permission.closed or permission.is_released:
            return
        by = next((each.fulfilled_by for each in permission.proposals if each.fulfilled_by), None)
        why = str(fault) if by is None else f"the approval by {by} did not reach me, and was not used"
        self._relay.note(f"Not done ({why}): {permission.call.describe()[:500]}")
        self._refuse(permission, why)
        self._on_rejected(PermissionRejection(permission.call.describe(), "the workspace", why))

    def _refuse(self, permission: OpenPermission, why: str) -> None:
        """Tell the agent that it may not, this time."""
        permission.call.was_refused = True
        reject = permission.options.reject
        with suppress(PeerGone):
            permission.request.respond(CANCELLED if reject is None else _selected(reject))
        self._close(permission, why)

    def _take_back(self, permission: OpenPermission) -> None:
        """What people see is not what the agent wants any more."""
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
            if call.differs(permission.approved):
                self._take_back(permission)
            elif call.status == "completed":
                self._relay.note(f"{_DONE_ANYWAY} before it was decided: {call.describe()[:500]}")
                self._refuse(permission, "the agent reports it as done already")
                call.was_refused = False
        if call.is_over:
            for permission in [each for each in self._running if each.call is call]:
                self._finish(permission, self._result(permission))

    def _result(self, permission: OpenPermission) -> dict[str, Json]:
        call = permission.call
        failed = call.status == "failed"
        lines = [f"The agent reports: {call.describe()} ({call.status})"]
        if call.differs(permission.approved, is_running=True):
            failed = True
            lines.insert(0, "WARNING: the agent reports another call than the one that was approved.")
            self._relay.note(f"{lines[0]} Approved: {orjson.dumps(permission.params).decode()[:1000]}")
        lines += call.texts or ([_text(output)] if (output := call.fields.get("rawOutput")) else [])
        text = self._relay.clean("\n".join(lines))
        most = self._limits.max_proposal_bytes // 4
        return _text_result(text[:most], is_error=failed)

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
                f"{permission.call.describe()[:500]}. Look before it is asked for again."
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


async def _withdraw(proposal: Proposal) -> None:
    with suppress(MootError):
        await proposal.withdraw()


def _selected(option: str | None) -> dict[str, Json]:
    return {"outcome": {"outcome": "selected", "optionId": option}}


def _not_done(why: str) -> dict[str, Json]:
    return _text_result(f"Not done, and the approval was not used: {why}.", is_error=True)


def _text_result(text: str, *, is_error: bool) -> dict[str, Json]:
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value, default=str).decode()
