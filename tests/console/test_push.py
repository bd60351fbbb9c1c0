"""Notifications on a device: turned on in the console, shown by its service worker, off after signing out.

The browser's own push service cannot be reached from here. So the page is given a subscription at a server of
ours, which opens what the gateway seals for it; the opened message is then delivered to the real service
worker.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import CDPSession, Page, Route, Worker, expect

from tests.console.conftest import Watched, sign_in
from tests.console.gateway_and_members import Driven, Loop, Running, spaces
from tests.console.test_accessibility import issues
from tests.console.test_installed import controlled
from tests.gateway.notifications.push_browser import PushBrowser
from tests.gateway.notifications.receivers import Receiver, receiver
from tests.gateway.notifications.test_notifications import CALL
from tests.gateway.notifications.test_web_push import quick
from tests.waiting import HANG_SECONDS, until_seen

# Subscribes at the server of the test; everything else is the browser's own.
SUBSCRIBE = """
(() => {
  const given = %s;
  let current = null;
  PushManager.prototype.getSubscription = async () => current;
  PushManager.prototype.subscribe = async (options) => (current = {
    endpoint: given.endpoint,
    options: { applicationServerKey: options.applicationServerKey.buffer },
    toJSON: () => given,
    unsubscribe: async () => { current = null; return true; },
  });
})();
"""


@pytest.fixture
def service(loop: Loop) -> Iterator[Receiver]:
    """A push service."""
    running = receiver(status=201)
    yield loop.run(running.__aenter__())
    loop.run(running.__aexit__(None, None, None))


@pytest.fixture
def gateway(tmp_path: Path, loop: Loop) -> Iterator[Running]:
    running = Running(tmp_path, loop, spaces(), notifications=quick())
    yield running
    running.stop()


class ServiceWorkerTools:
    """Delivers messages to the service worker of a page, as the browser does."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._tools: CDPSession = page.context.new_cdp_session(page)
        self._found: list[str] = []
        self._tools.on("ServiceWorker.workerRegistrationUpdated", self._updated)
        self._tools.send("ServiceWorker.enable")

    def _updated(self, event: dict[str, Any]) -> None:
        self._found += [each["registrationId"] for each in event["registrations"]]

    def deliver(self, data: str) -> None:
        until_seen(lambda: self._found or self._page.evaluate("0"))
        origin = self._page.evaluate("location.origin")
        self._tools.send(
            "ServiceWorker.deliverPushMessage",
            {"origin": origin, "registrationId": self._found[-1], "data": data},
        )

    def watch(self, worker: Worker) -> None:
        """Keep what it shows: the Chromium of the tests has no screen on which a notification could be."""
        self._worker = worker
        worker.evaluate(
            """() => {
              self.shown = [];
              ServiceWorkerRegistration.prototype.showNotification = async (title, { body, tag, data }) => {
                self.shown = [...self.shown.filter((each) => each.tag !== tag), { title, body, tag, data }];
              };
            }"""
        )

    def shown(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._worker.evaluate("self.shown")
        return found

    def press(self, tag: str) -> None:
        """As a person does; only that the page comes to the front is not for programs to do."""
        self._worker.evaluate(
            """(tag) => {
              const { data } = self.shown.find((each) => each.tag === tag);
              WindowClient.prototype.focus = async function () { return this; };
              const press = new ExtendableEvent("notificationclick");
              press.notification = { data, close: () => {} };
              self.dispatchEvent(press);
            }""",
            tag,
        )


def test_a_person_turns_them_on_is_told_opens_the_proposal_and_signs_out(
    gateway: Running, watched: Watched, service: Receiver, loop: Loop
) -> None:
    browser = PushBrowser(service.url)
    page = watched.page(service_workers="allow")
    page.context.grant_permissions(["notifications"], origin=gateway.url)
    page.add_init_script(SUBSCRIBE % json.dumps(browser.subscription))
    page.goto(gateway.url)
    controlled(page)
    sign_in(page, "t-human")
    dialog = open_settings(page)
    expect(dialog.locator(".push-state")).to_contain_text("Off.")
    dialog.get_by_label("Quiet hours").check()
    dialog.get_by_label("Quiet from").fill("03:00")
    dialog.get_by_label("Quiet until").fill("03:01")
    dialog.get_by_role("button", name="Turn on").click()
    expect(dialog.locator(".push-state")).to_contain_text("On.")
    expect(dialog.get_by_label("Quiet from")).to_have_value("03:00")
    assert issues(page) == []
    devices = gateway.gateway.notifier.devices
    (device,) = devices._devices.values()
    key = device.key
    first = browser.read(service.requests[0], key)
    tools = ServiceWorkerTools(page)
    tools.watch(page.context.service_workers[-1])
    tools.deliver(json.dumps(first))
    until_seen(lambda: [each["title"] for each in tools.shown()] == ["Notifications are on"])
    dialog.get_by_role("button", name="Close").last.click()

    agent = Driven(loop, "agent")
    agent.enter(gateway.url, "lab", "t-agent")
    proposal = agent.run(lambda space: space.propose("files", "tools/call", CALL["params"]))
    until_seen(lambda: len(service.requests) == 2)
    told = browser.read(service.requests[1], key)
    tools.deliver(json.dumps(told))
    until_seen(lambda: len(tools.shown()) == 2)
    (shown,) = [each for each in tools.shown() if each["tag"] != "moot-first"]
    assert shown["title"] == "agent proposes write_file on files (lab)"
    assert shown["data"]["path"] == f"#/lab/approvals/{proposal.id}"
    # Twice is once.
    tools.deliver(json.dumps(told))
    tools.deliver("no JSON at all")
    until_seen(lambda: len(tools.shown()) == 3)

    tools.press(shown["tag"])
    page.wait_for_url(f"**/#/lab/approvals/{proposal.id}")
    expect(page.get_by_role("heading", name="write_file")).to_be_visible()

    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token", exact=True)).to_be_visible()
    until_seen(lambda: not devices._devices)
    assert page.evaluate("localStorage.length") == 0
    agent.leave()


def open_settings(page: Page) -> Any:
    page.get_by_role("button", name="Space: lab").click()
    page.get_by_role("menuitem", name="Notifications on this device…").click()
    return page.get_by_role("dialog", name="Notifications on this device")


def test_who_counts_on_it_reads_that_it_has_stopped_and_a_service_that_refuses_is_named(
    gateway: Running, watched: Watched, service: Receiver
) -> None:
    browser = PushBrowser(service.url)
    page = watched.page(service_workers="allow")
    page.context.grant_permissions(["notifications"], origin=gateway.url)
    page.add_init_script(SUBSCRIBE % json.dumps(browser.subscription))
    page.goto(gateway.url)
    sign_in(page, "t-human")
    service.status = 403
    page.set_viewport_size({"width": 320, "height": 640})
    dialog = open_settings(page)
    dialog.get_by_label("Quiet hours").check()
    expect(dialog.get_by_label("Quiet until")).to_be_visible()
    assert dialog.locator(".dialog-body").evaluate("(body) => body.scrollWidth <= body.clientWidth")
    dialog.get_by_role("button", name="Turn on").click()
    expect(dialog.get_by_role("alert")).to_contain_text(
        "does not take messages from this gateway (status 403)"
    )
    expect(dialog.locator(".push-state")).to_contain_text("Off.")
    service.status = 201
    dialog.get_by_role("button", name="Turn on").click()
    expect(dialog.locator(".push-state")).to_contain_text("On.")
    # The key is lost while the gateway is down.
    data = gateway.gateway.config.data
    gateway.stop()
    (data / "push" / "vapid.pem").unlink()
    gateway.start()
    page.reload()
    sign_in(page, "t-human")
    expect(page.locator(".notice-text")).to_contain_text("Notifications on this device have stopped")


def test_who_signed_in_for_a_time_reads_why_there_are_none(gateway: Running, watched: Watched) -> None:
    """As everybody does who signs in at a provider: nobody is asked for a permission that is of no use."""
    answer = httpx.post(
        f"{gateway.url}/participants/human/tokens",
        params={"space": "lab"},
        json={"seconds": 600},
        headers={"Authorization": "Bearer t-human"},
        trust_env=False,
        timeout=HANG_SECONDS,
    )
    page = watched.page(service_workers="allow")
    page.goto(gateway.url)
    controlled(page)
    sign_in(page, answer.json()["token"])
    dialog = open_settings(page)
    expect(dialog.locator(".caution")).to_contain_text("this sign-in ends by itself")
    expect(dialog.get_by_role("button", name="Turn on")).to_have_count(0)


def test_over_plain_http_the_page_says_why_there_are_none(gateway: Running, watched: Watched) -> None:
    """http:// at another name than this machine's own: what a phone in the same network sees."""
    # Chromium says about a header that it has no meaning there.
    watched.expected += ("The Cross-Origin-Opener-Policy header has been ignored",)
    page = watched.page(service_workers="allow")
    page.route("http://moot.test/**", lambda route: _ask_gateway(route, gateway))
    page.goto("http://moot.test/")
    assert page.evaluate("isSecureContext") is False
    # Without a WebSocket, which nobody takes over here, it does not become live.
    page.get_by_label("Token", exact=True).fill("t-human")
    page.get_by_role("button", name="Sign in", exact=True).click()
    dialog = open_settings(page)
    expect(dialog).to_contain_text("Browsers allow notifications only over HTTPS and on localhost")
    expect(dialog.get_by_role("button", name="Turn on")).to_have_count(0)


def _ask_gateway(route: Route, gateway: Running) -> None:
    headers = {key: value for key, value in route.request.headers.items() if key not in ("host", "origin")}
    answer = route.fetch(url=route.request.url.replace("http://moot.test", gateway.url), headers=headers)
    # As if the gateway had been asked by that name.
    found = {
        key: value.replace(gateway.url.removeprefix("http://"), "moot.test")
        for key, value in answer.headers.items()
    }
    route.fulfill(response=answer, headers=found)
