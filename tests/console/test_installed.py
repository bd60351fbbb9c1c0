"""The console as an app: it can be installed, opens offline, and never shows what it does not know."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Error, Page, expect

from moot.gateway.http import http_routes
from moot.gateway.http.console import Console
from tests.console.conftest import MemberAs, Watched, sign_in
from tests.console.gateway_and_members import Loop, Running
from tests.console.prefix_proxy import PrefixProxy
from tests.console.test_accessibility import issues
from tests.gateway.notifications.test_notifications import CALL
from tests.waiting import until_seen

KEPT = """async () => {
  const found = {};
  for (const name of await caches.keys()) {
    const cache = await caches.open(name);
    found[name] = (await cache.keys()).map((request) => new URL(request.url).pathname);
  }
  return found;
}"""
# Active, and in charge of this page.
CONTROLLED = (
    "navigator.serviceWorker.ready.then(() => navigator.serviceWorker.controller?.state === 'activated')"
)
TAKEN_OVER = """navigator.serviceWorker.getRegistration().then(
  (found) => !found.installing && !found.waiting && found.active?.state === 'activated')"""


def answer(page: Page, script: str) -> Any:
    """What a script in the page finds; None if the page loaded itself anew meanwhile."""
    try:
        return page.evaluate(script)
    except Error as fault:
        if "context was destroyed" not in fault.message:
            raise
        return None


def controlled(page: Page) -> None:
    """Wait until the service worker has kept everything."""
    until_seen(lambda: answer(page, CONTROLLED))


def is_whole(kept: dict[str, list[str]], *, versions: int) -> bool:
    return len(kept) == versions and len({len(paths) for paths in kept.values()}) == 1


def kept_files(page: Page) -> dict[str, list[str]]:
    found: dict[str, list[str]] | None = answer(page, KEPT)
    return found or {}


@pytest.fixture
def proxied(gateway: Running, loop: Loop) -> Iterator[PrefixProxy]:
    with PrefixProxy(loop, gateway.port) as proxy:
        yield proxy


def test_chromium_finds_nothing_that_keeps_it_from_being_installed(
    gateway: Running, proxied: PrefixProxy, browser: Browser, tmp_path: Path
) -> None:
    """By the whole Chromium and a profile of its own: the small one and private windows install nothing."""
    whole = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    context = browser.browser_type.launch_persistent_context(
        tmp_path / "profile",
        executable_path=whole,
        args=["--no-sandbox", "--disable-gpu", "--headless=new"],
        ignore_default_args=["--headless"],
    )
    try:
        for url in (f"{gateway.url}/", proxied.url):
            page = context.new_page()
            page.goto(url)
            expect(page.get_by_label("Token", exact=True)).to_be_visible()
            devtools = context.new_cdp_session(page)
            manifest = devtools.send("Page.getAppManifest")
            assert (manifest["url"], manifest["errors"]) == (f"{url}manifest.webmanifest", [])
            assert devtools.send("Page.getAppId")["appId"] == url
            assert devtools.send("Page.getInstallabilityErrors")["installabilityErrors"] == []
    finally:
        context.close()


_NOT_KEPT = (".html", ".js", ".webmanifest")
# Modules are kept as they are sent: joined.
_JOINED = ("app.js", "start.js", "views.js")


def test_only_the_page_is_kept_and_without_a_gateway_it_says_so_and_shows_nothing_as_pending(
    gateway: Running, watched: Watched, member: MemberAs
) -> None:
    """No answer of the gateway, no token and nothing that anybody said.

    Who was signed in still is when the gateway is back, and is told then what is pending.
    """
    watched.expected += ("Failed to fetch",)
    agent = member("agent")
    page = watched.page(service_workers="allow")
    page.goto(gateway.url)
    controlled(page)
    sign_in(page, "t-human", remember=True)
    agent.run(lambda space: space.propose("files", "tools/call", CALL["params"]))
    badge = page.locator(".nav-link", has_text="Inbox").locator(".badge")
    expect(badge).to_have_text("1")
    page.reload()
    expect(page.locator(".top .pill")).to_have_text("Live")
    expect(badge).to_have_text("1")
    version = Console().version
    (paths,) = kept_files(page).values()
    others = [each for each in Console().files if not each.endswith(_NOT_KEPT)]
    assert sorted(paths) == sorted(["/", *(f"/console/{version}/{each}" for each in (*_JOINED, *others))])
    text = page.evaluate(
        """async () => {
          let all = "";
          for (const name of await caches.keys()) {
            const cache = await caches.open(name);
            for (const kept of await cache.matchAll())
              all += await kept.text() + JSON.stringify([...kept.headers]);
          }
          return all;
        }"""
    )
    assert "t-human" not in text
    gateway.stop()
    page.reload()
    expect(page.get_by_role("heading", name="Not connected")).to_be_visible()
    assert issues(page) == []
    expect(page.get_by_text("write_file")).to_have_count(0)
    expect(page.get_by_text("Nothing")).to_have_count(0)
    assert "(1)" not in page.title()
    with page.expect_request("**/livez"):
        page.get_by_role("button", name="Retry now").click()
    expect(page.get_by_role("status")).to_contain_text("No answer at ")
    gateway.start()
    expect(page.locator(".top .pill")).to_have_text("Live")
    expect(badge).to_have_text("1")


@pytest.fixture
def changed_console(tmp_path: Path) -> Any:
    """The console of another version: one script differs."""
    root = Path(__file__).parents[2] / "src/moot/console"
    folder = tmp_path / "console"
    shutil.copytree(root, folder)
    script = folder / "views" / "shell" / "sign-in.js"
    script.write_text(
        script.read_text("utf-8").replace("Nothing runs without approval", "Another version"), "utf-8"
    )
    return Console(folder)


def test_an_upgraded_gateway_shows_its_own_page_at_once_and_offline_too(
    gateway: Running, watched: Watched, changed_console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = watched.page(service_workers="allow")
    page.goto(gateway.url)
    controlled(page)
    expect(page.get_by_text("Nothing runs without approval")).to_be_visible()
    monkeypatch.setattr(http_routes, "installed_console", lambda: changed_console)
    gateway.restart()
    page.reload()
    expect(page.get_by_text("Another version")).to_be_visible()
    until_seen(lambda: is_whole(kept_files(page), versions=2))
    until_seen(lambda: answer(page, TAKEN_OVER))
    gateway.stop()
    page.reload()
    expect(page.get_by_role("heading", name="Not connected")).to_be_visible()
    assert f"console/{changed_console.version}/" in page.content()


def test_behind_a_path_prefix_it_keeps_to_its_own_path(
    gateway: Running, proxied: PrefixProxy, watched: Watched
) -> None:
    page = watched.page(service_workers="allow")
    page.goto(proxied.url)
    controlled(page)
    assert page.evaluate("navigator.serviceWorker.ready.then((found) => found.scope)") == proxied.url
    (paths,) = kept_files(page).values()
    assert all(path.startswith("/moot/") for path in paths)
    sign_in(page, "t-human")
    # The proxy answers 502 now, and who is not signed in any more reads what that means.
    gateway.stop()
    page.reload()
    expect(page.get_by_role("heading", name="Not connected")).to_be_visible()
    gateway.start()
    # It looks by itself.
    expect(page.get_by_label("Token", exact=True)).to_be_visible()
