"""The dialogs above the panes: details, approve, reject, approve and grant.

Nothing is approved by accident: the key that opens a dialog is not the one that approves, and a dialog
accepts no decision before it has been on the screen for a moment, so that keys typed for something else
have no effect. If somebody else decides meanwhile, the dialog says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from moot.errors import MootError
from moot.operations.again import again_offer
from moot.operations.content_operation import MAX_SHOWN_BYTES
from moot.operations.grant_scope import (
    DEFAULT_TERM,
    GRANT_TERMS,
    GrantScope,
    GrantTerm,
    grant_scopes,
    local_time,
    read_scope,
)
from moot.operations.text.capability_text import in_words
from moot.operations.text.origin_text import EndorseChoice, endorse_choices
from moot.operations.text.terminal_escape import printable
from moot.participant import REJECT_REASONS, JoinedSpace, SeenProposal
from moot.protocol.large_content import listed_parts
from moot.protocol.operation import Json
from moot.protocol.origin_report import ENDORSE_KIND, AgainOffer
from moot.tui.dialog import Dialog, numbered
from moot.tui.proposal_lines import full_lines, host_of, raw_lines, state_of, title_of
from moot.tui.row_layout import Line, PaneRow, Part, line
from moot.tui.rows import Rows
from moot.tui.text_diff import KnownTexts

# How often a dialog checks whether others have decided.
_CHECK_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True)
class ShownProposal:
    """A proposal as it was shown: the decision is about exactly these bytes."""

    seen: SeenProposal
    fingerprint: str
    # Earlier calls of the same effect that were shown with it.
    repeats: tuple[str, ...] = ()

    @classmethod
    def of(cls, seen: SeenProposal) -> ShownProposal:
        return cls(seen, seen.fingerprint(), seen.repeats)


class ProposalDialog(Dialog):
    """A proposal in full; `x` switches between readable lines and raw bytes, `v` fetches large values."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("x", "raw", "Raw bytes"),
        Binding("v", "whole", "Large values", show=False),
        Binding("o", "places", "Origins", show=False),
    ]

    def __init__(
        self, title: str, hint: str, seen: SeenProposal, texts: KnownTexts, space: JoinedSpace
    ) -> None:
        more = ["v large values"] if listed_parts(seen.params) else []
        self._space = space
        self._whole: dict[str, Json] | None = None
        self.shown = ShownProposal.of(seen)
        super().__init__(title, " · ".join([*more, *self.origin_keys(), hint]))
        self._texts = texts
        self._is_raw = self._with_places = False
        self._shown_status = "pending"
        self._shown_origins = seen.origins

    @property
    def seen(self) -> SeenProposal:
        return self.shown.seen

    def origin_keys(self) -> list[str]:
        """What can be done about where its values came from, as far as that is known."""
        return ["o origins"] if self.seen.origins is not None else []

    def set_up(self) -> None:
        super().set_up()
        self.set_interval(_CHECK_SECONDS, self._check_status)

    def fill(self) -> None:
        lines = raw_lines(self.seen) if self._is_raw else self._readable_lines()
        self.rows.replace(numbered(lines))

    def _readable_lines(self) -> list[Line]:
        viewers = (self._space.me, self._space.name)
        places = self._with_places
        return full_lines(self.seen, self._texts, whole=self._whole, viewers=viewers, with_places=places)

    def action_places(self) -> None:
        """Show in which message each value was said, and the words around it."""
        self._with_places = not self._with_places
        self.fill()

    def action_raw(self) -> None:
        self._is_raw = not self._is_raw
        self.fill()

    async def action_whole(self) -> None:
        """Show the large values in their places. Those that are nothing to read are saved by /content."""
        parts = listed_parts(self.seen.params)
        if sum(part.size for part in parts) > MAX_SHOWN_BYTES:
            self.show_hint(f"more than {MAX_SHOWN_BYTES:,} bytes are not shown here: /content saves them")
        elif parts and self._whole is None:
            self.show_hint("fetching…")
            self.run_worker(self._fetch_whole())

    async def _fetch_whole(self) -> None:
        try:
            self._whole = await self._space.fetch_params(self.seen)
        except MootError as fault:
            self.show_hint(f"✗ {fault}")
            return
        self.fill()
        self.show_hint(self._hint)

    def _check_status(self) -> None:
        if self.seen.status != self._shown_status:
            self._shown_status = self.seen.status
            self.show_hint(f"too late: {state_of(self.seen)[0]} · Esc close")
            self.fill()
        elif self.seen.origins is not self._shown_origins:
            # It is found out in the moment after a proposal, and anew when somebody endorses a value.
            if self._shown_origins is None:
                self._hint = " · ".join([*self.origin_keys(), self._hint])
                self.show_hint(self._hint)
            self._shown_origins = self.seen.origins
            self.fill()

    def is_ready(self, *, read_to_end: bool = True) -> bool:
        """Whether a decision is accepted now; shows why if not. A rejection needs no reading to the end."""
        if self.seen.status != "pending":
            self.show_hint(f"too late: {state_of(self.seen)[0]} · Esc close")
            return False
        if not self.has_settled:
            self.show_hint("read it first: this key works in a moment")
            return False
        if read_to_end and self.is_cut:
            self.show_hint("too many lines to show: x shows all as raw bytes, then End and y · Esc close")
            return False
        if read_to_end and not self.rows.has_shown_all:
            self.show_hint("more below: press End, then y · Esc close")
            return False
        return True


