"""People, reasoning and streams: no serious issue for axe, nothing too wide, hostile words harmless."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from playwright.sync_api import Page, expect

from moot.participant import Control, Controls, JoinedSpace
from moot.protocol.operation import Json
from tests.console.conftest import MemberAs, PageAs
from tests.console.test_accessibility import in_both, issues
from tests.console.test_members import detail
from tests.waiting import HANG_SECONDS

HOSTILE = '<img src=x onerror="window.__owned=1">\u202egnp\u202c\u0007\u001b[31m' + "W" * 300
READ: dict[str, Json] = {
    "kind": "mcp/request",
    "payload": {"method": "tools/call", "params": {"name": HOSTILE}},
    "description": HOSTILE,
}


class Telling(Controls):
    async def on_status(self, control: Control | None) -> Mapping[str, Json]:
        return {"tokens": 10, "max_tokens": 5, "model": HOSTILE, "deep": {"x": HOSTILE}}


async def busy(space: JoinedSpace, begun: asyncio.Event, over: asyncio.Event) -> None:
    async with space.reasoning(HOSTILE, stream=True) as reasoning:
        await reasoning.thought(HOSTILE)
        async with reasoning.sub("inner") as inner:
            await inner.conclude(HOSTILE)
        assert reasoning.stream is not None
        begun.set()
        await over.wait()


def too_wide(page: Page) -> list[str]:
    """Elements that stick out of the page."""
    found: list[str] = page.evaluate(
        "[...document.querySelectorAll('main *')]"
        ".filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('.sr'))"
        ".map((e) => e.outerHTML.slice(0, 120))"
    )
    return found


def test_nothing_in_these_views_is_hard_to_use_or_dangerous(page_as: PageAs, member: MemberAs) -> None:
    """Every state of the three views with the most hostile words that a member can say (D-86)."""
    human, agent = member("human"), member("agent", controls=Telling())
    begun, over = asyncio.Event(), asyncio.Event()
    thinking = agent.start(lambda space: busy(space, begun, over))
    agent.run(lambda _: begun.wait())
    human.run(lambda space: space.admin.grant("agent", [READ, {"kind": "capability/grant"}], reason=HOSTILE))
    human.run(lambda space: space.admin.pause("agent", reason=HOSTILE, timeout_seconds=600))
    page = page_as("human", "members", "agent")
    page.keyboard.press("s")
    expect(detail(page)).to_contain_text("Last status")
    page.keyboard.press("x")
    expect(detail(page)).to_contain_text("⟨U+202E⟩gnp⟨U+202C⟩⟨U+0007⟩⟨U+001B⟩[31m")
    found = {"members": in_both(page, issues, too_wide)}
    for key in ("i", "r"):
        page.keyboard.press(key)
        expect(page.get_by_role("dialog")).to_be_visible()
        found[f"dialog {key}"] = in_both(page, issues) if key == "i" else issues(page)
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_be_hidden()
    for view in ("reasoning", "streams"):
        page.evaluate(f"location.hash = '#/lab/{view}'")
        page.locator(".panes-list .member-row").first.click()
        expect(page.locator(".panes-detail")).to_contain_text("⟨U+202E⟩gnp")
        found[view] = in_both(page, issues, too_wide)
    assert {name: each for name, each in found.items() if each} == {}
    assert page.evaluate("window.__owned") is None
    assert page.locator("main img").count() == 0
    agent.run(lambda _: over.set())
    thinking.result(HANG_SECONDS)


def test_everything_about_a_member_is_reached_by_keys_alone(page_as: PageAs, member: MemberAs) -> None:
    """Keyboard first: find, choose, pause, and come back to where one was."""
    member("agent")
    page = page_as("human", "members")
    page.keyboard.press("/")
    page.keyboard.type("age")
    expect(page.locator(".member-row")).to_have_count(1)
    page.keyboard.press("Tab")
    page.locator(".member-row").focus()
    page.keyboard.press("Enter")
    expect(detail(page).get_by_role("heading", name="agent")).to_be_visible()
    page.keyboard.press("p")
    expect(page.get_by_label("Duration")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.type("a moment")
    page.keyboard.press("Enter")
    expect(detail(page).locator(".presence")).to_have_text("paused")
    page.keyboard.press("p")
    expect(detail(page).locator(".presence")).to_have_text("online")
    page.keyboard.press("Escape")
    expect(detail(page)).to_contain_text("Select a member")


def test_inviting_comes_before_pausing_everyone_on_every_width(page_as: PageAs) -> None:
    page = page_as("human", "members", viewport={"width": 390, "height": 844})
    invite = page.get_by_role("button", name="Invite…")
    pause = page.get_by_role("button", name="Pause everyone…")
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 844})
        first, second = invite.bounding_box(), pause.bounding_box()
        assert first is not None
        assert second is not None
        assert (first["y"], first["x"]) < (second["y"], second["x"])
    page.locator("h1").click()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    expect(invite).to_be_focused()
