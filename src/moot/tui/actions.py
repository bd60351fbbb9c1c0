"""What keys and commands do with what is chosen: decide, stop, acknowledge, look at it in full.

Whatever waits for an answer runs in a task of its own; what came of it is told in the timeline, and what went
wrong ends nothing.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Coroutine, Sequence
from typing import Any, Final

from textual.app import App
from textual.widget import Widget

from moot.errors import MootError, UsageError
from moot.participant import JoinedSpace, SeenProposal
from moot.tui import bound_decisions
from moot.tui.detail_view import envelope_lines
from moot.tui.dialogs import (
    ApproveDialog,
    DetailDialog,
    GrantChoice,
    GrantDialog,
    RejectChoice,
    RejectDialog,
    ShownProposal,
)
from moot.tui.input_line import InputLine
from moot.tui.operations.message_operations import stop_thinking
from moot.tui.operations.operation import ClientContext
from moot.tui.panes import ApprovalPane, ChatPane, ReasoningPane, StreamPane, whole_trace
from moot.tui.refusal_text import explained, is_refusal
from moot.tui.row_layout import Line, line
from moot.tui.rows import Rows
from moot.tui.terminal_escape import printable
from moot.tui.timeline import Timeline
from moot.tui.unseen_messages import UnseenMessages

# How often what was heard is shown.
SHOW_SECONDS: Final = 0.05


class Actions(App[int]):
    """The deeds of the terminal; `MootApp` adds the screen."""

    space: JoinedSpace
    seat: ClientContext
    heard: UnseenMessages
    timeline: Timeline
    approvals: ApprovalPane
    thoughts: ReasoningPane
    streams: StreamPane
    chats: ChatPane
    prompt: InputLine

    def __init__(self, group: asyncio.TaskGroup) -> None:
        super().__init__()
        self._group = group
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stale = True

    def show_heard(self) -> None:
        """Show what has come since the last time."""
        raise NotImplementedError

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something beside the rest, until we leave."""
        task = self._group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def end_tasks(self) -> None:
        """What still waits for an answer waits no longer."""
        for task in tuple(self._tasks):
            task.cancel()

    def note(self, *lines: Line) -> None:
        """Words of our own, in the timeline."""
        self.timeline.note(*lines)

    async def _catch_up(self) -> None:
        """What led to an answer stands above it."""
        await asyncio.sleep(SHOW_SECONDS)
        self.show_heard()

    def _tell(self, words: Sequence[str], before: str = "") -> None:
        head = [line(("» ", "note"), (before, "dim"))] if before else []
        self.note(*head, *(line("  ", each) for each in words))

    async def _decided(self, work: Coroutine[Any, Any, list[str]]) -> None:
        try:
            words = await work
            await self._catch_up()
            self._tell(words)
        except MootError as fault:
            self.note(line(("! ", "bad"), str(fault)))
        self._is_stale = True

    # Deciding

    def action_decide(self, how: str) -> None:
        chosen = self.approvals.chosen
        seen = None if chosen is None else self.space.proposals.get(chosen.key)
        if seen is None:
            return
        match how:
            case "approve":
                self._ask_to_approve(seen, ())
            case "reject":
                self.push_screen(RejectDialog(seen, self.heard.texts), self._rejected)
            case "grant":
                self.push_screen(GrantDialog(seen, self.heard.texts, self.space), self._granted)
            case "vote":
                self.begin(self._decided(bound_decisions.vote(self.seat, ShownProposal.of(seen))))
            case _:
                self.action_write(f"/withdraw {seen.id}")

    def _ask_to_approve(self, seen: SeenProposal, to: Sequence[str]) -> None:
        def decided(shown: ShownProposal | None) -> None:
            if shown is not None:
                self.begin(self._decided(bound_decisions.approve(self.seat, shown, to=to)))

        self.push_screen(ApproveDialog(seen, self.heard.texts), decided)

    def _rejected(self, decided: RejectChoice | None) -> None:
        if decided is not None:
            self.begin(self._decided(bound_decisions.reject(self.seat, decided)))

    def _granted(self, decided: GrantChoice | None) -> None:
        if decided is not None:
            self.begin(self._decided(bound_decisions.approve_and_grant(self.seat, decided)))

    def action_stop_thinking(self) -> None:
        if self.thoughts.chosen is not None:
            self.begin(self._decided(self._stop(self.thoughts.chosen.key)))

    async def _stop(self, id: str) -> list[str]:
        return list((await stop_thinking(self.seat, id, "superseded")).lines)

    def action_acknowledge(self) -> None:
        if self.chats.chosen is not None:
            self.begin(self._decided(self._acknowledge(self.chats.chosen.key)))

    async def _acknowledge(self, id: str) -> list[str]:
        chat = next((each for each in self.space.chats.pending() if each.id == id), None)
        await self.space.chats.acknowledge(id if chat is None else chat, "read")
        return []

    def action_write(self, command: str) -> None:
        """Write a command about what is chosen into the line; Enter carries it out."""
        pane = self.focused
        chosen = pane.chosen if isinstance(pane, Rows) else None
        if "{}" in command:
            if chosen is None:
                return
            if printable(chosen.key) != chosen.key:
                self.note(line(("! this name contains control characters: type it yourself", "bad")))
                return
            command = command.replace("{}", shlex.quote(chosen.key))
        self.go_to_line(command)

    def go_to_line(self, text: str | None = None) -> None:
        """Type there from now on; `text` stands in it instead of what was."""
        if text is not None:
            self.prompt.value = text
            self.prompt.cursor_position = len(text)
        self.go_to(self.prompt)

    def go_to(self, widget: Widget) -> None:
        """Move the focus now: `focus()` would do it later, and the next key might come before that."""
        main = self.screen_stack[0]
        main.set_focus(widget)
        if main.focused is not widget:
            # It is about to be shown, and cannot have the focus before it is.
            widget.focus()

    # Looking

    def _open_envelope(self, key: str) -> None:
        envelope = self.timeline.find(key)
        if envelope is not None:
            self.push_screen(
                DetailDialog(f"{envelope.kind} from {envelope.sender}", lambda: envelope_lines(envelope))
            )

    def _look_at_thoughts(self, id: str) -> None:
        sequence = self.space.contexts.get(id)
        if sequence is not None:
            title = f"Reasoning of {sequence.owner}: {sequence.message}"
            self.push_screen(DetailDialog(title, lambda: whole_trace(sequence), follows=True))

    def ask_to_approve(self, named: str, to: str | None) -> None:
        seen = self.seat.proposal(named)
        bound_decisions.check_unchanged(self.space, ShownProposal.of(seen))
        self._ask_to_approve(seen, (to,) if to else ())

    def look_at(self, named: str) -> None:
        envelope = self.timeline.find(named)
        if envelope is None:
            raise UsageError(f"no recent message {named}: type more of its id")
        self._open_envelope(envelope.id)

    def look_at_stream(self, named: str) -> None:
        info = self.streams.find(named)
        if info is None:
            raise UsageError(f"unknown stream {named}: /streams lists them")
        title = f"stream {info.id} of {info.owner}"
        self.push_screen(DetailDialog(title, lambda: self.streams.tail(info.id), follows=True))

    def why(self, named: str | None) -> Sequence[str]:
        found = [each for each in self.timeline.envelopes() if is_refusal(each)]
        if named is not None:
            found = [
                each for each in found if any(id.startswith(named) for id in (each.id, *each.correlation_id))
            ]
        if not found:
            return ["no message was refused" if named is None else f"no recent refusal of {named}"]
        about = next((self.timeline.find(id) for id in found[-1].correlation_id), None)
        return explained(found[-1], about)
