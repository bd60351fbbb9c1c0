"""`moot join` in full screen: messages on the left, pending proposals on the right, the input line below.

One task receives messages and only queues them; a timer shows what was queued a few times a second, so that a
busy space costs no more drawing than a quiet one. Whatever waits for an answer runs in a task of its own, and
its result is shown in the timeline. Text from other members reaches the screen through `row_layout` alone,
which escapes it; it is never read as Textual markup.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Final

from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Input

from moot.errors import MootError, UsageError
from moot.operations.message_operations import note_absent, stop_reasoning
from moot.operations.operation import ClientContext, find_command, split_words
from moot.operations.rule_commands import TrustCommands
from moot.operations.text.terminal_escape import printable
from moot.operations.trust_log import TrustLog
from moot.participant import JoinedSpace, MissedMessages, SeenProposal, StreamInfo
from moot.protocol.envelope import Envelope
from moot.resilience.task_set import BackgroundTasks
from moot.tui import manual
from moot.tui.bars import KeyBar, StatusBar
from moot.tui.commands import call_command, command_table
from moot.tui.completion import Completion, complete
from moot.tui.decision_flow import DecisionFlow
from moot.tui.detail_dialogs import DetailDialogs
from moot.tui.dialog import DetailDialog
from moot.tui.incoming_messages import IncomingMessages
from moot.tui.input_line import InputLine
from moot.tui.name_completion import KnownNames, KnownTools
from moot.tui.pane_set import PaneSet
from moot.tui.panes import PANES, ApprovalPane, ChatPane, CommandPane, ReasoningPane
from moot.tui.row_layout import Line, line
from moot.tui.rows import Rows
from moot.tui.take_back import TakeBack
from moot.tui.theme import DEFAULT_THEME, THEMES, TerminalOptions, shades_of
from moot.tui.timeline import Timeline, keeps_rules
from moot.tui.timeline_filter import read_filter

# How often queued messages are shown, the connection's state is checked, and ages are updated.
_SHOW_SECONDS: Final = 0.05
_STATUS_SECONDS: Final = 0.25
_AGE_SECONDS: Final = 5.0
# Below this width one pane is shown at a time.
WIDE_COLUMNS: Final = 100

EXIT_DISCONNECTED: Final = 5


class MootApp(App[int]):
    """One person in one space: owns the widgets, and passes what keys, commands and messages ask for on."""

    CSS_PATH = "moot.tcss"
    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE_COLUMNS, "-wide")]  # noqa: RUF012  # as Textual declares it
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(f"{number},f{number + 1}", f"app.pane('{name}')", name, show=False)
          for number, name in enumerate(PANES, 1)),
        Binding("escape,i", "app.type", "Type"),
        Binding("slash", "app.type('/')", "Command"),
        Binding("f1,question_mark", "app.help", "Help"),
        Binding("z", "app.take_back", "Take back", show=False),
        Binding("q,ctrl+q", "app.leave", "Quit", show=False),
        Binding("ctrl+c", "app.leave", "Quit", priority=True),
    ]  # fmt: skip

    def __init__(
        self,
        space: JoinedSpace,
        messages: AsyncIterator[Envelope | MissedMessages],
        group: asyncio.TaskGroup,
        context: ClientContext,
        options: TerminalOptions,
    ) -> None:
        super().__init__()
        self.space = space
        self.context = context
        self.title = printable(f"moot {options.space_label}")
        self._options = options
        self._messages = messages
        self._is_stale = True
        self._stale_ticks = 0
        self.background = BackgroundTasks(group)
        self.trust = TrustLog()
        self.panes = panes = PaneSet(verbose=options.verbose)
        self.status_bar, self.key_bar = StatusBar(), KeyBar()
        self.tools = KnownTools(space, self.background.start, self._tools_changed)
        self.names = KnownNames(
            context, self.tools, panes.timeline, self.trust, lambda: self.available_themes
        )
        self.incoming = IncomingMessages(self.tools, self.trust, panes.members)
        self.take_back = TakeBack(self._perform, options.take_back_seconds)
        self.decisions = DecisionFlow(
            context, self.incoming.texts, show=self.push_screen, take_back=self.take_back
        )
        # Whether it is known what was pending at the start, so that the terminal opened there or not.
        self.has_opened = False
        self.details = DetailDialogs(
            space, timeline=panes.timeline, streams=panes.streams, trust=self.trust, show=self.push_screen
        )
        operations = (*TrustCommands(self.trust).operations(), *options.extra_commands)
        self.commands = command_table(self, self.decisions, self.details, operations)
        self.completions = Rows(id="completions", empty="")
        self.completions.can_focus, self.completions.is_always_marked = False, True
        self.input_line = InputLine(self._complete, self.completions)

    # The screen

    def compose(self) -> ComposeResult:
        yield self.status_bar
        yield from self.panes.compose()
        yield self.completions
        yield self.input_line
        yield self.key_bar

    def get_css_variables(self) -> dict[str, str]:
        """Adds two shades between text and background to Textual's variables, whatever the theme."""
        variables = super().get_css_variables()
        return variables | shades_of(variables, is_ansi=self.current_theme.ansi)

    def on_mount(self) -> None:
        for each in THEMES:
            self.register_theme(each)
        theme = self._options.theme
        self.use_theme(theme if theme in self.available_themes else DEFAULT_THEME)
        self.panes.add_titles()
        self.screen.add_class("-main")
        self.panes.timeline.me = self.space.me
        self.panes.timeline.keeps_rules = partial(keeps_rules, self.space)
        self.input_line.focus()
        self.background.start(self._receive_messages())
        self.background.start(self._watch_connection())
        self.space.streams.on_open(self._stream_opened)
        for info in self.space.streams:
            self._stream_opened(info)
        self.set_interval(_SHOW_SECONDS, self._show_incoming)
        self.set_interval(_STATUS_SECONDS, self._show_status)
        # Some of what is shown changes without a message: proposals age and expire.
        self.set_interval(_AGE_SECONDS, self._mark_stale)
        self._show_status()

    # Receiving and showing

    async def _receive_messages(self) -> None:
        self.incoming.put(await self.space.recall())
        self._show_incoming()
        others = (
            f"Also here: {', '.join(self.space.roster)}." if self.space.roster else "Nobody else is here."
        )
        text = f"Joined {self._options.space_label} as {self.space.me}. {others} F1 for help, / for commands"
        self.note(line((text, "note")))
        async for item in self._messages:
            self.incoming.put([item])

    def _show_incoming(self) -> None:
        """Show what has arrived since the last time; while the terminal closes there is no screen for it."""
        if not self.screen_stack:
            return
        if len(self.incoming):
            self.panes.timeline.add_messages(self.incoming.take_all())
            self._is_stale = True
        self._stale_ticks += 1
        if self._is_stale and self._stale_ticks >= 2:
            self._stale_ticks = 0
            self._show_panes()

    def _show_panes(self) -> None:
        self._is_stale = False
        before = self.panes.counts["approvals"]
        self.panes.show(self.context, self.trust)
        if not self.has_opened and self.space.proposals.known:
            self._open_pending()
        if self._options.bell and self.panes.counts["approvals"] > before:
            self.bell()
        self.panes.show_tabs(self.screen_stack[0].focused, is_narrow=self.size.width < WIDE_COLUMNS)
        if isinstance(self.screen, DetailDialog):
            self.screen.refill()

    def _open_pending(self) -> None:
        """Begin with what waits for a decision, unless the person has begun with something else."""
        self.has_opened = True
        is_idle = self.screen_stack[0].focused is self.input_line and not self.input_line.value
        if self.panes.counts["approvals"] and is_idle and len(self.screen_stack) == 1:
            self.action_pane("approvals")

    def _show_status(self) -> None:
        if not self.screen_stack:
            return
        # A dialog that closes gives the focus back without telling.
        self.key_bar.show_keys()
        extra = [held] if (held := self.take_back.status()) else []
        if self.context.default_to:
            extra.append(f"to {', '.join(self.context.default_to)}")
        if self.panes.timeline.filter:
            extra.append(f"filter {self.panes.timeline.filter.text}")
        if not self.panes.timeline.is_at_end:
            extra.append("▼ End: jump to end")
        self.status_bar.show_status(
            self.space, self._options.space_label, pending=self.panes.counts["approvals"], extra=extra
        )

    def _mark_stale(self) -> None:
        self._is_stale = True

    async def _watch_connection(self) -> None:
        ending = await self.space.stay()
        self.note(line((f"■ connection closed: {ending.code} {ending.reason} · q quits", "bad")))

    def _stream_opened(self, info: StreamInfo) -> None:
        self.panes.streams.add_stream(info)
        self.background.start(self._read_stream(info))

    async def _read_stream(self, info: StreamInfo) -> None:
        with suppress(MootError):
            async for item in self.space.streams.read(info.id):
                self.panes.streams.add_frame(info.id, item)
                self._is_stale = True
        self._is_stale = True

    # Notes of our own in the timeline

    def note(self, *lines: Line) -> None:
        self.panes.timeline.note(*lines)

    def _note_error(self, text: str) -> None:
        self.note(line(("! ", "bad"), text))

    async def _note_result(self, lines: Sequence[str], command: str = "") -> None:
        # The messages that led to a result come first.
        await asyncio.sleep(_SHOW_SECONDS)
        self._show_incoming()
        head = [line(("» ", "note"), (command, "dim"))] if command else []
        self.note(*head, *(line("  ", each) for each in lines))

    def _perform(self, work: Coroutine[Any, Any, Sequence[str]]) -> None:
        """Run something in the background; its lines, or its error, are shown in the timeline."""

        async def run() -> None:
            try:
                await self._note_result(await work)
            except MootError as fault:
                self._note_error(str(fault))
            self._is_stale = True

        self.background.start(run())

    # Typing

    def _complete(self, text: str) -> Completion:
        return complete(text, self.commands, self.names)

    def _tools_changed(self) -> None:
        if self.input_line.has_focus:
            self.input_line.show_completions()

    def on_input_line_entered(self, event: InputLine.Entered) -> None:
        self.panes.timeline.action_last()
        self.background.start(self._run_line(event.text))

    def on_input_line_escaped(self) -> None:
        self.action_pane("timeline" if self.screen.has_class("-main") else self.panes.side)

    async def _run_line(self, text: str) -> None:
        """Send one line as chat, or run it as a command. An error is shown and ends nothing."""
        try:
            if text.startswith("/") and not text.startswith("//"):
                name, *rest = split_words(text[1:]) or ["help"]
                operation = find_command(name, self.commands)
                result = await operation.run(self.context, operation.slash_parser().parse_args(rest))
                if result.lines:
                    await self._note_result(result.lines, command=text)
            else:
                await self.space.chat(text.removeprefix("/"), to=self.context.default_to)
                if absent := note_absent(self.context, self.context.default_to)[1]:
                    await self._note_result(absent)
        except MootError as fault:
            self._note_error(str(fault))

    def type_in_line(self, text: str | None = None) -> None:
        """Move the focus to the input line; `text` replaces what is in it."""
        if text is not None:
            self.input_line.value = text
            self.input_line.cursor_position = len(text)
        self._focus_now(self.input_line)

    def _focus_now(self, widget: Widget) -> None:
        """Move the focus now: `focus()` would do it later, and the next key might come before that."""
        main = self.screen_stack[0]
        main.set_focus(widget)
        if main.focused is not widget:
            # It is about to be shown, and cannot have the focus before it is.
            widget.focus()

    # Keys and mouse

    def action_pane(self, name: str) -> None:
        main = self.screen_stack[0]
        is_main = name == "timeline"
        main.set_class(is_main, "-main")
        main.set_class(not is_main, "-side")
        if not is_main:
            self.panes.show_beside(name)
        if name == "rules" and self.trust.report is None and self.trust.find_approver(self.space) is not None:
            # Older rules are asked for only when somebody looks, since everyone sees the request.
            self.background.start(self._refresh_rules())
        self._focus_now(self.panes.by_name[name])
        self._show_panes()

    async def _refresh_rules(self) -> None:
        problem = await self.trust.refresh(self.space)
        if problem is not None:
            self._note_error(problem)
        self._is_stale = True

    def action_type(self, text: str = "") -> None:
        self.type_in_line(text if text and not self.input_line.value else None)

    def action_leave(self) -> None:
        self.leave()

    def action_take_back(self) -> None:
        self.note(line((self.take_back.take_back(), "note")))
        self._show_status()

    def action_help(self) -> None:
        self.show_help(None)

    def on_rows_opened(self, event: Rows.Opened) -> None:
        match event.rows.id:
            case "completions":
                self.input_line.action_complete()
                self.type_in_line()
            case "timeline" | "chats":
                self.details.show_envelope(event.key)
            case "approvals":
                self.panes.approvals.action_decide("approve")
            case "members":
                self.details.show_member(event.key)
            case "reasoning":
                self.details.show_reasoning(event.key)
            case "streams":
                self.details.show_stream(event.key)
            case "rules":
                self.details.show_rule(event.key)

    def on_approval_pane_decision_requested(self, event: ApprovalPane.DecisionRequested) -> None:
        seen = self.space.proposals.get(event.proposal)
        if seen is None:
            return
        match event.decision:
            case "approve":
                self.decisions.approve(seen)
            case "reject":
                self.decisions.reject(seen)
            case "grant":
                self.decisions.grant(seen)
            case "vote":
                self.decisions.vote(seen)
            case "edit":
                self._edit_and_call(seen)

    def _edit_and_call(self, seen: SeenProposal) -> None:
        """Write the call into the input line, to be changed and made by oneself."""
        command = call_command(seen)
        if command is None:
            self._note_error("only a call of a tool with one host and plain arguments can be edited here")
        else:
            self.type_in_line(command)

    def on_reasoning_pane_stop_requested(self, event: ReasoningPane.StopRequested) -> None:
        async def stop() -> Sequence[str]:
            return (await stop_reasoning(self.context, event.sequence, "superseded")).lines

        self._perform(stop())

    def on_chat_pane_acknowledged(self, event: ChatPane.Acknowledged) -> None:
        async def acknowledge() -> Sequence[str]:
            chat = next((each for each in self.space.chats.pending() if each.id == event.chat), None)
            await self.space.chats.acknowledge(event.chat if chat is None else chat, "read")
            return ()

        self._perform(acknowledge())

    def on_command_pane_command_requested(self, event: CommandPane.CommandRequested) -> None:
        self.type_in_line(event.command)

    def on_command_pane_unprintable_name(self) -> None:
        self._note_error("this name contains control characters: type it yourself")

    def on_timeline_filter_requested(self) -> None:
        self.type_in_line(f"/filter {self.panes.timeline.filter.text}")

    def on_timeline_not_found(self, event: Timeline.NotFound) -> None:
        self.notify(event.text, markup=False, timeout=3)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()

    def on_key(self, event: events.Key) -> None:
        """Pass keys on that were typed for the input line while the focus was still moving there.

        Keys come in bursts over a slow connection: those after a `/` went to the pane that had the focus.
        The input line itself lets no letter through to here.
        """
        if event.is_printable and event.character and self.focused is self.input_line:
            self.input_line.insert_text_at_cursor(event.character)
            event.stop()
            event.prevent_default()

    def on_descendant_focus(self) -> None:
        self.key_bar.show_keys()

    def on_resize(self) -> None:
        self._is_stale = True

    # What commands of the terminal do (`commands.Terminal`)

    def leave(self) -> None:
        self.take_back.drop_all()
        self.exit(EXIT_DISCONNECTED if self.space.close_reason is not None else 0)

    def take_decision_back(self, seconds: int | None) -> str:
        if seconds is None:
            return self.take_back.take_back()
        self.take_back.choose(seconds)
        return f"decisions wait {seconds} s before they are sent" if seconds else "decisions are sent at once"

    def filter_by(self, text: str) -> None:
        self.panes.timeline.set_filter(read_filter(text))
        self._show_status()

    def use_theme(self, name: str) -> None:
        if name not in self.available_themes:
            raise UsageError(f"unknown theme {name}; themes: {', '.join(sorted(self.available_themes))}")
        self.theme = name

    def show_help(self, command: str | None) -> None:
        lines = manual.help_lines(self.commands, command)
        self.push_screen(DetailDialog("Help", lambda: lines))
