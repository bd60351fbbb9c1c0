"""What opens above the panes: looking at something, approving, rejecting, approving with a grant.

Nothing is approved by accident: the key that opens a dialog is not the one that approves, and a dialog hears
no yes before it has been on the screen for a moment, so that what was typed for something else counts for
nothing. What was decided meanwhile by others is told where the decision would have been made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from moot.errors import MootError
from moot.participant import REJECT_REASONS, JoinedSpace, SeenProposal
from moot.protocol.operation import Json
from moot.tui.grant_scope import GrantScope, read_width, widths_of
from moot.tui.proposal_lines import as_bytes, host_of, in_full, state_of, title_of
from moot.tui.row_layout import Line, PaneRow, Part, line
from moot.tui.rows import Rows
from moot.tui.terminal_escape import printable
from moot.tui.text_diff import KnownTexts

# A dialog that has just opened hears no yes: longer than a key repeats, shorter than anybody reads.
SETTLE_SECONDS: Final = 0.4
# How often a dialog looks whether others have decided.
_LOOK_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True)
class ShownProposal:
    """A proposal as it was before somebody's eyes: the decision is about these bytes and no others."""

    seen: SeenProposal
    fingerprint: str

    @classmethod
    def of(cls, seen: SeenProposal) -> ShownProposal:
        return cls(seen, seen.fingerprint())


class Dialog(ModalScreen[Json]):
    """A frame with a title, rows to read, and a line that says which keys do what."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "leave", "Close")]

    def __init__(self, title: str, keys: str) -> None:
        super().__init__()
        self._title = title
        self._keys = keys
        self._opened: float | None = None
        self.rows = Rows(id="dialog-rows", empty="")

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog"):
            yield Static(Content(printable(self._title)), id="dialog-title", markup=False)
            yield self.rows
            yield from self.compose_below()
            yield Static(Content(self._keys), id="dialog-keys", markup=False)

    def compose_below(self) -> ComposeResult:
        return ()

    def on_mount(self) -> None:
        self.began()

    def began(self) -> None:
        """It is there. Not `on_mount`: Textual calls that of every class by itself."""
        self._opened = asyncio.get_running_loop().time()
        self.set_focus(self.rows)
        self.fill()

    @property
    def has_settled(self) -> bool:
        # Not before it is there: keys that were typed ahead come to a dialog that nobody has seen yet.
        if self._opened is None:
            return False
        return asyncio.get_running_loop().time() - self._opened >= SETTLE_SECONDS

    def fill(self) -> None:
        """Put the rows in."""

    def tell(self, words: str) -> None:
        """Say something in the line of keys."""
        self.query_one("#dialog-keys", Static).update(Content(printable(words)))

    def action_leave(self) -> None:
        self.dismiss(None)


def numbered(lines: Iterable[Line]) -> list[PaneRow]:
    """A row for each line, so that long texts scroll by lines."""
    return [PaneRow(str(number), (each,), hanging=4) for number, each in enumerate(lines)]


class DetailDialog(Dialog):
    """Something to read. `again` is asked for the lines whenever they may have changed."""

    def __init__(self, title: str, again: Callable[[], Iterable[Line]], *, follows: bool = False) -> None:
        super().__init__(title, "↑↓ PgUp PgDn scroll · Esc close")
        self._again = again
        self._follows = follows

    def fill(self) -> None:
        self.rows.replace(numbered(self._again()))
        if self._follows:
            self.rows.action_last()

    def refill(self) -> None:
        """The same once more; stays at the end if it was there. Before it is shown there is nothing to do."""
        rows = self.rows
        if self._opened is None:
            return
        at_end = rows.chosen is None or rows.chosen is rows.rows[-1]
        rows.replace(numbered(self._again()))
        if at_end and self._follows:
            rows.action_last()


class ProposalDialog(Dialog):
    """A proposal in full; `x` changes between what it means and its very bytes."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("x", "bytes", "Bytes")]

    def __init__(self, title: str, keys: str, seen: SeenProposal, texts: KnownTexts) -> None:
        super().__init__(title, keys)
        self.shown = ShownProposal.of(seen)
        self._texts = texts
        self._as_bytes = False
        self._told = "pending"

    @property
    def seen(self) -> SeenProposal:
        return self.shown.seen

    def began(self) -> None:
        super().began()
        self.set_interval(_LOOK_SECONDS, self._look)

    def fill(self) -> None:
        lines = as_bytes(self.seen) if self._as_bytes else in_full(self.seen, self._texts)
        self.rows.replace(numbered(lines))

    def action_bytes(self) -> None:
        self._as_bytes = not self._as_bytes
        self.fill()

    def _look(self) -> None:
        if self.seen.status != self._told:
            self._told = self.seen.status
            self.tell(f"too late: {state_of(self.seen)[0]} · Esc close")
            self.fill()

    def is_ready(self, *, read_to_end: bool = True) -> bool:
        """Whether a decision counts now; says why if not. A no needs no reading to the end."""
        if self.seen.status != "pending":
            self.tell(f"too late: {state_of(self.seen)[0]} · Esc close")
            return False
        if not self.has_settled:
            self.tell("read it first: this key works in a moment")
            return False
        if read_to_end and not self.rows.has_shown_all:
            self.tell("more below: press End, then y · Esc close")
            return False
        return True


