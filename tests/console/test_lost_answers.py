"""A script or an answer that is lost on the way is asked for again, and the page says so."""

from __future__ import annotations

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.console.conftest import NewPage, Watched, sign_in
from tests.console.gateway_and_members import Loop, Running
from tests.console.lossy_proxy import Loss, LossyProxy, lossy_proxy
from tests.waiting import HANG_SECONDS

# All of a page but the page itself.
FILES = (".js", ".css")
SAYS = "Parts of the page could not be loaded; trying again."
# What the page said before it was loaded anew.
KEEP_WORDS = """
new MutationObserver(() => {
    const text = document.querySelector("#app > .loading")?.textContent ?? "";
    sessionStorage.setItem("said", (sessionStorage.getItem("said") ?? "") + text);
}).observe(document, { subtree: true, childList: true, characterData: true });
"""
# A page gives an answer up after ten seconds of silence. Here as soon as it waits for one that will never
# come, and all others as late as ever: however busy the machine is, nothing is given up that only takes long.
GIVE_UP_SOON = """
const start = setTimeout, stop = clearTimeout, looks = new Map();
globalThis.setTimeout = (call, delay, ...given) => {
    if (!(delay >= 10_000)) return start(call, delay, ...given);
    const end = () => looks.delete(timer) && (stop(timer), call(...given));
    const timer = start(end, delay);
    const look = async () => {
        if (await isWithheld()) end();
        else if (looks.has(timer)) looks.set(timer, start(look, 200));
    };
    looks.set(timer, start(look, 200));
    return timer;
};
globalThis.clearTimeout = (timer) => {
    stop(looks.get(timer));
    looks.delete(timer);
    stop(timer);
};
AbortSignal.timeout = (delay) => {
    const given = new AbortController();
    setTimeout(() => given.abort(new DOMException("", "TimeoutError")), delay);
    return given.signal;
};
"""


def page_behind(proxy: LossyProxy, watched: Watched) -> Page:
    page = watched.page()
    page.expose_function("isWithheld", lambda: proxy.withheld > 0)
    page.add_init_script(KEEP_WORDS + GIVE_UP_SOON)
    return page


@pytest.mark.parametrize(
    ("loss", "of"),
    [
        ("cut", FILES),
        ("half", FILES),
        ("silent", (".js",)),
        ("silent", ("/app.js",)),
        ("silent", ("/tokens.css", "/views.js")),
    ],
)
def test_a_page_whose_first_answers_are_lost_comes_up(
    gateway: Running, loop: Loop, watched: Watched, loss: Loss, of: tuple[str, ...]
) -> None:
    """Scripts and styles are lost once: cut off, cut in the middle, or never answered."""
    with lossy_proxy(loop, gateway.port, loss, *of) as proxy:
        page = page_behind(proxy, watched)
        page.goto(proxy.url, wait_until="commit")
        expect(page.get_by_label("Token", exact=True)).to_be_visible()
        assert SAYS in page.evaluate("sessionStorage.getItem('said')")
        sign_in(page, gateway.token("human"))
        # Styled as it should be, too.
        expect(page.locator(".top")).to_have_css("display", "flex")
        again = [path for path, number in proxy.asked.items() if number > 1 and path.endswith(of)]
        assert any(path.endswith(("/app.js", "/tokens.css")) for path in again)


@pytest.mark.parametrize("loss", ["cut", "silent"])
def test_a_lost_answer_to_a_sign_in_that_was_kept_is_asked_for_again(
    gateway: Running, loop: Loop, watched: Watched, loss: Loss
) -> None:
    with lossy_proxy(loop, gateway.port, loss, "/spaces", "/oidc") as proxy:
        page = page_behind(proxy, watched)
        page.goto(f"{proxy.url}/manifest.webmanifest")
        token = gateway.token("human")
        page.evaluate("(token) => sessionStorage.setItem('moot.tokens', JSON.stringify([token]))", token)
        page.goto(proxy.url)
        expect(page.get_by_role("heading", name="Not connected")).to_be_visible()
        expect(page.locator(".top .pill")).to_have_text("Live")


def test_a_page_that_does_not_run_is_not_loaded_again_for_good(gateway: Running, new_page: NewPage) -> None:
    """A browser that is too old for it: all is there, and nothing starts."""
    page = new_page(alone=True)
    page.route("**/app.js", lambda route: route.fulfill(body="", content_type="text/javascript"))
    page.goto(gateway.url)
    expect(page.locator("#app")).to_contain_text("does not run in this browser")


def test_a_link_whose_question_was_lost_signs_in(gateway: Running, loop: Loop, watched: Watched) -> None:
    with lossy_proxy(loop, gateway.port, "cut", "/redeem") as proxy:
        with httpx.Client(base_url=gateway.url, trust_env=False, timeout=HANG_SECONDS) as http:
            token = {"Authorization": f"Bearer {gateway.token('human')}"}
            made = http.post("/sign-in-links", json={"page": f"{gateway.url}/"}, headers=token).json()
        page = watched.page()
        page.goto(f"{proxy.url}/#{made['address'].partition('#')[2]}")
        expect(page.locator(".top .pill")).to_have_text("Live")
        assert proxy.asked["/sign-in-links/redeem"] == 2
