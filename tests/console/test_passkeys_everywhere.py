"""Passkeys in Chromium with a provider of identities that others wrote, and in a cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from moot.protocol.operation import Json
from tests.console.approvals_page import detail, shown
from tests.console.conftest import NewPage, sign_in
from tests.console.gateway_and_members import Driven, Loop, Running, offer_tools, spaces
from tests.console.test_passkeys import at_localhost, authenticator, open_passkeys, press_vote
from tests.console.test_provider_sign_in import confirm
from tests.gateway.cluster.nats_servers import NatsServers
from tests.gateway.sign_in.foreign_provider import AUDIENCE, foreign_provider
from tests.ports import held_port
from tests.waiting import HANG_SECONDS, until_seen


@pytest.fixture
def gateways(tmp_path: Path, loop: Loop) -> Iterator[list[Running]]:
    """Two of a cluster, which believe one provider; calls of `add` are approved with a passkey."""
    for name in ("nats", "provider", "a", "b"):
        (tmp_path / name).mkdir()
    nats = NatsServers(tmp_path / "nats")
    rule: Json = {"match": {"groups": "staff"}, "participant": "{preferred_username}"}
    rule |= {"capabilities": ["mcp/*", "moot/*", "chat"], "spaces": ["lab"]}
    running: list[Running] = []
    with ExitStack() as held:
        held.callback(nats.close)
        ports = [held.enter_context(held_port()) for _ in range(2)]
        provider = foreign_provider(tmp_path / "provider", "http://localhost/", 600)
        issuer = loop.run(provider.__aenter__())
        held.callback(lambda: loop.run(provider.__aexit__(None, None, None)))
        oidc: Json = {"issuer": issuer, "audience": AUDIENCE, "people": [rule], "client_id": "console"}
        oidc |= {"resource": AUDIENCE, "scopes": ["openid", "offline_access"], "prompt": "consent"}
        addresses: Json = [f"http://localhost:{port}" for port in ports]
        cluster: dict[str, Json] = {"servers": nats.addresses, "replicas": 1, "shards": 1}
        cluster |= {"addresses": addresses}
        lab = spaces()
        lab["lab"] |= {"passkeys": {"required": [{"tool": "add"}]}}
        for name, port in zip("ab", ports, strict=True):
            more: dict[str, Json] = {"cluster": cluster | {"gateway": name}, "oidc": oidc}
            running.append(Running(tmp_path / name, loop, lab, port=port, **more))
            held.callback(running[-1].stop)
            until_seen(
                lambda: "token_endpoint" in httpx.get(f"{running[-1].url}/oidc", timeout=HANG_SECONDS).text
            )
        yield running


@pytest.fixture
def agent(gateways: list[Running], loop: Loop) -> Iterator[Driven]:
    """At the second gateway, where the tools are too."""
    files, agent = Driven(loop, "files"), Driven(loop, "agent")
    for each in (files, agent):
        each.enter(gateways[1].url, "lab", f"t-{each.name}")
    files.run(offer_tools)
    yield agent
    for each in (agent, files):
        each.leave()


def add_a_passkey(page: Page) -> None:
    dialog = open_passkeys(page)
    dialog.get_by_role("button", name="Add a passkey").click()
    expect(dialog.get_by_role("listitem")).to_have_count(1)
    page.keyboard.press("Escape")


def propose(agent: Driven) -> str:
    call: dict[str, Json] = {"name": "add", "arguments": {"a": 1}}
    return agent.run(lambda space: space.propose("files", "tools/call", call)).id


def approve(page: Page, gateway: Running, proposal: str) -> None:
    page.goto(at_localhost(gateway, f"#/lab/approvals/{proposal}"))
    shown(page, "add")
    press_vote(page)
    expect(detail(page).get_by_role("region", name="History")).to_contain_text("approved it")


def test_a_person_of_a_provider_confirms_with_a_passkey_at_a_gateway_that_did_not_see_it_added(
    gateways: list[Running], agent: Driven, new_page: NewPage
) -> None:
    first, second = gateways
    page = new_page(alone=True)
    authenticator(page)
    page.goto(at_localhost(first, "#/lab/approvals"))
    page.get_by_role("button", name="Sign in at 127.0.0.1").click()
    confirm(page, "ana")
    expect(page.locator(".top .pill")).to_have_text("Live")
    add_a_passkey(page)
    approve(page, first, propose(agent))
    # What was signed in is that provider's: the page of the other gateway asks there.
    page.goto(at_localhost(second, "#/lab/approvals"))
    page.get_by_role("button", name="Sign in at 127.0.0.1").click()
    expect(page.locator(".top .pill").or_(page.get_by_role("button", name="Continue"))).to_be_visible()
    if page.get_by_role("button", name="Continue").is_visible():
        page.get_by_role("button", name="Continue").click()
    expect(page.locator(".top .pill")).to_have_text("Live")
    approve(page, second, propose(agent))
    # No way past the provider: the passkey alone is told where its owner signs in.
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("button", name=re.compile("passkey")).click()
    expect(page.get_by_role("alert").filter(has_text="identity provider")).to_be_visible()


def test_a_page_whose_gateway_is_gone_confirms_at_the_next(
    gateways: list[Running], agent: Driven, new_page: NewPage
) -> None:
    first, second = gateways
    page = new_page(alone=True)
    authenticator(page)
    page.goto(at_localhost(first, "#/lab/approvals"))
    sign_in(page, "t-human")
    add_a_passkey(page)
    page.evaluate("sessionStorage.clear()")
    page.goto("about:blank")
    # Signed in with the passkey at the other, then confirmed with it.
    page.goto(at_localhost(second, "#/lab/approvals"))
    page.get_by_role("button", name=re.compile("passkey")).click()
    expect(page.locator(".top .pill")).to_have_text("Live")
    approve(page, second, propose(agent))
    page.goto(at_localhost(first, "#/lab/approvals"))
    page.get_by_role("button", name=re.compile("passkey")).or_(page.locator(".top .pill")).first.wait_for()
    expect(page.locator(".top .pill")).to_have_text("Live")
    proposal = propose(agent)
    page.evaluate("id => { location.hash = `#/lab/approvals/${id}` }", proposal)
    shown(page, "add")
    first.stop()
    expect(page.locator(".top .pill")).to_have_text("Live")
    press_vote(page)
    expect(detail(page).get_by_role("region", name="History")).to_contain_text("approved it")