class ApproveDialog(ProposalDialog):
    """Approve once? `y` does it; the answer is the `Shown` that was before one's eyes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "approve", "Approve once"),
        Binding("n", "leave", "Cancel"),
    ]

    def __init__(self, seen: SeenProposal, texts: KnownTexts) -> None:
        title = f"Approve once: {title_of(seen)} on {host_of(seen)}?"
        super().__init__(title, "y approve exactly this, once · n cancel · x raw bytes", seen, texts)

    def action_approve(self) -> None:
        if self.is_ready():
            self.dismiss(self.shown)


@dataclass(frozen=True, slots=True)
class RejectChoice:
    """A no, with its reason."""

    shown: ShownProposal
    reason: str
    explanation: str | None


class RejectDialog(ProposalDialog):
    """Reject with a reason: choose one, add words if you like, Enter sends it."""

    def __init__(self, seen: SeenProposal, texts: KnownTexts) -> None:
        title = f"Reject: {title_of(seen)} from {seen.proposer}"
        super().__init__(
            title, "↑↓ choose a reason · Tab add a comment · Enter reject · Esc cancel", seen, texts
        )

    def compose_below(self) -> ComposeResult:
        yield Rows(id="dialog-widths", empty="")
        yield Input(placeholder="Comment (optional)", id="dialog-words")

    def began(self) -> None:
        super().began()
        self._reasons.replace(PaneRow(reason, (line(reason),)) for reason in REJECT_REASONS)
        self.set_focus(self._reasons)

    @property
    def _reasons(self) -> Rows:
        return self.query_one("#dialog-widths", Rows)

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
        chosen = self._reasons.chosen
        words = self.query_one("#dialog-words", Input).value.strip()
        self.dismiss(RejectChoice(self.shown, "disagree" if chosen is None else chosen.key, words or None))


@dataclass(frozen=True, slots=True)
class GrantChoice:
    """A yes, and the right that its proposer gets with it."""

    shown: ShownProposal
    capability: dict[str, Json]


class GrantDialog(ProposalDialog):
    """Approve and grant: choose how wide, see the capability that it creates, `y` does both."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1", "width(0)", "Exact"),
        Binding("2", "width(1)", "Tool"),
        Binding("3", "width(2)", "Pattern"),
        Binding("e", "edit", "Edit"),
        Binding("y", "grant", "Approve and grant"),
        Binding("n", "leave", "Cancel"),
    ]

    def __init__(self, seen: SeenProposal, texts: KnownTexts, space: JoinedSpace) -> None:
        title = f"Approve {title_of(seen)} and let {seen.proposer} do it without asking from now on?"
        keys = "1 2 3 choose the scope · e edit the pattern · y approve and grant · n cancel"
        super().__init__(title, keys, seen, texts)
        self._space = space
        self._widths = widths_of(space, seen)
        self._chosen = next((n for n, each in enumerate(self._widths) if each.capability is not None), 0)
        self._edited: str | None = None

    def compose_below(self) -> ComposeResult:
        yield Rows(id="dialog-widths", empty="")
        yield Input(id="dialog-words", disabled=True)

    def began(self) -> None:
        super().began()
        self._show_widths()

    @property
    def width(self) -> GrantScope:
        return self._widths[self._chosen]

    def _show_widths(self) -> None:
        rows: list[PaneRow] = []
        for number, each in enumerate(self._widths):
            mark = "(•)" if number == self._chosen else "( )"
            first = line((f"{mark} {number + 1} {each.name}: ", "strong"), each.words)
            lines = [first]
            if number == self._chosen:
                then: Part = (
                    (each.why_not, "bad") if each.capability is None else (self._json(number), "note")
                )
                lines.append(line("      ", then))
            rows.append(PaneRow(each.name, tuple(lines), hanging=6))
        self.query_one("#dialog-widths", Rows).replace(rows)
        field = self.query_one("#dialog-words", Input)
        if field.disabled:
            field.value = printable(self._json(self._chosen))

    def _json(self, number: int) -> str:
        each = self._widths[number]
        if each.name == "pattern" and self._edited is not None:
            return self._edited
        return "" if each.capability is None else each.as_json()

    def action_width(self, number: int) -> None:
        self._chosen = number
        self._show_widths()

    def on_rows_opened(self, event: Rows.Opened) -> None:
        event.stop()
        for number, each in enumerate(self._widths):
            if each.name == event.key:
                self.action_width(number)

    def action_edit(self) -> None:
        """Type a pattern; it begins with the one that is proposed."""
        self._chosen = 2
        field = self.query_one("#dialog-words", Input)
        field.disabled = False
        field.value = printable(self._json(2) or self._json(1))
        field.focus()
        self.tell("Enter use this pattern · Tab discard")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        try:
            read_width(self._space, self.seen, event.value)
        except MootError as fault:
            self.tell(f"✗ {fault}")
            return
        self._edited = event.value
        event.input.disabled = True
        self._chosen = 2
        self._show_widths()
        self.rows.focus()
        self.tell(self._keys)

    def action_grant(self) -> None:
        if not self.is_ready():
            return
        text = self._json(self._chosen)
        try:
            capability = read_width(self._space, self.seen, text) if text else None
        except MootError as fault:
            self.tell(f"✗ {fault}")
            return
        if capability is None:
            self.tell(f"✗ {self.width.why_not}: choose another scope")
            return
        self.dismiss(GrantChoice(self.shown, capability))
