"""The page of administrators: who is in by what, how that ends, which rule gives what, who signed in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.console.conftest import NewPage, stay_signed_in
from tests.console.gateway_and_members import Driven, Loop, Running, spaces
from tests.gateway.running_gateway import ROOT
from tests.gateway.sign_in.oidc_provider import Provider, person, running_provider
from tests.waiting import HANG_SECONDS, until_seen

_HOUR = 3_600


@pytest.fixture(scope="module")
def provider(loop: Loop) -> Iterator[Provider]:
    running = running_provider()
    yield loop.run(running.__aenter__())
    loop.run(running.__aexit__(None, None, None))


@pytest.fixture
def gateway(tmp_path: Path, loop: Loop, provider: Provider, origin_port: int) -> Iterator[Running]:
    """Leads decide and administer `lab`; others only propose with agents, and chat; robots are elsewhere."""
    rules = (
        person(match={"client_id": "robot"}, participant="robot-{sub}", spaces=["attic"]),
        person(match={"groups": ["leads", "ops-*"]}, capabilities=["*"], administrator=["lab"]),
        person(match={"groups": "team", "client_id": "agent"}, capabilities=["mcp/proposal"]),
        person(match={"groups": "team"}, capabilities=["chat"]),
    )
    running = Running(tmp_path, loop, spaces(), port=origin_port, oidc=provider.rules(*rules))
    until_seen(lambda: _status(running, _token(provider, "lea", "leads")) == 200)
    yield running
    running.stop()


def _token(provider: Provider, name: str, group: str, **claims: Any) -> str:
    return provider.token(f"u-{name}", groups=[group], seconds=_HOUR, **claims)


def _status(gateway: Running, token: str) -> int:
    """Of somebody who asks which spaces they may enter."""
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.get(f"{gateway.url}/spaces", headers=headers, timeout=HANG_SECONDS).status_code


def _open(page: Page, gateway: Running, token: str, part: str = "") -> Page:
    stay_signed_in(page, gateway.url, token)
    page.goto(f"{gateway.url}/#/lab/administration/{part}")
    expect(page.locator(".top .pill")).to_have_text("Live")
    return page


@pytest.fixture
def lead(gateway: Running, provider: Provider, new_page: NewPage) -> Page:
    return _open(new_page(), gateway, _token(provider, "lea", "leads"))


@pytest.fixture
def ana(gateway: Running, provider: Provider, loop: Loop) -> Iterator[dict[str, tuple[Driven, str]]]:
    """Ana with her console and her agent, and their tokens: before `lead`, whose page tells what it found."""
    found = {}
    for client in ("console", "agent"):
        token = _token(provider, "ana", "team", client_id=client, jti=client)
        driven = Driven(loop, "ana")
        driven.enter(gateway.url, "lab", token, reconnect=False)
        found[client] = driven, token
    yield found
    for driven, _ in found.values():
        driven.leave()


def test_an_administrator_of_the_space_ends_one_session_and_then_all_of_a_person(
    gateway: Running, ana: dict[str, tuple[Driven, str]], lead: Page
) -> None:
    card = lead.get_by_role("region", name="ana", exact=True)
    expect(card).to_contain_text("2 connections")
    agent = card.get_by_role("listitem").filter(has_text="Signed in with agent")
    expect(agent).to_contain_text(re.compile(r"since \d\d:\d\d.*until \d\d:\d\d.*by rule 3 of 127\.0\.0\.1"))
    expect(agent).to_contain_text("1 connection")
    # Never a token itself, in whatever form.
    for _, token in ana.values():
        assert token not in lead.content()
    # Nothing happens without a confirmation.
    agent.get_by_role("button", name="End the token").click()
    lead.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(agent).to_be_visible()
    agent.get_by_role("button", name="End the token").click()
    dialog = lead.get_by_role("dialog")
    expect(dialog).to_contain_text("1 connection with it")
    dialog.get_by_role("button", name="End token").click()
    expect(agent).to_have_count(0)
    expect(card).to_contain_text("1 connection")
    assert _status(gateway, ana["agent"][1]) == 403
    assert _status(gateway, ana["console"][1]) == 200
    # Who leaves the company is out at once.
    card.get_by_role("button", name="Sign ana out everywhere").click()
    dialog.get_by_role("button", name="Sign out", exact=True).click()
    expect(card).to_have_count(0)
    assert _status(gateway, ana["console"][1]) == 403
    lead.get_by_role("tab", name="Sign-ins").click()
    expect(lead.locator("[data-event=signed_out]").first).to_contain_text("ana by lea (u-lea at http")


def test_who_has_not_come_again_since_a_restart_can_be_signed_out(
    gateway: Running, provider: Provider, new_page: NewPage
) -> None:
    """The provider's token is still good, and no space knows it until it comes."""
    page, token = new_page(), _token(provider, "ana", "team")
    _open(page, gateway, token)
    page.goto("about:blank")
    gateway.restart()
    until_seen(lambda: _status(gateway, _token(provider, "lea", "leads")) == 200)
    _open(page, gateway, _token(provider, "lea", "leads"))
    card = page.get_by_role("region", name="ana", exact=True)
    expect(card).to_contain_text("No session now")
    card.get_by_role("button", name="Sign ana out everywhere").click()
    page.get_by_role("dialog").get_by_role("button", name="Sign out", exact=True).click()
    expect(card).to_have_count(0)
    assert _status(gateway, token) == 403


