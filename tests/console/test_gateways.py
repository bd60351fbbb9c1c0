"""In a cluster the page goes to the next gateway by itself when its own is gone."""

from __future__ import annotations

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
from tests.ports import held_port
from tests.waiting import HANG_SECONDS


@pytest.fixture
def two_gateways(tmp_path: Path, loop: Loop) -> Iterator[list[Running]]:
    (tmp_path / "nats").mkdir()
    nats = NatsServers(tmp_path / "nats")
    running: list[Running] = []
    with ExitStack() as held:
        held.callback(nats.close)
        ports = [held.enter_context(held_port()) for _ in range(2)]
        cluster: dict[str, Json] = {
            "servers": nats.addresses,
            "replicas": 1,
            "shards": 1,
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
