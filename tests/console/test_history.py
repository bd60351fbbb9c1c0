"""The timeline's whole history: back to the beginning, searched, filtered, saved and linked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from moot.participant import JoinedSpace
from tests.console.conftest import MemberAs, PageAs
from tests.console.gateway_and_members import Loop, Running, spaces
from tests.console.test_timeline import lines, narrow, rows

OLD = 230
_REACHES_FURTHER = """first => {
  const log = document.querySelector(".chat-list");
  const isBeginning = log.textContent.includes("This is the beginning");
  return isBeginning || log.querySelector(".chat-message").dataset.id !== first;
}"""


@pytest.fixture
def gateway(tmp_path: Path, loop: Loop, origin_port: int) -> Iterator[Running]:
    """A gateway that keeps few messages in memory, and gives small pages."""
    running = Running(
        tmp_path, loop, spaces(), port=origin_port, poll_messages=30, max_history_page_messages=100
    )
    yield running
    running.stop()


def bar(page: Page) -> Locator:
    return page.locator(".tl-older")


async def _talk(space: JoinedSpace) -> list[str]:
    """Hundreds of messages, the second one of which is worth finding."""
    ids = []
    for number in range(OLD):
        text = "a Needle in the hay" if number == 1 else f"hay {number}"
        ids.append((await space.chat(text)).id)
    return ids


def test_the_timeline_reaches_back_to_the_beginning(
    gateway: Running, page_as: PageAs, member: MemberAs
) -> None:
    """By scrolling, by searching, and by a link; after a restart, and for whoever opens the page now."""
    agent = member("agent")
    ids = agent.run(_talk)
    agent.leave()
    gateway.restart()
    page = page_as("human", "timeline")
    expect(rows(page, f"hay {OLD - 1}")).to_be_visible()
    # None of the loaded messages has it, so the search goes on by itself.
    narrow(page, "needle")
    expect(rows(page, "a Needle")).to_have_count(1)
    expect(bar(page)).to_contain_text("This is the beginning of the space.")
    rows(page, "a Needle").click()
    expect(page.get_by_role("complementary", name="Details")).to_contain_text("a Needle in the hay")
    page.keyboard.press("Escape")
    narrow(page, "")
    expect(rows(page, f"hay {OLD - 1}")).to_be_visible()
    expect(bar(page)).not_to_contain_text("beginning")
    timeline = page.get_by_role("listbox", name="Timeline")
    count = page.locator(".tl-count")
    for _ in range(OLD):
        before = count.inner_text()
        timeline.evaluate("(list) => { list.scrollTop = 0; }")
        page.wait_for_function(
            """(before) => document.querySelector(".tl-count").textContent !== before
                || document.querySelector(".tl-older").textContent.includes("beginning")""",
            arg=before,
        )
        if "beginning" in (bar(page).text_content() or ""):
            break
    expect(bar(page)).to_contain_text("This is the beginning of the space.")
    timeline.evaluate("(list) => { list.scrollTop = 0; }")
    expect(rows(page, "hay 0").first).to_be_visible()
    expect(count).to_have_text(f"{OLD} messages")
    # None twice, and in order.
    texts = timeline.evaluate(
        """async (list) => {
            const seen = new Map();
            for (let top = 0; top < list.scrollHeight; top += 300) {
                list.scrollTop = top;
                await new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)));
                for (const row of list.querySelectorAll(".vl-row:not([hidden])"))
                    seen.set(Number(row.ariaPosInSet), row.querySelector(".summary").textContent);
            }
            return [...seen].sort(([a], [b]) => a - b).map(([, text]) => text);
        }"""
    )
    assert texts == ["a Needle in the hay" if n == 1 else f"hay {n}" for n in range(OLD)]
    linked = page_as("second", "timeline", ids[3])
    expect(linked.get_by_role("complementary", name="Details")).to_contain_text("hay 3")
    missing = page_as("second", "timeline", "no-such-message")
    expect(missing.locator(".notice.bad")).to_contain_text("no message of this address")


def test_what_was_said_before_one_was_a_member_is_said_to_be(page_as: PageAs, member: MemberAs) -> None:
    second = member("second")
    second.run(lambda space: space.chat("a secret of the founders"))
    token = second.run(lambda space: space.admin.invite("zoe", [{"kind": "chat"}])).token
    assert token is not None
    second.run(lambda space: space.chat("welcome, zoe"))
    page = page_as("human", "timeline")
    expect(rows(page, "a secret")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("Token", exact=True).fill(token)
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.evaluate("location.hash = '#/lab/timeline'")
    expect(rows(page, "welcome, zoe")).to_be_visible()
    expect(bar(page)).to_contain_text("before you were a member")
    expect(rows(page, "a secret")).to_have_count(0)


def test_housekeeping_is_hidden_until_somebody_asks_for_it(page_as: PageAs, member: MemberAs) -> None:
    """Presence, lists of tools, questions of consoles; never a call of a tool, never what failed."""
    page = page_as("watcher", "timeline")
    member("files")
    other = page_as("human", "call", "files", "add")
    expect(other.locator(".call-form")).to_contain_text("a")
    second = member("second")
    second.run(lambda space: space.call("files", "add", {"a": 1}))
    expect(rows(page, "add").first).to_be_visible()
    for word in ("presence", "tools/list", "what is pending", "welcome"):
        expect(rows(page, word)).to_have_count(0)
    background = page.get_by_role("button", name="Background")
    background.click()
    expect(rows(page, "presence").first).to_be_visible()
    expect(rows(page, "tools/list").first).to_be_visible()
    background.click()
    expect(rows(page, "presence")).to_have_count(0)
    narrow(page, "kind:system/presence")
    expect(rows(page, "presence").first).to_be_visible()
    # A filter that excludes.
    agent = member("agent")
    agent.run(lambda space: space.chat("from the agent"))
    second.run(lambda space: space.chat("from the second"))
    narrow(page, "kind:chat")
    expect(lines(page)).to_have_count(2)
    narrow(page, "-from:agent -kind:mcp")
    expect(lines(page)).to_have_count(1)
    expect(rows(page, "from the second")).to_be_visible()
    narrow(page, '-"from the" -kind:mcp/response')
    expect(lines(page)).to_have_count(1)
    expect(rows(page, "request")).to_be_visible()


def test_a_filter_can_be_saved_and_linked_and_messages_copied(page_as: PageAs, member: MemberAs) -> None:
    page = page_as("human", "timeline", permissions=["clipboard-read", "clipboard-write"])
    agent = member("agent")
    said = agent.run(lambda space: space.chat("keep this"))
    narrow(page, "from:agent")
    expect(lines(page)).to_have_count(1)
    views = page.get_by_role("button", name="Views")
    views.click()
    page.get_by_role("menuitem", name="Save this filter").click()
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(page.get_by_label("Name", exact=True)).to_have_attribute("aria-invalid", "true")
    page.get_by_label("Name", exact=True).fill("The agent")
    page.keyboard.press("Enter")
    narrow(page, "")
    views.click()
    page.get_by_role("menuitemradio", name="Failed and refused").click()
    expect(page.get_by_label("Filter the timeline")).to_have_value("is:failed")
    views.click()
    page.get_by_role("menuitemradio", name="The agent").click()
    expect(page.get_by_label("Filter the timeline")).to_have_value("from:agent")
    assert page.url.endswith("#/lab/timeline/~/from%3Aagent")
    views.click()
    page.get_by_role("menuitem", name="Copy link to this view").click()
    expect(page.locator(".notice")).to_contain_text(["Link copied"])
    assert page.evaluate("navigator.clipboard.readText()") == page.url
    rows(page, "keep this").click()
    details = page.get_by_role("complementary", name="Details")
    details.get_by_role("button", name="Copy link to this message").click()
    page.wait_for_function("async (id) => (await navigator.clipboard.readText()).endsWith(id)", arg=said.id)
    details.get_by_role("link", name="agent").click()
    expect(page.locator(".view-members")).to_be_visible()


def test_times_and_numbers_have_the_digits_of_the_language(page_as: PageAs, member: MemberAs) -> None:
    page = page_as("human", "timeline", locale="ar-EG")
    member("agent").run(lambda space: space.chat("مرحبا"))
    expect(rows(page, "مرحبا").locator("time")).to_have_text(re.compile("[٠-٩]{2}:[٠-٩]{2}:[٠-٩]{2}"))
    expect(page.locator(".tl-count")).to_contain_text("١")


def test_the_chat_reaches_back_too(page_as: PageAs, member: MemberAs) -> None:
    agent = member("agent")
    agent.run(_talk)
    page = page_as("human", "chat")
    log = page.get_by_role("log", name="Chat")
    expect(log).to_contain_text(f"hay {OLD - 1}")
    expect(page.locator(".nav-link[href$='/chat'] .badge").first).to_be_visible()
    waiting = page.locator(".nav-link[href$='/chat'] .badge").first.inner_text()
    earlier, beginning = log.locator(".chat-earlier button"), log.get_by_text("This is the beginning")
    for _ in range(OLD):
        # Either is there once the page has drawn what it has loaded.
        expect(earlier.or_(beginning).first).to_be_visible()
        if beginning.count():
            break
        first = log.locator(".chat-message").first.get_attribute("data-id")
        earlier.click()
        # The button that was pressed may stay for a moment: it goes with the rest.
        page.wait_for_function(_REACHES_FURTHER, arg=first)
    expect(log).to_contain_text("This is the beginning of the space.")
    expect(log).to_contain_text("a Needle in the hay")
    # What is old waits for nobody.
    expect(page.locator(".nav-link[href$='/chat'] .badge").first).to_have_text(waiting)
