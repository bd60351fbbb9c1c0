"""The panes beside the timeline: approvals, members, reasoning, streams, and chats to be acknowledged.

A pane knows nothing of the application: its keys post messages that say what is wanted of which row.
"""

from __future__ import annotations

import shlex
from collections import deque
from collections.abc import Mapping
from typing import ClassVar, Final

from textual.binding import Binding, BindingType
from textual.message import Message

from moot.operations.operation import ClientContext, short_id
from moot.operations.proposal_operations import others_note, split_by_decider
from moot.operations.text.capability_text import in_words
from moot.operations.text.envelope_view import clock
from moot.operations.text.terminal_escape import printable
from moot.participant import Chunk, JoinedSpace, MissedMessages, ReasoningSequence, StreamInfo
from moot.tui.proposal_lines import summary_lines
from moot.tui.row_layout import Line, PaneRow, Part, Tone, line
from moot.tui.rows import Rows

PANES: Final = ("timeline", "approvals", "members", "reasoning", "streams", "chats", "rules")

# How much of a stream is kept.
MAX_STREAM_LINES: Final = 2_000
MAX_LINE_CHARS: Final = 4_000
_MAX_CLOSED_STREAMS: Final = 10
# How much of a stream, of reasoning and of a member's permissions is in the pane; Enter shows the rest.
_TAIL_LINES: Final = 6
_MAX_THOUGHTS: Final = 8
_MAX_PERMISSIONS: Final = 4


class CommandPane(Rows):
    """A pane whose keys write a command about the selected row into the input line; Enter runs it."""

    class CommandRequested(Message):
        """A command should be written into the input line."""

        def __init__(self, command: str) -> None:
            super().__init__()
            self.command = command

    class UnprintableName(Message):
        """The selected row cannot be named in a command: its name contains control characters."""

    def action_write(self, command: str) -> None:
        """Ask for a command in the input line; `{}` stands for the selected row."""
        if "{}" in command:
            if self.selected is None:
                return
            if printable(self.selected.key) != self.selected.key:
                self.post_message(self.UnprintableName())
                return
            command = command.replace("{}", shlex.quote(self.selected.key))
        self.post_message(self.CommandRequested(command))


class ApprovalPane(CommandPane):
    """Pending proposals, oldest first. No key here approves: they open a dialog that asks."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "decide('approve')", "Decide"),
        Binding("r", "decide('reject')", "Reject"),
        Binding("g", "decide('grant')", "Approve and grant"),
        Binding("e", "decide('edit')", "Edit and call"),
        Binding("v", "decide('vote')", "Vote", show=False),
        Binding("w", "write('/withdraw {}')", "Withdraw", show=False),
    ]

    class DecisionRequested(Message):
        """A person wants to approve, reject, grant or vote for a proposal."""

        def __init__(self, proposal: str, decision: str) -> None:
            super().__init__()
            self.proposal = proposal
            self.decision = decision

    def __init__(self) -> None:
        super().__init__(id="approvals", empty="No pending proposals")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that decide are there while there is something to decide."""
        del parameters
        return self.selected is not None if action == "decide" else True

    def action_decide(self, decision: str) -> None:
        if self.selected is not None:
            self.post_message(self.DecisionRequested(self.selected.key, decision))

    def show(self, context: ClientContext) -> int:
        """Fill the pane; returns how many proposals wait for this person.

        Below them: unknown outcomes, and what others can still decide.
        """
        space, proposals = context.space, context.space.proposals
        mine, others = split_by_decider(space, proposals.open())
        self.empty_text = {
            "known": "No pending proposals",
            "asking": "Loading proposals …",
            "not_known": "The gateway has not said what is pending",
            "not_told": "No proposals since you joined. This gateway does not tell of earlier ones",
        }[proposals.knowledge]
        self.replace(
            PaneRow(seen.id, summary_lines(seen, context.number(seen.id), note=note), indent=3)
            for seen, note in (
                *((seen, "") for seen in (*mine, *proposals.unknown_outcomes())),
                *((seen, others_note(space, seen)) for seen in others),
            )
        )
        return len(mine)