@dataclass(frozen=True, slots=True)
class RejectChoice:
    """A rejection and its reason."""

    shown: ShownProposal
    reason: str
    explanation: str | None


@dataclass(frozen=True, slots=True)
class RejectRequest:
    """The person wants to choose a reason and write something about it."""


@dataclass(frozen=True, slots=True)
class AgainChoice:
    """Approve it, and exactly this call from now on, as it was offered."""

    shown: ShownProposal
    offer: AgainOffer


@dataclass(frozen=True, slots=True)
class EndorseRequest:
    """The person wants to confirm a value or a source, or to take that back."""


class ApproveDialog(ProposalDialog):
    """Approve once? `y` yes: the `ShownProposal`; `s` the same again, too: an `AgainChoice`; `n` no: a
    `RejectChoice`; `r`: a `RejectRequest`; `e`: an `EndorseRequest`."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "approve", "Yes, once"),
        Binding("s", "approve_again", "Yes, and the same again", show=False),
        Binding("n", "reject", "No"),
        Binding("r", "reject_with_words", "No, with words"),
        Binding("e", "endorse", "Endorse", show=False),
    ]

    def __init__(self, seen: SeenProposal, texts: KnownTexts, space: JoinedSpace) -> None:
        title = f"Approve once: {title_of(seen)} on {host_of(seen)}?"
        offer = again_offer(space, seen)
        again = f"s yes, and the same again ({offer.text}) · " if offer is not None else ""
        hint = f"y yes, exactly this, once · {again}n no · r no, with words · x raw bytes · Esc leave it open"
        super().__init__(title, hint, seen, texts, space)

    def action_approve(self) -> None:
        if self.is_ready():
            self.dismiss(self.shown)

    def action_approve_again(self) -> None:
        offer = again_offer(self._space, self.seen)
        if offer is not None and self.is_ready():
            self.dismiss(AgainChoice(self.shown, offer))

    def action_reject(self) -> None:
        if self.is_ready(read_to_end=False):
            self.dismiss(RejectChoice(self.shown, "disagree", None))

    def action_reject_with_words(self) -> None:
        self.dismiss(RejectRequest())

    def origin_keys(self) -> list[str]:
        keys = super().origin_keys()
        return [*keys, "e endorse"] if _endorse_choices(self.seen, self._space) else keys

    def action_endorse(self) -> None:
        if _endorse_choices(self.seen, self._space):
            self.dismiss(EndorseRequest())


def _endorse_choices(seen: SeenProposal, space: JoinedSpace) -> list[EndorseChoice]:
    """Those that we may send."""
    found = endorse_choices(seen, seen.params.get("arguments"), datetime.now().astimezone())
    return [each for each in found if space.may(ENDORSE_KIND, each.payload)]


class EndorseDialog(Dialog):
    """Choose what to confirm, or to take back; Enter gives the `EndorseChoice`."""

    def __init__(self, seen: SeenProposal, space: JoinedSpace) -> None:
        title = f"Endorse: {title_of(seen)} on {host_of(seen)}"
        super().__init__(title, "↑↓ choose · Enter endorse · Esc cancel")
        self._choices = _endorse_choices(seen, space)

    def fill(self) -> None:
        self.rows.replace(PaneRow(str(at), (line(each.text),)) for at, each in enumerate(self._choices))

    def on_rows_opened(self, event: Rows.Opened) -> None:
        event.stop()
        if self.has_settled and self.rows.selected is not None:
            self.dismiss(self._choices[int(self.rows.selected.key)])


class RejectDialog(ProposalDialog):
    """Reject with a reason: choose one, add a comment, Enter sends it."""

    def __init__(self, seen: SeenProposal, texts: KnownTexts, space: JoinedSpace) -> None:
        title = f"Reject: {title_of(seen)} from {seen.proposer}"
        hint = "↑↓ choose a reason · Tab add a comment · Enter reject · Esc cancel"
        super().__init__(title, hint, seen, texts, space)

    def compose_below(self) -> ComposeResult:
        yield Rows(id="dialog-choices", empty="")
        yield Input(placeholder="Comment (optional)", id="dialog-input")

    def set_up(self) -> None:
        super().set_up()
        self._reasons.replace(PaneRow(reason, (line(reason),)) for reason in REJECT_REASONS)
        self.set_focus(self._reasons)

    @property
    def _reasons(self) -> Rows:
        return self.query_one("#dialog-choices", Rows)

    def on_rows_opened(self, event: Rows.Opened) -> None:
        event.stop()
        if event.rows is self._reasons:
            self._reject()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._reject()

    def _reject(self) -> None:
        if not self.is_ready(read_to_end=False):
            return
        selected = self._reasons.selected
        comment = self.query_one("#dialog-input", Input).value.strip()
        self.dismiss(
            RejectChoice(self.shown, "disagree" if selected is None else selected.key, comment or None)
        )


@dataclass(frozen=True, slots=True)
class GrantChoice:
    """An approval, and the capability that the proposer gets with it."""

    shown: ShownProposal
    capability: dict[str, Json]
    term: GrantTerm


class GrantDialog(ProposalDialog):
    """Approve and grant: choose the scope, see the capability that it creates, `y` does both."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(number + 1), f"scope({number})", f"Scope {number + 1}") for number in range(5)),
        Binding("e", "edit", "Edit"),
        Binding("t", "term", "For how long"),
        Binding("y", "grant", "Approve and grant"),
        Binding("n", "leave", "Cancel"),
    ]

    def __init__(self, seen: SeenProposal, texts: KnownTexts, space: JoinedSpace) -> None:
        title = f"Approve {title_of(seen)} and let {seen.proposer} do it without asking?"
        scopes = grant_scopes(space, seen)
        numbers = " ".join(str(number + 1) for number in range(len(scopes)))
        hint = f"{numbers} what · t for how long · e edit the pattern · y approve and grant · n cancel"
        super().__init__(title, hint, seen, texts, space)
        self._scopes = scopes
        self._chosen = next((n for n, each in enumerate(self._scopes) if each.capability is not None), 0)
        self._edited: str | None = None
        self._term = DEFAULT_TERM

    def compose_below(self) -> ComposeResult:
        yield Rows(id="dialog-choices", empty="")
        yield Input(id="dialog-input", disabled=True)

    def set_up(self) -> None:
        super().set_up()
        self._show_scopes()

    @property
    def scope(self) -> GrantScope:
        return self._scopes[self._chosen]

    def _show_scopes(self) -> None:
        rows: list[PaneRow] = []
        for number, each in enumerate(self._scopes):
            mark = "(•)" if number == self._chosen else "( )"
            first = line((f"{mark} {number + 1} {each.name}: ", "strong"), each.description)
            lines = [first]
            if number == self._chosen:
                then: Part = (
                    (each.problem, "bad") if each.capability is None else (self._json(number), "note")
                )
                lines.append(line("      ", then))
            rows.append(PaneRow(each.name, tuple(lines), indent=6))
        parts: list[Part] = [("for how long (t): ", "strong")]
        for term in GRANT_TERMS:
            parts.append((f"[{term.name}]  ", "strong") if term is self._term else (f"{term.name}  ", "text"))
        rows.append(PaneRow("term", (line(*parts), line("      ", (self._sentence(), "note"))), indent=6))
        self.query_one("#dialog-choices", Rows).replace(rows)
        field = self.query_one("#dialog-input", Input)
        if field.disabled:
            field.value = printable(self._json(self._chosen))

    def _sentence(self) -> str:
        """What this allows, and that the rest still asks."""
        try:
            capability = read_scope(self._space, self.seen, self._json(self._chosen))
        except MootError:
            return ""
        lasts = self._term.text(local_time())
        return (
            f"{self.seen.proposer} will be able to {in_words(capability)} {lasts}; everything else still asks"
        )

    def action_term(self) -> None:
        """Choose the next of the terms."""
        at = GRANT_TERMS.index(self._term)
        self._term = GRANT_TERMS[(at + 1) % len(GRANT_TERMS)]
        self._show_scopes()

    def _json(self, number: int) -> str:
        each = self._scopes[number]
        if each.name == "pattern" and self._edited is not None:
            return self._edited
        return "" if each.capability is None else each.as_json()

    def action_scope(self, number: int) -> None:
        if number >= len(self._scopes):
            return
        self._chosen = number
        self._show_scopes()

    def on_rows_opened(self, event: Rows.Opened) -> None:
        event.stop()
        if event.key == "term":
            self.action_term()
        for number, each in enumerate(self._scopes):
            if each.name == event.key:
                self.action_scope(number)

    def action_edit(self) -> None:
        """Edit the pattern, starting with the proposed one."""
        self._chosen = len(self._scopes) - 1
        field = self.query_one("#dialog-input", Input)
        field.disabled = False
        field.value = printable(self._json(self._chosen) or self._json(self._chosen - 1))
        field.focus()
        self.show_hint("Enter use this pattern · Tab discard")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        try:
            read_scope(self._space, self.seen, event.value)
        except MootError as fault:
            self.show_hint(f"✗ {fault}")
            return
        self._edited = event.value
        event.input.disabled = True
        self._chosen = len(self._scopes) - 1
        self._show_scopes()
        self.rows.focus()
        self.show_hint(self._hint)

    def action_grant(self) -> None:
        if not self.is_ready():
            return
        text = self._json(self._chosen)
        try:
            capability = read_scope(self._space, self.seen, text) if text else None
        except MootError as fault:
            self.show_hint(f"✗ {fault}")
            return
        if capability is None:
            self.show_hint(f"✗ {self.scope.problem}: choose another scope")
            return
        self.dismiss(GrantChoice(self.shown, capability, self._term))
