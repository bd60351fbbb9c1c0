"""The console's sign-in at another provider of others, which has no `resource` and revokes for no page.

It asks for consent, which a person can take back there, and it revokes a token that its client renews.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from playwright.sync_api import expect

from moot.protocol.operation import Json
from tests.console.conftest import NewPage
from tests.console.gateway_and_members import Loop, Running, spaces
from tests.console.test_provider_sign_in import Seen, kept_by, status_of
from tests.gateway.sign_in.canaille_provider import AUDIENCE, SECRET, canaille_provider, oidc_settings
from tests.gateway.sign_in.test_canaille import claims_of
from tests.waiting import HANG_SECONDS, until_seen

# Long enough for a machine that is busy.
TOKEN_SECONDS = 400
# The page renews it after three quarters of its life, which here is when the test says so.
KEEP_RENEWAL = f"""
const start = setTimeout;
globalThis.setTimeout = (call, delay, ...given) => {{
    if (delay === {750 * TOKEN_SECONDS}) globalThis.renew = call;
    return start(call, delay, ...given);
}};
"""


@pytest.fixture(scope="module")
def issuer(loop: Loop, origin_port: int) -> Iterator[str]:
    running = canaille_provider(f"http://127.0.0.1:{origin_port}/", TOKEN_SECONDS)
    yield loop.run(running.__aenter__())
    loop.run(running.__aexit__(None, None, None))


@pytest.fixture
def gateway(tmp_path: Path, loop: Loop, issuer: str, origin_port: int) -> Iterator[Running]:
    asked: Json = {"client_id": AUDIENCE, "client_secret_env": "ASK", "interval_seconds": 1}
    oidc = oidc_settings(issuer) | {"introspection": asked}
    running = Running(tmp_path, loop, spaces(), port=origin_port, environ={"ASK": SECRET}, oidc=oidc)
    until_seen(lambda: "token_endpoint" in httpx.get(f"{running.url}/oidc", timeout=HANG_SECONDS).text)
    yield running
    running.stop()


def test_a_person_consents_is_renewed_revokes_it_and_consents_again(
    gateway: Running, issuer: str, new_page: NewPage
) -> None:
    page = new_page(alone=True)
    page.add_init_script(KEEP_RENEWAL)
    seen = Seen(page)
    page.goto(f"{gateway.url}/#/lab/chat")
    page.get_by_role("button", name="Sign in at 127.0.0.1").click()
    page.locator("input[name=login]").fill("ana")
    page.get_by_role("button", name="Continue").click()
    page.locator("input[name=password]").fill("ana")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("button", name="Accept").click()
    expect(page.locator(".top .pill")).to_have_text("Live")
    expect(page.get_by_role("button", name="Space: lab")).to_contain_text("ana")
    assert page.url == f"{gateway.url}/#/lab/chat"
    # Unless it is configured: some providers ask an administrator then.
    assert "prompt" not in parse_qs(urlsplit(seen.asked("/oauth/authorize")[0].url).query)

    # Within the same second it would be the same token.
    until_seen(lambda: time.time() >= claims_of(seen.joins[0][1]["token"])["iat"] + 1)
    page.evaluate("renew()")

    def is_renewed() -> bool:
        # Lets the browser's events arrive.
        page.evaluate("0")
        return len({join["token"] for _, join in seen.joins}) >= 2

    until_seen(is_renewed)
    (first_socket, first), (second_socket, second) = seen.joins[:2]
    assert first_socket is second_socket
    for secret in (first["token"], second["token"]):
        assert secret not in kept_by(page)
    # The token before is void there and, soon, here; the page goes on under the new one.
    until_seen(lambda: status_of(gateway, first["token"]) != 200)
    expect(page.locator(".top .pill")).to_have_text("Live")
    # Revoked by the person, at the provider.
    at_provider = page.context.new_page()
    at_provider.goto(f"{issuer}/consent/")
    # This provider revokes what there is: a token that it renews meanwhile would stay valid.
    page.route(f"{issuer}/oauth/token", lambda route: route.abort())
    for asked in seen.asked("/oauth/token"):
        asked.response()
    at_provider.get_by_role("link", name="Revoke access").click()
    expect(page.get_by_text("Not connected: signed out.")).to_be_visible()
    page.unroute(f"{issuer}/oauth/token")
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("button", name="Sign in at 127.0.0.1").click()
    page.get_by_role("button", name="Accept").click()
    expect(page.locator(".top .pill")).to_have_text("Live")
    with page.expect_response(f"{gateway.url}/oidc/sign-out") as told:
        page.get_by_role("button", name="Sign out").click()
    assert told.value.status == 200
    expect(page.get_by_label("Token", exact=True)).to_be_visible()
    for _, join in seen.joins:
        assert status_of(gateway, join["token"]) != 200
    grants = [parse_qs(each.post_data or "")["grant_type"] for each in seen.asked("/oauth/token")]
    assert grants[:2] == [["authorization_code"], ["refresh_token"]]