class MemberPane(CommandPane):
    """The members and their permissions."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p", "write('/pause {} ')", "Pause"),
        Binding("u", "write('/resume {}')", "Resume"),
        Binding("s", "write('/status {}')", "Status"),
        Binding("t", "write('/tools {}')", "Tools"),
        Binding("m", "write('/to {}')", "Address"),
        Binding("plus", "write('/grant {} ')", "Grant", show=False),
        Binding("minus", "write('/revoke {} ')", "Revoke", show=False),
        Binding("x", "write('/kick {} ')", "Kick"),
        Binding("S", "write('/shutdown {} ')", "Shutdown"),
        Binding("n", "write('/invite ')", "Invite"),
    ]

    def __init__(self) -> None:
        super().__init__(id="members", empty="Nobody is here")
        self.paused: dict[str, str] = {}

    def show(self, space: JoinedSpace) -> int:
        own = [each.original for each in space.rights.capabilities]
        rows = [PaneRow(space.me, tuple(self._lines(space.me, own, "you")))]
        for member in sorted(space.roster.values(), key=lambda each: each.id):
            capabilities = [each.original for each in member.capabilities]
            other = "" if member.name == member.id else f"({member.name})"
            rows.append(PaneRow(member.id, tuple(self._lines(member.id, capabilities, other))))
        self.replace(rows)
        return len(rows)

    def _lines(self, id: str, capabilities: list[object], note: str) -> list[Line]:
        tone: Tone = "me" if note == "you" else "name"
        head: list[Part] = [("● ", "good"), (id, tone), (f"  {note}" if note else "", "dim")]
        if id in self.paused:
            head.append((f"  paused by {self.paused[id]}", "warn"))
        texts = [in_words(each) for each in capabilities]
        lines: list[Line] = [line(*head)]
        lines += [line(("    may ", "dim"), each) for each in texts[:_MAX_PERMISSIONS]]
        if len(texts) > _MAX_PERMISSIONS:
            lines.append(line((f"    {len(texts) - _MAX_PERMISSIONS} more: Enter", "dim")))
        return lines if texts else [*lines, line(("    no permissions visible to you", "dim"))]

    def observe_control(self, kind: str, sender: str, to: tuple[str, ...]) -> None:
        """Note pauses and resumes; one without addressees means everyone else."""
        if kind == "participant/pause":
            self.paused |= dict.fromkeys(to, sender)
        elif kind == "participant/resume":
            for id in to or tuple(self.paused):
                self.paused.pop(id, None)


class ReasoningPane(Rows):
    """The reasoning of members as it grows; `s` asks one to stop."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("s", "stop", "Stop")]

    class StopRequested(Message):
        """A person wants a member to stop reasoning."""

        def __init__(self, sequence: str) -> None:
            super().__init__()
            self.sequence = sequence

    def __init__(self) -> None:
        super().__init__(id="reasoning", empty="Nobody is sharing reasoning")

    def action_stop(self) -> None:
        if self.selected is not None:
            self.post_message(self.StopRequested(self.selected.key))

    def show(self, space: JoinedSpace) -> int:
        found = list(space.contexts)
        found.sort(key=lambda each: each.state != "active")
        self.replace(
            PaneRow(each.id, tuple(_sequence_lines(each, _MAX_THOUGHTS)), indent=6) for each in found
        )
        return sum(each.state == "active" for each in found)


_STATES: Final[Mapping[str, tuple[str, Tone]]] = {
    "active": ("∴ reasoning", "warn"),
    "concluded": ("✓ concluded", "good"),
    "cancelled": ("■ stopped", "bad"),
}


