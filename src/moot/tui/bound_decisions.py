"""Carrying out what somebody decided, bound to what they saw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from moot.errors import ApprovalRequired, MootError, ProposalSettled, UsageError
from moot.participant import JoinedSpace
from moot.tui.dialogs import GrantChoice, RejectChoice, ShownProposal
from moot.tui.operations.operation import ClientContext, short
from moot.tui.proposal_lines import state_of, title_of

_REASON: Final = "approved, and allowed from now on"
# A member that acknowledges grants does so at once; nothing depends on it.
_ACKNOWLEDGE_SECONDS: Final = 2.0


def check_unchanged(space: JoinedSpace, shown: ShownProposal) -> None:
    """Raises UsageError when there is nothing to decide any more, or it is not what was shown."""
    seen = space.proposals.get(shown.seen.id)
    if seen is None:
        raise UsageError("this proposal is no longer kept: too many newer ones have arrived")
    if seen is not shown.seen or seen.fingerprint() != shown.fingerprint:
        raise UsageError("this is not the proposal you were shown: open it again")
    if seen.status != "pending":
        raise ProposalSettled(f"too late: {state_of(seen)[0]}", state=seen.status)


async def approve(seat: ClientContext, shown: ShownProposal, *, to: Sequence[str] = ()) -> list[str]:
    """Make the request that was proposed, exactly so; lines that tell what came of it."""
    check_unchanged(seat.space, shown)
    seen = shown.seen
    try:
        outcome = await seat.space.approve(seen, to=to, timeout_seconds=seat.timeout)
    except ApprovalRequired as refusal:
        raise UsageError(f"{refusal.message}: press v to vote; others have to vote too") from None
    word = "failed" if outcome.is_error else "answered"
    text = outcome.text or ("(no text)" if outcome.result else "(empty result)")
    return [f"✓ approved {title_of(seen)} ({short(seen.id)}); {outcome.host} {word}: {text}"]


async def reject(seat: ClientContext, decided: RejectChoice) -> list[str]:
    check_unchanged(seat.space, decided.shown)
    seen = decided.shown.seen
    await seat.space.reject(seen, decided.reason, explanation=decided.explanation)
    return [f"✗ rejected {title_of(seen)} ({short(seen.id)}): {decided.reason}"]


async def approve_and_grant(seat: ClientContext, decided: GrantChoice) -> list[str]:
    """The approval first: a right is only given with a decision that stands."""
    lines = await approve(seat, decided.shown)
    proposer = decided.shown.seen.proposer
    try:
        given = await seat.space.admin.grant(
            proposer,
            [decided.capability],
            reason=_REASON,
            ack_timeout_seconds=seat.timeout or _ACKNOWLEDGE_SECONDS,
        )
    except MootError as fault:
        raise MootError(f"approved, but nothing was granted to {proposer}: {fault}") from None
    return [
        *lines,
        f"+ {proposer} can now do this without asking; /revoke {proposer} --grant {given.id} revokes it",
    ]


async def vote(seat: ClientContext, shown: ShownProposal) -> list[str]:
    check_unchanged(seat.space, shown)
    await seat.space.vote(shown.seen)
    return [f"✓ voted for {title_of(shown.seen)} ({short(shown.seen.id)})"]
