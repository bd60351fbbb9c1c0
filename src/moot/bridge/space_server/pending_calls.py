"""Calls that became proposals: their decisions and results, for clients that ask now or later."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from moot.bridge.space_server.error_text import failure_result
from moot.errors import McpError, MootError, Rejected, Withdrawn
from moot.mcp.downstream.backend import BackendCall, PendingCall, text_result
from moot.mcp.eras import INTERNAL_ERROR, JsonObject
from moot.participant import JoinedSpace, Proposal
from moot.protocol import strict_json
from moot.protocol.operation import Json

log = logging.getLogger(__name__)

STATUS_TOOL: Final = "moot_status"
# Dropped oldest first; finished ones go before pending ones.
MAX_KEPT: Final = 1_000
# How long a result is kept for a client that comes back for it.
KEPT_SECONDS: Final = 3_600.0
# MEW 3.3.3: a rejection may be explained right after it; wait only briefly for that.
_EXPLAIN_SECONDS: Final = 0.5


class PendingCalls:
    """The proposals that one MCP server made."""

    def __init__(self, space: JoinedSpace, *, wait_for_others: bool, proposal_seconds: float) -> None:
        self._space = space
        self._wait_for_others = wait_for_others
        self._proposal_seconds = proposal_seconds
        self._kept: dict[str, PendingCall] = {}
        self._reported: dict[bytes, PendingCall] = {}
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> PendingCalls:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *_fault: object) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await self._group.__aexit__(None, None, None)

    def get(self, handle: str) -> PendingCall | None:
        self._drop_expired()
        return self._kept.get(handle)

    def all(self) -> list[PendingCall]:
        """Newest last."""
        self._drop_expired()
        return list(self._kept.values())

    async def propose(self, host: str, params: JsonObject, call: BackendCall, what: str) -> PendingCall:
        """Propose a call to the space; `params` use the host's own names. Raises what `propose` raises.

        A call that is repeated after its client got "pending" is still the same proposal: models that wonder
        about the result repeat the call rather than ask for its status.
        """
        fingerprint = strict_json.encode([host, call.method, _without_meta(params)])
        known = self._reported.get(fingerprint)
        if known is not None and not known.decided.is_set():
            return known
        proposal = await self._space.propose(
            host,
            call.method,
            params,
            timeout_seconds=self._proposal_seconds,
            wait_for_others=self._wait_for_others,
            progress=None if call.progress is None else _progress_params(call.progress),
            log=None if call.log is None else _log_params(call.log),
        )
        pending = PendingCall(
            proposal.id,
            headline=f"{what} of {host} needs somebody's approval: it was proposed to the space.",
            call=call,
            withdraw=lambda _reason: _withdraw(proposal),
            pending_result=lambda pending: self._pending_result(pending, fingerprint, what, host),
            kept_seconds=self._proposal_seconds + KEPT_SECONDS,
        )
        self._kept[pending.handle] = pending
        proposal.on_change = lambda changed: _update_note(pending, changed)
        task = self._group.create_task(self._follow(pending, proposal, what, host))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return pending

    async def _follow(self, pending: PendingCall, proposal: Proposal, what: str, host: str) -> None:
        try:
            outcome = await proposal.outcome()
        except McpError as fault:
            pending.settle(fault, f"{host} answered with an error: {fault.message}")
        except MootError as fault:
            if isinstance(fault, Rejected):
                await fault.explanation(_EXPLAIN_SECONDS)
            try:
                result: JsonObject | McpError = failure_result(
                    fault, method=pending.call.method, what=what, host=host
                )
            except McpError as error:
                result = error
            pending.settle(result, str(fault), withdrawn=isinstance(fault, Withdrawn))
        except Exception:
            # A request's task: the client learns that it failed, the log says why.
            log.exception("a proposal could not be followed", extra={"proposal": pending.handle})
            pending.settle(McpError(INTERNAL_ERROR, "internal error; the log says why"), "internal error")
        else:
            pending.settle(outcome.result, f"approved by {outcome.by}, answered by {outcome.host}")

    def _pending_result(self, pending: PendingCall, fingerprint: bytes, what: str, host: str) -> JsonObject:
        """The result for a client that cannot wait: it says how to look the call up."""
        self._reported[fingerprint] = pending
        text = (
            f"PENDING, not done yet: {what} of {host} needs somebody's approval and was proposed to the "
            f"space. {pending.note[:1].upper()}{pending.note[1:]}. "
            f'For its result call {STATUS_TOOL} with {{"handle": "{pending.handle}"}}; add '
            '"wait_seconds" to wait, or "withdraw": true to withdraw it. Do not call the tool again for it.'
        )
        about: JsonObject = {"moot/pending": {"handle": pending.handle, "host": host}}
        match pending.call.method:
            case "prompts/get":
                return {
                    "messages": [{"role": "user", "content": {"type": "text", "text": text}}],
                    "_meta": about,
                }
            case "resources/read":
                uri = pending.call.params.get("uri")
                content = {"uri": uri, "mimeType": "text/plain", "text": text}
                return {"contents": [content], "_meta": about}
            case "completion/complete":
                return {"completion": {"values": []}, "_meta": about}
        return text_result(text, _meta=about)

    def _drop_expired(self) -> None:
        for handle, pending in tuple(self._kept.items()):
            if pending.finished.is_set() and pending.idle_seconds > KEPT_SECONDS:
                del self._kept[handle]
        finished = (handle for handle, pending in tuple(self._kept.items()) if pending.finished.is_set())
        while len(self._kept) > MAX_KEPT:
            del self._kept[next(finished, next(iter(self._kept)))]
        for fingerprint, pending in tuple(self._reported.items()):
            if pending.decided.is_set():
                del self._reported[fingerprint]


def _update_note(pending: PendingCall, proposal: Proposal) -> None:
    if pending.finished.is_set():
        return
    if proposal.fulfilled_by is not None and not pending.decided.is_set():
        pending.mark_approved(f"approved by {proposal.fulfilled_by}, being done")
    elif proposal.rejections and not pending.decided.is_set():
        who = ", ".join(f"{no.by} ({no.reason})" for no in proposal.rejections)
        pending.set_note(f"rejected by {who}; others may still approve it")
    elif proposal.votes and not pending.decided.is_set():
        pending.set_note(f"{', '.join(proposal.votes)} voted for it; more votes are needed")


async def _withdraw(proposal: Proposal) -> None:
    try:
        await proposal.withdraw()
    except MootError as fault:
        # Too late, paused or disconnected: its outcome says which.
        log.debug("not withdrawn", extra={"proposal": proposal.id, "why": type(fault).__name__})


def _progress_params(progress: Callable[[JsonObject], None]) -> Callable[[Json], None]:
    return lambda update: progress(dict(update.params))


def _log_params(send_log: Callable[[JsonObject], None]) -> Callable[[Json], None]:
    return lambda message: send_log(dict(message))


def _without_meta(params: JsonObject) -> JsonObject:
    return {key: value for key, value in params.items() if key != "_meta"}
