"""What every test of the console is given: a gateway, members, and pages of one Chromium.

After every test: the page reported no broken policy, no error, and no traceback stands in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.console.gateway_and_members import Driven, Loop, Running, offer_tools, spaces
from tests.waiting import HANG_SECONDS

_WATCH_POLICY = """
window.__broken = [];
addEventListener("securitypolicyviolation", (event) => window.__broken.push(
  `${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`));
"""


class PageAs(Protocol):
    """A page signed in as somebody. `view` and `rest` are where it goes; `options` are a new context's."""

    def __call__(self, name: str, view: str = "", *rest: str, space: str = "lab", **options: Any) -> Page: ...


class MemberAs(Protocol):
    """A member of the SDK that stays until the test ends."""

    def __call__(self, name: str, space: str = "lab", **options: Any) -> Driven: ...


@pytest.fixture(scope="session")
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture
def gateway(tmp_path: Path, loop: Loop) -> Iterator[Running]:
    """The space `lab`: human and second (all rights), agent (proposals), files (tools), watcher (chat)."""
    running = Running(tmp_path, loop, spaces())
    yield running
    running.stop()


@pytest.fixture
def member(gateway: Running, loop: Loop) -> Iterator[MemberAs]:
    driven: list[Driven] = []

    def enter(name: str, space: str = "lab", **options: Any) -> Driven:
        one = Driven(loop, name)
        driven.append(one)
        one.enter(gateway.url, space, gateway.token(name), **options)
        if name == "files":
            one.run(offer_tools)
        return one

    yield enter
    for one in reversed(driven):
        one.leave()


class Watched:
    """Pages of a test, and what went wrong in them."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._contexts: list[BrowserContext] = []
        self._pages: list[Page] = []
        self.errors: list[str] = []
        # A test that breaks the line itself expects the browser to complain about it.
        self.expected: tuple[str, ...] = ("WebSocket connection to", "Failed to load resource")

    def page(self, **options: Any) -> Page:
        # Each page would keep a hundred files; tests of the service worker say `allow`.
        options = {
            "reduced_motion": "reduce",
            "viewport": {"width": 1280, "height": 800},
            "service_workers": "block",
        } | options
        context = self._browser.new_context(**options)
        context.set_default_timeout(HANG_SECONDS * 1000)
        context.add_init_script(_WATCH_POLICY)
        page = context.new_page()
        page.on("pageerror", lambda fault: self.errors.append(str(fault)))
        page.on("console", lambda message: self._said(message.type, message.text))
        self._contexts.append(context)
        self._pages.append(page)
        return page

    def _said(self, kind: str, text: str) -> None:
        if kind == "error" and not text.startswith(self.expected):
            self.errors.append(text)

    def broken(self) -> list[str]:
        """What the Content Security Policy had to stop."""
        return [each for page in self._pages if not page.is_closed() for each in _broken(page)]

    def close(self) -> None:
        for context in self._contexts:
            context.close()


def _broken(page: Page) -> list[str]:
    found: list[str] = page.evaluate("window.__broken ?? []")
    return found


@pytest.fixture
def watched(browser: Browser) -> Iterator[Watched]:
    expect.set_options(timeout=HANG_SECONDS * 1000)
    watched = Watched(browser)
    yield watched
    broken = watched.broken()
    watched.close()
    assert broken == []
    assert watched.errors == []


@pytest.fixture
def page_as(gateway: Running, watched: Watched) -> PageAs:
    def open_page(name: str, view: str = "", *rest: str, space: str = "lab", **options: Any) -> Page:
        page = watched.page(**options)
        where = "/".join([space, view, *rest]).rstrip("/")
        page.goto(f"{gateway.url}/#/{where}")
        sign_in(page, gateway.token(name))
        return page

    return open_page


def view_ids(page: Page) -> list[str]:
    """The views of the page, from the modules that it runs: one file at two addresses is two modules."""
    found: list[str] = page.evaluate(
        """async () => {
            const app = document.querySelector('script[type="module"]').src;
            const { registeredViews } = await import(new URL("core/router.js", app).href);
            return registeredViews().map((each) => each.id);
        }"""
    )
    assert "timeline" in found
    return found


def sign_in(page: Page, token: str, *, remember: bool = False) -> None:
    """Type the token and wait until the line stands."""
    page.get_by_label("Token", exact=True).fill(token)
    if remember:
        page.get_by_label("Stay signed in").check()
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.locator(".top .pill")).to_have_text("Live")


@pytest.fixture(autouse=True)
def _no_traceback_in_the_log(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.INFO, "moot"):
        yield
    found = [record for when in ("setup", "call") for record in caplog.get_records(when) if record.exc_info]
    assert [f"{record.name}: {record.getMessage()} {record.exc_info}" for record in found] == []
