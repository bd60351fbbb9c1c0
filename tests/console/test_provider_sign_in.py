"""Signing in at a provider that others wrote: a code with PKCE, tokens in memory, renewed, and signed out.

Codes that are not ours are never sent anywhere: of another state, of another issuer, used before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest
from playwright.sync_api import Page, Request, Route, WebSocket, expect

from moot.protocol.operation import Json
from tests.console.conftest import NewPage, sign_in
from tests.console.gateway_and_members import Loop, Running, spaces
from tests.gateway.sign_in.foreign_provider import AUDIENCE, foreign_provider
from tests.waiting import HANG_SECONDS, until_seen

# So short that a renewal is seen; the gateway's skew keeps it valid for longer.
TOKEN_SECONDS = 2


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory, loop: Loop, origin_port: int) -> Iterator[str]:
    logout = f"http://127.0.0.1:{origin_port}/oidc/backchannel-logout"
    folder = tmp_path_factory.mktemp("provider")
    running = foreign_provider(folder, "http://127.0.0.1/", TOKEN_SECONDS, logout=logout)
    yield loop.run(running.__aenter__())
    loop.run(running.__aexit__(None, None, None))


@pytest.fixture
def client_id() -> str:
    return "console"


@pytest.fixture
def gateway(tmp_path: Path, loop: Loop, issuer: str, origin_port: int, client_id: str) -> Iterator[Running]:
    rule: Json = {"match": {"groups": "staff"}, "participant": "{preferred_username}"}
    rule |= {"profile": "full", "spaces": ["lab"]}
    oidc: Json = {"issuer": issuer, "audience": AUDIENCE, "people": [rule], "client_id": client_id}
    oidc |= {"resource": AUDIENCE, "scopes": ["openid", "offline_access"], "prompt": "consent"}
    running = Running(tmp_path, loop, spaces(), port=origin_port, oidc=oidc)
    until_seen(lambda: "token_endpoint" in httpx.get(f"{running.url}/oidc", timeout=HANG_SECONDS).text)
    yield running
    running.stop()


class Seen:
    """What a page asks for and sends."""

    def __init__(self, page: Page) -> None:
        self.requests: list[Request] = []
        self.joins: list[tuple[WebSocket, dict[str, Any]]] = []
        page.on("request", lambda request: self.requests.append(request))
        page.on("websocket", self._watch)

    def _watch(self, socket: WebSocket) -> None:
        def sent(data: str | bytes) -> None:
            if b'"type":"join"' in (data.encode() if isinstance(data, str) else data):
                self.joins.append((socket, json.loads(data)))

        socket.on("framesent", sent)

    def asked(self, path: str) -> list[Request]:
        return [each for each in self.requests if urlsplit(each.url).path == path]

    def state(self) -> str:
        """What the page last went to the provider with."""
        return parse_qs(urlsplit(self.asked("/auth")[-1].url).query)["state"][0]


def leave_for_provider(page: Page, gateway: Running) -> None:
    page.goto(gateway.url)
    page.get_by_role("button", name="Sign in at 127.0.0.1").click()
    page.wait_for_url("**/interaction/**")


def confirm(page: Page, who: str) -> None:
    page.locator("input[name=login]").fill(who)
    page.locator("input[name=password]").fill("any")
    page.get_by_role("button", name="Sign-in").click()
    page.get_by_role("button", name="Continue").click()


def answer_address(gateway: Running, **parameters: str) -> str:
    return f"{gateway.url}/#{urlencode(parameters)}"


def kept_by(page: Page) -> str:
    text: str = page.evaluate(
        "JSON.stringify([sessionStorage, localStorage, document.cookie, location.href, history.state])"
    )
    return text


def history_of(page: Page) -> list[str]:
    entries = page.context.new_cdp_session(page).send("Page.getNavigationHistory")["entries"]
    return [each["url"] for each in entries]


def test_a_person_signs_in_at_the_provider_is_renewed_and_signs_out(
    gateway: Running, issuer: str, new_page: NewPage
) -> None:
    page = new_page()
    seen = Seen(page)
    page.goto(f"{gateway.url}/#/lab/chat")
    page.get_by_role("button", name="Sign in at 127.0.0.1").click()
    confirm(page, "ana")
    expect(page.locator(".top .pill")).to_have_text("Live")
    # As whom the provider says, where they wanted to go.
    expect(page.get_by_role("button", name="Space: lab")).to_contain_text("ana")
    assert page.url == f"{gateway.url}/#/lab/chat"
    asked = parse_qs(urlsplit(seen.asked("/auth")[0].url).query)
    assert asked["redirect_uri"] == [f"{gateway.url}/"]
    assert asked["code_challenge_method"] == ["S256"]
    # The code reached the provider, and no address that stays or that a server logs.
    exchanged = parse_qs(seen.asked("/token")[0].post_data or "")
    assert exchanged["code_verifier"][0] not in json.dumps(asked)
    code = exchanged["code"][0]
    assert not [each for each in history_of(page) if code in each]
    assert not [each.url for each in seen.requests if code in each.url.partition("#")[0]]
    # Before the token ends another one goes over the same socket.
    until_seen(lambda: _turn(page) and len(seen.joins) >= 2)
    (first_socket, first), (second_socket, second) = seen.joins[:2]
    assert first_socket is second_socket
    assert first["token"] != second["token"]
    # Another space with a token that is to be kept: that one alone is.
    page.get_by_role("button", name="Space: lab").click()
    page.get_by_role("menuitem", name="Add a space…").click()
    sign_in(page, "t-hermit", remember=True)
    until_seen(lambda: page.evaluate("({...sessionStorage})") == {"moot.tokens": '["t-hermit"]'})
    for secret in (code, first["token"], second["token"], exchanged["code_verifier"][0], "verifier"):
        assert secret not in kept_by(page)
    expect(page.locator(".top .pill")).to_have_text("Live")
    assert status_of(gateway, second["token"]) == 200
    # Signed out everywhere: the token is void, and the refresh token is taken back.
    with (
        page.expect_response(f"{gateway.url}/oidc/sign-out") as told,
        page.expect_response("**/revocation") as back,
    ):
        page.get_by_role("button", name="Sign out").click()
    assert (told.value.status, back.value.status) == (200, 200)
    expect(page.get_by_label("Token", exact=True)).to_be_visible()
    for token in {join["token"] for _, join in seen.joins} - {"t-hermit"}:
        assert status_of(gateway, token) != 200
    refresh = parse_qs(back.value.request.post_data or "")["token"][0]
    form = {"grant_type": "refresh_token", "refresh_token": refresh, "client_id": "console"}
    assert httpx.post(f"{issuer}/token", data=form, timeout=HANG_SECONDS).json()["error"] == "invalid_grant"


@pytest.mark.parametrize("client_id", ["console", "page"])
def test_who_logs_out_at_the_provider_is_out_in_the_page_until_they_sign_in_again(
    gateway: Running, issuer: str, new_page: NewPage, client_id: str
) -> None:
    """Of `console` the provider tells with `sub`, of `page` with `sid`; its refresh token is still good."""
    page = new_page(alone=True)
    seen = Seen(page)
    page.goto(f"{gateway.url}/#/lab/chat")
    page.get_by_role("button", name="Sign in at 127.0.0.1").click()
    confirm(page, "ana")
    expect(page.locator(".top .pill")).to_have_text("Live")
    with page.expect_response("**/revocation") as back:
        at_provider = page.context.new_page()
        at_provider.goto(f"{issuer}/session/end")
        # What the page gets for its refresh token while the provider's word is on its way is newer than that.
        tokens = {join["token"] for _, join in seen.joins}
        at_provider.get_by_role("button", name="Yes, sign me out").click()
        at_provider.wait_for_url("**/session/end/success")
    expect(page.get_by_text("Not connected: signed out.")).to_be_visible()
    for token in tokens:
        assert status_of(gateway, token) != 200
    # Nobody who finds the page can go on in it.
    refresh = parse_qs(back.value.request.post_data or "")["token"][0]
    form = {"grant_type": "refresh_token", "refresh_token": refresh, "client_id": client_id}
    assert httpx.post(f"{issuer}/token", data=form, timeout=HANG_SECONDS).json()["error"] == "invalid_grant"
    page.get_by_role("button", name="Reconnect").click()
    expect(page.get_by_text("sign in again")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("button", name="Sign in at 127.0.0.1").click()
    page.locator("input[name=login]").wait_for()


def _turn(page: Page) -> bool:
    """Let the browser's events arrive."""
    page.evaluate("0")
    return True