def test_rules_are_in_words_with_whom_they_let_in(ana: dict[str, tuple[Driven, str]], lead: Page) -> None:
    lead.get_by_role("tab", name="Sessions").focus()
    lead.keyboard.press("ArrowRight")
    expect(lead).to_have_url(re.compile("/administration/rules$"))
    expect(lead.get_by_role("tab", name="Groups and rights")).to_be_focused()
    expect(lead.get_by_text("1 rule for other spaces is not shown")).to_be_visible()
    leads, agents, others = (lead.get_by_role("article", name=f"Rule {number}") for number in (2, 3, 4))
    expect(leads).to_contain_text("Accounts in the group leads or ops-* administers this space")
    expect(leads).to_contain_text("full rights")
    expect(leads).to_contain_text("Signed in now: lea")
    expect(agents).to_contain_text("Accounts in the group team and that use the program agent")
    expect(agents).to_contain_text("come in under their preferred_username")
    expect(agents).to_contain_text("Rights: proposes")
    agents.get_by_text("Rights: ").press("Enter")
    expect(agents.get_by_role("listitem")).to_have_text(["propose anything"])
    expect(others).to_contain_text("Signed in now: ana")


def test_sign_ins_are_told_newest_first_and_page_by_page(
    gateway: Running, provider: Provider, ana: dict[str, tuple[Driven, str]], lead: Page
) -> None:
    # Two pages, and fewer than an address may be wrong at once.
    for number in range(51):
        assert _status(gateway, _token(provider, f"eve-{number}", "none")) == 403
    evil = _token(provider, "mallory", "none", client_id="<b>evil\u202e</b>")
    assert _status(gateway, evil) == 403
    lead.get_by_role("tab", name="Sign-ins").click()
    rows = lead.get_by_role("list", name="Sign-ins, newest first").get_by_role("listitem")
    expect(rows).to_have_count(50)
    expect(rows.first).to_contain_text("mallory with <b>evil⟨U+202E⟩</b>: no rule of this gateway")
    expect(rows.nth(1)).to_contain_text("eve-50 with console")
    lead.get_by_role("button", name="Show older").click()
    accepted = lead.locator("[data-event=signed_in]")
    expect(accepted.filter(has_text="ana with agent")).to_contain_text(
        "by rule 3, account u-ana at 127.0.0.1"
    )
    expect(lead.get_by_text("That is all that the journal has.")).to_be_visible()
    lead.get_by_label("Refused only").check()
    lead.get_by_role("button", name="Show older").click()
    expect(rows).to_have_count(52)
    expect(accepted).to_have_count(0)


def test_others_are_told_and_an_administrators_token_stays_in_memory(
    gateway: Running, provider: Provider, new_page: NewPage
) -> None:
    page = new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    _open(page, gateway, _token(provider, "bob", "team"))
    expect(page.get_by_text("bob is not an administrator of lab")).to_be_visible()
    expect(page.get_by_role("tab")).to_have_count(0)
    # It would count as a wrong token.
    assert not [url for url in asked if "/admin/" in url]
    field = page.get_by_label("Administrator’s token")
    field.fill("wrong")
    field.press("Enter")
    expect(
        page.get_by_role("alert").filter(has_text="Refused: an administrator's token is needed")
    ).to_be_visible()
    expect(field).to_be_focused()
    page.keyboard.type(ROOT)
    page.keyboard.press("Enter")
    expect(page.get_by_role("tabpanel")).to_be_focused()
    expect(page.get_by_role("region", name="bob", exact=True)).to_contain_text("1 connection")
    assert ROOT not in page.evaluate("JSON.stringify([sessionStorage, localStorage, location.href])")
    page.reload()
    expect(page.get_by_text("bob is not an administrator of lab")).to_be_visible()


def test_the_page_fits_a_phone(ana: dict[str, tuple[Driven, str]], lead: Page) -> None:
    lead.set_viewport_size({"width": 390, "height": 844})
    for part in ("Sessions", "Groups and rights", "Sign-ins"):
        lead.get_by_role("tab", name=part).click()
        expect(lead.get_by_text("ana").first).to_be_visible()
        assert lead.evaluate("document.querySelector('.view').scrollWidth") <= 390
