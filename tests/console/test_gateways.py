"""In a cluster the page goes to the next gateway by itself when its own is gone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect

from moot.protocol.operation import Json
from tests.console.conftest import NewPage, sign_in
from tests.console.gateway_and_members import Loop, Running, spaces
from tests.console.in_node import in_node
from tests.console.test_reconnect import rows, say
from tests.gateway.cluster.nats_servers import NatsServers
from tests.gateway.running_gateway import ROOT
from tests.ports import held_port
from tests.waiting import HANG_SECONDS


@pytest.fixture
def shards() -> int:
    return 1


@pytest.fixture
def two_gateways(tmp_path: Path, loop: Loop, shards: int) -> Iterator[list[Running]]:
    (tmp_path / "nats").mkdir()
    nats = NatsServers(tmp_path / "nats")
    running: list[Running] = []
    with ExitStack() as held:
        held.callback(nats.close)
        ports = [held.enter_context(held_port()) for _ in range(2)]
        cluster: dict[str, Json] = {
            "servers": nats.addresses,
            "replicas": 1,
            "shards": shards,
            "addresses": [f"http://127.0.0.1:{port}" for port in ports],
        }
        for name, port in zip("ab", ports, strict=True):
            folder = tmp_path / name
            folder.mkdir()
            named = cluster | {"gateway": name}
            running.append(Running(folder, loop, spaces(), port=port, cluster=named))
            held.callback(running[-1].stop)
        yield running


def test_a_page_whose_gateway_is_gone_goes_on_at_the_next(
    two_gateways: list[Running], new_page: NewPage
) -> None:
    """Its socket and its questions over HTTP."""
    first, second = two_gateways
    page = new_page(alone=True)
    page.goto(f"{first.url}/#/lab/timeline")
    sign_in(page, "t-human", remember=True)
    say(second, "agent", "before")
    expect(rows(page, "before")).to_have_count(1)
    first.stop()
    say(second, "agent", "meanwhile")
    expect(page.locator(".top .pill")).to_have_text("Live")
    expect(rows(page, "meanwhile")).to_have_count(1)
    expect(rows(page, "before")).to_have_count(1)
    expect(page.locator(".gap-row")).to_have_count(0)
    # What it asks over HTTP is answered there, too.
    count = page.evaluate(
        """async (base) => (await (await fetch(`${base}/spaces`, {
            headers: { Authorization: "Bearer t-human" }, credentials: "omit" })).json()).spaces.length""",
        second.url,
    )
    assert count == len(spaces())
    first.start()
    second.stop()
    say(first, "agent", "back")
    expect(rows(page, "back")).to_have_count(1)
    expect(page.locator(".top .pill")).to_have_text("Live")


@pytest.mark.parametrize("shards", [4])
def test_what_a_page_asks_about_a_space_is_asked_at_the_gateway_of_the_space(
    two_gateways: list[Running], new_page: NewPage
) -> None:
    """Its own gateway may be gone: decisions and links for other devices come from the next one."""
    first, second = two_gateways
    page = new_page(alone=True)
    page.goto(f"{first.url}/#/lab/timeline")
    sign_in(page, "t-human", remember=True)
    first.stop()
    say(second, "agent", "meanwhile")
    expect(rows(page, "meanwhile")).to_have_count(1)
    page.evaluate("location.hash = '#/lab/decisions'")
    expect(page.get_by_text("Nobody decided anything like this in that time.")).to_be_visible()
    page.evaluate("location.hash = '#/lab/administration'")
    page.get_by_label("Administrator’s token").fill(ROOT)
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("region", name="human", exact=True)).to_contain_text("1 connection")
    page.get_by_role("button", name="Space: lab").click()
    page.get_by_role("menuitem", name="Sign in on another device").click()
    expect(page.get_by_label("One-time link")).to_have_value(re.compile(f"^{second.url}/#sign-in="))
    page.keyboard.press("Escape")
    # A member that is invited is told all addresses.
    page.evaluate("location.hash = '#/lab/members'")
    page.get_by_role("button", name="Invite…").click()
    page.get_by_role("dialog").get_by_label("Name", exact=True).fill("lisa")
    page.get_by_role("dialog").get_by_role("button", name="Invite", exact=True).click()
    expect(page.get_by_role("group", name="Command")).to_contain_text(
        f"--gateway {first.url},{second.url} --space lab"
    )


def test_only_pages_of_the_cluster_are_shown_answers_of_its_gateways(two_gateways: list[Running]) -> None:
    first, second = two_gateways
    page = httpx.get(first.url, trust_env=False, timeout=HANG_SECONDS)
    allowed = page.headers["Content-Security-Policy"].partition("connect-src ")[2].partition(";")[0].split()
    hosts = {f"127.0.0.1:{each.port}" for each in two_gateways}
    assert set(allowed) == {"'self'"} | {
        f"{scheme}://{host}" for scheme in ("http", "ws") for host in hosts
    } | {f"wss://127.0.0.1:{first.port}"}

    def ask(method: str, origin: str) -> httpx.Response:
        asked = {"Origin": origin, "Access-Control-Request-Method": "GET"} | (
            {"Access-Control-Request-Headers": "authorization"}
            if method == "OPTIONS"
            else {"Authorization": "Bearer t-human"}
        )
        return httpx.request(
            method, f"{second.url}/spaces", headers=asked, trust_env=False, timeout=HANG_SECONDS
        )

    for method in ("OPTIONS", "GET"):
        answer = ask(method, first.url)
        assert answer.status_code == 200
        assert answer.headers["Access-Control-Allow-Origin"] == first.url
        assert "Access-Control-Allow-Credentials" not in answer.headers
        stranger = ask(method, "https://elsewhere.example")
        assert stranger.status_code in (400, 403)
        assert "Access-Control-Allow-Origin" not in stranger.headers


def test_all_who_notice_that_a_gateway_fails_go_to_the_same_next_one() -> None:
    seen = in_node(
        """async (bring) => {
            const { Gateways } = await bring("core/connection/gateways.js");
            const named = ["https://b.example/", "https://a.example/", "https://c.example/m/"];
            const one = new Gateways(new URL("https://a.example/"), named);
            const held = one.current, seen = [];
            for (let n = 0; n < 4; n += 1) {
                const failed = held.href;
                seen.push(failed);
                one.leave(failed);
                one.leave(failed);
            }
            const alone = new Gateways(new URL("https://a.example/"), []);
            alone.leave("https://a.example/");
            return [...seen, one.count, alone.count, alone.current.href];
        }"""
    )
    assert seen == [
        "https://a.example/",
        "https://b.example/",
        "https://c.example/m/",
        "https://a.example/",
        3,
        1,
        "https://a.example/",
    ]
