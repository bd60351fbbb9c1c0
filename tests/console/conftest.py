"""What every test of the console is given: a gateway, members, and pages of one Chromium.

After every test: the page reported no broken policy, no error, and no traceback stands in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.console.gateway_and_members import Driven, Loop, Running, offer_tools, spaces
from tests.console.kept_pages import KeptPages, new_context
from tests.ports import held_port
from tests.waiting import HANG_SECONDS


class NewPage(Protocol):
    """An empty page: that of an earlier test, cleared; new if it is to be `alone` or has unusual options."""

    def __call__(self, *, alone: bool = False, **options: Any) -> Page: ...


class PageAs(Protocol):
    """A page of somebody who stays signed in, reloaded too; `view` and `rest` are where it goes.

    `script` runs before anything of the page. For the rest see `NewPage`.
    """

    def __call__(
        self, name: str, view: str = "", *rest: str, space: str = "lab", script: str = "", **options: Any
    ) -> Page: ...


class MemberAs(Protocol):
    """A member of the SDK that stays until the test ends."""

    def __call__(self, name: str, space: str = "lab", **options: Any) -> Driven: ...


@pytest.fixture(scope="session")
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture(scope="session")
def origin_port() -> Iterator[int]:
    """Where the gateways of a worker listen, one after the other: what a page has loaded is theirs."""
    with held_port() as held:
        yield held


@pytest.fixture(scope="session")
def kept_pages(browser: Browser) -> Iterator[KeptPages]:
    kept = KeptPages(browser)
    yield kept
    kept.close()


@pytest.fixture
def gateway(tmp_path: Path, loop: Loop, origin_port: int) -> Iterator[Running]:
    """The space `lab`: human and second (all rights), agent (proposals), files (tools), watcher (chat)."""
    running = Running(tmp_path, loop, spaces(), port=origin_port)
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
        self._pages: list[Page] = []
        self._closing: list[Callable[[], None]] = []
        self.errors: list[str] = []
        # A test that breaks the line itself expects the browser to complain about it.
        self.expected: tuple[str, ...] = ("WebSocket connection to", "Failed to load resource")

    def page(self, **options: Any) -> Page:
        """A page of its own context, which nobody had before and nobody has afterwards."""
        context = new_context(self._browser, **options)
        return self.watch(context.new_page(), context.close)

    def watch(self, page: Page, close: Callable[[], None]) -> Page:
        page.on("pageerror", lambda fault: self.errors.append(str(fault)))
        page.on("console", lambda message: self._said(message.type, message.text))
        self._pages.append(page)
        self._closing.append(close)
        return page

    def _said(self, kind: str, text: str) -> None:
        if kind == "error" and not text.startswith(self.expected):
            self.errors.append(text)

    def broken(self) -> list[str]:
        """What the Content Security Policy had to stop."""
        return [each for page in self._pages if not page.is_closed() for each in _broken(page)]

    def close(self) -> None:
        for close in self._closing:
            close()


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
def new_page(watched: Watched, kept_pages: KeptPages) -> NewPage:
    def open_page(*, alone: bool = False, **options: Any) -> Page:
        if alone or not options.keys() <= {"viewport", "color_scheme", "permissions"}:
            return watched.page(**options)
        kept = kept_pages.take()
        return watched.watch(kept.lend(**options), lambda: kept_pages.give_back(kept))

    return open_page


@pytest.fixture
def page_as(gateway: Running, new_page: NewPage) -> PageAs:
    def open_page(
        name: str, view: str = "", *rest: str, space: str = "lab", script: str = "", **options: Any
    ) -> Page:
        page = new_page(**options)
        stay_signed_in(page, gateway.url, gateway.token(name))
        if script:
            page.add_init_script(script)
        where = "/".join([space, view, *rest]).rstrip("/")
        page.goto(f"{gateway.url}/#/{where}")
        expect(page.locator(".top .pill")).to_have_text("Live")
        return page

    return open_page


def view_ids(page: Page) -> list[str]:
    """The views of the page, from its navigation, where some are twice."""
    found: list[str] = page.evaluate(
        "[...new Set([...document.querySelectorAll('a.nav-link')].map((each) => each.hash.split('/')[2]))]"
    )
    assert {"timeline", "streams"} <= {*found}
    return found


def sign_in(page: Page, token: str, *, remember: bool = False) -> None:
    """Type the token and wait until the line stands."""
    page.get_by_label("Token", exact=True).fill(token)
    if remember:
        page.get_by_label("Stay signed in").check()
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.locator(".top .pill")).to_have_text("Live")


def stay_signed_in(page: Page, url: str, token: str) -> None:
    """Leave a token in the tab, as a person who stays signed in does: to type it costs a tenth of a test."""
    if not page.url.startswith(f"{url}/"):
        page.goto(f"{url}/manifest.webmanifest")
    page.evaluate("token => sessionStorage.setItem('moot.tokens', JSON.stringify([token]))", token)


@pytest.fixture(autouse=True)
def _no_traceback_in_the_log(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.INFO, "moot"):
        yield
    found = [record for when in ("setup", "call") for record in caplog.get_records(when) if record.exc_info]
    assert [f"{record.name}: {record.getMessage()} {record.exc_info}" for record in found] == []
