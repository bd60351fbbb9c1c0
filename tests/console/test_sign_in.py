"""Signing in: the token goes into a header and a frame, never into an address; several spaces (D-20)."""

from __future__ import annotations

import re

from playwright.sync_api import Page, Request, expect

from tests.console.conftest import MemberAs, NewPage, PageAs, sign_in
from tests.console.gateway_and_members import Running
from tests.console.page_time import press_at_once


def test_a_token_opens_its_spaces_and_stands_in_no_address(gateway: Running, new_page: NewPage) -> None:
    page = new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(_address(request)))
    page.on("websocket", lambda socket: asked.append(socket.url))
    page.goto(gateway.url)
    sign_in(page, "t-human")
    expect(page.get_by_role("button", name="Space: lab")).to_be_visible()
    assert any("/ws?space=" in address for address in asked)
    assert not any("t-human" in address for address in [*asked, page.url])
    assert (
        page.evaluate("JSON.stringify([sessionStorage, localStorage, document.cookie])").count("t-human") == 0
    )


def _address(request: Request) -> str:
    return request.url


def test_a_wrong_token_is_told_what_to_do(gateway: Running, new_page: NewPage) -> None:
    page = new_page()
    page.goto(gateway.url)
    field = page.get_by_label("Token", exact=True)
    for token, words in (("t-nobody", "Unknown token"), ("two words", "Not a valid token")):
        field.fill(token)
        page.get_by_role("button", name="Sign in", exact=True).click()
        expect(page.get_by_role("alert")).to_contain_text(words)
    expect(field).to_be_focused()


def test_what_could_not_be_loaded_is_tried_again_and_said_to_be_missing(
    gateway: Running, new_page: NewPage
) -> None:
    """A connection that was cut while the rest of the page came: somebody who signed in then is not stuck."""
    page = new_page(alone=True)
    cut = ("**/views.js",)
    for each in cut:
        page.route(each, lambda route: route.abort())
    page.goto(gateway.url)
    page.get_by_label("Token", exact=True).fill("t-human")
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("could not be loaded; trying again")
    for each in cut:
        page.unroute(each)
    expect(page.locator(".top .pill")).to_have_text("Live")


def test_a_reload_forgets_the_token_unless_it_was_to_be_kept(gateway: Running, new_page: NewPage) -> None:
    page = new_page()
    page.goto(gateway.url)
    sign_in(page, "t-human")
    page.reload()
    expect(page.get_by_label("Token", exact=True)).to_be_visible()
    sign_in(page, "t-human", remember=True)
    page.reload()
    expect(page.locator(".top .pill")).to_have_text("Live")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token", exact=True)).to_be_visible()
    page.reload()
    expect(page.get_by_label("Token", exact=True)).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0


def test_one_goes_from_space_to_space_by_keyboard(page_as: PageAs, member: MemberAs) -> None:
    """What is heard in one is not shown in the other; both lines stay up."""
    page = page_as("human", "timeline")
    hermit = member("hermit", space="attic")
    press_at_once(page, "g", "o")
    expect(page.get_by_role("menu", name="Spaces")).to_be_visible()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    _is_in(page, "attic")
    hermit.run(lambda space: space.chat("quiet up here"))
    expect(page.get_by_role("option").filter(has_text="quiet up here")).to_be_visible()
    page.evaluate("location.hash = '#/lab/timeline'")
    _is_in(page, "lab")
    expect(page.get_by_role("option").filter(has_text="quiet up here")).to_have_count(0)
    expect(page.locator(".top .pill")).to_have_text("Live")


def _is_in(page: Page, space: str) -> None:
    expect(page.get_by_role("button", name=f"Space: {space}")).to_be_visible()


