"""Everything that is said in the space, as it is said; the latest of it, within bounds that are named."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import ClassVar, Final

from textual.binding import Binding, BindingType
from textual.message import Message

from moot.participant import MissedMessages
from moot.protocol.envelope import Envelope
from moot.tui.envelope_view import said_of
from moot.tui.row_layout import Line, PaneRow, Tone
from moot.tui.rows import ROWS_KEPT, Rows
from moot.tui.timeline_filter import TimelineFilter

# Envelopes that can be opened again: the latest of them, and no more than so many bytes.
ENVELOPES_KEPT: Final = ROWS_KEPT
BYTES_KEPT: Final = 64 << 20
# Of one message so much stands in the timeline; Enter shows all of it.
_MESSAGE_LINES: Final = 12
_MESSAGE_CHARS: Final = 2_000

# A sign and a tone for what a line is, so that nothing is told by colour alone.
_SIGNS: Final[Mapping[str, tuple[str, Tone]]] = {
    "chat": ("│", "text"),
    "mcp/proposal": ("?", "warn"),
    "mcp/request": ("→", "note"),
    "mcp/response": ("←", "note"),
    "mcp/reject": ("✗", "bad"),
    "mcp/withdraw": ("↶", "dim"),
    "moot/approve": ("✓", "good"),
    "reasoning/start": ("∴", "dim"),
    "reasoning/thought": ("∴", "dim"),
    "reasoning/conclusion": ("∴", "good"),
    "reasoning/cancel": ("■", "bad"),
    "system/error": ("!", "bad"),
    "system/presence": ("·", "dim"),
    "capability/grant": ("+", "good"),
    "capability/revoke": ("-", "bad"),
    "space/kick": ("-", "bad"),
    "space/invite": ("+", "good"),
}


def sign_of(envelope: Envelope) -> tuple[str, Tone]:
    """What kind of thing was said, as one character."""
    if envelope.kind == "mcp/request" and envelope.correlation_id:
        return "✓", "good"
    if envelope.kind.startswith("stream/"):
        return "≈", "note"
    if envelope.kind.startswith("participant/"):
        return "◦", "warn"
    if envelope.kind.startswith("trust/"):
        return "§", "warn"
    return _SIGNS.get(envelope.kind, ("·", "dim"))


def row_of(envelope: Envelope, *, me: str, verbose: bool) -> PaneRow | None:
    """The row for an envelope; None for what only programs care for."""
    said = said_of(envelope, verbose=verbose)
    if said is None:
        return None
    sign, tone = sign_of(envelope)
    words = said.words
    is_cut = len(words) > _MESSAGE_CHARS
    first, *rest = words[:_MESSAGE_CHARS].split("\n")
    if len(rest) >= _MESSAGE_LINES:
        rest, is_cut = rest[: _MESSAGE_LINES - 1], True
    named: Tone = "me" if envelope.sender == me else "name"
    quiet: Tone = "dim" if tone == "dim" else "text"
    lines: list[Line] = [
        ((f"{said.when} ", "dim"), (f"{sign} ", tone), (said.sender, named), (said.to, "dim"), (first, quiet))
    ]
    lines += [((" " * 11, "text"), (each, quiet)) for each in rest]
    if is_cut:
        lines.append(((" " * 11, "text"), ("… Enter shows it in full", "dim")))
    return PaneRow(envelope.id, tuple(lines), hanging=11)


class Timeline(Rows):
    """All that was said; Enter opens an envelope, `c` goes to what it refers to, `e` to what refers to it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "cause", "Cause"),
        Binding("e", "effect", "Effect"),
        Binding("f", "filter", "Filter"),
    ]

    class FilterWanted(Message):
        """Somebody wants to type a filter."""

    class NotFound(Message):
        """There is nothing to jump to."""

        def __init__(self, words: str) -> None:
            super().__init__()
            self.words = words

    def __init__(self, *, id: str = "timeline", verbose: bool = False, kept: int = ROWS_KEPT) -> None:
        super().__init__(id=id, empty="No messages yet", follows=True, kept=kept)
        self.me = ""
        self.filter = TimelineFilter()
        self._verbose = verbose
        self._items: deque[Envelope | PaneRow] = deque()
        self._envelopes: dict[str, Envelope] = {}
        self._bytes = 0
        self._notes = 0

    # Filling

    def hear(self, items: Iterable[Envelope | MissedMessages]) -> None:
        """Show what has come."""
        rows: list[PaneRow] = []
        for item in items:
            if isinstance(item, MissedMessages):
                row = self._gap_row(item)
                self._keep(row)
                rows.append(row)
                continue
            self._keep(item)
            shown = row_of(item, me=self.me, verbose=self._verbose)
            if shown is not None and self.filter.wants(item):
                rows.append(shown)
        self.extend(rows)

    def note(self, *lines: Line) -> None:
        """Words of the terminal itself, which only we see."""
        row = self._note_row(lines)
        self._keep(row)
        self.extend([row])

    def find(self, id: str) -> Envelope | None:
        """An envelope of the latest ones, by its id or the beginning of it."""
        found = self._envelopes.get(id)
        if found is not None or len(id) < 4:
            return found
        like = [envelope for key, envelope in self._envelopes.items() if key.startswith(id)]
        return like[0] if len(like) == 1 else None

    def envelopes(self) -> list[Envelope]:
        return [item for item in self._items if isinstance(item, Envelope)]

    def set_filter(self, wanted: TimelineFilter) -> None:
        """Show only what is wanted, of what was and what comes."""
        self.filter = wanted
        rows: list[PaneRow] = []
        for item in self._items:
            if isinstance(item, PaneRow):
                rows.append(item)
            elif wanted.wants(item):
                shown = row_of(item, me=self.me, verbose=self._verbose)
                if shown is not None:
                    rows.append(shown)
        self._at_end = True
        self.replace(rows)

    def _keep(self, item: Envelope | PaneRow) -> None:
        self._items.append(item)
        if isinstance(item, Envelope):
            self._envelopes[item.id] = item
            self._bytes += len(item.raw)
        while len(self._items) > ENVELOPES_KEPT or (self._bytes > BYTES_KEPT and len(self._items) > 1):
            gone = self._items.popleft()
            if isinstance(gone, Envelope):
                self._bytes -= len(gone.raw)
                if self._envelopes.get(gone.id) is gone:
                    del self._envelopes[gone.id]

    def _gap_row(self, gap: MissedMessages) -> PaneRow:
        missed = "some messages" if gap.missed is None else f"{gap.missed} messages"
        why = "the connection was lost" if gap.why == "reconnected" else "too many at once"
        return self._note_row([((f"╌╌ {missed} missed: {why} ╌╌", "warn"),)])

    def _note_row(self, lines: Iterable[Line]) -> PaneRow:
        self._notes += 1
        # No envelope has such an id: a line feed is a control character.
        return PaneRow(f"note\n{self._notes}", tuple(lines), hanging=2)

    # Jumping

    def action_cause(self) -> None:
        """To what the chosen envelope refers to."""
        envelope = self._chosen_envelope()
        if envelope is None or not envelope.correlation_id:
            self.post_message(self.NotFound("This message refers to no other message"))
        elif not any(self.choose(id) for id in envelope.correlation_id):
            self.post_message(
                self.NotFound("The message it refers to is not shown: too old, or filtered out")
            )

    def action_effect(self) -> None:
        """To the first that refers to the chosen envelope."""
        envelope = self._chosen_envelope()
        for each in self.envelopes() if envelope is not None else ():
            if envelope is not None and envelope.id in each.correlation_id and self.choose(each.id):
                return
        self.post_message(self.NotFound("No message shown refers to this one"))

    def _chosen_envelope(self) -> Envelope | None:
        return None if self.chosen is None else self._envelopes.get(self.chosen.key)

    def action_filter(self) -> None:
        self.post_message(self.FilterWanted())
