"""How a proposed call ends: what came of it, as the result that its client gets, and the notes on the way."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from moot.bridges.space.error_text import failure_result, host_error
from moot.bridges.space.pending_text import STATUS_TOOL
from moot.errors import ConnectionClosed, McpError, MootError, Rejected, Withdrawn
from moot.mcp.downstream.backend import PendingCall, text_result
from moot.mcp.eras import JsonObject
from moot.participant import Outcome, Proposal
from moot.protocol.changes import change_lines
from moot.protocol.operation import Json
from moot.protocol.rpc_codes import INTERNAL_ERROR

log = logging.getLogger(__name__)

# In `_meta` of what an approved call came to: what `moot receipt` takes, where the gateway keeps a log.
RECEIPT_KEY: Final = "moot/receipt"
# MEW 3.3.3: a rejection may be explained right after it; wait only briefly for that.
_EXPLAIN_SECONDS: Final = 0.5
# Of a comment, in the one line that a waiting person reads.
MAX_COMMENT_CHARS: Final = 300


async def follow_call(
    pending: PendingCall, wait: Callable[[], Awaitable[Outcome]], what: str, host: str
) -> None:
    """Wait for a call and settle it; never raises because of what came of it."""
    try:
        outcome = await wait()
    except McpError as fault:
        error = host_error(fault, what, host)
        note = "answered with an error" if error is fault else "does not know what came of it"
        pending.settle(error, f"{host} {note}: {fault.message}")
    except ConnectionClosed as fault:
        settle_left(pending, what, fault.reason or str(fault.code))
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
        how = " with changes" if outcome.changes else ""
        pending.settle(with_changes(outcome), f"approved{how} by {outcome.by}, answered by {outcome.host}")


def with_changes(outcome: Outcome) -> JsonObject:
    """The result of a call, which names its receipt; if whoever approved it had changed it, with words that
    say so first.
    """
    said = outcome.result.get("_meta")
    about: JsonObject = dict(said) if isinstance(said, dict) else {}
    if outcome.proposal_id is not None:
        about[RECEIPT_KEY] = outcome.proposal_id
    if outcome.changes:
        about["moot/changes"] = [each.as_json() for each in outcome.changes]
    result: JsonObject = {**outcome.result, **({"_meta": about} if about else {})}
    if outcome.changes and "content" in result:
        lines = "\n".join(change_lines(outcome.changes))
        text = f"{outcome.by} approved this call with changes. What follows is of the changed call:\n{lines}"
        result["content"] = [{"type": "text", "text": text}, *outcome.content]
    return result


async def cannot_withdraw(_reason: str) -> None:
    """It was approved."""


def settle_left(pending: PendingCall, what: str, why: str) -> None:
    # It stays written down: the next run tells what became of it.
    pending.on_delivered = None
    text = (
        f"You are not in the space any more ({why}). The proposal of {what} may still be open: after joining "
        f"again, {STATUS_TOOL} tells what became of it."
    )
    pending.settle(text_result(text, is_error=True), "left the space")


def update_note(pending: PendingCall, proposal: Proposal) -> None:
    if pending.finished.is_set():
        return
    if proposal.fulfilled_by is not None and not pending.decided.is_set():
        pending.mark_approved(f"approved by {proposal.fulfilled_by}, being done")
    elif proposal.rejections and not pending.decided.is_set():
        who = ", ".join(f"{no.by} ({no.reason})" for no in proposal.rejections)
        pending.set_note(f"rejected by {who}; others may still approve it")
    elif proposal.comments and not pending.decided.is_set():
        last = proposal.comments[-1]
        pending.set_note(f"{last.by} says about it: {last.text[:MAX_COMMENT_CHARS]}")
    elif proposal.votes and not pending.decided.is_set():
        pending.set_note(f"{', '.join(proposal.votes)} voted for it; more votes are needed")


async def withdraw_proposal(pending: PendingCall, proposal: Proposal) -> None:
    try:
        await proposal.withdraw()
    except MootError as fault:
        # Too late, paused or disconnected: its outcome says which.
        log.debug("not withdrawn", extra={"proposal": proposal.id, "why": type(fault).__name__})
        if not pending.decided.is_set():
            pending.set_note(f"it could not be withdrawn ({fault}), so it is still open")


def progress_params(progress: Callable[[JsonObject], None]) -> Callable[[Json], None]:
    return lambda update: progress(dict(update.params))


def log_params(send_log: Callable[[JsonObject], None]) -> Callable[[Json], None]:
    return lambda message: send_log(dict(message))
