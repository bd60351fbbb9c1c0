"""The latest messages of the space, in order, up to a maximum number and size.

Until somebody filters, the questions that programs ask by themselves are hidden. That goes by the method, and
for rules by who is asked, never by a mark of the sender: every other call is shown, and so is every answer
that failed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, Final

from textual.binding import Binding, BindingType
from textual.message import Message

from moot.operations.text.envelope_view import view_of
from moot.participant import JoinedSpace, MissedMessages
from moot.protocol.envelope import Envelope
from moot.tui.row_layout import Line, PaneRow, Tone
from moot.tui.rows import MAX_ROWS, Rows
from moot.tui.timeline_filter import TimelineFilter

_QUESTIONS: Final = frozenset(
    {"tools/list", "resources/list", "resources/templates/list", "prompts/list", "ping"}
)
# The tools of an approver that change nothing; consoles call them to show the rules.
_RULE_QUESTIONS: Final = frozenset(
    {"trust_rules", "trust_suggestions", "trust_report", "trust_reviews", "trust_explain"}
)

# Whether the space lets a member keep rules.
KeepsRules = Callable[[str], bool]


def is_background(envelope: Envelope, known: Mapping[str, Envelope], keeps_rules: KeepsRules) -> bool:
    """Whether a program asks this by itself, or it is the answer to one that is `known` by its id."""
    if envelope.kind == "mcp/request":
        return _is_question(envelope, keeps_rules)
    if envelope.kind != "mcp/response" or _has_failed(envelope):
        return False
    causes = [known[id] for id in envelope.correlation_id if id in known]
    return bool(causes) and all(_is_question(each, keeps_rules) for each in causes)


def _is_question(envelope: Envelope, keeps_rules: KeepsRules) -> bool:
    # One that refers to something approves it: a decision.
    if envelope.kind != "mcp/request" or envelope.correlation_id:
        return False
    method = envelope.payload.get("method")
    if method in _QUESTIONS:
        return True
    params = envelope.payload.get("params")
    name = params.get("name") if isinstance(params, dict) else None
    is_rule_question = method == "tools/call" and name in _RULE_QUESTIONS
    return is_rule_question and bool(envelope.to) and all(keeps_rules(each) for each in envelope.to)


def _has_failed(envelope: Envelope) -> bool:
    result = envelope.payload.get("result")
    return "error" in envelope.payload or (isinstance(result, dict) and result.get("isError") is True)


# How many envelopes are kept to be opened, and their total size.
MAX_ENVELOPES: Final = MAX_ROWS
MAX_BYTES: Final = 64 << 20
# How much of one message the timeline shows; Enter shows all of it.
_MAX_LINES: Final = 12
_MAX_CHARS: Final = 2_000

# A sign as well as a tone for each kind, so that colour is never the only difference.
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
    """The kind of a message as one character, with its tone."""
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
    """The row for an envelope; None for what only programs need."""
    view = view_of(envelope, verbose=verbose)
    if view is None:
        return None
    sign, tone = sign_of(envelope)
    text = view.text
    is_cut = len(text) > _MAX_CHARS
    first, *rest = text[:_MAX_CHARS].split("\n")
    if len(rest) >= _MAX_LINES:
        rest, is_cut = rest[: _MAX_LINES - 1], True
    named: Tone = "me" if envelope.sender == me else "name"
    quiet: Tone = "dim" if tone == "dim" else "text"
    lines: list[Line] = [
        ((f"{view.when} ", "dim"), (f"{sign} ", tone), (view.sender, named), (view.to, "dim"), (first, quiet))
    ]
    lines += [((" " * 11, "text"), (each, quiet)) for each in rest]
    if is_cut:
        lines.append(((" " * 11, "text"), ("… Enter shows it in full", "dim")))
    return PaneRow(envelope.id, tuple(lines), indent=11)


def keeps_rules(space: JoinedSpace, member: str) -> bool:
    """Whether a member may change rules, so that what it is asked and answers is about those."""
    found = space.roster.get(member)
    given = [] if found is None else [each.original for each in found.capabilities]
    kinds = [each.get("kind") if isinstance(each, dict) else each for each in given]
    return "trust/*" in kinds or "trust/rule" in kinds


class Timeline(Rows):
    """Enter opens a message, `c` goes to the one it refers to, `e` to the first that refers to it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "cause", "Cause"),
        Binding("e", "effect", "Effect"),
        Binding("f", "filter", "Filter"),
    ]

    class FilterRequested(Message):
        """A person wants to type a filter."""

    class NotFound(Message):
        """There is nothing to jump to."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self, *, verbose: bool = False) -> None:
        super().__init__(id="timeline", empty="No messages yet", follows=True, max_rows=MAX_ROWS)
        self.me = ""
        self.filter = TimelineFilter()
        self.keeps_rules: KeepsRules = lambda _member: False
        self._verbose = verbose
        self._items: deque[Envelope | PaneRow] = deque()
        self._envelopes: dict[str, Envelope] = {}
        self._bytes = 0
        self._notes = 0

    # Filling

    def add_messages(self, items: Iterable[Envelope | MissedMessages]) -> None:
        """Add received messages at the end."""
        rows: list[PaneRow] = []
        for item in items:
            if isinstance(item, MissedMessages):
                row = self._gap_row(item)
                self._keep(row)
                rows.append(row)
                continue
            self._keep(item)
            if (shown := self._shown(item)) is not None:
                rows.append(shown)
        self.extend(rows)

    def note(self, *lines: Line) -> None:
        """Add lines of the terminal itself, which only this person sees."""
        row = self._note_row(lines)
        self._keep(row)
        self.extend([row])

    def find(self, id: str) -> Envelope | None:
        """A recent envelope by its id or the start of it."""
        found = self._envelopes.get(id)
        if found is not None or len(id) < 4:
            return found
        like = [envelope for key, envelope in self._envelopes.items() if key.startswith(id)]
        return like[0] if len(like) == 1 else None

    def envelopes(self) -> list[Envelope]:
        return [item for item in self._items if isinstance(item, Envelope)]

    def set_filter(self, filter: TimelineFilter) -> None:
        """Show only the messages that match, old and new."""
        self.filter = filter
        rows: list[PaneRow] = []
        for item in self._items:
            if isinstance(item, PaneRow):
                rows.append(item)
            elif (shown := self._shown(item)) is not None:
                rows.append(shown)
        self._at_end = True
        self.replace(rows)

    def _shown(self, envelope: Envelope) -> PaneRow | None:
        if not self.filter.matches(envelope):
            return None
        is_hidden = not self._verbose and not self.filter
        if is_hidden and is_background(envelope, self._envelopes, self.keeps_rules):
            return None
        return row_of(envelope, me=self.me, verbose=self._verbose)

    def _keep(self, item: Envelope | PaneRow) -> None:
        self._items.append(item)
        if isinstance(item, Envelope):
            self._envelopes[item.id] = item
            self._bytes += len(item.raw)
        while len(self._items) > MAX_ENVELOPES or (self._bytes > MAX_BYTES and len(self._items) > 1):
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
        return PaneRow(f"note\n{self._notes}", tuple(lines), indent=2)

    # Jumping

    def action_cause(self) -> None:
        """Select the message that the selected one refers to."""
        envelope = self._selected_envelope()
        if envelope is None or not envelope.correlation_id:
            self.post_message(self.NotFound("This message refers to no other message"))
        elif not any(self.select(id) for id in envelope.correlation_id):
            self.post_message(
                self.NotFound("The message it refers to is not shown: too old, or filtered out")
            )

    def action_effect(self) -> None:
        """Select the first message that refers to the selected one."""
        envelope = self._selected_envelope()
        for each in self.envelopes() if envelope is not None else ():
            if envelope is not None and envelope.id in each.correlation_id and self.select(each.id):
                return
        self.post_message(self.NotFound("No message shown refers to this one"))

    def _selected_envelope(self) -> Envelope | None:
        return None if self.selected is None else self._envelopes.get(self.selected.key)

    def action_filter(self) -> None:
        self.post_message(self.FilterRequested())