def test_a_second_token_adds_a_space(page_as: PageAs) -> None:
    page = page_as("agent")
    page.get_by_role("button", name="Space: lab").click()
    page.get_by_role("menuitem", name="Add a space").click()
    dialog = page.get_by_role("dialog", name="Add a space")
    dialog.get_by_label("Token", exact=True).fill("t-hermit")
    dialog.get_by_role("button", name="Sign in", exact=True).click()
    _is_in(page, "attic")
    expect(page.get_by_role("button", name="Space: attic you are hermit")).to_be_visible()


def test_keys_are_listed_and_theme_is_remembered(page_as: PageAs) -> None:
    page = page_as("human", "timeline")
    page.keyboard.press("?")
    help_ = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(help_).to_contain_text("Jump to the cause")
    page.keyboard.press("Escape")
    expect(help_).to_have_count(0)
    page.keyboard.press("\\")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    page.keyboard.press("\\")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_who_chose_dark_sees_no_white_page_first(gateway: Running, new_page: NewPage) -> None:
    """Nor light bars around it, where the system is light."""
    page = new_page(alone=True, color_scheme="light")
    page.goto(gateway.url)
    page.evaluate("localStorage.setItem('moot.theme', 'dark')")
    page.reload()
    expect(page.locator('meta[data-scheme="dark"]')).to_have_attribute("media", "all")
    expect(page.locator('meta[data-scheme="light"]')).to_have_attribute("media", "not all")
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == "rgb(17, 19, 24)"
    assert page.locator('meta[data-scheme="dark"]').get_attribute("content") == "#111318"
    # The page itself is still under way.
    page.route(re.compile(r"/app\.js"), lambda route: route.abort())
    page.reload(wait_until="commit")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    expect(page.locator("#app > .loading").first).to_be_visible()


def test_a_link_from_a_signed_in_session_signs_in_another_device_once(
    gateway: Running, page_as: PageAs, new_page: NewPage
) -> None:
    page = page_as("human", "approvals")
    page.get_by_role("button", name="Space: lab").click()
    page.get_by_role("menuitem", name="Sign in on another device…").click()
    dialog = page.locator("dialog")
    expect(dialog.get_by_role("img", name="QR code of the link")).to_be_visible()
    expect(dialog).to_contain_text("can be reached from this computer only")
    link = dialog.get_by_label("One-time link").input_value()
    assert link.startswith(f"{gateway.url}/#sign-in=")
    assert "t-human" not in link
    phone = new_page(viewport={"width": 390, "height": 800})
    phone.goto(link)
    expect(phone.locator(".top .pill")).to_have_text("Live")
    # Somebody who was sent it is told where they are, and as whom; all of it is on a narrow screen.
    expect(phone.locator(".notice")).to_have_text(
        f"Signed in as human to 2 spaces (lab, attic) at 127.0.0.1:{gateway.port}"
    )
    expect(phone.get_by_role("button", name="Space: lab")).to_be_in_viewport()
    assert phone.evaluate("document.documentElement.scrollWidth") <= 390
    # The code is gone from the address and from the history, and the session outlives a reload.
    assert "sign-in" not in phone.url
    phone.reload()
    expect(phone.locator(".top .pill")).to_have_text("Live")
    third = new_page()
    third.goto(link)
    expect(third.get_by_role("alert")).to_contain_text("used already")
    assert "sign-in" not in third.url
    third.get_by_label("Token", exact=True).fill("t-human")
    third.get_by_role("button", name="Sign in", exact=True).click()
    expect(third.locator(".top .pill")).to_have_text("Live")


def test_a_code_for_a_chat_is_shown_and_signs_nobody_in(
    gateway: Running, page_as: PageAs, new_page: NewPage
) -> None:
    page = page_as("human", "approvals")
    page.get_by_role("button", name="Space: lab").click()
    page.get_by_role("menuitem", name="Decide in a chat…").click()
    line = page.locator("dialog").get_by_label("Line for the bot").input_value()
    assert line.startswith("bind ")
    other = new_page()
    other.goto(f"{gateway.url}/#sign-in={line.removeprefix('bind ')}")
    expect(other.get_by_role("alert")).to_contain_text("used already")
