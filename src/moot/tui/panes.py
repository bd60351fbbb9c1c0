"""The panes beside the timeline: approvals, people, thoughts, streams, and chats to be acknowledged."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import ClassVar, Final

from textual.binding import Binding, BindingType

from moot.participant import Chunk, JoinedSpace, MissedMessages, ReasoningSequence, StreamInfo
from moot.tui.capability_text import in_words
from moot.tui.envelope_view import clock
from moot.tui.operations.operation import ClientContext, short
from moot.tui.proposal_lines import summary
from moot.tui.row_layout import Line, PaneRow, Part, Tone, line
from moot.tui.rows import Rows

# Of the text of a stream so much is kept for looking at it again.
STREAM_LINES: Final = 2_000
STREAM_LINE_CHARS: Final = 4_000
# How much of a stream, of a sequence and of a member's rights stands in the pane; Enter shows the rest.
_TAIL: Final = 6
_THOUGHTS: Final = 8
_RIGHTS: Final = 4


class ApprovalPane(Rows):
    """Open proposals, oldest first. No key here approves: they open a dialog that asks."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "app.decide('approve')", "Approve once"),
        Binding("r", "app.decide('reject')", "Reject"),
        Binding("g", "app.decide('grant')", "Approve and grant"),
        Binding("v", "app.decide('vote')", "Vote"),
        Binding("w", "app.decide('withdraw')", "Withdraw", show=False),
    ]

    def __init__(self) -> None:
        super().__init__(id="approvals", empty="No pending proposals")

    def show(self, seat: ClientContext) -> int:
        """Fill it; how many wait."""
        found = seat.space.proposals.open()
        self.replace(PaneRow(seen.id, summary(seen, seat.number(seen.id)), hanging=3) for seen in found)
        return len(found)


class MemberPane(Rows):
    """Who is here and what they may do. The keys write a command; Enter carries it out."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p", "app.write('/pause {} ')", "Pause"),
        Binding("u", "app.write('/resume {}')", "Resume"),
        Binding("s", "app.write('/status {}')", "Status"),
        Binding("t", "app.write('/tools {}')", "Tools"),
        Binding("m", "app.write('/to {}')", "Address"),
        Binding("plus", "app.write('/grant {} ')", "Grant", show=False),
        Binding("minus", "app.write('/revoke {} ')", "Revoke", show=False),
        Binding("x", "app.write('/kick {} ')", "Kick"),
        Binding("S", "app.write('/shutdown {} ')", "Shutdown"),
        Binding("n", "app.write('/invite ')", "Invite"),
    ]

    def __init__(self) -> None:
        super().__init__(id="people", empty="Nobody is here")
        self.paused: dict[str, str] = {}

    def show(self, space: JoinedSpace) -> int:
        own = [each.original for each in space.rights.capabilities]
        rows = [PaneRow(space.me, tuple(self._lines(space.me, own, "you")))]
        for member in sorted(space.roster.values(), key=lambda each: each.id):
            rights = [each.original for each in member.capabilities]
            other = "" if member.name == member.id else f"({member.name})"
            rows.append(PaneRow(member.id, tuple(self._lines(member.id, rights, other))))
        self.replace(rows)
        return len(rows)

    def _lines(self, id: str, rights: list[object], note: str) -> list[Line]:
        tone: Tone = "me" if note == "you" else "name"
        head: list[Part] = [("● ", "good"), (id, tone), (f"  {note}" if note else "", "dim")]
        if id in self.paused:
            head.append((f"  paused by {self.paused[id]}", "warn"))
        words = [in_words(each) for each in rights]
        lines: list[Line] = [line(*head)]
        lines += [line(("    may ", "dim"), each) for each in words[:_RIGHTS]]
        if len(words) > _RIGHTS:
            lines.append(line((f"    {len(words) - _RIGHTS} more: Enter", "dim")))
        return lines if words else [*lines, line(("    no permissions visible to you", "dim"))]

    def hear(self, kind: str, sender: str, to: tuple[str, ...]) -> None:
        """Pauses and resumes; whom one without addressees means is everybody else."""
        if kind == "participant/pause":
            self.paused |= dict.fromkeys(to, sender)
        elif kind == "participant/resume":
            for id in to or tuple(self.paused):
                self.paused.pop(id, None)


class ReasoningPane(Rows):
    """Who thinks about what, as it grows; `s` asks them to stop."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("s", "app.stop_thinking", "Stop")]

    def __init__(self) -> None:
        super().__init__(id="reasoning", empty="Nobody is sharing reasoning")

    def show(self, space: JoinedSpace) -> int:
        found = list(space.contexts)
        found.sort(key=lambda each: each.state != "active")
        self.replace(PaneRow(each.id, tuple(_thought_lines(each, _THOUGHTS)), hanging=6) for each in found)
        return sum(each.state == "active" for each in found)


