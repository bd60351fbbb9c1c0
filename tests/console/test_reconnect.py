"""A lost line comes back by itself, says so, and shows what it missed or that something is missing (D-40)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs

import httpx
import pytest
from playwright.sync_api import Locator, Page, Route, expect

from moot.protocol.operation import Json
from tests.console.conftest import MemberAs, NewPage, PageAs, sign_in
from tests.console.gateway_and_members import Loop, Running, spaces
from tests.waiting import HANG_SECONDS


def rows(page: Page, words: str) -> Locator:
    return page.get_by_role("listbox", name="Timeline").get_by_role("option").filter(has_text=words)


def in_order(found: Locator) -> list[str]:
    """What these rows say from the top down: elements are used again, so they stand in any order."""
    texts: list[str] = found.evaluate_all(
        """(all) => all.sort((a, b) => a.dataset.index - b.dataset.index).map((each) => each.innerText)"""
    )
    return texts


def say(gateway: Running, name: str, text: str) -> None:
    post(gateway, name, {"kind": "chat", "payload": {"text": text}})


def post(gateway: Running, name: str, envelope: Json) -> None:
    """Over HTTP, so that nobody comes or goes by it."""
    answer = httpx.post(
        f"{gateway.url}/participants/{name}/messages",
        params={"space": "lab"},
        json=envelope,
        headers={"Authorization": f"Bearer t-{name}"},
        trust_env=False,
        timeout=HANG_SECONDS,
    )
    assert answer.status_code == 200, answer.text


def lose(page: Page) -> None:
    """Break the socket from inside the page, and keep new ones from opening until `find`."""
    page.evaluate(
        """() => {
            window.__Socket = WebSocket;
            window.WebSocket = class extends EventTarget {
                constructor() { super(); setTimeout(() => this.onclose?.({ code: 1006, reason: "" }), 10); }
                close() {} send() {}
                static OPEN = 1;
            };
            window.__sockets.forEach((socket) => socket.close(3000, "test"));
        }"""
    )


def find(page: Page) -> None:
    """Let sockets open again, and try at once unless the page has done so by itself meanwhile."""
    page.evaluate(
        """() => {
            window.WebSocket = window.__Socket;
            [...document.querySelectorAll("button")].find((each) => each.textContent === "Try now")?.click();
        }"""
    )


WATCH_SOCKETS = """
window.__sockets = [];
const Real = WebSocket;
window.WebSocket = class extends Real { constructor(...all) { super(...all); window.__sockets.push(this); } };
"""


def test_what_was_said_meanwhile_is_fetched_and_no_gap_is_shown(gateway: Running, page_as: PageAs) -> None:
    """Nothing twice, nothing missing, and in order."""
    page = page_as("watcher", "timeline", script=WATCH_SOCKETS)
    say(gateway, "agent", "before the loss")
    expect(page.get_by_role("option").filter(has_text="before the loss")).to_be_visible()
    lose(page)
    expect(page.locator(".top .pill")).to_have_text("Offline")
    expect(page.locator(".banner")).to_contain_text("Connection lost")
    for number in range(5):
        say(gateway, "agent", f"missed {number}")
    find(page)
    expect(page.locator(".top .pill")).to_have_text("Live")
    expect(page.locator(".banner")).to_be_hidden()
    expect(rows(page, "missed")).to_have_count(5)
    assert [text.split()[-1] for text in in_order(rows(page, "missed"))] == ["0", "1", "2", "3", "4"]
    expect(rows(page, "before the loss")).to_have_count(1)
    expect(page.locator(".gap-row")).to_have_count(0)


def test_what_a_gateway_lacks_to_which_the_space_has_moved_is_asked_for_from_where_it_says(
    gateway: Running, page_as: PageAs
) -> None:
    page = page_as("watcher", "timeline", script=WATCH_SOCKETS, alone=True)
    say(gateway, "agent", "before the loss")
    expect(page.get_by_role("option").filter(has_text="before the loss")).to_be_visible()
    asked: list[str] = []

    def answer(route: Route) -> None:
        asked.append(parse_qs(route.request.url.partition("?")[2])["since"][0])
        if len(asked) > 1:
            route.continue_()
        else:
            route.fulfill(status=410, json={"error": "gone", "next": str(float(asked[0]) + 0.5)})

    page.route("**/participants/*/messages?*", answer)
    lose(page)
    say(gateway, "agent", "missed")
    find(page)
    expect(page.locator(".top .pill")).to_have_text("Live")
    expect(rows(page, "missed")).to_have_count(1)
    assert float(asked[1]) == float(asked[0]) + 0.5
    expect(page.locator(".gap-row")).to_have_count(0)


def test_it_comes_back_after_the_gateway_restarts(gateway: Running, page_as: PageAs) -> None:
    """The journal outlives the gateway, and so does what can be caught up on: no gap, nothing twice."""
    page = page_as("human", "timeline")
    say(gateway, "agent", "before the restart")
    expect(page.get_by_role("option").filter(has_text="before the restart")).to_be_visible()
    gateway.stop()
    expect(page.locator(".top .pill")).to_have_text("Offline")
    expect(page.locator(".banner")).to_contain_text("retrying")
    gateway.start()
    say(gateway, "agent", "after the restart")
    expect(page.locator(".top .pill")).to_have_text("Live")
    expect(page.get_by_role("option").filter(has_text="after the restart")).to_be_visible()
    expect(rows(page, "before the restart")).to_have_count(1)
    expect(page.locator(".gap-row")).to_have_count(0)


@pytest.fixture
def forgetful(tmp_path: Path, loop: Loop, origin_port: int) -> Iterator[Running]:
    """A gateway that remembers five messages."""
    running = Running(tmp_path, loop, spaces(), port=origin_port, poll_messages=5)
    yield running
    running.stop()


def test_what_the_gateway_does_not_remember_comes_from_the_journal(
    forgetful: Running, new_page: NewPage
) -> None:
    """Between what is known around it. If the journal cannot be read a gap is shown, and loaded later."""
    page = new_page(alone=True)
    page.add_init_script(WATCH_SOCKETS)
    page.goto(f"{forgetful.url}/#/lab/timeline")
    sign_in(page, "t-watcher")
    call = {"method": "tools/call", "params": {"name": "read_file"}}
    say(forgetful, "agent", "before the loss")
    post(forgetful, "agent", {"kind": "mcp/proposal", "payload": call})
    expect(page.get_by_role("option").filter(has_text="read_file")).to_be_visible()

    def miss(words: str) -> None:
        lose(page)
        expect(page.locator(".top .pill")).to_have_text("Offline")
        for number in range(9):
            say(forgetful, "agent", f"{words} {number}")
        find(page)
        expect(page.locator(".top .pill")).to_have_text("Live")

    def shown_in_order(*words: str) -> None:
        order = in_order(rows(page, ""))
        places = [next(index for index, text in enumerate(order) if each in text) for each in words]
        assert places == sorted(places)

    miss("missed")
    expect(rows(page, "missed")).to_have_count(9)
    expect(page.locator(".gap-row")).to_have_count(0)
    shown_in_order("before the loss", *(f"missed {number}" for number in range(9)))

    page.route("**/history*", lambda route: route.fulfill(status=500, body="{}"))
    miss("lost")
    expect(page.locator(".gap-row")).to_have_count(1)
    expect(page.locator(".gap-row")).to_contain_text("could not be loaded: open this line to load them")
    expect(rows(page, "lost 0")).to_have_count(0)
    shown_in_order("missed 8", "Gap", "lost 8")
    page.evaluate("location.hash = '#/lab/approvals'")
    expect(page.get_by_text("1 pending", exact=True)).to_be_visible()
    expect(page.locator(".approvals-detail")).not_to_contain_text("this may already be decided")
    page.evaluate("location.hash = '#/lab/timeline'")
    page.locator(".gap-row").click()
    details = page.get_by_role("complementary", name="Details")
    expect(details).to_contain_text("may be missing")
    page.unroute("**/history*")
    details.get_by_role("button", name="Load missing messages").click()
    expect(rows(page, "lost")).to_have_count(9)
    expect(page.locator(".gap-row")).to_have_count(0)
    expect(rows(page, "before the loss")).to_have_count(1)
    shown_in_order("before the loss", "missed 0", "missed 8", *(f"lost {number}" for number in range(9)))
    # The chat has them too, in their order.
    page.evaluate("location.hash = '#/lab/chat'")
    texts = page.locator(".chat-message .text-block")
    expect(texts).to_contain_text(["before the loss", *(f"missed {n}" for n in range(9)), "lost 0"])

    page.route("**/history*", lambda route: route.fulfill(status=404, body="{}"))
    page.evaluate("location.hash = '#/lab/timeline'")
    expect(rows(page, "lost 8")).to_be_visible()
    known = page.locator(".tl-count").inner_text()
    miss("gone")
    # Whoever looked at older ones stays there: those behind them have to be known before the end is.
    expect(page.locator(".tl-count")).not_to_have_text(known)
    page.get_by_role("listbox", name="Timeline").press("End")
    expect(page.locator(".gap-row")).to_contain_text("no longer has all messages")
    expect(page.locator(".gap-row")).not_to_contain_text("open this line")


def test_somebody_who_was_removed_is_told_and_does_not_knock_again(
    gateway: Running, page_as: PageAs, member: MemberAs
) -> None:
    page = page_as("watcher", "timeline")
    sockets: list[str] = []
    page.on("websocket", lambda socket: sockets.append(socket.url))
    second = member("second")
    second.run(lambda space: space.admin.kick("watcher", "enough"))
    expect(page.locator(".top .pill")).to_have_text("Disconnected")
    expect(page.locator(".banner")).to_contain_text("removed from the space")
    # No button asks to try what cannot help.
    expect(page.locator(".banner")).to_contain_text("With a new one, sign out and in again.")
    expect(page.get_by_role("button", name=re.compile("Reconnect|Retry"))).to_have_count(0)
    page.wait_for_timeout(1200)
    assert sockets == []


def test_what_is_written_while_offline_is_not_lost(gateway: Running, page_as: PageAs) -> None:
    page = page_as("human", "chat")
    gateway.stop()
    expect(page.locator(".top .pill")).to_have_text("Offline")
    field = page.get_by_label("Message", exact=True)
    field.fill("are you there?")
    field.press("Enter")
    expect(page.locator(".notice.bad")).to_contain_text("nothing was sent")
    expect(field).to_have_value("are you there?")
    gateway.start()
    expect(page.locator(".top .pill")).to_have_text("Live")
    field.press("Enter")
    expect(page.locator(".chat-message").filter(has_text="are you there?")).to_be_visible()


def test_the_past_is_shown_to_whoever_comes_late(gateway: Running, page_as: PageAs, member: MemberAs) -> None:
    """A proposal that was made before somebody looked still waits for them."""
    agent = member("agent")
    agent.run(lambda space: space.propose("files", "tools/call", {"name": "early", "arguments": {}}))
    page = page_as("human", "timeline")
    expect(page.get_by_role("option").filter(has_text="early")).to_be_visible()