def status_of(gateway: Running, token: str) -> int:
    return httpx.get(
        f"{gateway.url}/spaces", headers={"Authorization": f"Bearer {token}"}, timeout=HANG_SECONDS
    ).status_code


def test_an_answer_with_another_state_is_not_used(gateway: Running, issuer: str, new_page: NewPage) -> None:
    page = new_page()
    seen = Seen(page)
    leave_for_provider(page, gateway)
    page.goto(answer_address(gateway, code="stolen-code", state="x" * 43, iss=issuer))
    _expect_refused(page, seen, gateway, "belongs to another sign-in")


def test_an_answer_of_another_issuer_or_of_none_is_not_used(gateway: Running, new_page: NewPage) -> None:
    page = new_page()
    seen = Seen(page)
    for named in ({"iss": "https://evil.example"}, {}):
        leave_for_provider(page, gateway)
        page.goto(answer_address(gateway, code="stolen-code", state=seen.state(), **named))
        _expect_refused(page, seen, gateway, "comes from another provider")


def _expect_refused(page: Page, seen: Seen, gateway: Running, words: str, asked: int = 0) -> None:
    expect(page.get_by_role("alert").filter(has_text=words)).to_be_visible()
    assert len(seen.asked("/token")) == asked
    assert page.url == f"{gateway.url}/"
    assert not [each for each in history_of(page) if "stolen-code" in each]
    assert page.evaluate("sessionStorage.length") == 0
    assert seen.joins == []


