"""A real gateway with SDK members, one of them at the full-screen terminal, driven by a Textual pilot.

async with terminal_space(tmp_path) as here, here.terminal() as (app, pilot): ...
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from moot.operations.operation import ClientContext
from moot.participant import JoinedSpace, ParticipantLimits, Proposal
from moot.protocol.operation import Json
from moot.tui.app import MootApp
from moot.tui.dialog import Dialog
from moot.tui.row_layout import Line, escape_line
from moot.tui.rows import Rows
from moot.tui.theme import TerminalOptions
from tests.participant.gateway_with_members import (
    PROPOSER,
    QUICK,
    TOOL_HOST,
    GatewayWithMembers,
    gateway_with,
)
from tests.waiting import bounded

AGENT: Sequence[Json] = (*PROPOSER, "reasoning/*", "stream/*")
EVERYTHING: Sequence[Json] = ("*",)


class TerminalSpace:
    """A space with alice at the terminal, bob, an agent that proposes, and a host of tools."""

    def __init__(self, party: GatewayWithMembers) -> None:
        self.party = party

    async def join(self, name: str, **options: Any) -> JoinedSpace:
        return await self.party.join(name, **options)

    async def host(self) -> JoinedSpace:
        """A member with two tools on texts that it keeps in mind."""
        files = await self.join("files")
        texts: dict[str, str] = {"notes.md": "one\ntwo\nthree"}

        @files.tool
        def write_file(path: str, text: str) -> str:
            """Replace what stands at a path."""
            texts[path] = text
            return f"created {path}: {len(text)} bytes"

        @files.tool
        def read_file(path: str) -> str:
            """What stands at a path."""
            return texts[path]

        return files

    @asynccontextmanager
    async def terminal(
        self,
        name: str = "alice",
        *,
        size: tuple[int, int] = (120, 40),
        limits: ParticipantLimits = QUICK,
        **options: Any,
    ) -> AsyncIterator[tuple[MootApp, Pilot[int]]]:
        space = await self.join(name, limits=limits)
        messages = space.envelopes(own=True)
        async with asyncio.TaskGroup() as group:
            context = ClientContext(space, is_interactive=True)
            app = MootApp(space, messages, group, context, TerminalOptions(space_label="lab", **options))
            try:
                async with app.run_test(size=size) as pilot:
                    await until(pilot, lambda: "Joined lab as" in pane_text(app.panes.timeline))
                    # Later it may open the pending proposals by itself, and keys would go there.
                    await until(pilot, lambda: app.has_opened)
                    yield app, pilot
            finally:
                app.background.cancel()


@asynccontextmanager
async def terminal_space(
    folder: Path, *, rules: dict[str, Json] | None = None, **more: Any
) -> AsyncIterator[TerminalSpace]:
    people: dict[str, Any] = {
        "alice": EVERYTHING,
        "bob": EVERYTHING,
        "agent": AGENT,
        "files": TOOL_HOST,
    }
    async with gateway_with(folder, rules=rules, **(people | more)) as party:
        yield TerminalSpace(party)


def plain_text(parts: Line) -> str:
    """A line as it is drawn, without its tones."""
    return "".join(text for text, _ in escape_line(parts))


def pane_text(rows: Rows) -> str:
    """All text of a pane, as it is drawn."""
    return "\n".join(plain_text(line) for row in rows.rows for line in row.lines)


def screen_text(app: MootApp) -> str:
    """The whole screen as text."""
    lines = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip) for strip in lines)


async def until(pilot: Pilot[int], holds: Callable[[], bool]) -> None:
    """Wait until something holds, with the application running."""
    try:
        async with bounded():
            while not holds():
                await pilot.pause(0.02)
    except TimeoutError:
        app = pilot.app
        assert isinstance(app, MootApp)
        raise AssertionError(f"never came; {app.focused} has the focus on\n{screen_text(app)}") from None


async def settle(pilot: Pilot[int]) -> None:
    """Wait for a dialog, and for as long as it has to be looked at before a yes counts."""

    def has_settled() -> bool:
        screen = pilot.app.screen
        return isinstance(screen, Dialog) and screen.has_settled

    await until(pilot, has_settled)
    # What it says is laid out and screen_text.
    await pilot.pause()


async def enter_line(pilot: Pilot[int], text: str) -> None:
    """Type a line and send it."""
    app = pilot.app
    assert isinstance(app, MootApp)
    app.input_line.focus()
    app.input_line.value = text
    await pilot.press("enter")


async def propose(agent: JoinedSpace, text: str = "hello", path: str = "notes.md") -> Proposal:
    params: dict[str, Json] = {"name": "write_file", "arguments": {"path": path, "text": text}}
    return await agent.propose("files", "tools/call", params)


def save_screenshot(app: MootApp, name: str) -> None:
    """A picture of the screen, where somebody wants to look at it (MOOT_SCREENSHOTS=folder)."""
    folder = os.environ.get("MOOT_SCREENSHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / f"{name}.svg").write_text(app.export_screenshot(title="moot join"), "utf-8")