def _sequence_lines(sequence: ReasoningSequence, max_thoughts: int) -> list[Line]:
    label, tone = _STATES[sequence.state]
    lines: list[Line] = [
        line((f"{label} ", tone), (sequence.owner, "name"), f": {sequence.message}"),
    ]
    thoughts = sequence.thoughts()
    if len(thoughts) > max_thoughts:
        lines.append(line((f"    … {len(thoughts) - max_thoughts} earlier: Enter shows them", "dim")))
    lines += [line(("    ∴ ", "dim"), each) for each in thoughts[-max_thoughts:]]
    if sequence.conclusion is not None:
        lines.append(line(("    ✓ ", "good"), sequence.conclusion))
    if sequence.state == "cancelled":
        lines.append(line((f"    stopped by {sequence.cancelled_by}: {sequence.reason or ''}", "dim")))
    return lines


def reasoning_lines(sequence: ReasoningSequence) -> list[Line]:
    """All of a member's reasoning that is kept."""
    return _sequence_lines(sequence, len(sequence.items) + 1)


class StreamPane(CommandPane):
    """The open streams, and the last lines of each."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "write('/open ')", "Open"),
        Binding("w", "write('/write {} ')", "Write"),
        Binding("x", "write('/close {}')", "Close"),
    ]

    def __init__(self) -> None:
        super().__init__(id="streams", empty="No open streams")
        self._tails: dict[str, deque[Line]] = {}
        self._infos: dict[str, StreamInfo] = {}

    def add_stream(self, info: StreamInfo) -> None:
        self._infos[info.id] = info
        self._tails.setdefault(info.id, deque(maxlen=MAX_STREAM_LINES))
        # The latest closed streams stay visible.
        closed = [id for id, each in self._infos.items() if each.closed is not None]
        for id in closed[:-_MAX_CLOSED_STREAMS]:
            del self._infos[id], self._tails[id]

    def add_frame(self, id: str, item: Chunk | MissedMessages) -> None:
        tail = self._tails.get(id)
        if tail is None:
            return
        if isinstance(item, MissedMessages):
            tail.append(line((f"╌╌ {item.missed or 'some'} frames missed ╌╌", "warn")))
        elif item.binary:
            tail.append(line((f"[{len(item.data)} bytes]", "dim")))
        else:
            tail.extend(line(each[:MAX_LINE_CHARS]) for each in item.text.split("\n"))

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
            tail = [line(("    │ ", "dim"), *each) for each in list(self._tails[info.id])[-_TAIL_LINES:]]
            rows.append(PaneRow(info.id, (head, second, *tail), indent=6))
        self.replace(rows)
        return sum(info.closed is None for info in self._infos.values())


class ChatPane(CommandPane):
    """Chat messages for us that we have not acknowledged yet."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "acknowledge", "Acknowledge"),
        Binding("o", "write('/chat --about {} ')", "Reply"),
        Binding("x", "write('/cancel {}')", "No reply needed"),
    ]

    class Acknowledged(Message):
        """A person has read a chat message."""

        def __init__(self, chat: str) -> None:
            super().__init__()
            self.chat = chat

    def __init__(self) -> None:
        super().__init__(id="chats", empty="No messages to acknowledge")

    def action_acknowledge(self) -> None:
        if self.selected is not None:
            self.post_message(self.Acknowledged(self.selected.key))

    def show(self, space: JoinedSpace) -> int:
        waiting = space.chats.pending()
        rows: list[PaneRow] = []
        for chat in waiting:
            text = str(chat.payload.get("text"))[:MAX_LINE_CHARS]
            first, *rest = text.split("\n")[:_TAIL_LINES]
            head = line(
                (f"{clock(chat.ts)} ", "dim"), (chat.sender, "name"), (f" [{short_id(chat.id)}]", "dim")
            )
            lines = (head, *(line("    ", each) for each in (first, *rest)))
            rows.append(PaneRow(chat.id, lines, indent=4))
        self.replace(rows)
        return len(waiting)
