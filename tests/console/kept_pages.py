"""Pages that outlive their test: the next one finds the console loaded and compiled.

To load the console into a new page costs Chromium more than most tests then do with it. A page that goes to
the same address again, in the same process, has everything in memory, and runs it anew. So the gateways of a
worker listen on one port, one after the other, and what a test leaves in a page is cleared away: what is
stored, listeners, the size of the window, where the mouse is. What cannot be cleared away is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn
from urllib.parse import urljoin

from playwright.sync_api import Browser, BrowserContext, Error, Page, ViewportSize

from tests.waiting import HANG_SECONDS

WIDE: ViewportSize = {"width": 1280, "height": 800}
NEW_PAGE: dict[str, Any] = {
    "reduced_motion": "reduce",
    "viewport": WIDE,
    # Each page would keep all files once more; tests of the service worker say `allow`.
    "service_workers": "block",
}

_WATCH_POLICY = """
window.__broken = [];
addEventListener("securitypolicyviolation", (event) => window.__broken.push(
  `${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`));
"""
# A short message is shown for six seconds: a test on a busy machine may look later than that.
_NOTICES_STAY = """
const start = window.setTimeout;
window.setTimeout = (run, milliseconds, ...rest) =>
  start(run, milliseconds === 6000 ? 2 ** 31 - 1 : milliseconds, ...rest);
"""
# These stay in a page or its context for good.
_FOR_GOOD = ("expose_binding", "expose_function", "route", "route_web_socket")
_FORGET = "localStorage.clear(); sessionStorage.clear(); window.name = ''"


def new_context(browser: Browser, **options: Any) -> BrowserContext:
    """A context whose pages note what the Content Security Policy had to stop."""
    context = browser.new_context(**(NEW_PAGE | options))
    context.set_default_timeout(HANG_SECONDS * 1000)
    context.add_init_script(_WATCH_POLICY)
    context.add_init_script(f"(() => {{{_NOTICES_STAY}}})()")
    return context


class KeptPage:
    """A page in a context of its own, lent to one test after the other."""

    def __init__(self, browser: Browser) -> None:
        self._context = new_context(browser)
        self.page = self._context.new_page()
        self._on = self.page.on
        self._heard: list[tuple[Any, Callable[..., None]]] = []
        self._tools = self._context.new_cdp_session(self.page)
        self._tools.send("Page.enable")
        self._scripts: list[str] = []
        # What a test asks of the page itself, so that it need not know that the page is kept.
        for name, act in {"on": self._listen, "add_init_script": self._add_script}.items():
            setattr(self.page, name, act)
        for name in _FOR_GOOD:
            setattr(self.page, name, _refuse)

    def _listen(self, event: Any, hear: Callable[..., None]) -> None:
        self._heard.append((event, hear))
        self._on(event, hear)

    def _add_script(self, script: str) -> None:
        added = self._tools.send("Page.addScriptToEvaluateOnNewDocument", {"source": script})
        self._scripts.append(added["identifier"])

    def lend(self, viewport: Any = None, color_scheme: Any = "light", permissions: Any = ()) -> Page:
        self.page.set_viewport_size(viewport or WIDE)
        self.page.emulate_media(color_scheme=color_scheme)
        if permissions:
            self._context.grant_permissions(permissions)
        return self.page

    def take_back(self) -> bool:
        """Clear away what a test has left; whether the page is as good as new."""
        page = self.page
        if page.is_closed():
            return False
        try:
            assert not page.evaluate("'__pwClock' in window"), "a page with a clock of its own is not kept"
            for event, hear in self._heard:
                page.remove_listener(event, hear)
            self._heard.clear()
            for script in self._scripts:
                self._tools.send("Page.removeScriptToEvaluateOnNewDocument", {"identifier": script})
            self._scripts.clear()
            for other in self._context.pages:
                if other is not page:
                    other.close()
            # Light, and of the same origin and policy: the process stays, and with it what it has in memory.
            page.goto(urljoin(page.url, "/manifest.webmanifest"))
            page.evaluate(_FORGET)
            page.mouse.move(0, 0)
            self._context.clear_cookies()
            self._context.clear_permissions()
        except Error:
            return False
        return True

    def close(self) -> None:
        self._context.close()


class KeptPages:
    """As many pages as a test ever had at once."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._free: list[KeptPage] = []

    def take(self) -> KeptPage:
        return self._free.pop() if self._free else KeptPage(self._browser)

    def give_back(self, kept: KeptPage) -> None:
        if kept.take_back():
            self._free.append(kept)
        else:
            kept.close()

    def close(self) -> None:
        for kept in self._free:
            kept.close()


def _refuse(*_: object, **__: object) -> NoReturn:
    raise AssertionError(
        "this page is kept for the next test: ask for one of its own, page_as(…, alone=True)"
    )
