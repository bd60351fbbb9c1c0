"""The console's sign-in at another provider of others, which has no `resource` and revokes for no page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs

import httpx
import pytest
from playwright.sync_api import expect

from tests.console.conftest import NewPage
from tests.console.gateway_and_members import Loop, Running, spaces
from tests.console.test_provider_sign_in import Seen, kept_by
from tests.gateway.canaille_provider import canaille_provider, oidc_settings
from tests.waiting import HANG_SECONDS, until_seen

# So short that a renewal is seen; the gateway's skew keeps it valid for longer.
TOKEN_SECONDS = 10


@pytest.fixture(scope="module")
def issuer(loop: Loop, origin_port: int) -> Iterator[str]:
    running = canaille_provider(f"http://127.0.0.1:{origin_port}/", TOKEN_SECONDS)
    yield loop.run(running.__aenter__())
    loop.run(running.__aexit__(None, None, None))


@pytest.fixture
def gateway(tmp_path: Path, loop: Loop, issuer: str, origin_port: int) -> Iterator[Running]:
    running = Running(tmp_path, loop, spaces(), port=origin_port, oidc=oidc_settings(issuer))
    until_seen(lambda: "token_endpoint" in httpx.get(f"{running.url}/oidc", timeout=HANG_SECONDS).text)
    yield running
    running.stop()


def test_a_person_signs_in_is_renewed_and_signs_out(gateway: Running, issuer: str, new_page: NewPage) -> None:
    page = new_page()
    seen = Seen(page)
    page.goto(f"{gateway.url}/#/lab/chat")
    page.get_by_role("button", name="Sign in at 127.0.0.1").click()
    page.locator("input[name=login]").fill("ana")
    page.get_by_role("button", name="Continue").click()
    page.locator("input[name=password]").fill("ana")
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator(".top .pill")).to_have_text("Live")
    expect(page.get_by_role("button", name="Space: lab")).to_contain_text("ana")
    assert page.url == f"{gateway.url}/#/lab/chat"

    def is_renewed() -> bool:
        # Lets the browser's events arrive.
        page.evaluate("0")
        return len({join["token"] for _, join in seen.joins}) >= 2

    until_seen(is_renewed)
    (first_socket, first), (second_socket, second) = seen.joins[:2]
    assert first_socket is second_socket
    for secret in (first["token"], second["token"]):
        assert secret not in kept_by(page)
    with page.expect_response(f"{gateway.url}/oidc/sign-out") as told:
        page.get_by_role("button", name="Sign out").click()
    assert told.value.status == 200
    expect(page.get_by_label("Token", exact=True)).to_be_visible()
    for _, join in seen.joins:
        headers = {"Authorization": f"Bearer {join['token']}"}
        assert httpx.get(f"{gateway.url}/spaces", headers=headers, timeout=HANG_SECONDS).status_code != 200
    grants = [parse_qs(each.post_data or "")["grant_type"] for each in seen.asked("/oauth/token")]
    assert grants[:2] == [["authorization_code"], ["refresh_token"]]
