"""A script or an answer that is lost on the way is asked for again, and the page says so."""

from __future__ import annotations

import httpx
import pytest
from playwright.sync_api import expect

from tests.console.conftest import NewPage, Watched, sign_in
from tests.console.gateway_and_members import Loop, Running
from tests.console.lossy_proxy import Loss, lossy_proxy
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
        page = watched.page()
        page.add_init_script(KEEP_WORDS)
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
        page = watched.page()
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
