"""The panes of the screen, their tabs, and how much is in each."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import ContentSwitcher

from moot.operations.operation import ClientContext
from moot.operations.trust_log import TrustLog
from moot.tui.bars import PaneTab
from moot.tui.panes import PANES, ApprovalPane, ChatPane, MemberPane, ReasoningPane, StreamPane
from moot.tui.rows import Rows
from moot.tui.rules_pane import RulesPane
from moot.tui.timeline import Timeline


class PaneSet:
    """The timeline, and beside it one of the other panes."""

    def __init__(self, *, verbose: bool) -> None:
        self.timeline = Timeline(verbose=verbose)
        self.approvals, self.members, self.reasoning = ApprovalPane(), MemberPane(), ReasoningPane()
        self.streams, self.chats, self.rules = StreamPane(), ChatPane(), RulesPane()
        # In the order of PANES.
        panes: tuple[Rows, ...] = (
            self.timeline, self.approvals, self.members, self.reasoning, self.streams, self.chats, self.rules
        )  # fmt: skip
        self.by_name: dict[str, Rows] = dict(zip(PANES, panes, strict=True))
        self.counts = dict.fromkeys(PANES, 0)
        self._tabs = tuple(map(PaneTab, PANES))
        self._switch = ContentSwitcher(initial="approvals", id="switch")

    def compose(self) -> ComposeResult:
        with Horizontal(id="tabs"):
            yield from self._tabs
        with Horizontal(id="panes"):
            yield self.timeline
            with Vertical(id="side"), self._switch:
                for pane in self.by_name.values():
                    if pane is not self.timeline:
                        yield pane

    def add_titles(self) -> None:
        for number, (name, pane) in enumerate(self.by_name.items(), 1):
            pane.border_title = Content(f"{number} {name}")

    @property
    def side(self) -> str:
        """The pane beside the timeline."""
        return self._switch.current or "approvals"

    def show_beside(self, name: str) -> None:
        self._switch.current = name

    def show(self, context: ClientContext, trust: TrustLog) -> None:
        """Fill the panes beside the timeline with what is known now."""
        self.counts |= {
            "approvals": self.approvals.show(context),
            "members": self.members.show(context.space),
            "reasoning": self.reasoning.show(context.space),
            "streams": self.streams.show(),
            "chats": self.chats.show(context.space),
            "rules": self.rules.show(trust),
        }

    def show_tabs(self, focused: Widget | None, *, is_narrow: bool) -> None:
        for tab in self._tabs:
            tab.show_count(self.counts[tab.pane], is_narrow=is_narrow)
            pane = self.by_name[tab.pane]
            tab.set_class(pane.region.width > 0, "-open")
            tab.set_class(focused is pane, "-active")
