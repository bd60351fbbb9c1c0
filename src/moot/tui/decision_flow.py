"""Deciding on a proposal in the full screen: open the dialog, then carry out what was chosen in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from moot.participant import SeenProposal
from moot.tui import bound_decisions
from moot.tui.dialogs import (
    ApproveDialog,
    Dialog,
    GrantChoice,
    GrantDialog,
    RejectChoice,
    RejectDialog,
    RejectRequest,
    ShownProposal,
)
from moot.tui.operations.operation import ClientContext
from moot.tui.proposal_lines import title_of
from moot.tui.take_back import TakeBack
from moot.tui.text_diff import KnownTexts

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

        def decided(choice: ShownProposal | RejectChoice | RejectRequest | None) -> None:
            match choice:
                case ShownProposal():
                    self._decide(
                        f"approving {title_of(seen)}",
                        lambda: bound_decisions.approve(self._context, choice, to=to),
                    )
                case RejectChoice():
                    self._reject(choice)
                case RejectRequest():
                    self.reject(seen)

        self._show(ApproveDialog(seen, self._texts, self._context.space), decided)

    def approve_named(self, named: str, to: str | None) -> None:
        """The same for a proposal by its number or id; raises UsageError if it is not pending."""
        seen = self._context.proposal(named)
        bound_decisions.check_unchanged(self._context.space, ShownProposal.of(seen))
        self.approve(seen, (to,) if to else ())

    def reject(self, seen: SeenProposal) -> None:
        def decided(choice: RejectChoice | None) -> None:
            if choice is not None:
                self._reject(choice)

        self._show(RejectDialog(seen, self._texts, self._context.space), decided)

    def _reject(self, choice: RejectChoice) -> None:
        self._decide(
            f"rejecting {title_of(choice.shown.seen)}", lambda: bound_decisions.reject(self._context, choice)
        )

    def grant(self, seen: SeenProposal) -> None:
        def decided(choice: GrantChoice | None) -> None:
            if choice is not None:
                self._decide(
                    f"approving and granting {title_of(seen)}",
                    lambda: bound_decisions.approve_and_grant(self._context, choice),
                )

        self._show(GrantDialog(seen, self._texts, self._context.space), decided)

    def vote(self, seen: SeenProposal) -> None:
        shown = ShownProposal.of(seen)
        self._decide(f"voting for {title_of(seen)}", lambda: bound_decisions.vote(self._context, shown))
