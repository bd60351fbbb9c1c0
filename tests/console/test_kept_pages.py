"""A page that is used again holds nothing of the test before."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from tests.console.gateway_and_members import Running
from tests.console.kept_pages import KeptPages

LEAVE = """
localStorage.setItem("left", "here"); sessionStorage.setItem("left", "here");
document.cookie = "left=here"; window.name = "left";
"""
LEFT = """[
  localStorage.length, sessionStorage.length, document.cookie, window.name, window.__left ?? null, innerWidth,
  (await navigator.permissions.query({ name: "notifications" })).state === "granted",
]"""


def test_nothing_is_left_in_a_page_that_is_used_again(gateway: Running, browser: Browser) -> None:
    pages = KeptPages(browser)
    kept = pages.take()
    page = kept.lend(viewport={"width": 400, "height": 600}, permissions=["notifications"])
    heard: list[str] = []
    page.on("request", lambda request: heard.append(request.url))
    page.add_init_script("window.__left = 1")
    page.goto(gateway.url)
    expect(page.get_by_label("Token", exact=True)).to_be_visible()
    page.evaluate(LEAVE)
    before = page.evaluate(f"(async () => {LEFT})()")
    assert before == [1, 1, "left=here", "left", 1, 400, True]
    with pytest.raises(AssertionError, match="alone=True"):
        page.route("**", lambda route: route.abort())
    pages.give_back(kept)
    heard.clear()
    again = pages.take()
    assert again is kept
    page = again.lend()
    page.goto(gateway.url)
    assert page.evaluate(f"(async () => {LEFT})()") == [0, 0, "", "", None, 1280, False]
    assert heard == []
    # One that was closed is not given to anybody.
    page.close()
    pages.give_back(again)
    other = pages.take()
    assert other is not again
    other.close()