def test_an_id_token_with_another_nonce_is_refused(gateway: Running, new_page: NewPage) -> None:
    page = new_page(alone=True)
    seen = Seen(page)

    def change(route: Route) -> None:
        nonce = parse_qs(urlsplit(route.request.url).query)["nonce"][0]
        # A redirect, so that the browser goes to the changed address itself.
        route.fulfill(status=302, headers={"Location": route.request.url.replace(nonce, "another")})

    page.route(lambda url: "/auth?" in url and "nonce=another" not in url, change)
    leave_for_provider(page, gateway)
    confirm(page, "ben")
    _expect_refused(page, seen, gateway, "belongs to another sign-in", asked=1)


def test_a_code_that_comes_again_is_refused(gateway: Running, issuer: str, new_page: NewPage) -> None:
    page = new_page()
    seen = Seen(page)
    leave_for_provider(page, gateway)
    confirm(page, "cyd")
    expect(page.locator(".top .pill")).to_have_text("Live")
    code = parse_qs(seen.asked("/token")[0].post_data or "")["code"][0]
    # The same answer again, in the tab in which it was used: not even sent, and nobody is signed out by it.
    used = answer_address(gateway, code=code, state=seen.state(), iss=issuer)
    page.goto(used)
    expect(page).not_to_have_url(re.compile(re.escape(code)))
    expect(page.locator(".top .pill")).to_have_text("Live")
    assert not [each for each in history_of(page) if code in each]
    exchanges = [each for each in seen.asked("/token") if "authorization_code" in (each.post_data or "")]
    assert len(exchanges) == 1
    # In a tab that has not begun anything: not sent either.
    new = new_page()
    seen_new = Seen(new)
    new.goto(used)
    _expect_refused(new, seen_new, gateway, "used already")
    # Once more there, where only what is behind the # changes.
    new.goto(used)
    expect(new.get_by_role("alert").filter(has_text="no sign-in of this tab")).to_be_visible()
    assert not [each for each in [new.url, *history_of(new)] if code in each]
    # In a sign-in that was begun here, with its state: the provider knows that it is another's.
    leave_for_provider(new, gateway)
    new.goto(answer_address(gateway, code=code, state=seen_new.state(), iss=issuer))
    _expect_refused(new, seen_new, gateway, "The provider refused the sign-in", asked=1)


def test_the_policy_names_the_provider_only_where_there_is_one(
    gateway: Running, issuer: str, tmp_path: Path, loop: Loop
) -> None:
    def policy(url: str) -> str:
        return httpx.get(url, timeout=HANG_SECONDS).headers["content-security-policy"]

    assert f" {issuer};" in policy(gateway.url)
    with _without_provider(tmp_path / "plain", loop) as plain:
        assert issuer not in policy(plain.url)
        assert (
            httpx.get(plain.url, timeout=HANG_SECONDS).headers["etag"]
            != httpx.get(gateway.url, timeout=HANG_SECONDS).headers["etag"]
        )


@contextmanager
def _without_provider(folder: Path, loop: Loop) -> Iterator[Running]:
    folder.mkdir()
    running = Running(folder, loop, spaces())
    yield running
    running.stop()
