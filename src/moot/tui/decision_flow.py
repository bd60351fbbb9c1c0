"""Deciding on a proposal in the full screen: open the dialog, then carry out what was chosen in it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
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
    ShownProposal,
)
from moot.tui.operations.operation import ClientContext
from moot.tui.text_diff import KnownTexts

# Opens a dialog; the callback gets what the person chose, or None.
ShowDialog = Callable[[Dialog, Callable[[Any], None]], object]
# Runs work beside the screen and shows the lines that it returns, or its error.
Perform = Callable[[Coroutine[Any, Any, Sequence[str]]], None]


class DecisionFlow:
    """Approve, reject, grant or vote, each bound to the proposal as it was shown."""

    def __init__(
        self, context: ClientContext, texts: KnownTexts, *, show: ShowDialog, perform: Perform
    ) -> None:
        self._context = context
        self._texts = texts
        self._show = show
        self._perform = perform

    def approve(self, seen: SeenProposal, to: Sequence[str] = ()) -> None:
        def decided(shown: ShownProposal | None) -> None:
            if shown is not None:
                self._perform(bound_decisions.approve(self._context, shown, to=to))

        self._show(ApproveDialog(seen, self._texts), decided)

    def approve_named(self, named: str, to: str | None) -> None:
        """The same for a proposal by its number or id; raises UsageError if it is not pending."""
        seen = self._context.proposal(named)
        bound_decisions.check_unchanged(self._context.space, ShownProposal.of(seen))
        self.approve(seen, (to,) if to else ())

    def reject(self, seen: SeenProposal) -> None:
        def decided(choice: RejectChoice | None) -> None:
            if choice is not None:
                self._perform(bound_decisions.reject(self._context, choice))

        self._show(RejectDialog(seen, self._texts), decided)

    def grant(self, seen: SeenProposal) -> None:
        def decided(choice: GrantChoice | None) -> None:
            if choice is not None:
                self._perform(bound_decisions.approve_and_grant(self._context, choice))

        self._show(GrantDialog(seen, self._texts, self._context.space), decided)

    def vote(self, seen: SeenProposal) -> None:
        self._perform(bound_decisions.vote(self._context, ShownProposal.of(seen)))