_STATES: Final[Mapping[str, tuple[str, Tone]]] = {
    "active": ("∴ reasoning", "warn"),
    "concluded": ("✓ concluded", "good"),
    "cancelled": ("■ stopped", "bad"),
}


def _thought_lines(sequence: ReasoningSequence, most: int) -> list[Line]:
    words, tone = _STATES[sequence.state]
    lines: list[Line] = [
        line((f"{words} ", tone), (sequence.owner, "name"), f": {sequence.message}"),
    ]
    thoughts = sequence.thoughts()
    if len(thoughts) > most:
        lines.append(line((f"    … {len(thoughts) - most} earlier: Enter shows them", "dim")))
    lines += [line(("    ∴ ", "dim"), each) for each in thoughts[-most:]]
    if sequence.conclusion is not None:
        lines.append(line(("    ✓ ", "good"), sequence.conclusion))
    if sequence.state == "cancelled":
        lines.append(line((f"    stopped by {sequence.cancelled_by}: {sequence.reason or ''}", "dim")))
    return lines


def whole_trace(sequence: ReasoningSequence) -> list[Line]:
    """All of a sequence that is kept."""
    return _thought_lines(sequence, len(sequence.items) + 1)


class StreamPane(Rows):
    """The open streams and the end of what they said."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "app.write('/open ')", "Open"),
        Binding("w", "app.write('/write {} ')", "Write"),
        Binding("x", "app.write('/close {}')", "Close"),
    ]

    def __init__(self) -> None:
        super().__init__(id="streams", empty="No open streams")
        self._tails: dict[str, deque[Line]] = {}
        self._infos: dict[str, StreamInfo] = {}

    def opened(self, info: StreamInfo) -> None:
        self._infos[info.id] = info
        self._tails.setdefault(info.id, deque(maxlen=STREAM_LINES))
        # The latest that ended stay to be looked at; their number is bounded as that of open ones is.
        over = [id for id, each in self._infos.items() if each.closed is not None]
        for id in over[:-10]:
            del self._infos[id], self._tails[id]

    def hear(self, id: str, item: Chunk | MissedMessages) -> None:
        tail = self._tails.get(id)
        if tail is None:
            return
        if isinstance(item, MissedMessages):
            tail.append(line((f"╌╌ {item.missed or 'some'} frames missed ╌╌", "warn")))
        elif item.binary:
            tail.append(line((f"[{len(item.data)} bytes]", "dim")))
        else:
            tail.extend(line(each[:STREAM_LINE_CHARS]) for each in item.text.split("\n"))

    def tail(self, id: str) -> list[Line]:
        return list(self._tails.get(id, ()))

    def find(self, named: str) -> StreamInfo | None:
        like = [info for id, info in self._infos.items() if id.startswith(named)]
        return self._infos.get(named) or (like[0] if len(like) == 1 else None)

    def show(self) -> int:
        rows: list[PaneRow] = []
        for info in self._infos.values():
            state: tuple[str, Tone] = ("≈ ", "note") if info.closed is None else ("■ ", "dim")
            to = ", ".join(info.target or ()) or "all"
            head = line(
                state, (info.id, "strong"), (" of ", "dim"), (info.owner, "name"), (f" to {to}", "dim")
            )
            about = str(info.details.get("description") or info.content_type or "")
            writers = (
                f"writers: {', '.join(info.writers)}" if info.closed is None else f"closed: {info.closed}"
            )
            second = line(("    ", "dim"), about, (f"  {writers}" if about else writers, "dim"))
            tail = [line(("    │ ", "dim"), *each) for each in list(self._tails[info.id])[-_TAIL:]]
            rows.append(PaneRow(info.id, (head, second, *tail), hanging=6))
        self.replace(rows)
        return sum(info.closed is None for info in self._infos.values())


def _short_name(id: str) -> str:
    """Enough of a stream's id to name it by."""
    return id if len(id) <= 20 else f"{id[:15]}…"


class ChatPane(Rows):
    """Chats for us that nobody has acknowledged for us yet."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "app.acknowledge", "Acknowledge"),
        Binding("o", "app.write('/chat --about {} ')", "Reply"),
        Binding("x", "app.write('/cancel {}')", "No reply needed"),
    ]

    def __init__(self) -> None:
        super().__init__(id="chats", empty="No messages to acknowledge", follows=False)

    def show(self, space: JoinedSpace) -> int:
        waiting = space.chats.pending()
        rows: list[PaneRow] = []
        for chat in waiting:
            text = str(chat.payload.get("text"))[:STREAM_LINE_CHARS]
            first, *rest = text.split("\n")[:_TAIL]
            head = line((f"{clock(chat.ts)} ", "dim"), (chat.sender, "name"), (f" [{short(chat.id)}]", "dim"))
            lines = (head, *(line("    ", each) for each in (first, *rest)))
            rows.append(PaneRow(chat.id, lines, hanging=4))
        self.replace(rows)
        return len(waiting)
