"""The frame of the console: few items and "More", on any width, at 200 % zoom, and in either direction."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, ViewportSize, expect

from tests.console.conftest import PageAs, view_ids
from tests.console.page_time import press_at_once

PHONE = {"width": 390, "height": 844}
NAMES = ["Inbox", "Timeline", "Chat", "Tools", "Members", "Rules"]


def items(page: Page) -> Locator:
    return page.get_by_role("navigation", name="Views").locator(".nav-link:visible .nav-label")


def test_the_navigation_has_everyday_views_and_the_rest_below_more(page_as: PageAs) -> None:
    page = page_as("human")
    expect(items(page)).to_have_text([*NAMES, "More"])
    more = page.get_by_role("button", name="More")
    more.click()
    expect(more).to_have_attribute("aria-expanded", "true")
    page.get_by_role("link", name="Streams").click()
    expect(page.locator(".view-streams")).to_be_visible()
    expect(page.get_by_role("link", name="Streams")).to_have_attribute("aria-current", "page")
    more.click()
    expect(items(page)).to_have_text([*NAMES, "More"])
    # By a key: where one is can be seen.
    press_at_once(page, "g", "r")
    expect(page.get_by_role("link", name="Reasoning")).to_have_attribute("aria-current", "page")


def test_a_dialog_of_the_menu_of_spaces_gives_the_focus_back(page_as: PageAs) -> None:
    page = page_as("human", "chat")
    menu = page.get_by_role("button", name="Space: lab")
    for name in ("Add a space…", "Notifications on this device…", "Passkeys…", "While you are away…"):
        menu.click()
        page.get_by_role("menuitem", name=name).click()
        expect(page.get_by_role("dialog")).to_be_visible()
        page.keyboard.press("Escape")
        expect(menu).to_be_focused()


def test_a_phone_has_five_items_and_reaches_every_view(page_as: PageAs) -> None:
    page = page_as("human", viewport=PHONE)
    expect(items(page)).to_have_text(["Inbox", "Timeline", "Chat", "Tools", "More"])
    more = page.get_by_role("button", name="More")
    more.click()
    expect(page.locator(".nav-more .nav-label:visible")).to_have_text(
        ["Members", "Rules", "Reasoning", "Streams", "Flow", "Decisions", "Administration"]
    )
    page.get_by_role("link", name="Members").click()
    expect(page.locator(".view-members")).to_be_visible()
    expect(page.locator(".nav-more")).to_be_hidden()
    search = page.get_by_label("Search members").bounding_box()
    pause = page.get_by_role("button", name="Pause everyone…").bounding_box()
    assert search is not None
    assert pause is not None
    assert search["y"] + search["height"] / 2 == pytest.approx(pause["y"] + pause["height"] / 2, abs=3)
    # Where one is can be seen here, too.
    expect(more).to_have_attribute("data-current", "phone")
    # Where there is nothing yet, it says what will be there.
    for view, words in (("streams", "No streams yet"), ("reasoning", "No reasoning yet")):
        page.evaluate(f"location.hash = '#/lab/{view}'")
        expect(page.get_by_text(words)).to_be_visible()
    page.set_viewport_size({"width": 1280, "height": 800})
    for view in ("streams", "reasoning"):
        page.evaluate(f"location.hash = '#/lab/{view}/gone'")
        expect(page.get_by_text(f"Unknown {view.removesuffix('s')}")).to_be_visible()
    more.click()
    page.keyboard.press("Escape")
    expect(page.locator(".nav-more")).to_be_hidden()
    expect(more).to_be_focused()


# 320 px is the narrowest of WCAG 1.4.10; 640 by 400 is 1280 by 800 at 200 %.
SIZES: tuple[ViewportSize, ...] = (
    {"width": 320, "height": 640},
    {"width": 640, "height": 400},
    {"width": 2560, "height": 1300},
)


def test_every_view_fits(page_as: PageAs) -> None:
    page = page_as("human")
    for size in SIZES:
        page.set_viewport_size(size)
        for view in view_ids(page):
            page.evaluate(f"location.hash = '#/lab/{view}'")
            expect(page.locator(f".view-{view}")).to_be_visible()
            wider = page.evaluate(
                "(view) => { const node = document.querySelector(`.view-${view}`);"
                " return [document.documentElement.scrollWidth - innerWidth,"
                " node.scrollWidth - node.clientWidth]; }",
                view,
            )
            assert max(wider) <= 0, (view, size)


def test_the_frame_is_mirrored_where_text_runs_from_right_to_left(page_as: PageAs) -> None:
    page = page_as("human", "members")
    page.evaluate("document.documentElement.dir = 'rtl'")
    nav, view = page.locator(".nav").bounding_box(), page.locator(".view-members").bounding_box()
    assert nav is not None
    assert view is not None
    assert nav["x"] > view["x"]
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
