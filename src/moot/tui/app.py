"""`moot join` in full screen: what is said on the left, what to decide on the right, what you say below.

One task hears and only queues; a timer shows what was queued, a few times a second, so that a busy space
costs no more drawing than a quiet one. Whatever waits for an answer runs in a task of its own, and what came
of it is told in the timeline. Words of peers reach the screen through `wrapping` alone, which makes them
harmless; no markup of Textual is ever read in them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from typing import ClassVar, Final

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.color import Color, ColorParseError
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import ContentSwitcher, Input

from moot.errors import MootError, UsageError
from moot.participant import JoinedSpace, MissedMessages, StreamInfo
from moot.protocol.envelope import Envelope
from moot.tui import manual
from moot.tui.actions import SHOW_SECONDS, Actions
from moot.tui.bars import KeyBar, PaneTab, StatusBar
from moot.tui.commands import PANES, parse, table
from moot.tui.completion import Completion, complete
from moot.tui.detail_view import member_lines
from moot.tui.dialogs import DetailDialog
from moot.tui.input_line import InputLine
from moot.tui.name_completion import KnownNames, KnownTools
from moot.tui.operations.operation import ClientContext, UserOperation
from moot.tui.panes import ApprovalPane, ChatPane, MemberPane, ReasoningPane, StreamPane
from moot.tui.row_layout import line
from moot.tui.rows import Rows
from moot.tui.rule_commands import TrustCommands
from moot.tui.rules_pane import RulesPane, in_full
from moot.tui.terminal_escape import printable
from moot.tui.theme import DEFAULT_THEME, THEMES
from moot.tui.timeline import Timeline
from moot.tui.timeline_filter import read_filter
from moot.tui.trust_log import TrustLog
from moot.tui.unseen_messages import UnseenMessages

# How often the state of the connection is looked at.
_LOOK_SECONDS: Final = 0.25
_AGE_SECONDS: Final = 5.0
# Below this width a pane is shown at a time.
WIDE: Final = 100

# How far from the ground quiet letters and frames are: the former keep a contrast of 4.5 to 1 and more.
_DIM: Final = 0.66
_LINE: Final = 0.3

EXIT_ENDED: Final = 5


class MootApp(Actions):
    """One person in one space."""

    CSS_PATH = "moot.tcss"
    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]  # noqa: RUF012  # as Textual declares it
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(f"{number},f{number + 1}", f"app.pane('{name}')", name, show=False)
          for number, name in enumerate(PANES, 1)),
        Binding("escape,i", "app.type", "Type"),
        Binding("slash", "app.type('/')", "Command"),
        Binding("f1,question_mark", "app.help", "Help"),
        Binding("q,ctrl+q", "app.leave", "Quit", show=False),
        Binding("ctrl+c", "app.leave", "Quit", priority=True),
    ]  # fmt: skip

    def __init__(
        self,
        space: JoinedSpace,
        coming: AsyncIterator[Envelope | MissedMessages],
        group: asyncio.TaskGroup,
        *,
        seat: ClientContext,
        place: str,
        verbose: bool = False,
        theme: str = DEFAULT_THEME,
        rings: bool = False,
        more: Iterable[UserOperation] = (),
    ) -> None:
        super().__init__(group)
        self.space = space
        self.seat = seat
        self.title = printable(f"moot {place}")
        self._place = place
        self._coming = coming
        self._stale_ticks = 0
        self._wanted_theme = theme
        self._rings = rings
        self._counts = dict.fromkeys(PANES, 0)
        self.trust = TrustLog()
        self.timeline = Timeline(verbose=verbose)
        self.tools = KnownTools(space, self.begin, self._tools_changed)
        self.names = KnownNames(seat, self.tools, self.timeline, self.trust, lambda: self.available_themes)
        self.commands = table(self, (*TrustCommands(self.trust).operations(), *more))
        self.approvals, self.people, self.thoughts = ApprovalPane(), MemberPane(), ReasoningPane()
        self.streams, self.chats, self.rules = StreamPane(), ChatPane(), RulesPane()
        self.head, self.keys, self.tabs = StatusBar(), KeyBar(), tuple(map(PaneTab, PANES))
        self.switch = ContentSwitcher(initial="approvals", id="switch")
        self.heard = UnseenMessages(self.tools, self.trust, self.people)
        self.offered = Rows(id="offered", empty="")
        self.offered.can_focus, self.offered.is_always_marked = False, True
        self.prompt = InputLine(self._complete, self.offered)

    # The screen

    def compose(self) -> ComposeResult:
        yield self.head
        with Horizontal(id="tabs"):
            yield from self.tabs
        with Horizontal(id="panes"):
            yield self.timeline
            with Vertical(id="side"), self.switch:
                yield self.approvals
                yield self.people
                yield self.thoughts
                yield self.streams
                yield self.chats
                yield self.rules
        yield self.offered
        yield self.prompt
        yield self.keys

    def get_css_variables(self) -> dict[str, str]:
        """Textual's, and two shades between the letters and the ground, whatever the theme."""
        variables = super().get_css_variables()
        try:
            ground, letters = Color.parse(variables["background"]), Color.parse(variables["foreground"])
            shades = {"dim": ground.blend(letters, _DIM).hex6, "line": ground.blend(letters, _LINE).hex6}
        except (KeyError, ColorParseError):
            shades = {"dim": "ansi_bright_black", "line": "ansi_bright_black"}
        if self.current_theme.ansi:
            shades = {"dim": "ansi_bright_black", "line": "ansi_bright_black"}
        return variables | shades

    def on_mount(self) -> None:
        for theme in THEMES:
            self.register_theme(theme)
        self.use_theme(self._wanted_theme if self._wanted_theme in self.available_themes else DEFAULT_THEME)
        for name, pane in self._panes().items():
            pane.border_title = Content(f"{PANES.index(name) + 1} {name}")
        self.screen.add_class("-main")
        self.timeline.me = self.space.me
        self.prompt.focus()
        self.begin(self._hear())
        self.begin(self._watch_end())
        self.space.streams.on_open(self._stream_opened)
        for info in self.space.streams:
            self._stream_opened(info)
        self.set_interval(SHOW_SECONDS, self.show_heard)
        self.set_interval(_LOOK_SECONDS, self._tell_state)
        # What is known changes by itself, too: proposals grow old and expire.
        self.set_interval(_AGE_SECONDS, self._grow_old)
        self._tell_state()

    def _panes(self) -> dict[str, Rows]:
        return {
            "timeline": self.timeline,
            "approvals": self.approvals,
            "people": self.people,
            "reasoning": self.thoughts,
            "streams": self.streams,
            "chats": self.chats,
            "rules": self.rules,
        }

    # Hearing and showing

    async def _hear(self) -> None:
        self.heard.put(await self.space.recall())
        self.show_heard()
        others = (
            f"Also here: {', '.join(self.space.roster)}." if self.space.roster else "Nobody else is here."
        )
        words = f"Joined {self._place} as {self.space.me}. {others} F1 for help, / for commands"
        self.note(line((words, "note")))
        async for item in self._coming:
            self.heard.put([item])

    def show_heard(self) -> None:
        """Show what has come since the last time."""
        if len(self.heard):
            self.timeline.hear(self.heard.take())
            self._is_stale = True
        self._stale_ticks += 1
        if self._is_stale and self._stale_ticks >= 2:
            self._stale_ticks = 0
            self._show_panes()

    def _show_panes(self) -> None:
        self._is_stale = False
        counts = self._counts
        before = counts["approvals"]
        counts["approvals"] = self.approvals.show(self.seat)
        counts["people"] = self.people.show(self.space)
        counts["reasoning"] = self.thoughts.show(self.space)
        counts["streams"] = self.streams.show()
        counts["chats"] = self.chats.show(self.space)
        counts["rules"] = self.rules.show(self.trust)
        if self._rings and counts["approvals"] > before:
            self.bell()
        is_narrow = self.size.width < WIDE
        for tab in self.tabs:
            tab.tell(counts[tab.pane], is_narrow=is_narrow)
            pane = self._panes()[tab.pane]
            tab.set_class(pane.region.width > 0, "-open")
            tab.set_class(self.screen_stack[0].focused is pane, "-active")
        if isinstance(self.screen, DetailDialog):
            self.screen.refill()

    def _tell_state(self) -> None:
        more: list[str] = []
        if self.seat.default_to:
            more.append(f"to {', '.join(self.seat.default_to)}")
        if self.timeline.filter:
            more.append(f"filter {self.timeline.filter.words}")
        if not self.timeline.is_at_end:
            more.append("▼ End: jump to end")
        self.head.tell(self.space, self._place, waiting=self._counts["approvals"], more=more)

    def _grow_old(self) -> None:
        self._is_stale = True

    async def _watch_end(self) -> None:
        ending = await self.space.stay()
        self.note(line((f"■ connection closed: {ending.code} {ending.reason} · q quits", "bad")))

    def _stream_opened(self, info: StreamInfo) -> None:
        self.streams.opened(info)
        self.begin(self._read(info))

    async def _read(self, info: StreamInfo) -> None:
        with suppress(MootError):
            async for item in self.space.streams.read(info.id):
                self.streams.hear(info.id, item)
                self._is_stale = True
        self._is_stale = True

    # Typing

    def _complete(self, text: str) -> Completion:
        return complete(text, self.commands, self.names)

    def _tools_changed(self) -> None:
        if self.prompt.has_focus:
            self.prompt.offer()

    def on_input_line_typed(self, event: InputLine.Typed) -> None:
        self.timeline.action_last()
        self.begin(self._carry_out(event.text))

    def on_input_line_left(self) -> None:
        self.action_pane("timeline" if self.screen.has_class("-main") else self.side)

    async def _carry_out(self, text: str) -> None:
        """One line: chat or an operation. What goes wrong is told, and ends nothing."""
        try:
            if text.startswith("/") and not text.startswith("//"):
                operation, chosen = parse(text[1:], self.commands)
                answer = await operation.run(self.seat, chosen)
                if answer.lines:
                    await self._catch_up()
                    self._tell(answer.lines, before=text)
            else:
                said = text[1:] if text.startswith("//") else text
                await self.space.chat(said, to=self.seat.default_to)
        except MootError as fault:
            self.note(line(("! ", "bad"), str(fault)))

    # What keys and mouse do

    @property
    def side(self) -> str:
        return self.switch.current or "approvals"

    def action_pane(self, name: str) -> None:
        main = self.screen_stack[0]
        is_main = name == "timeline"
        main.set_class(is_main, "-main")
        main.set_class(not is_main, "-side")
        if not is_main:
            self.switch.current = name
        if name == "rules" and self.trust.told is None and self.trust.approver(self.space) is not None:
            # What was before we came; asked for when somebody looks, since all see the question.
            self.begin(self._learn_rules())
        self.go_to(self._panes()[name])
        self._show_panes()

    async def _learn_rules(self) -> None:
        why_not = await self.trust.learn(self.space)
        if why_not is not None:
            self.note(line(("! ", "bad"), why_not))
        self._is_stale = True

    def action_type(self, text: str = "") -> None:
        self.go_to_line(text if text and not self.prompt.value else None)

    def action_leave(self) -> None:
        self.leave()

    def action_help(self) -> None:
        self.show_help(None)

    def on_rows_opened(self, event: Rows.Opened) -> None:
        match event.rows.id:
            case "offered":
                self.prompt.action_take()
                self.go_to_line()
            case "timeline":
                self._open_envelope(event.key)
            case "approvals":
                self.action_decide("approve")
            case "people":
                self.push_screen(DetailDialog(event.key, lambda: member_lines(self.space, event.key)))
            case "reasoning":
                self._look_at_thoughts(event.key)
            case "streams":
                self.look_at_stream(event.key)
            case "chats":
                self._open_envelope(event.key)
            case "rules":
                self._look_at_rule(event.key)

    def _look_at_rule(self, key: str) -> None:
        found = in_full(self.trust, key)
        if found is not None:
            title, lines = found
            self.push_screen(DetailDialog(title, lambda: lines))

    def on_timeline_filter_wanted(self) -> None:
        self.go_to_line(f"/filter {self.timeline.filter.words}")

    def on_timeline_not_found(self, event: Timeline.NotFound) -> None:
        self.notify(event.words, markup=False, timeout=3)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()

    def on_key(self, event: events.Key) -> None:
        """What was typed for the line reaches it, though the focus was on its way there.

        Keys come in bursts over a slow connection: those behind a `/` went to the pane that had the focus.
        The line itself lets no letter through to here.
        """
        if event.is_printable and event.character and self.focused is self.prompt:
            self.prompt.insert_text_at_cursor(event.character)
            event.stop()
            event.prevent_default()

    def on_descendant_focus(self) -> None:
        self.keys.tell()

    def on_resize(self) -> None:
        self._is_stale = True

    # What commands of the terminal do (`commands.Terminal`)

    def leave(self) -> None:
        self.exit(EXIT_ENDED if self.space.close_reason is not None else 0)

    def filter_by(self, text: str) -> None:
        self.timeline.set_filter(read_filter(text))
        self._tell_state()

    def use_theme(self, name: str) -> None:
        if name not in self.available_themes:
            raise UsageError(f"unknown theme {name}; themes: {', '.join(sorted(self.available_themes))}")
        self.theme = name

    def open_pane(self, name: str) -> None:
        self.action_pane(name)

    def show_help(self, command: str | None) -> None:
        lines = manual.about(self.commands, command)
        self.push_screen(DetailDialog("Help", lambda: lines))
