"""Deciding on a proposal in the full screen: open the dialog, then carry out what was chosen in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from moot.errors import MootError, ProposalSettled, UsageError, VoteCounted
from moot.operations.again import payload_of, remember_call
from moot.operations.grant_scope import local_time
from moot.operations.operation import ClientContext, short_id
from moot.operations.text.origin_text import EndorseChoice
from moot.participant import JoinedSpace, SeenProposal
from moot.protocol.origin_report import ENDORSE_KIND
from moot.tui.dialog import Dialog
from moot.tui.dialogs import (
    AgainChoice,
    ApproveDialog,
    EndorseDialog,
    EndorseRequest,
    GrantChoice,
    GrantDialog,
    RejectChoice,
    RejectDialog,
    RejectRequest,
    ShownProposal,
)
from moot.tui.proposal_lines import state_of, title_of
from moot.tui.take_back import TakeBack
from moot.tui.text_diff import KnownTexts

_REASON: Final = "approved, and allowed without asking"
# A member that acknowledges grants does so at once; nothing depends on it.
_ACKNOWLEDGE_SECONDS: Final = 2.0


def check_unchanged(space: JoinedSpace, shown: ShownProposal) -> None:
    """Raises UsageError if the proposal is no longer pending, or is not the one that was shown."""
    seen = space.proposals.get(shown.seen.id)
    if seen is None:
        raise UsageError("this proposal is no longer kept: too many newer ones have arrived")
    if seen is not shown.seen or seen.fingerprint() != shown.fingerprint:
        raise UsageError("this is not the proposal you were shown: open it again")
    if seen.status != "pending":
        raise ProposalSettled(f"too late: {state_of(seen)[0]}", state=seen.status)


async def approve(context: ClientContext, shown: ShownProposal, *, to: Sequence[str] = ()) -> list[str]:
    """Send exactly the request that was proposed; returns lines about its result."""
    check_unchanged(context.space, shown)
    seen = shown.seen
    try:
        outcome = await context.space.approve(
            seen, to=to, repeats=shown.repeats, timeout_seconds=context.timeout_seconds
        )
    except VoteCounted as voted:
        return [f"✓ voted for {title_of(seen)} ({short_id(seen.id)}); {voted}"]
    word = "failed" if outcome.is_error else "answered"
    text = outcome.text or ("(no text)" if outcome.result else "(empty result)")
    return [f"✓ approved {title_of(seen)} ({short_id(seen.id)}); {outcome.host} {word}: {text}"]


async def approve_again(context: ClientContext, choice: AgainChoice, *, to: Sequence[str] = ()) -> list[str]:
    """Approve first: what failed is not remembered."""
    lines = await approve(context, choice.shown, to=to)
    try:
        return [
            *lines,
            f"+ {await remember_call(context.space, payload_of(choice.shown.seen, choice.offer))}",
        ]
    except MootError as fault:
        raise MootError(f"approved, but {fault}") from None


async def reject(context: ClientContext, choice: RejectChoice) -> list[str]:
    check_unchanged(context.space, choice.shown)
    seen = choice.shown.seen
    await context.space.reject(seen, choice.reason, explanation=choice.explanation)
    return [f"✗ rejected {title_of(seen)} ({short_id(seen.id)}): {choice.reason}"]


async def approve_and_grant(context: ClientContext, choice: GrantChoice) -> list[str]:
    """Approve first: nothing is granted if the approval fails, or was a vote that others have to follow."""
    lines = await approve(context, choice.shown)
    if choice.shown.seen.status == "pending":
        return [*lines, "nothing was granted: a permission does not lift the vote"]
    proposer = choice.shown.seen.proposer
    now = local_time()
    try:
        given = await context.space.admin.grant(
            proposer,
            [choice.capability],
            reason=_REASON,
            expires_in_seconds=choice.term.expires_in_seconds(now),
            max_uses=choice.term.max_uses,
            ack_timeout_seconds=context.timeout_seconds or _ACKNOWLEDGE_SECONDS,
        )
    except MootError as fault:
        raise MootError(f"approved, but nothing was granted to {proposer}: {fault}") from None
    return [
        *lines,
        f"+ {proposer} can do this without asking {choice.term.text(now)}; "
        f"/revoke {proposer} --grant {given.id} revokes it",
    ]


async def vote(context: ClientContext, shown: ShownProposal) -> list[str]:
    if shown.seen.approvals_needed:
        return await approve(context, shown)
    check_unchanged(context.space, shown)
    await context.space.vote(shown.seen)
    return [f"✓ voted for {title_of(shown.seen)} ({short_id(shown.seen.id)})"]


async def endorse(context: ClientContext, choice: EndorseChoice) -> list[str]:
    sent = await context.space.send(ENDORSE_KIND, choice.payload, confirm=True)
    return [f"✓ {choice.text} ({short_id(sent.id)})"]


# Opens a dialog; the callback gets what the person chose, or None.
ShowDialog = Callable[[Dialog, Callable[[Any], None]], object]


class DecisionFlow:
    """Approve, reject, grant or vote, each bound to the proposal as it was shown."""

    def __init__(
        self, context: ClientContext, texts: KnownTexts, *, show: ShowDialog, take_back: TakeBack
    ) -> None:
        self._context = context
        self._texts = texts
        self._show = show
        self._decide = take_back.decide

    def approve(self, seen: SeenProposal, to: Sequence[str] = ()) -> None:
        """Show it and ask for yes, no, or no with words."""

        def decided(
            choice: ShownProposal | AgainChoice | RejectChoice | RejectRequest | EndorseRequest | None,
        ) -> None:
            match choice:
                case AgainChoice():
                    self._decide(
                        f"approving {title_of(seen)}, and again",
                        lambda: approve_again(self._context, choice, to=to),
                    )
                case ShownProposal():
                    self._decide(
                        f"approving {title_of(seen)}",
                        lambda: approve(self._context, choice, to=to),
                    )
                case RejectChoice():
                    self._reject(choice)
                case RejectRequest():
                    self.reject(seen)
                case EndorseRequest():
                    self.endorse(seen)

        self._show(ApproveDialog(seen, self._texts, self._context.space), decided)

    def approve_named(self, named: str, to: str | None) -> None:
        """The same for a proposal by its number or id; raises UsageError if it is not pending."""
        seen = self._context.proposal(named)
        check_unchanged(self._context.space, ShownProposal.of(seen))
        self.approve(seen, (to,) if to else ())

    def reject(self, seen: SeenProposal) -> None:
        def decided(choice: RejectChoice | None) -> None:
            if choice is not None:
                self._reject(choice)

        self._show(RejectDialog(seen, self._texts, self._context.space), decided)

    def _reject(self, choice: RejectChoice) -> None:
        self._decide(f"rejecting {title_of(choice.shown.seen)}", lambda: reject(self._context, choice))

    def grant(self, seen: SeenProposal) -> None:
        def decided(choice: GrantChoice | None) -> None:
            if choice is not None:
                self._decide(
                    f"approving and granting {title_of(seen)}",
                    lambda: approve_and_grant(self._context, choice),
                )

        self._show(GrantDialog(seen, self._texts, self._context.space), decided)

    def endorse(self, seen: SeenProposal) -> None:
        """Confirm one of its values or sources; whoever decides by origins looks at it again."""

        def decided(choice: EndorseChoice | None) -> None:
            if choice is not None:
                self._decide(choice.text, lambda: endorse(self._context, choice))

        self._show(EndorseDialog(seen, self._context.space), decided)

    def vote(self, seen: SeenProposal) -> None:
        shown = ShownProposal.of(seen)
        self._decide(f"voting for {title_of(seen)}", lambda: vote(self._context, shown))
